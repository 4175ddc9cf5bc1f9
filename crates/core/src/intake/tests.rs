//! The room as its callers see it: scenarios as traces here, properties and an oracle beside.

mod oracle;
mod properties;
mod world;

use super::*;
use crate::report::Wait;
use crate::request::{Limits, Origin, Parameters};

/// A request with a prompt of `prompt` tokens.
#[derive(Clone, Debug)]
struct Ask {
    seq: u64,
    tenant: String,
    priority: Priority,
    prompt: usize,
    max_tokens: i64,
    received: Micros,
    timeout_ms: Option<i64>,
}

impl Ask {
    fn build(&self) -> Request {
        let limits = Limits::new(100_000, 1_000, 16);
        let origin = Origin { tenant: self.tenant.as_str().into(), received: self.received, ..Origin::default() };
        let asked = Parameters {
            max_tokens: Some(self.max_tokens),
            priority: self.priority,
            timeout_ms: self.timeout_ms,
            origin,
            ..Parameters::default()
        };
        let checked = asked.check(&limits, 0).unwrap();
        let mut built = checked.into_requests(vec![5; self.prompt], &[], &limits, || SeqId(self.seq)).unwrap();
        built.requests.remove(0)
    }

    /// `b12!h:600+40~70`: tenant b, sequence 12, class high, 600 prompt tokens, at most 40 more, within 70 ms.
    fn parse(text: &str, now: Micros) -> Ask {
        let (text, timeout) = text.split_once('~').map_or((text, None), |(text, ms)| (text, Some(ms)));
        let (text, sizes) = text.split_once(':').unwrap_or((text, "10+10"));
        let (text, class) = text.split_once('!').unwrap_or((text, "n"));
        let (prompt, max_tokens) = sizes.split_once('+').expect("prompt+max_tokens");
        let is_class = |priority: &Priority| priority.name().starts_with(class);
        Ask {
            seq: text[1..].parse().expect("a number"),
            tenant: text[..1].to_owned(),
            priority: Priority::ALL.into_iter().find(is_class).expect("c, h, n, l or b"),
            prompt: prompt.parse().expect("tokens"),
            max_tokens: max_tokens.parse().expect("tokens"),
            received: now,
            timeout_ms: timeout.map(|ms| ms.parse().expect("milliseconds")),
        }
    }
}

/// Runs a script on an engine of eight seats and compares what comes out.
///
/// `@7` time in ms · `+ a1 b2!h` pushed one by one · `++ a1 a2` as a group · `run 2` a release with two free seats beside
/// running work · `run 2 1` of which one is free for batches · `idle 2` the same with nothing running · `out 1 50` sequence 1 generated 50 tokens · `end 1`, `cancel 1`
/// · `expire` · `served 7` the engine has computed for 7 ms in all · `wake 2` the next wake-up with two free seats · `waits` why each is queued · `drain`
fn check(config: Config, script: &str, expected: &str) {
    assert_eq!(config.check(), Ok(()));
    let mut intake = Intake::new(config);
    let (mut now, mut served) = (Micros::ZERO, Micros::ZERO);
    let mut said = Vec::new();
    for line in script.split(';').map(str::trim) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let numbers: Vec<u64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
        let group = || rest.split(' ').map(|text| Ask::parse(text, now).build());
        let free = || numbers[0] as usize;
        let idle_seats = || numbers.get(1).map_or(free(), |seats| *seats as usize);
        let situation = |idle| Situation { served, idle, ..eight_seats(now, free(), idle_seats()) };
        match verb {
            "+" => group()
                .for_each(|one| said.extend(intake.push_group(vec![one], now, whole).err().map(|_| "full".into()))),
            "++" => said.extend(intake.push_group(group().collect(), now, whole).err().map(|_| "full".into())),
            "run" | "idle" => {
                said.push(intake.release(&situation(verb == "idle"), |_| 0).map_or("-".into(), |b| told(&b)))
            }
            "out" => intake.generated(SeqId(numbers[0]), numbers[1] as usize),
            "end" => intake.ended(SeqId(numbers[0])),
            "cancel" => said.push(format!("{}", intake.cancel(SeqId(numbers[0])))),
            "expire" => said.extend(intake.expire(now).into_iter().map(|(r, error)| format!("{}: {error}", r.id().0))),
            "wake" => said.push(intake.wake_at(&situation(false)).map_or("never".into(), |at| format!("{}us", at.0))),
            "waits" => said.extend(intake.queued().map(|q| format!("{} {}", q.request.id().0, Wait::name(q.wait)))),
            "served" => served = Micros::from_millis(numbers[0]),
            "drain" => said.push(format!("{:?}", intake.drain().iter().map(|r| r.id().0).collect::<Vec<_>>())),
            _ => now = Micros::from_millis(line.strip_prefix('@').expect("a verb").parse().expect("milliseconds")),
        }
    }
    assert_eq!(said.join("; "), expected, "{script}");
}

/// `timer 1 2`, with `^p` and `~f` on a request that p were preferred to by class and f by fairness.
/// All of a prompt must be computed.
fn whole(request: &Request) -> usize {
    request.prompt().len()
}

fn told(batch: &Batch) -> String {
    let mut text = batch.cause.name().to_owned();
    for released in &batch.released {
        text += &format!(" {}", released.request.id().0);
        for (sign, passed) in [('^', released.passed_by_priority), ('~', released.passed_by_fairness)] {
            if passed > 0 {
                text += &format!("{sign}{passed}");
            }
        }
    }
    text
}

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

fn with(kind: StrategyKind) -> Config {
    config(|c| c.flush.strategy = kind)
}

#[test]
fn an_idle_engine_gets_requests_at_once_unless_the_operator_wants_the_timers() {
    check(Config::default(), "idle 8; + a1 a2; idle 8", "-; idle 1 2");
    check(config(|c| c.flush.min_batch_size = 2), "+ a1; idle 8; + a2; idle 8", "-; idle 1 2");
    let classical = config(|c| {
        c.flush = FlushConfig { idle_release: false, max_wait: Micros::from_millis(30), ..c.flush };
    });
    check(classical, "+ a1; idle 8; @29; idle 8; @30; idle 8", "-; -; timer 1");
}

#[test]
fn a_group_gathers_beside_running_work_until_its_timer() {
    let thirty = config(|c| c.flush.max_wait = Micros::from_millis(30));
    check(thirty, "+ a1; @20; + a2; run 8; @29; run 8; @30; run 8", "-; -; timer 1 2");
    check(thirty, "+ a1; wake 8; @30; wake 8; run 0; wake 0", "30000us; 30000us; -; 600000000us");
    check(with(StrategyKind::Immediate), "+ a1 a2; run 1; run 1", "timer 1; leftover 2");
}

#[test]
fn a_full_batch_does_not_wait_and_no_batch_is_larger() {
    let three = config(|c| c.flush.max_batch_size = 3);
    check(three, "+ a1 a2; run 8; + a3 a4; run 8; run 8; run 8", "-; size 1 2 3; leftover 4; -");
}

#[test]
fn each_class_has_a_longest_wait() {
    for (class, ms) in [('h', 20), ('n', 50), ('l', 100)] {
        let script = format!("+ a1!{class}; @{}; run 8; wake 8; @{ms}; run 8", ms - 1);
        // For class low the strategy's own timer ends at the same time; the class is named first.
        check(Config::default(), &script, &format!("-; {}us; max_wait 1", ms * 1_000));
    }
    let off = config(|c| c.flush.priorities = false);
    check(off, "+ a1!c a2!l; @49; run 8; @50; run 8", "-; max_wait 1 2");
}

#[test]
fn a_critical_request_takes_everything_gathered_along() {
    check(Config::default(), "+ a1!l a2; run 8; + a3!c; run 8", "-; critical 3 2^1 1^2");
}

#[test]
fn what_finds_no_seat_stays_flushed_and_newcomers_gather_behind_it() {
    let script = "+ a1 a2 a3; @50; run 1; + a4; run 0; run 1; run 8; run 8; @100; run 8";
    check(Config::default(), script, "max_wait 1; -; leftover 2; leftover 3; -; max_wait 4");
}

#[test]
fn a_batch_of_old_and_new_is_named_after_the_new_flush() {
    check(Config::default(), "+ a1 a2; @50; run 1; @60; + a3!c; run 8", "max_wait 1; critical 3 2^1");
    check(
        Config::default(),
        "+ a1 a2; @50; run 1; @60; + a3; @110; run 1; run 1",
        "max_wait 1; leftover 2; leftover 3",
    );
}

#[test]
fn classes_go_in_order_and_age_lifts_them() {
    check(Config::default(), "+ a1!l a2!n a3!h a4!c; run 8", "critical 4 3^1 2^2 1^3");
    // After 3 s of service to others one low request has its turn, and no second one.
    let passed_over = "+ a1!l a4!l; @100; run 0; served 3000; run 0; @200; + a2!h; + a3!c; run 4";
    check(Config::default(), passed_over, "-; -; critical 1 3 2^1 4^2");
    let not_yet = "+ a1!l a4!l; @100; run 0; served 2999; run 0; @200; + a2!h; + a3!c; run 4";
    check(Config::default(), not_yet, "-; -; critical 3 2^1 1^2 4^2");
    // Time says nothing.
    check(Config::default(), "+ a1!l; @100; run 0; @300000; + a2!h; @300020; run 2", "-; max_wait 2 1^1");
    check(config(|c| c.flush.priorities = false), "+ a1!l a2!n a3!h a4!c; idle 8", "idle 1 2 3 4");
}

#[test]
fn who_was_overtaken_knows_by_which_classes() {
    let mut intake = Intake::new(Config::default());
    for text in ["a1!l", "a2", "a3!h", "a4!c", "a5!c"] {
        intake.push_group(vec![Ask::parse(text, Micros::ZERO).build()], Micros::ZERO, whole).unwrap();
    }
    let batch = intake.release(&beside_work(Micros(1)), |_| 0).unwrap();
    let told: Vec<_> = batch.released.iter().map(|one| (one.request.id().0, one.overtaken_by)).collect();
    let [none, by_critical] = [[0; CLASSES], [2, 0, 0, 0, 0]];
    let expected = [(4, none), (5, none), (3, by_critical), (2, [2, 1, 0, 0, 0]), (1, [2, 1, 1, 0, 0])];
    assert_eq!(told, expected);
}

#[test]
fn the_smallest_counter_goes_first_and_output_counts_double() {
    let immediate = with(StrategyKind::Immediate);
    check(immediate, "+ a1:30+9 a2:30+9 a3 b4:10+9 b5 b6 b7; run 8", "timer 1 4 5 6 2~3 7 3~4");
    // Both counters are 10 then; four generated tokens count 8, six count 12.
    check(immediate, "+ a1 b2 a3:20+9 b4:20+9; run 3; out 2 4; run 1", "timer 1 2 3; leftover 4");
    check(immediate, "+ a1 b2 b4:11+9 a3; run 2; out 1 4; out 2 6; run 1", "timer 1 2; leftover 3");
}

#[test]
fn a_flood_does_not_delay_another_tenant() {
    let script = "+ a1 a2 a3 a4 a5 a6 a7 a8 a9; idle 8; @30000; + b10; @30050; end 1; run 1; end 2; run 1";
    check(config(|c| c.fairness.max_seat_share = 1.0), script, "idle 1 2 3 4 5 6 7 8; max_wait 10; leftover 9~1");
}

#[test]
fn a_backlog_made_of_one_step_requests_is_no_claim_either() {
    // Sequence 1 is over before b comes: a holds no seat, and what it has queued is 5 s old.
    let script = "+ a1 a2 a3; @4990; run 1; @5000; end 1; + b4; @5050; run 1; run 1";
    check(Config::default(), script, "max_wait 1; max_wait 4; leftover 2~1");
    // Time alone is none, but service to others is.
    let script = "+ b4 b5; @50; run 2; + a1 a2; @100; run 0; @5000; + b6!h; @5020; run 2";
    check(Config::default(), script, "max_wait 4 5; -; max_wait 6 1^1");
    let script = "+ b4 b5; @50; run 2; + a1 a2; @100; run 0; served 2000; run 0; @5000; + b6!h; @5020; run 2";
    check(Config::default(), script, "max_wait 4 5; -; -; max_wait 1 6");
}

#[test]
fn a_tenant_at_its_cap_yields_to_its_class_only_while_others_wait() {
    let quarter = config(|c| c.fairness.max_seat_share = 0.25);
    check(quarter, "+ a1 a2 a3 a4; idle 4", "idle 1 2 3 4");
    // b has received more than a, which holds two of eight seats.
    let script = "+ b1:900+9; idle 1; + a2 a3; @50; run 2; end 1; + a4 b5; @100; run 1; run 1";
    check(quarter, script, "idle 1; max_wait 2 3; max_wait 5; leftover 4~1");
    let script = "+ a2 a3; idle 2; + a4!h b5; @50; run 1";
    check(quarter, script, "idle 2 3; max_wait 4");
}

#[test]
fn a_batch_is_filled_from_the_bucket_of_its_head() {
    let fifty = "a1:100+9 a2:600+9 a3:101+9 a4:5000+9 a5:102+9";
    check(Config::default(), &format!("+ {fifty}; idle 4"), "idle 1 3 5 2~2");
    check(config(|c| c.flush.bucketing = false), &format!("+ {fifty}; idle 4"), "idle 1 2 3 4");
    // Who is due does not yield: 1 and 2 have waited 50 ms, 3 has not.
    let script = "+ a1:100+9 a2:600+9; @1; + a3:101+9; @50; run 8";
    check(Config::default(), script, "max_wait 1 2 3");
    // Nor does a critical request.
    check(Config::default(), "+ a1!c:100+9 a2!c:600+9 a3!c:101+9; run 8", "critical 1 2 3");
}

#[test]
fn capacity_is_all_or_nothing() {
    let small = config(|c| c.capacity = Capacity { requests: 3, tokens: 100 });
    check(small, "++ a1 a2 a3 a4; drain; ++ a1 a2; ++ a3 a4; + a3; + a4; drain", "full; []; full; full; [1, 2, 3]");
    check(small, "+ a1:500+1; + a2; idle 1; + a2; drain", "full; idle 1; [2]");
}

#[test]
fn deadlines_and_the_queue_timeout_end_a_wait() {
    let ten = config(|c| c.queue_timeout = Micros::from_millis(10_000));
    let script = "+ a1~200 a2 a3~30; @50; run 0; wake 0; @199; expire; @200; expire; wake 0; @10000; expire; wake 0";
    let expected = "-; 50000us; 3: the deadline of 30 ms has passed; 1: the deadline of 200 ms has passed; 10000000us; \
                    2: the request waited 10000 ms and no batch could take it; never";
    check(ten, script, expected);
}

#[test]
fn the_operator_sees_why_each_is_queued() {
    let script = "+ a1 b2; idle 2; + a3!h a4 a5!l b6!h; @20; run 0; + a7; waits";
    check(
        Config::default(),
        script,
        "idle 1 2; -; 3 seats; 4 lower_priority; 5 lower_priority; 6 fair_share; 7 flush_timer",
    );
}

#[test]
fn cancelled_is_gone() {
    check(
        Config::default(),
        "+ a1 a2 a3; cancel 2; cancel 2; idle 1; cancel 1; cancel 3; wake 1",
        "true; false; idle 1; false; true; never",
    );
}

#[test]
fn a_batch_never_rises_and_takes_no_seat_that_batches_hold() {
    let immediate =
        |priorities| config(|c| c.flush = FlushConfig { strategy: StrategyKind::Immediate, priorities, ..c.flush });
    for config in [immediate(true), immediate(false)] {
        // An hour old, and still behind the low one that just came.
        check(
            config,
            "+ z1!b z2!b; run 2 0; wake 2 0; @590000; + a3!l; run 1 1; + a4!n; run 2 1; run 1 1",
            "-; 600000000us; timer 3; timer 4; leftover 1^2",
        );
    }
}

#[test]
fn new_parameters_apply_to_what_is_queued() {
    let mut intake = Intake::new(Config::default());
    for text in ["a1!l", "a2!h", "a3"] {
        intake.push_group(vec![Ask::parse(text, Micros::ZERO).build()], Micros::ZERO, whole).unwrap();
    }
    let situation = beside_work(Micros(1));
    assert_eq!((intake.release(&situation, |_| 0), intake.gathering(), intake.depths()), (None, 3, [0, 1, 1, 1, 0]));
    intake.configure(config(|c| {
        c.flush = FlushConfig { strategy: StrategyKind::Immediate, priorities: false, max_batch_size: 2, ..c.flush };
        c.capacity.requests = 1;
    }));
    assert!(intake.push_group(vec![Ask::parse("a4", Micros::ZERO).build()], Micros::ZERO, whole).is_err());
    assert_eq!(told(&intake.release(&situation, |_| 0).unwrap()), "size 1 2");
    for text in ["a5:10+10", "a6:10+900", "a7:10+10"] {
        intake.configure(config(|c| c.flush.bucketing = false));
        intake.push_group(vec![Ask::parse(text, Micros::ZERO).build()], Micros(1), whole).unwrap();
    }
    intake.configure(with(StrategyKind::Immediate));
    assert_eq!(told(&intake.release(&situation, |_| 0).unwrap()), "timer 3 5 7 6~1");
}

/// An engine whose next step is full of prompts of class low, and where a low and a high request wait.
fn behind_long_prompts(config: Config) -> (Intake, Situation) {
    let mut intake = Intake::new(config);
    for text in ["a1!l:50+9", "a2!l:50+9", "a3!h:50+9"] {
        intake.push_group(vec![Ask::parse(text, Micros::ZERO).build()], Micros::ZERO, whole).unwrap();
    }
    let prefill = [0, 0, 0, 500, 500];
    (intake, Situation { decoding: 4, step_tokens: 100, prefill, ..beside_work(Micros::from_millis(50)) })
}

#[test]
fn a_class_whose_turn_is_due_waits_for_no_prompts_that_are_seated_and_holds_up_nobody() {
    let (mut intake, situation) = behind_long_prompts(with(StrategyKind::Immediate));
    let due = Situation { served: Micros::from_millis(3_000), ..situation };
    assert_eq!(told(&intake.release(&due, |_| 0).unwrap()), "max_wait 3 1^1", "one low request, not the other");
    let (mut intake, situation) = behind_long_prompts(with(StrategyKind::Immediate));
    let not_yet = Situation { served: Micros::from_millis(2_999), ..situation };
    assert_eq!(told(&intake.release(&not_yet, |_| 0).unwrap()), "max_wait 3");
}

#[test]
fn the_pause_between_two_groups_keeps_no_urgent_request_behind_a_class_whose_turn_is_due() {
    let (mut intake, situation) = behind_long_prompts(with(StrategyKind::Fixed));
    let due = Situation { served: Micros::from_millis(3_000), ..situation };
    assert_eq!(told(&intake.release(&due, |_| 0).unwrap()), "max_wait 3");
}

/// Eight free seats, and something runs.
fn beside_work(now: Micros) -> Situation {
    eight_seats(now, 8, 8)
}

/// An engine of eight seats and long steps, of which so many are free, for batches and for all others.
fn eight_seats(now: Micros, free: usize, idle: usize) -> Situation {
    let seats_for = Priority::ALL.map(|class| if class == Priority::Batch { idle } else { free });
    Situation { now, seats_for, seats: 8, step_tokens: 100_000, ..Situation::default() }
}

#[test]
fn stats_remember_the_newest_batches() {
    let mut intake = Intake::new(with(StrategyKind::Immediate));
    for id in 1..=40u64 {
        let pair = [2 * id, 2 * id + 1].map(|seq| Ask::parse(&format!("a{seq}!h"), Micros(id)).build());
        intake.push_group(pair.to_vec(), Micros(id), whole).unwrap();
        let situation = beside_work(Micros(id));
        assert_eq!(intake.release(&situation, |_| 0).unwrap().id, id);
    }
    let stats = intake.stats();
    assert_eq!((stats.batches_formed, stats.requests_batched, stats.avg_batch_size()), (40, 80, 2.0));
    let expected = BatchRecord {
        id: 40,
        at: Micros(40),
        size: 2,
        tokens: 20,
        max_priority: Priority::High,
        strategy: StrategyKind::Immediate,
        cause: FlushCause::Timer,
    };
    assert_eq!((stats.last.len(), stats.last[0].id, stats.last[31]), (32, 9, expected));
    intake.reset_stats();
    assert_eq!((intake.stats(), intake.stats().avg_batch_size()), (&Stats::default(), 0.0));
}
