//! Turns from the queue to the recorded plans: no clock, no model.

use super::*;
use crate::control::{Change, Group, Value};
use crate::core::Config;
use crate::executor::ExecuteError;
use forebay_core::intake;
use forebay_core::request::{Limits, Parameters, Priority};
use forebay_core::scheduler::policy::PolicyConfig;
use forebay_core::scheduler::{self, Preemption, Speculative};
use forebay_core::step::{Outcome, Sampled, StepBatch, StepOutput};

/// Draws the same token always.
struct Same;

impl Executor for Same {
    fn admit(&mut self, _request: &Request) {}

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        let drawn =
            |chunk: &forebay_core::step::BatchChunk| (chunk.seq, Outcome::Token(Sampled { token: 7, logprobs: None }));
        let outcomes = batch.chunks.iter().filter(|chunk| chunk.sample).map(drawn).collect();
        Ok(StepOutput { outcomes, ..StepOutput::default() })
    }

    fn forget(&mut self, _seq: SeqId) {}
}

fn request(seq: u64, priority: Priority, prompt: usize, output: i64) -> Request {
    let asked = Parameters { max_tokens: Some(output), priority, ..Parameters::default() };
    let limits = Limits::new(1_024, 256, 8);
    let checked = asked.check(&limits, 0).expect("in range");
    checked.into_requests(vec![5; prompt], &[], &limits, || SeqId(seq)).expect("fits").requests.remove(0)
}

/// The smallest driver: virtual time that stands still unless a test moves it.
struct Loop {
    turn: Turn,
    core: Option<Core<Same>>,
    now: Micros,
    /// By step: which sequences computed how many tokens.
    plans: Vec<Vec<(u64, usize)>>,
    preempted: Vec<u64>,
    ended: Vec<u64>,
    /// How long a step takes.
    takes: fn(&StepPlan) -> Micros,
}

impl Loop {
    fn new(max_num_seqs: usize, max_num_batched_tokens: usize) -> Loop {
        let scheduler = scheduler::Config {
            max_num_seqs,
            max_num_batched_tokens,
            max_model_len: 1_024,
            preemption: Preemption::MostRecent,
            policy: PolicyConfig::default(),
            max_stall: None,
            slo: forebay_core::slo::Slo::default(),
            // All prompts are alike here.
            prefix_caching: false,
            speculative: Speculative::Off,
            whole_prompts: false,
        };
        let config = Config { scheduler, num_blocks: 64, block_size: 16, multi_step_count: 1 };
        let tuning = Tuning { intake: intake::Config::default(), scheduler };
        Loop {
            turn: Turn::new(tuning, Thresholds::default()),
            core: Some(Core::new(config, Same)),
            now: Micros::ZERO,
            plans: Vec::new(),
            preempted: Vec::new(),
            ended: Vec::new(),
            takes: |_| Micros::ZERO,
        }
    }

    /// The same with a prefix cache, 10 ms a step and a millisecond a prompt token.
    fn caching() -> Loop {
        let mut engine = Loop::new(4, 512);
        let config = scheduler::Config { prefix_caching: true, ..engine.turn.inbox().tuning().0.scheduler };
        let tuning = Tuning { intake: intake::Config::default(), scheduler: config };
        engine.turn = Turn::new(tuning, Thresholds::default());
        engine.core =
            Some(Core::new(Config { scheduler: config, num_blocks: 256, block_size: 16, multi_step_count: 1 }, Same));
        engine.takes = |plan| Micros(10_000 + 1_000 * plan.load.prefill_tokens as u64);
        engine
    }

    fn submit(&mut self, request: Request) {
        self.turn.on_submit(vec![request], self.now).expect("there is room");
    }

    /// A turn of the loop; false if there was nothing to do.
    fn step(&mut self) -> bool {
        let stepped = self.step_undelivered();
        self.deliver();
        stepped
    }

    /// The same, whose report is not taken.
    fn step_undelivered(&mut self) -> bool {
        let mut core = self.core.take().expect("it is home");
        let settlement = self.turn.on_home(&mut core, self.now);
        self.ended.extend(settlement.ended.iter().map(|(seq, _)| seq.0));
        let Some(plan) = self.turn.next_plan(&mut core, self.now) else {
            self.core = Some(core);
            return false;
        };
        self.plans.push(plan.chunks.iter().map(|chunk| (chunk.seq.0, chunk.tokens.len())).collect());
        self.preempted.extend(plan.preempted.iter().map(|lost| lost.seq.0));
        self.turn.on_step(&plan, self.now);
        let takes = (self.takes)(&plan);
        let (mut core, report) = core.execute(plan, self.now);
        self.now = self.now + takes;
        self.turn.on_report(&mut core, report, takes);
        self.core = Some(core);
        true
    }

    fn deliver(&mut self) {
        let events = self.turn.take_report(self.now).map_or(Vec::new(), |report| report.events);
        let ended = |(seq, event): &(SeqId, Event)| matches!(event, Event::Finished(_)).then_some(seq.0);
        self.ended.extend(events.iter().filter_map(ended));
    }
}

#[test]
fn a_request_is_planned_in_the_step_after_it_came_before_the_batch() {
    // Batches hold every seat, use every token of a step, and more of them wait.
    let mut engine = Loop::new(4, 8);
    (0..12).for_each(|seq| engine.submit(request(seq, Priority::Batch, 8, 40)));
    for _ in 0..8 {
        assert!(engine.step());
    }
    assert_eq!(engine.plans.last().map(Vec::len), Some(4), "{:?}", engine.plans);
    for (seq, priority) in [(100, Priority::Normal), (101, Priority::Low), (102, Priority::Critical)] {
        engine.submit(request(seq, priority, 8, 2));
        assert!(engine.step());
        assert_eq!(engine.plans.last(), Some(&vec![(seq, 8)]), "the whole prompt, and no room for batches");
        assert!(engine.step());
        let plan = engine.plans.last().expect("a plan");
        assert_eq!((plan[0], plan.len()), ((seq, 1), 4), "its decode, then as many batches as there are seats");
        assert_eq!(engine.ended.last(), Some(&seq));
    }
    while engine.step() {}
    engine.ended.sort();
    assert_eq!(engine.ended, (0..12).chain(100..103).collect::<Vec<_>>(), "and every batch comes to its end");
}

#[test]
fn as_many_requests_as_there_are_seats_put_batches_off_and_no_longer() {
    let mut engine = Loop::new(2, 64);
    (0..4).for_each(|seq| engine.submit(request(seq, Priority::Batch, 8, 20)));
    (0..3).for_each(|_| assert!(engine.step()));
    (100..102).for_each(|seq| engine.submit(request(seq, Priority::Normal, 8, 3)));
    for _ in 0..3 {
        assert!(engine.step());
        let seqs: Vec<u64> = engine.plans.last().expect("a plan").iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, [100, 101]);
    }
    assert!(engine.step());
    assert!(engine.plans.last().expect("a plan").iter().all(|(seq, _)| *seq < 100), "{:?}", engine.plans);
    while engine.step() {}
    assert_eq!(engine.ended.len(), 6);
}

#[test]
fn what_a_sequence_had_in_time_is_told_before_its_deadline_ends_it() {
    let mut engine = Loop::new(2, 64);
    let deadline = |seq: u64, after_ms: i64| {
        let asked = Parameters { max_tokens: Some(50), deadline_ms: Some(after_ms), ..Parameters::default() };
        let limits = Limits::new(1_024, 256, 8);
        let checked = asked.check(&limits, 0).expect("in range");
        checked.into_requests(vec![5; 8], &[], &limits, || SeqId(seq)).expect("fits").requests.remove(0)
    };
    engine.submit(deadline(1, 10));
    assert!(engine.step_undelivered());
    engine.now = Micros::from_millis(20);
    let settlement = engine.turn.on_home(engine.core.as_mut().expect("home"), engine.now);
    let report = settlement.report.expect("it was not taken");
    assert!(report.events.iter().any(|(seq, event)| *seq == SeqId(1) && matches!(event, Event::Token(_))));
    assert!(matches!(settlement.ended[..], [(SeqId(1), RequestError::Timeout { .. })]), "{:?}", settlement.ended);
    assert!(engine.turn.take_report(engine.now).is_none(), "it is given away once");
    assert_eq!(engine.turn.ttft().last(), Some(Micros::from_millis(20)), "when its client could read it");
}

#[test]
fn commands_between_any_two_calls_wait_for_the_core_or_act_on_the_queue_at_once() {
    let mut engine = Loop::new(1, 64);
    (0..3).for_each(|seq| engine.submit(request(seq, Priority::Normal, 8, 20)));
    assert!(engine.step());
    // One runs, two are queued; while the step is away one of each is aborted.
    let mut core = engine.core.take().expect("home");
    let plan = engine.turn.next_plan(&mut core, engine.now).expect("one runs");
    engine.turn.on_step(&plan, engine.now);
    engine.turn.on_abort(SeqId(0));
    engine.turn.on_abort(SeqId(1));
    assert_eq!(engine.turn.inbox().snapshot().queued, 1, "the queue obeys at once");
    let values = vec![("max_num_batched_tokens".into(), Value::Number(4.0))];
    let change = Change { group: Group::Limits, name: None, values };
    engine.turn.on_change(&change.into()).expect("within the start");
    let (mut core, report) = core.execute(plan, engine.now);
    engine.turn.on_report(&mut core, report, Micros::ZERO);
    assert!(!core.is_idle(), "the core obeys when it is home");
    engine.core = Some(core);
    engine.deliver();
    assert!(engine.step());
    assert_eq!(engine.plans.last(), Some(&vec![(2, 4)]), "the seat is free, and the new limit holds");

    engine.turn.on_pause();
    assert!(!engine.step());
    engine.turn.on_resume();
    engine.submit(request(3, Priority::Normal, 8, 2));
    assert_eq!(engine.turn.on_drain(), [SeqId(3)]);
    assert_eq!(
        engine.turn.on_submit(vec![request(4, Priority::Normal, 8, 2)], engine.now),
        Err(RequestError::ShuttingDown)
    );
    while engine.step() {}
    assert_eq!(engine.ended, [2]);
}

#[test]
fn another_choice_of_victims_counts_from_the_next_plan_on() {
    let first_victim = |preemption: Option<&str>| {
        let mut engine = Loop::new(4, 1_024);
        for (seq, prompt) in [(0, 300), (1, 400), (2, 300)] {
            engine.submit(request(seq, Priority::Normal, prompt, 50));
        }
        assert!(engine.step());
        if let Some(name) = preemption {
            let values = vec![("preemption".into(), Value::Name(name.into()))];
            let change = Change { group: Group::Policy, name: None, values };
            let changed = engine.turn.on_change(&change.into()).expect("a name that there is");
            assert_eq!((changed[0].what.as_str(), changed[0].to.as_str()), ("preemption", name));
        }
        while engine.preempted.is_empty() {
            assert!(engine.step(), "the pool never ran dry");
        }
        let first = engine.preempted[0];
        while engine.step() {}
        first
    };
    assert_eq!(first_victim(None), 2, "the newest");
    assert_eq!(first_victim(Some("longest")), 1);
}

/// A prompt of so many tokens that begins like no other of another `family`.
fn prompt_of(family: u32, seq: u64, tokens: usize) -> Request {
    let asked = Parameters { max_tokens: Some(3), ..Parameters::default() };
    let limits = Limits::new(1_024, 256, 8);
    let prompt = (0..tokens).map(|at| family + (at as u32 % 3)).collect();
    asked
        .check(&limits, 0)
        .and_then(|asked| asked.into_requests(prompt, &[], &limits, || SeqId(seq)))
        .expect("fits")
        .requests
        .remove(0)
}

#[test]
fn what_the_cache_has_is_not_predicted_to_be_computed() {
    let mut engine = Loop::caching();
    let predicted = |engine: &mut Loop, group: Vec<Request>| {
        let ids: Vec<SeqId> = group.iter().map(Request::id).collect();
        let predicted = engine.turn.on_submit(group, engine.now).expect("there is room").map(|until| until.as_millis());
        (predicted, ids)
    };
    for n in 0..12 {
        engine.submit(prompt_of(20 + 10 * n, n.into(), 30 + 10 * n as usize));
        while engine.step() {}
    }
    let near = |predicted: Option<u64>, expected: u64| {
        let predicted = predicted.expect("the cost is known");
        assert!(predicted.abs_diff(expected) <= expected / 20 + 1, "{predicted}, not {expected}");
    };
    let (new, ids) = predicted(&mut engine, vec![prompt_of(150, 100, 400)]);
    near(new, 10 + 400);
    ids.into_iter().for_each(|seq| engine.turn.on_abort(seq));
    engine.submit(prompt_of(150, 101, 400));
    while engine.step() {}
    let (again, ids) = predicted(&mut engine, vec![prompt_of(150, 102, 400)]);
    near(again, 10 + 1);
    ids.into_iter().for_each(|seq| engine.turn.on_abort(seq));
    let (half, ids) = predicted(&mut engine, vec![prompt_of(150, 103, 600)]);
    near(half, 10 + 200);
    ids.into_iter().for_each(|seq| engine.turn.on_abort(seq));
    // What came so quickly until now is forgotten.
    engine.now = engine.now + Micros::from_millis(600_000);
    // Of eight choices one computes the prompt; who comes behind them waits for that, and for a seat.
    let (choices, _) = predicted(&mut engine, (110..118).map(|seq| prompt_of(180, seq, 300)).collect());
    near(choices, 10 + 300 + 3);
    let (behind, _) = predicted(&mut engine, vec![prompt_of(210, 120, 100)]);
    while engine.step() {}
    let came = engine.turn.ttft().last().expect("the last of all").as_millis();
    assert!(behind.is_some_and(|behind| behind.abs_diff(came) <= came / 5) && came < 1_000, "{behind:?}, not {came}");
}
