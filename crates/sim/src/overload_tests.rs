//! What docs/batching.md claims of an engine that is asked for 5 and 20 times what it can do, in virtual time: the same seeds, the same
//! numbers on every machine.
//!
//! The load is open: requests come whether or not earlier ones were served, those that find no room are refused, and the others
//! stay. All classes ask for the same lengths, so that a request of one class is as much work as one of another. Critical and high
//! together ask for less than half of what the engine can do; normal alone asks for more than it can.

use std::ops::RangeInclusive;

use super::CostModel;
use super::arrival::Arrival;
use super::measure::{End, Measured, Record, percentile};
use super::scenario::Scenario;
use super::setup::{Setup, Workers};
use super::simulate::simulate;
use forebay_core::request::Priority;
use forebay_core::scheduler;
use forebay_core::units::Micros;

/// What the engine is asked for, in percent of all requests.
struct Mix {
    critical: f64,
    high: f64,
    normal: f64,
    low: f64,
}

impl Mix {
    fn share(&self, class: Priority) -> f64 {
        match class {
            Priority::Critical => self.critical,
            Priority::High => self.high,
            Priority::Normal => self.normal,
            Priority::Low | Priority::Batch => self.low,
        }
    }
}

/// At 5 times capacity critical asks for 15 % of it, high for 30 %.
const FIVE: (f64, Mix) = (5.0, Mix { critical: 3.0, high: 6.0, normal: 31.0, low: 60.0 });
/// At 20 times capacity critical asks for 20 % of it, high for 25 %.
const TWENTY: (f64, Mix) = (20.0, Mix { critical: 1.0, high: 1.25, normal: 27.75, low: 70.0 });

const CLASSES: [Priority; 4] = [Priority::Critical, Priority::High, Priority::Normal, Priority::Low];
/// While the engine fills, nobody is counted.
const WARM_S: f64 = 30.0;
const END_S: f64 = 180.0;

/// The default configuration before the simulated worker.
fn setup() -> Setup {
    let setup = Setup {
        intake: forebay_core::intake::Config::default(),
        scheduler: scheduler::Config::default(),
        block_size: 32,
        num_blocks: None,
        cost: CostModel::simulated_worker(),
        timeout: None,
        workers: Workers::default(),
    };
    setup.for_lengths(512)
}

/// Requests of the same lengths at a steady rate, the classes mixed.
fn scenario(rps: f64, mix: &Mix) -> Scenario {
    let class = |priority: Priority| {
        let (name, share) = (priority.name(), mix.share(priority));
        let lengths = "prompt_tokens: {min: 64, max: 192}, output_tokens: {min: 16, max: 64}";
        format!("  - {{name: {name}, share: {share}, priority: {name}, {lengths}}}\n")
    };
    let requests: String = CLASSES.map(class).concat();
    let rate = format!("[{{at_s: 0, rps: {rps}}}, {{at_s: {END_S}, rps: {rps}}}]");
    let text = format!("name: overload\narrivals: {{process: poisson, rate: {rate}}}\nrequests:\n{requests}");
    Scenario::parse(&text).expect("a scenario")
}

fn run(setup: &Setup, arrivals: &[Arrival]) -> Measured {
    simulate(setup, &CLASSES.map(|class| class.name().to_owned()), arrivals, 1, &mut |_| ())
}

fn within(at: Micros) -> bool {
    (WARM_S..END_S).contains(&at.as_secs_f64())
}

/// What requests that completed while the load lasted come to, per second.
fn completed(measured: &Measured, worth: impl Fn(&Record) -> f64) -> f64 {
    let completed = measured.records.iter().filter(|record| record.end == End::Completed && within(record.last));
    completed.map(worth).sum::<f64>() / (END_S - WARM_S)
}

fn of_one_class(arrivals: &[Arrival]) -> Vec<Arrival> {
    arrivals.iter().map(|arrival| Arrival { priority: Priority::Normal, ..arrival.clone() }).collect()
}

/// Requests of one class that the engine completes per second when they come faster than that.
fn capacity(setup: &Setup) -> f64 {
    completed(&run(setup, &of_one_class(&scenario(40.0, &FIVE.1).arrivals(1))), |_| 1.0)
}

/// p99 of the times to a first token.
fn p99_ms<'a>(records: impl Iterator<Item = &'a Record>) -> f64 {
    let mut ttfts: Vec<f64> = records.filter_map(Record::ttft_ms).collect();
    ttfts.sort_unstable_by(f64::total_cmp);
    percentile(&ttfts, 0.99)
}

fn of(measured: &Measured, class: Priority) -> impl Iterator<Item = &Record> {
    measured.records.iter().filter(move |record| record.priority == class)
}

/// The same requests of a class on a server that has nothing else to do.
fn alone_p99_ms(setup: &Setup, arrivals: &[Arrival], class: Priority) -> f64 {
    let own: Vec<Arrival> = arrivals.iter().filter(|arrival| arrival.priority == class).cloned().collect();
    p99_ms(run(setup, &own).records.iter())
}

/// Urgent requests are served whole, and their first tokens come no later than so many steps after they would come on a server that
/// has nothing else to do, each step as long as it may be.
fn check_urgent(setup: &Setup, arrivals: &[Arrival], measured: &Measured) {
    let stall = setup.scheduler.max_stall.expect("a limit by default").0 as f64 / 1e3;
    for (class, steps) in [(Priority::Critical, 2.0), (Priority::High, 8.0)] {
        if of(measured, class).next().is_none() {
            continue;
        }
        assert!(of(measured, class).all(|record| record.end == End::Completed), "{} is served whole", class.name());
        let (found, alone) = (p99_ms(of(measured, class)), alone_p99_ms(setup, arrivals, class));
        // Of some fifty requests the 99th percentile is one or two of them, which may come at a bad moment of a step.
        assert!(found <= alone + (steps + 0.25) * stall, "{}: {found} ms, alone {alone} ms", class.name());
    }
}

/// What holds at `times` capacity; returns what was measured, of several runs.
fn check((times, mix): (f64, Mix), seeds: RangeInclusive<u64>) -> Vec<Measured> {
    let setup = setup();
    let capacity = capacity(&setup);
    let run_of = |seed| {
        let arrivals = scenario(times * capacity, &mix).arrivals(seed);
        let measured = run(&setup, &arrivals);
        check_urgent(&setup, &arrivals, &measured);
        let one_class = run(&setup, &of_one_class(&arrivals));
        let goodput = completed(&measured, |_| 1.0);
        assert!(goodput >= 0.95 * capacity, "{goodput} requests/s, capacity {capacity}");
        let tokens = |measured| completed(measured, |record| f64::from(record.output_tokens));
        let (mixed, single) = (tokens(&measured), tokens(&one_class));
        assert!(mixed >= 0.97 * single, "{mixed} tokens/s in four classes, {single} in one");
        measured
    };
    seeds.map(run_of).collect()
}

#[test]
fn at_five_times_capacity_urgent_requests_hardly_notice_and_no_work_is_lost() {
    for measured in check(FIVE, 1..=3) {
        assert!(measured.records.iter().all(|record| record.end != End::Refused), "the queue has room for all");
    }
}

#[test]
fn at_twenty_times_capacity_the_queue_is_full_and_refuses_nobody_who_is_urgent() {
    for measured in check(TWENTY, 1..=1) {
        let refused = |class| of(&measured, class).filter(|record| record.end == End::Refused).count();
        assert!(refused(Priority::Normal) > 1_000 && refused(Priority::Low) > 1_000);
    }
}

/// Prompts of others that take many steps, and the turns that ageing gives to their classes, keep no urgent request waiting.
#[test]
fn long_prompts_of_others_delay_no_urgent_request() {
    let setup = setup().for_lengths(1_024);
    let mut arrivals = scenario(40.0, &FIVE.1).arrivals(1);
    let others = arrivals.iter_mut().filter(|arrival| arrival.priority > Priority::High);
    others.for_each(|arrival| arrival.prompt_tokens *= 4);
    check_urgent(&setup, &arrivals, &run(&setup, &arrivals));
}

fn one(at_ms: u64, priority: Priority) -> Arrival {
    let (at, class) = (Micros::from_millis(at_ms), priority.index());
    Arrival { at, class, priority, prompt_tokens: 128, output_tokens: 40, shared: None }
}

/// Low requests once counted as critical ones after 3 s in the queue, which made any longer queue first come, first served.
#[test]
fn behind_a_backlog_of_fifteen_seconds_classes_count_as_before_a_queue() {
    let setup = setup();
    let lows = (0..160).map(|_| one(0, Priority::Low));
    let urgent = [5_000, 8_000, 11_000, 14_000].map(|at| one(at, Priority::Critical));
    let normal = [6_000, 9_000, 12_000].map(|at| one(at, Priority::Normal));
    let mut arrivals: Vec<Arrival> = lows.chain(urgent).chain(normal).collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    let measured = run(&setup, &arrivals);
    let end = of(&measured, Priority::Low).map(|record| record.last).max().expect("lows");
    assert!(end > Micros::from_millis(15_000), "a backlog of 15 s: {end:?}");
    check_urgent(&setup, &arrivals, &measured);
    for record in of(&measured, Priority::Normal) {
        let first = record.first_token.expect("served");
        let lows = || of(&measured, Priority::Low).filter_map(|low| low.first_token);
        let (waiting, before) =
            (lows().filter(|low| *low > record.sent), lows().filter(|low| (record.sent..first).contains(low)));
        let (waiting, before) = (waiting.count(), before.count());
        // Those whose prompts were under way, and the one whose turn may have been due.
        assert!(waiting > 20 && before <= 4, "{before} of {waiting} lows that came earlier went before {record:?}");
    }
}

/// The bound against starvation from arrival to first token: whatever comes, the `k`-th request of a class that waits has its turn
/// after `served_within` of computing, and its prompt is then computed at 16 tokens in 8 steps at least.
#[test]
fn the_oldest_of_a_backlog_have_their_turns_under_a_flood_of_any_class() {
    let setup = setup();
    let stall = setup.scheduler.max_stall.expect("a limit by default");
    for flood in [Priority::Critical, Priority::High, Priority::Normal] {
        let first = (0..100).map(|_| one(0, flood));
        let lows = (0..20).map(|_| one(10, Priority::Low));
        // One and a half times what the engine can do, for a minute.
        let then = (0..960).map(|n| one(20 + n * 1_000 / 16, flood));
        let arrivals: Vec<Arrival> = first.chain(lows).chain(then).collect();
        let measured = run(&setup, &arrivals);
        let steps = 8 * 128_u64.div_ceil(16);
        for (ahead, low) in of(&measured, Priority::Low).enumerate() {
            let bound = setup.intake.served_within(Priority::Low, ahead) + Micros(steps * stall.0);
            let waited = low.first_token.expect("served").since(low.sent);
            assert!(waited <= bound, "{ahead} ahead under {flood:?}: {waited:?}, at most {bound:?}");
        }
        let overtook =
            of(&measured, flood).filter(|record| record.first_token.expect("served") < Micros::from_millis(60_000));
        assert!(overtook.count() > 400, "they waited, and others were served meanwhile");
    }
}
