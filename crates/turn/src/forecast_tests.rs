//! What is ahead of a request, one thing after the other, against arithmetic.

use super::*;
use forebay_core::intake::{FlushConfig, StrategyKind, strategy};

/// 10 ms a step, 1 ms a prompt token, learnt from steps of up to 100 tokens.
fn cost() -> StepCost {
    let mut cost = StepCost::default();
    for n in 0..400 {
        let prefill_tokens = if n % 3 == 0 { 1 + n % 100 } else { 0 };
        let prompt = if n % 3 == 0 { StepLoad::prefill(n % 7, prefill_tokens) } else { StepLoad::default() };
        let decode = if n % 2 == 0 { StepLoad::decode(n % 50) } else { StepLoad::default() };
        cost.observe(&(StepLoad::STEP + prompt + decode), Micros(10_000 + 1_000 * prefill_tokens as u64));
    }
    cost
}

fn sequence(class: Priority, to_compute: usize, to_draw: usize) -> Sequence {
    Sequence { class: class.index(), to_compute, known: to_compute.max(1), to_draw }
}

fn queued(sequence: Sequence) -> Queued {
    Queued { sequence, gathers: false, own: false }
}

/// Milliseconds until a request's first token that finds what `change` puts before it.
fn predicted(own: Sequence, change: impl FnOnce(&mut Outlook)) -> u64 {
    let cost = cost();
    let scheduler = scheduler::Config { max_num_seqs: 4, max_num_batched_tokens: 100, ..scheduler::Config::default() };
    let flush = FlushConfig { strategy: StrategyKind::Immediate, ..FlushConfig::default() };
    let mut outlook = Outlook {
        scheduler: &scheduler,
        cost: &cost,
        step_rest: Micros::ZERO,
        between: Micros::ZERO,
        seats: 4,
        seated: Vec::new(),
        queued: Default::default(),
        strategy: strategy(&flush),
        p99_ttft: None,
        flush_in: Micros::ZERO,
        idle_release: true,
        max_batch_size: 32,
        burst: false,
        quiet: Micros::from_millis(1_000_000),
        aging: Micros(u64::MAX),
        due_in: [Micros(u64::MAX); CLASSES],
        arrivals: [Arrivals::NONE; CLASSES],
    };
    change(&mut outlook);
    outlook.queued[own.class].push_back(Queued { sequence: own, gathers: true, own: true });
    first_token(outlook).expect("the cost is known").as_millis()
}

#[track_caller]
fn near(predicted: u64, expected: u64) {
    assert!(predicted.abs_diff(expected) <= expected / 20 + 1, "{predicted}, not {expected}");
}

const NORMAL: Priority = Priority::Normal;

#[test]
fn what_is_ahead_takes_its_time() {
    let own = sequence(NORMAL, 50, 10);
    near(predicted(own, |_| ()), 60);
    near(predicted(own, |all| all.step_rest = Micros(7_000)), 67);
    near(predicted(own, |all| all.between = Micros(5_000)), 65);
    // They share the step.
    near(predicted(own, |all| all.seated = vec![sequence(NORMAL, 30, 1)]), 90);
    // One step is full before it.
    near(predicted(own, |all| all.seated = vec![sequence(NORMAL, 100, 1)]), 110 + 60);
    near(predicted(own, |all| all.queued[2].push_back(queued(sequence(NORMAL, 100, 1)))), 110 + 60);
    // A less urgent prompt that has begun fills what it leaves of the step.
    near(predicted(own, |all| all.seated = vec![sequence(Priority::Low, 200, 1)]), 110);
    // Of a cached prompt one token is computed.
    near(predicted(Sequence { to_compute: 1, ..own }, |_| ()), 11);
    // A long one in chunks of at most what a step takes.
    near(predicted(sequence(NORMAL, 1_000, 1), |_| ()), 10 * 110);
}

#[test]
fn a_seat_is_waited_for_and_taken_by_the_urgent() {
    let full = |all: &mut Outlook| all.seated = vec![sequence(NORMAL, 0, 30); 4];
    near(predicted(sequence(NORMAL, 50, 1), full), 30 * 10 + 60);
    near(predicted(sequence(Priority::High, 50, 1), full), 60);
    near(predicted(sequence(Priority::Low, 50, 1), full), 30 * 10 + 60);
    // Behind one whose prompt takes the first seat that is free.
    let behind = |all: &mut Outlook| {
        full(all);
        all.seated[0].to_draw = 10;
        all.queued[2].push_back(queued(sequence(NORMAL, 40, 10)));
    };
    // 100 ms for the seat, a step of 50 ms with its first token, 9 more, and its seat is free.
    near(predicted(sequence(NORMAL, 50, 1), behind), 100 + 50 + 90 + 60);
}

#[test]
fn steps_are_cut_while_others_decode() {
    // 100 ms a step at most, with a margin of 2 %: 16 ms less than prompts would take alone.
    let beside = |all: &mut Outlook| all.seated = vec![sequence(NORMAL, 0, 1_000)];
    let alone = predicted(sequence(NORMAL, 400, 1), |_| ());
    let cut = predicted(sequence(NORMAL, 400, 1), beside);
    assert!(alone == 440 && (445..460).contains(&cut), "{alone} {cut}");
}

#[test]
fn a_strategys_pause_and_gathering_count() {
    let fixed = FlushConfig { strategy: StrategyKind::Fixed, ..FlushConfig::default() };
    let pausing = |quiet_ms: u64| {
        move |all: &mut Outlook| {
            all.seated = vec![sequence(NORMAL, 0, 1_000)];
            all.strategy = strategy(&fixed);
            all.quiet = Micros::from_millis(quiet_ms);
        }
    };
    near(predicted(sequence(NORMAL, 50, 1), pausing(200)), 60);
    near(predicted(sequence(NORMAL, 50, 1), pausing(35)), 70 + 60);
    near(predicted(sequence(Priority::High, 50, 1), pausing(40)), 60);
    let gathering = |all: &mut Outlook| {
        all.seated = vec![sequence(NORMAL, 0, 1_000)];
        all.flush_in = Micros::from_millis(45);
    };
    near(predicted(sequence(NORMAL, 50, 1), gathering), 50 + 60);
    near(predicted(sequence(NORMAL, 50, 1), |all| all.flush_in = Micros::from_millis(50)), 60);
}

#[test]
fn those_who_will_come_first_count_and_ageing_ends_it() {
    // Every 50 ms an urgent prompt of 30 tokens, which takes 40 of them: 4 of 5 steps.
    let busy = |all: &mut Outlook| {
        all.arrivals[0] = Arrivals { every_us: 50_000.0, like: sequence(Priority::Critical, 30, 1) };
        all.seated = vec![sequence(Priority::Critical, 100, 1)];
    };
    let (normal, critical) =
        (predicted(sequence(NORMAL, 90, 1), busy), predicted(sequence(Priority::Critical, 90, 1), busy));
    assert!(critical <= 220 && normal > critical + 30, "{normal} {critical}");
    // More than the engine can do: what is less urgent has its turn by ageing.
    let flooded = |all: &mut Outlook| {
        all.arrivals[0] = Arrivals { every_us: 20_000.0, like: sequence(Priority::Critical, 100, 1) };
        all.seated = vec![sequence(Priority::Critical, 100, 1)];
        all.aging = Micros::from_millis(1_000);
        all.due_in[2] = Micros::from_millis(2_000);
    };
    let aged = predicted(sequence(NORMAL, 50, 1), flooded);
    // A seat after 2 s, and then 16 tokens whenever it was passed over for 8 steps.
    assert!((5_000..6_500).contains(&aged), "{aged}");
}

/// What is not played to its end goes on at its pace.
#[test]
fn a_queue_of_thousands_is_counted_to_its_end() {
    let own = sequence(NORMAL, 100, 1);
    let many = |all: &mut Outlook| all.queued[2].extend(vec![queued(own); 5_000]);
    near(predicted(own, many), 5_001 * 110);
    assert_eq!(predicted(own, |all| all.queued[2].extend(vec![queued(own); 500_000])) / 1_000, 600 + 3);
}

#[test]
fn nothing_is_known_before_a_step_was_measured() {
    let (scheduler, cost) = (scheduler::Config::default(), StepCost::default());
    let nothing = Outlook {
        scheduler: &scheduler,
        cost: &cost,
        step_rest: Micros::ZERO,
        between: Micros::ZERO,
        seats: 1,
        seated: Vec::new(),
        queued: Default::default(),
        strategy: strategy(&FlushConfig::default()),
        p99_ttft: None,
        flush_in: Micros::ZERO,
        idle_release: true,
        max_batch_size: 1,
        burst: false,
        quiet: Micros::ZERO,
        aging: Micros::ZERO,
        due_in: [Micros::ZERO; CLASSES],
        arrivals: [Arrivals::NONE; CLASSES],
    };
    assert_eq!(first_token(nothing), None);
}
