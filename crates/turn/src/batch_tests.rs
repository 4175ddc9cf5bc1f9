//! A request that comes while batches run, from the queue to the recorded plans: no clock, no model.

use super::control::Tuning;
use super::core::{Config, Core};
use super::executor::{ExecuteError, Executor};
use super::inbox::Inbox;
use forebay_core::intake;
use forebay_core::request::{Event, Limits, Parameters, Priority, Request};
use forebay_core::scheduler::policy::PolicyConfig;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::scheduler::{self, Preemption, Speculative};
use forebay_core::step::{Outcome, Sampled, StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId};

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

struct Loop {
    inbox: Inbox,
    core: Option<Core<Same>>,
    /// By step: which sequences computed how many tokens.
    plans: Vec<Vec<(u64, usize)>>,
    ended: Vec<u64>,
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
            // All prompts are alike here.
            prefix_caching: false,
            speculative: Speculative::Off,
            whole_prompts: false,
        };
        let config = Config { scheduler, num_blocks: 64, block_size: 16, multi_step_count: 1 };
        let tuning = Tuning { intake: intake::Config::default(), scheduler };
        Loop {
            inbox: Inbox::new(tuning, Thresholds::default()),
            core: Some(Core::new(config, Same)),
            plans: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn submit(&mut self, request: Request) {
        self.inbox.submit(vec![request], Micros::ZERO).expect("there is room");
    }

    /// A turn of the loop; false if there was nothing to do.
    fn step(&mut self) -> bool {
        let mut core = self.core.take().expect("it is home");
        self.inbox.note(core.view());
        if let Some(batch) = self.inbox.release(Micros::ZERO, None) {
            core.admit(batch.released.into_iter().map(|released| released.request).collect());
        }
        let Some(plan) = core.plan(Micros::ZERO) else {
            self.core = Some(core);
            return false;
        };
        self.plans.push(plan.chunks.iter().map(|chunk| (chunk.seq.0, chunk.tokens.len())).collect());
        let (core, report) = core.execute(plan, Micros::ZERO);
        for (seq, event) in report.events {
            match event {
                Event::Token(_) => self.inbox.generated(seq),
                Event::Admitted { .. } | Event::Embedded(_) => {}
                Event::Finished(_) | Event::Failed(_) => {
                    self.inbox.ended(seq);
                    self.ended.push(seq.0);
                }
            }
        }
        self.core = Some(core);
        true
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
