//! The real scheduler and pool under a small paged model that reads *through* the block tables, so that a wrong table, a
//! block reused too early or a missing recomputation shows up as a wrong token.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::kv::BlockPool;
use crate::request::{Event, FinishReason, Limits, Parameters, Priority, Request, RequestError};
use crate::slo::Slo;
use crate::step::{Outcome, Sampled, SequenceFault, StepBatch, StepOutput};
use crate::units::{Micros, SeqId, TokenId};

/// Remembers which token was written to which slot.
pub(super) struct PagedModel {
    pub(super) slots: Vec<Option<TokenId>>,
    pub(super) block_size: usize,
}

impl PagedModel {
    pub(super) fn run(&mut self, batch: &StepBatch) -> StepOutput {
        let mut output = StepOutput::default();
        for (from, to) in &batch.copies {
            let (from, to) = (from.0 as usize * self.block_size, to.0 as usize * self.block_size);
            self.slots.copy_within(from..from + self.block_size, to);
        }
        for (slot, token) in batch.slots.iter().zip(&batch.tokens) {
            self.slots[*slot as usize] = Some(*token);
        }
        for chunk in batch.chunks.iter().filter(|chunk| chunk.sample) {
            let table = &batch.tables[chunk.table.clone()];
            let read = |p: usize| {
                let slot = table[p / self.block_size].0 as usize * self.block_size + p % self.block_size;
                self.slots[slot].expect("a slot that was written")
            };
            for row in chunk.rows.end - 1 - chunk.proposed..chunk.rows.end {
                let length = batch.positions[row] as usize + 1;
                let token = next_token((0..length).map(read));
                output.outcomes.push((chunk.seq, Outcome::Token(Sampled { token, logprobs: None })));
                if row + 1 < chunk.rows.end && batch.tokens[row + 1] != token {
                    break;
                }
            }
        }
        output
    }
}

pub(super) fn guesses(guessing: bool) -> Speculative {
    if guessing { Speculative::PromptLookup } else { Speculative::Off }
}

/// Depends on every token and its place, but for sequences that begin with 2: those go round in circles, so that guesses
/// are right. Never 0 or 1, so that 1 can be a stop token that does not come.
fn next_token(tokens: impl Iterator<Item = TokenId>) -> TokenId {
    let mut tokens = tokens.peekable();
    if tokens.peek() == Some(&2) {
        let length = tokens.count() as TokenId;
        // Every seventh turn goes wrong.
        return 2 + if length.is_multiple_of(35) { 9 } else { length % 5 };
    }
    let hash = tokens.fold(7u64, |h, token| (h ^ u64::from(token)).wrapping_mul(0x0100_0000_01B3).rotate_left(23));
    2 + (hash % 250) as TokenId
}

fn prompt_of(seq: u64, length: usize) -> Vec<TokenId> {
    // Some begin alike, for none, five or ten tokens.
    let own = |i: u64| if i < seq % 3 * 5 { 0 } else { seq };
    (0..length as u64).map(|i| 2 + ((own(i) * 31 + i * 7) % 250) as TokenId).collect()
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) prompt: usize,
    pub(super) output: usize,
    pub(super) arrival: usize,
    pub(super) abort: Option<usize>,
    pub(super) priority: Priority,
}

pub(super) fn job(prompt: usize, output: usize, arrival: usize) -> Job {
    Job { prompt, output, arrival, abort: None, priority: Priority::Normal }
}

pub(super) fn request(seq: u64, job: &Job) -> Request {
    request_by(seq, job, None)
}

pub(super) fn request_by(seq: u64, job: &Job, timeout_ms: Option<i64>) -> Request {
    let prompt = prompt_of(seq, job.prompt);
    let asked =
        Parameters { max_tokens: Some(job.output as i64), priority: job.priority, timeout_ms, ..Parameters::default() };
    let limits = Limits::new(65_536, 256, 8);
    let checked = asked.check(&limits, 0).expect("in range");
    checked.into_requests(prompt, &[1], &limits, || SeqId(seq)).expect("fits").requests.remove(0)
}

pub(super) fn solo(seq: u64, job: &Job) -> Vec<TokenId> {
    let mut tokens = prompt_of(seq, job.prompt);
    for _ in 0..job.output {
        tokens.push(next_token(tokens.iter().copied()));
    }
    tokens.split_off(job.prompt)
}

/// What a run did.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) outputs: HashMap<u64, Vec<TokenId>>,
    ended: HashMap<u64, usize>,
    /// First admissions, in order.
    admitted: Vec<u64>,
    steps: usize,
    peak_blocks: usize,
    mixed_steps: usize,
    pub(super) preemptions: u64,
    /// Prompt tokens found in the cache by sequences that ran for the first time.
    cached: usize,
    /// Tokens computed, but for those that only extended a completion.
    prefilled: usize,
    pub(super) trace: Vec<String>,
}

/// Drives the jobs to their ends, recounting the pool after each step.
pub(super) fn run(jobs: &[Job], config: Config, num_blocks: usize, block_size: usize) -> Run {
    let mut pool = BlockPool::new(num_blocks, block_size);
    let mut model = PagedModel { slots: vec![None; num_blocks * block_size], block_size };
    let mut scheduler = Scheduler::new(config);
    let mut run = Run::default();
    let total: usize = jobs.iter().map(|job| job.prompt + job.output).sum();
    // Each step computes at least one token of the oldest; recomputation costs each at most its length per preemption,
    // and it is preempted at most once per step of an older one.
    let bound = jobs.iter().map(|job| job.arrival).max().unwrap_or(0) + total * (jobs.len() + 2) + 10;
    for turn in 0.. {
        assert!(turn < bound, "no end after {turn} steps: {run:?}");
        for (seq, job) in jobs.iter().enumerate().filter(|(_, job)| job.arrival == turn) {
            scheduler.submit(request(seq as u64, job));
        }
        for (seq, _) in jobs.iter().enumerate().filter(|(_, job)| job.abort == Some(turn) && job.arrival <= turn) {
            if scheduler.abort(SeqId(seq as u64), &mut pool) {
                *run.ended.entry(seq as u64).or_default() += 1;
            }
        }
        let Some(plan) = scheduler.plan(&mut pool, Micros(turn as u64)) else {
            assert_eq!((scheduler.waiting(), scheduler.running()), (0, 0), "live sequences but no plan");
            if jobs.iter().all(|job| job.arrival <= turn) {
                break;
            }
            continue;
        };
        check_plan(&plan, &config, &mut run);
        run.prefilled += plan.prefill_tokens();
        let batch = scheduler.batch(&plan, &pool);
        run.peak_blocks = run.peak_blocks.max(pool.used());
        let output = model.run(&batch);
        for (seq, event) in scheduler.commit(plan, &output, &mut pool) {
            match event {
                Event::Token(sampled) => run.outputs.entry(seq.0).or_default().push(sampled.token),
                Event::Admitted { cached_tokens } => run.cached += cached_tokens,
                Event::Embedded(_) => panic!("nobody asked for it"),
                Event::Finished(_) | Event::Failed(_) => *run.ended.entry(seq.0).or_default() += 1,
            }
        }
        assert!(scheduler.running() <= config.max_num_seqs);
        pool.check(scheduler.tables());
    }
    assert_eq!(pool.used(), 0);
    run.preemptions = scheduler.preemptions_total();
    run
}

fn check_plan(plan: &StepPlan, config: &Config, run: &mut Run) {
    let tokens: usize = plan.chunks.iter().map(|chunk| chunk.tokens.len()).sum();
    assert!(tokens <= config.step_tokens(), "budget exceeded: {plan:?}");
    let whole = plan.chunks.iter().all(|chunk| chunk.tokens.start == 0 && chunk.sample);
    assert!(whole || !config.whole_prompts, "a prompt was cut: {plan:?}");
    assert!(plan.chunks.iter().all(|chunk| !chunk.tokens.is_empty()));
    let mut seqs: Vec<SeqId> = plan.chunks.iter().map(|chunk| chunk.seq).collect();
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!(seqs.len(), plan.chunks.len(), "one chunk per sequence: {plan:?}");
    run.steps += 1;
    run.mixed_steps += usize::from(plan.prefill_tokens() > 0 && plan.decode_tokens() > 0);
    run.admitted
        .extend(plan.admitted.iter().map(|seq| seq.0).filter(|seq| !run.admitted.contains(seq)).collect::<Vec<_>>());
    run.trace.push(describe(plan));
}

/// `a[0..8] b+1 preempt c`: a computes positions 0 to 7, b its newest token, c lost its blocks.
pub(super) fn describe(plan: &StepPlan) -> String {
    let name = |seq: SeqId| (b'a' + seq.0 as u8) as char;
    let chunk = |chunk: &Chunk| match chunk.decode {
        true => format!("{}+1", name(chunk.seq)),
        false => format!("{}[{}..{}]", name(chunk.seq), chunk.tokens.start, chunk.tokens.end),
    };
    let preempted = plan.preempted.iter().map(|lost| format!("preempt {}", name(lost.seq)));
    plan.chunks.iter().map(chunk).chain(preempted).collect::<Vec<_>>().join(" ")
}

pub(super) const ROOMY: Config = Config {
    max_num_seqs: 8,
    max_num_batched_tokens: 16,
    max_model_len: 4_096,
    preemption: Preemption::MostRecent,
    policy: FAIR,
    max_stall: None,
    slo: Slo::DEFAULT,
    prefix_caching: false,
    speculative: Speculative::Off,
    whole_prompts: false,
};
pub(super) const FAIR: PolicyConfig =
    PolicyConfig { kind: PolicyKind::Fair, decode_burst_budget: 8, min_batch: 1, max_batch: 32 };

/// Jobs like "8+4 6+2@1": prompt + output @ arrival.
pub(super) fn jobs_of(text: &str) -> Vec<Job> {
    let parse = |text: &str| {
        let (text, arrival) = text.split_once('@').unwrap_or((text, "0"));
        let (prompt, output) = text.split_once('+').expect("prompt+output");
        let number = |text: &str| text.parse().expect("a number");
        job(number(prompt), number(output), number(arrival))
    };
    text.split(' ').map(parse).collect()
}

/// Blocks hold 4 tokens.
fn check(jobs: &str, config: Config, num_blocks: usize, expected: &str) {
    assert_eq!(run(&jobs_of(jobs), config, num_blocks, 4).trace.join("; "), expected);
}

#[test]
fn prompts_that_must_not_be_cut_wait_for_a_step_with_room_for_all_of_them() {
    let whole = Config { whole_prompts: true, max_model_len: 40, ..ROOMY };
    check("8+1 6+1 30+1 4+1", whole, 16, "a[0..8] b[0..6]; c[0..30] d[0..4]");
    // A stall that is feared never cuts one, and a cache that has the beginning of one is not asked.
    let hurried = Config { max_stall: Some(Micros(1)), prefix_caching: true, ..whole };
    check("30+1 30+1", hurried, 16, "a[0..30]; b[0..30]");
    // Blocks for one at a time.
    check("30+1 30+1 3+1", whole, 8, "a[0..30]; b[0..30]; c[0..3]");
    for seed in 0..60u64 {
        let job_of = |i: u64| job(1 + (seed * 7 + i * i * 11) as usize % 39, 1, (seed * i) as usize % 5);
        let jobs: Vec<Job> = (0..12).map(job_of).collect();
        let config = Config { max_num_batched_tokens: 1 + seed as usize, max_num_seqs: 1 + seed as usize % 9, ..whole };
        let run = run(&jobs, config, 10 + seed as usize % 20, 4);
        assert_eq!((run.ended.len(), run.preemptions), (12, 0), "seed {seed}");
    }
}

#[test]
fn prefill_and_decode_share_a_step_and_decodes_come_first() {
    check("8+4 6+2@1", ROOMY, 16, "a[0..8]; a+1 b[0..6]; a+1 b+1; a+1");
}

#[test]
fn long_prompts_are_cut_by_what_the_decodes_leave() {
    let config = Config { max_num_batched_tokens: 6, ..ROOMY };
    check("4+4 11+1@1", config, 16, "a[0..4]; a+1 b[0..5]; a+1 b[5..10]; a+1 b[10..11]");
}

#[test]
fn admission_stops_at_the_first_that_does_not_fit() {
    // b needs 4 blocks of the 3 that are left; c would fit but stands behind it.
    check("4+3 12+1 3+1", ROOMY, 5, "a[0..4]; a+1; a+1; b[0..12] c[0..3]");
}

#[test]
fn seats_bound_the_running() {
    check("3+2 3+2 3+2", Config { max_num_seqs: 2, ..ROOMY }, 16, "a[0..3] b[0..3]; a+1 b+1; c[0..3]; c+1");
}

#[test]
fn the_newest_gives_way_and_recomputes_what_it_had() {
    check("7+6 6+6", ROOMY, 4, "a[0..7] b[0..6]; a+1 b+1; a+1 preempt b; a+1; a+1; a+1; b[0..8]; b+1; b+1; b+1");
}

#[test]
fn victims_follow_the_policy() {
    let victims = |preemption, second| {
        let mut jobs = [job(4, 9, 0), job(9, 6, 0), job(3, 12, 0)];
        jobs[1].priority = second;
        let run = run(&jobs, Config { preemption, ..ROOMY }, 7, 4);
        let first = run.trace.iter().find_map(|step| step.split_once("preempt ")).expect("a preemption");
        first.1.chars().next().expect("a name")
    };
    assert_eq!(victims(Preemption::MostRecent, Priority::Normal), 'c');
    assert_eq!(victims(Preemption::Longest, Priority::Normal), 'b');
    assert_eq!(victims(Preemption::LowestPriority, Priority::Normal), 'c');
    // The lowest class gives way before anybody else, whatever the choice.
    assert!(Preemption::ALL.iter().all(|&preemption| victims(preemption, Priority::Low) == 'b'));
}

#[test]
fn the_exact_workload_equals_solo_in_both_pools() {
    let jobs = [job(3, 10, 0), job(6, 25, 2), job(4, 8, 4), job(5, 18, 6)];
    for num_blocks in [64, 8] {
        let run = run(&jobs, ROOMY, num_blocks, 4);
        for (seq, job) in jobs.iter().enumerate() {
            assert_eq!(run.outputs[&(seq as u64)], solo(seq as u64, job), "pool of {num_blocks}");
        }
        // Static reservation: each of the four the longest's blocks.
        assert!(run.peak_blocks < 4 * 31usize.div_ceil(4), "{}", run.peak_blocks);
        assert_eq!(run.preemptions > 0, num_blocks == 8);
        assert!(run.mixed_steps > 0, "a prefill and a decode share a step");
    }
}

#[test]
fn ends_are_told_apart() {
    let mut pool = BlockPool::new(8, 4);
    let mut end_of = |request: Request, tokens: &[TokenId], config| {
        let mut scheduler = Scheduler::new(config);
        let seq = request.id();
        scheduler.submit(request);
        for &token in tokens {
            let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("live");
            let outcome = Outcome::Token(Sampled { token, logprobs: None });
            let output = StepOutput { outcomes: vec![(seq, outcome)], ..StepOutput::default() };
            if let Some((_, Event::Finished(reason))) = scheduler.commit(plan, &output, &mut pool).pop() {
                return reason;
            }
        }
        panic!("no end");
    };
    assert_eq!(end_of(request(0, &job(3, 9, 0)), &[5, 6, 1], ROOMY), FinishReason::Stop);
    assert_eq!(end_of(request(0, &job(3, 2, 0)), &[5, 6], ROOMY), FinishReason::Length);
    assert_eq!(end_of(request(0, &job(3, 9, 0)), &[5, 6], Config { max_model_len: 5, ..ROOMY }), FinishReason::Length);
}

#[test]
fn a_failed_sequence_leaves_alone() {
    let mut pool = BlockPool::new(8, 4);
    let mut scheduler = Scheduler::new(ROOMY);
    (0..2).for_each(|seq| scheduler.submit(request(seq, &job(3, 9, 0))));
    let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("live");
    let outcomes = vec![
        (SeqId(0), Outcome::Failed(SequenceFault::NonFiniteLogits)),
        (SeqId(1), Outcome::Token(Sampled { token: 9, logprobs: None })),
    ];
    let events = scheduler.commit(plan, &StepOutput { outcomes, ..StepOutput::default() }, &mut pool);
    assert!(matches!(events[..2], [(SeqId(0), Event::Admitted { .. }), (SeqId(1), Event::Admitted { .. })]));
    assert_eq!(events[2], (SeqId(0), Event::Failed(RequestError::NonFiniteLogits)));
    assert!(matches!(events[3], (SeqId(1), Event::Token(_))));
    assert_eq!((scheduler.running(), pool.used()), (1, 1));
    assert!(scheduler.abort(SeqId(1), &mut pool) && !scheduler.abort(SeqId(1), &mut pool));
    assert_eq!(pool.used(), 0);
}

pub(super) fn any_job() -> impl Strategy<Value = Job> {
    let priority =
        prop_oneof![Just(Priority::High), Just(Priority::Normal), Just(Priority::Low), Just(Priority::Batch)];
    (1usize..30, 1usize..20, 0usize..30, prop::option::weighted(0.2, 0usize..60), priority)
        .prop_map(|(prompt, output, arrival, abort, priority)| Job { prompt, output, arrival, abort, priority })
}

pub(super) fn any_preemption() -> impl Strategy<Value = Preemption> {
    prop_oneof![Just(Preemption::MostRecent), Just(Preemption::Longest), Just(Preemption::LowestPriority)]
}

#[test]
fn those_that_begin_alike_compute_their_beginning_once() {
    let caching = Config { prefix_caching: true, ..ROOMY };
    // Sequences 2 and 5 share ten tokens, in blocks of 4 two full ones and half a third.
    let jobs = |at: usize| [job(0, 0, 99), job(0, 0, 99), job(12, 2, 0), job(0, 0, 99), job(0, 0, 99), job(12, 2, at)];
    let only = |at: usize| {
        let mut pool = BlockPool::new(16, 4);
        let mut model = PagedModel { slots: vec![None; 64], block_size: 4 };
        let mut scheduler = Scheduler::new(caching);
        let mut trace = Vec::new();
        for turn in 0..8 {
            for seq in [2u64, 5].into_iter().filter(|&seq| jobs(at)[seq as usize].arrival == turn) {
                scheduler.submit(request(seq, &jobs(at)[seq as usize]));
            }
            let Some(plan) = scheduler.plan(&mut pool, Micros(turn as u64)) else { continue };
            let copies = plan.copies.len();
            trace.push(format!("{} ({copies} copied)", describe(&plan)));
            let output = model.run(&scheduler.batch(&plan, &pool));
            scheduler.commit(plan, &output, &mut pool);
            pool.check(scheduler.tables());
        }
        trace.join("; ")
    };
    assert_eq!(only(4), "c[0..12] (0 copied); c+1 (0 copied); f[10..12] (1 copied); f+1 (0 copied)");
    // The second waits for the first, and computes only what is its own.
    assert_eq!(only(0), "c[0..12] (0 copied); c+1 f[10..12] (1 copied); f+1 (0 copied)");
}

#[test]
fn who_needs_every_block_computes_what_it_cannot_copy() {
    let caching = Config { prefix_caching: true, ..ROOMY };
    // Sequences 2 and 5 share ten tokens, and each takes the whole pool: none is left for a third block to copy from.
    let run = run(&jobs_of("1+1 1+1 12+2@5 1+1 1+1 12+2@12"), caching, 4, 4);
    assert_eq!(run.trace[run.trace.len() - 2..], ["f[8..12]", "f+1"]);
    assert_eq!(run.cached, 8);
}

#[test]
fn what_a_failed_step_left_is_found_by_nobody() {
    // Eleven tokens: two full blocks and a partly filled one. The second time its last step is the one that fails.
    for (failing, found) in [(false, 10), (true, 0)] {
        let mut pool = BlockPool::new(16, 4);
        let mut scheduler = Scheduler::new(Config { prefix_caching: true, ..ROOMY });
        let mut again = |scheduler: &mut Scheduler, seq: u64, failing: bool| {
            scheduler.submit(request(0, &job(11, 1, 0)));
            let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("live");
            let cached = plan.found[0].cached_tokens;
            let outcome = match failing {
                true => Outcome::Failed(SequenceFault::NonFiniteLogits),
                false => Outcome::Token(Sampled { token: 9, logprobs: None }),
            };
            scheduler.commit(
                plan,
                &StepOutput { outcomes: vec![(SeqId(seq), outcome)], ..StepOutput::default() },
                &mut pool,
            );
            pool.check([]);
            cached
        };
        assert_eq!(again(&mut scheduler, 0, failing), 0);
        assert_eq!(again(&mut scheduler, 0, false), found, "failing: {failing}");
    }
}

proptest! {
    /// Blocks are recounted, budgets and seats checked, and the number of steps bounded inside `run`.
    #[test]
    fn any_workload_equals_solo_and_leaves_nothing_behind(
        jobs in prop::collection::vec(any_job(), 1..16),
        preemption in any_preemption(), prefix_caching: bool, guessing: bool,
        max_num_seqs in 1usize..8, max_num_batched_tokens in 1usize..40, spare in 0usize..30, block_size in prop_oneof![Just(1usize), Just(4), Just(16)],
    ) {
        // The pool holds the longest possible sequence, and some more.
        let num_blocks = 50usize.div_ceil(block_size) + spare;
        let config = Config { max_num_seqs, max_num_batched_tokens, max_model_len: 50, preemption, prefix_caching, speculative: guesses(guessing), ..ROOMY };
        let run = run(&jobs, config, num_blocks, block_size);
        for (seq, job) in jobs.iter().enumerate() {
            let seq = seq as u64;
            let output = run.outputs.get(&seq).cloned().unwrap_or_default();
            let expected = solo(seq, job);
            prop_assert!(expected.starts_with(&output), "sequence {} went another way", seq);
            let aborted_before_arrival = job.abort.is_some_and(|at| at < job.arrival);
            if job.abort.is_none() || aborted_before_arrival {
                prop_assert_eq!(output, expected);
            }
            prop_assert_eq!(run.ended.get(&seq).copied(), Some(1), "exactly one end");
        }
        // With the cache, who begins like another waits for it, and others pass.
        for class in Priority::ALL.into_iter().filter(|_| !prefix_caching) {
            let of_class = |seq: &&u64| jobs[**seq as usize].priority == class;
            let admitted: Vec<u64> = run.admitted.iter().filter(of_class).copied().collect();
            let mut by_arrival = admitted.clone();
            by_arrival.sort_by_key(|&seq| (jobs[seq as usize].arrival, seq));
            prop_assert_eq!(admitted, by_arrival, "admission is first in, first out");
        }
        if run.preemptions == 0 && jobs.iter().all(|job| job.abort.is_none()) {
            let prompts: usize = jobs.iter().map(|job| job.prompt).sum();
            prop_assert_eq!(run.prefilled + run.cached, prompts, "computed and cached");
        }
    }

    #[test]
    fn the_same_workload_makes_the_same_plans(jobs in prop::collection::vec(any_job(), 1..10), preemption in any_preemption()) {
        let config = Config { max_model_len: 50, preemption, ..ROOMY };
        prop_assert_eq!(run(&jobs, config, 14, 4).trace, run(&jobs, config, 14, 4).trace);
    }
}
