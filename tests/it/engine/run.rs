//! The engine loop: answers that do not depend on the batch, faults that stay where they belong, pause, drain, ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_core::request::{FinishReason, Request, RequestError};
use forebay_core::step::{StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId, TokenId};
use forebay_engine::forward::Forward;
use forebay_engine::heartbeat::Pulse;
use forebay_turn::executor::{ExecuteError, Executor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;

use crate::support::rig::{self, Completion, Rig, Setup, collect, request};

/// One request of a random workload.
#[derive(Clone)]
struct Job {
    prompt: Vec<TokenId>,
    max_tokens: i64,
    /// Submitted once this many tokens were produced by all others together: arrivals without a clock.
    arrival: usize,
    /// Abandoned by its client after this many tokens.
    abandoned_after: Option<usize>,
}

fn workload(seed: u64, vocab: TokenId, longest_prompt: usize) -> Vec<Job> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut before = 0;
    let job = |_| {
        let prompt = (0..rng.random_range(1..longest_prompt)).map(|_| rng.random_range(3..vocab)).collect();
        let max_tokens = rng.random_range(1..48);
        // Never more than the earlier ones make, or nobody would start it.
        let arrival = rng.random_range(0..=before / 2);
        before += max_tokens as usize;
        Job { prompt, max_tokens, arrival, abandoned_after: None }
    };
    (0..24).map(job).collect()
}

fn with_aborts(mut jobs: Vec<Job>, seed: u64) -> Vec<Job> {
    let mut rng = StdRng::seed_from_u64(seed);
    for job in &mut jobs {
        if rng.random_bool(0.3) {
            job.abandoned_after = Some(rng.random_range(0..job.max_tokens as usize + 1) / 2);
        }
    }
    jobs
}

async fn solo<E: Executor>(rig: &Rig<E>, jobs: &[Job]) -> Vec<Completion> {
    let mut completions = Vec::new();
    for job in jobs {
        completions.push(rig.complete(&job.prompt, job.max_tokens).await);
    }
    completions
}

/// All jobs at once; `None` for the abandoned ones.
async fn together<E: Executor>(rig: &Rig<E>, jobs: &[Job]) -> Vec<Option<Completion>> {
    let (produced, seen) = watch::channel(0usize);
    let clients = jobs.iter().map(|job| {
        let (job, handle, produced, mut seen) = (job.clone(), rig.handle.clone(), produced.clone(), seen.clone());
        tokio::spawn(async move {
            seen.wait_for(|&n| n >= job.arrival).await.expect("the counter outlives its clients");
            let submitted = rig::submit(&handle, vec![request(&job.prompt, job.max_tokens)]).await;
            let mut events = submitted.expect("accepted").remove(0);
            if let Some(patience) = job.abandoned_after {
                for _ in 0..patience {
                    events.recv().await;
                    produced.send_modify(|n| *n += 1);
                }
                produced.send_modify(|n| *n += job.max_tokens as usize);
                return None;
            }
            let completion = collect(events).await;
            produced.send_modify(|n| *n += completion.tokens.len());
            Some(completion)
        })
    });
    let clients: Vec<_> = clients.collect();
    drop((produced, seen));
    let mut completions = Vec::new();
    for client in clients {
        completions.push(client.await.expect("no client panics"));
    }
    completions
}

/// Runs the jobs together in `setup`; each finished output equals its solo run, and the pool is empty at the end.
/// Returns the number of preemptions.
async fn check_equals_solo(jobs: &[Job], alone: &[Completion], rig: Rig) -> u64 {
    for (job, (alone, together)) in jobs.iter().zip(alone.iter().zip(together(&rig, jobs).await)) {
        match together {
            Some(together) => assert_eq!(*alone, together),
            None => assert!(job.abandoned_after.is_some()),
        }
    }
    let core = rig.join().await;
    let after = core.snapshot();
    assert_eq!((after.blocks_used, after.running, after.waiting), (0, 0, 0), "{after:?}");
    after.preemptions_total
}

async fn headline(start: impl Fn(Setup) -> Rig, vocab: TokenId) {
    let jobs = workload(20, vocab, 120);
    let generous = Setup::default();
    // About two of the longest sequences fit.
    let tight = Setup { num_blocks: 22, ..generous };
    let rig = start(generous);
    let alone = solo(&rig, &jobs).await;
    assert!(alone.iter().zip(&jobs).all(|(c, job)| c.tokens.len() == job.max_tokens as usize), "{alone:?}");
    rig.join().await;

    assert_eq!(check_equals_solo(&jobs, &alone, start(generous)).await, 0);
    assert!(check_equals_solo(&jobs, &alone, start(tight)).await > 0, "the tight pool must preempt");
    for setup in [generous, tight, Setup { multi_step_count: 4, ..tight }] {
        let jobs = with_aborts(jobs.clone(), 21);
        check_equals_solo(&jobs, &alone, start(setup)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batched_equals_solo_on_the_embedded_model() {
    headline(rig::storyteller, 320).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batched_equals_solo_on_a_golden() {
    headline(|setup| rig::golden(setup, |forward| forward), 320).await;
}

/// Counts the forwards that carry several sequences, prompts and decodes among them.
struct Counting {
    inner: Forward,
    mixed: Arc<AtomicUsize>,
}

impl Executor for Counting {
    fn admit(&mut self, request: &Request) {
        self.inner.admit(request);
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        let rows: Vec<usize> = batch.chunks.iter().map(|chunk| chunk.rows.len()).collect();
        assert_eq!(rows.iter().sum::<usize>(), batch.tokens.len(), "nothing is padded");
        let decodes = batch.chunks.iter().filter(|c| c.rows.len() == 1 && batch.positions[c.rows.start] > 0).count();
        if decodes > 0 && rows.iter().any(|&rows| rows > 1) {
            self.mixed.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.run(batch)
    }

    fn forget(&mut self, seq: SeqId) {
        self.inner.forget(seq);
    }
}

#[tokio::test]
async fn one_forward_carries_prompts_and_decodes_of_several_sequences() {
    let mixed = Arc::new(AtomicUsize::new(0));
    let rig = rig::golden(Setup::default(), |inner| Counting { inner, mixed: mixed.clone() });
    let jobs = workload(22, 320, 120);
    together(&rig, &jobs).await;
    rig.join().await;
    assert!(mixed.load(Ordering::Relaxed) > 0);
}

/// Misbehaves whenever a step holds its token.
struct Poisoned {
    inner: Forward,
    token: TokenId,
    panics: bool,
}

impl Executor for Poisoned {
    fn admit(&mut self, request: &Request) {
        self.inner.admit(request);
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        if batch.tokens.contains(&self.token) {
            assert!(!self.panics, "poisoned");
            return Err(ExecuteError::Failed("poisoned".into()));
        }
        self.inner.run(batch)
    }

    fn forget(&mut self, seq: SeqId) {
        self.inner.forget(seq);
    }
}

/// Never in a golden's greedy continuations below.
const POISON: TokenId = 319;

async fn check_only_the_culprit_fails(panics: bool) {
    let rig = rig::golden(Setup::default(), |inner| Poisoned { inner, token: POISON, panics });
    let prompts: Vec<Vec<TokenId>> = (0..4).map(|i| (10 + i..20 + i).collect()).collect();
    let mut alone = Vec::new();
    for prompt in &prompts {
        alone.push(rig.complete(prompt, 12).await);
    }
    assert!(alone.iter().all(|c| !c.tokens.contains(&POISON)), "choose another poison: {alone:?}");

    rig.handle.pause().await.expect("loop");
    let mut running = Vec::new();
    for prompt in &prompts {
        running.push(rig.submit(prompt, 12).await);
    }
    let poisoned = rig.submit(&[5, POISON, 6], 12).await;
    rig.handle.resume().await.expect("loop");
    assert_eq!(collect(poisoned).await, Completion { tokens: vec![], end: Err(RequestError::StepFailed) });
    for (alone, running) in alone.iter().zip(running) {
        assert_eq!(*alone, collect(running).await);
    }
    // And the loop goes on.
    assert_eq!(rig.complete(&prompts[0], 12).await, alone[0]);
    let after = rig.join().await.snapshot();
    assert_eq!((after.blocks_used, after.running), (0, 0));
}

#[tokio::test]
async fn a_panic_in_a_step_ends_only_the_sequence_that_causes_it() {
    check_only_the_culprit_fails(true).await;
}

#[tokio::test]
async fn an_error_in_a_step_ends_only_the_sequence_that_causes_it() {
    check_only_the_culprit_fails(false).await;
}

fn plain(setup: Setup) -> Rig {
    rig::golden(setup, |forward| forward)
}

#[tokio::test]
async fn a_paused_engine_queues_and_does_not_compute() {
    let rig = plain(Setup::default());
    rig.handle.pause().await.expect("loop");
    let events = rig.submit(&[7, 8, 9], 5).await;
    let paused = rig.handle.stats().await.expect("stats").snapshot;
    assert!(paused.paused);
    assert_eq!((paused.queued, paused.running, paused.steps_total), (1, 0, 0), "{paused:?}");
    assert_eq!(rig.heartbeat.pulse(Micros::ZERO), Pulse::Resting);
    rig.handle.resume().await.expect("loop");
    assert_eq!(collect(events).await.end, Ok(FinishReason::Length));
}

#[tokio::test]
async fn multi_step_calls_bring_the_same_tokens() {
    let one = plain(Setup::default()).complete(&[7, 8, 9], 23).await;
    let four = plain(Setup { multi_step_count: 4, ..Setup::default() }).complete(&[7, 8, 9], 23).await;
    assert_eq!(one, four);
}

#[tokio::test]
async fn a_dropped_receiver_aborts_whether_queued_or_running() {
    let rig = plain(Setup { max_num_seqs: 1, ..Setup::default() });
    let mut running = rig.submit(&[7, 8, 9], 200).await;
    running.recv().await.expect("a token");
    let queued = rig.submit(&[9, 9, 9], 200).await;
    drop((running, queued));
    // Whatever is submitted next gets the seat.
    assert_eq!(rig.complete(&[1, 2, 3], 3).await.tokens.len(), 3);
    let after = rig.handle.stats().await.expect("stats").snapshot;
    assert_eq!((after.queued, after.running, after.blocks_used), (0, 0, 0), "{after:?}");
    assert!(after.steps_total < 100, "the abandoned requests did not run to their ends: {after:?}");
}

#[tokio::test]
async fn a_full_queue_refuses_the_whole_group_at_once() {
    let rig = plain(Setup { queue_capacity: 2, ..Setup::default() });
    rig.handle.pause().await.expect("loop");
    let refused = rig::submit(&rig.handle, (0..3).map(|_| request(&[5, 6], 4)).collect()).await;
    assert_eq!(refused.err(), Some(RequestError::QueueFull { capacity: 2, retry_after_s: 4 }));
    let accepted = rig::submit(&rig.handle, (0..2).map(|_| request(&[5, 6], 4)).collect()).await.expect("room for two");
    rig.handle.resume().await.expect("loop");
    for events in accepted {
        assert_eq!(collect(events).await.tokens.len(), 4);
    }
}

#[tokio::test]
async fn a_drain_finishes_what_runs_and_refuses_the_rest() {
    let rig = plain(Setup { max_num_seqs: 1, ..Setup::default() });
    let mut running = rig.submit(&[7, 8, 9], 60).await;
    running.recv().await.expect("a token");
    let queued = rig.submit(&[9, 9, 9], 60).await;
    let drained = tokio::spawn({
        let handle = rig.handle.clone();
        async move { handle.drain().await }
    });
    assert_eq!(collect(queued).await.end, Err(RequestError::ShuttingDown));
    let refused = rig::submit(&rig.handle, vec![request(&[1], 1)]).await;
    assert_eq!(refused.err(), Some(RequestError::ShuttingDown));
    assert_eq!(collect(running).await.end, Ok(FinishReason::Length));
    drained.await.expect("no panic").expect("the drain is answered");
    assert!(rig.handle.stats().await.expect("stats").snapshot.draining);
}

#[tokio::test]
async fn a_shutdown_ends_everything_with_a_clear_error() {
    let rig = plain(Setup { max_num_seqs: 1, ..Setup::default() });
    let mut running = rig.submit(&[7, 8, 9], 200).await;
    running.recv().await.expect("a token");
    let queued = rig.submit(&[9, 9, 9], 60).await;
    rig.handle.shutdown().await.expect("loop");
    assert_eq!(collect(running).await.end, Err(RequestError::ShuttingDown));
    assert_eq!(collect(queued).await.end, Err(RequestError::ShuttingDown));
    let heartbeat = rig.heartbeat.clone();
    let handle = rig.handle.clone();
    rig.join().await;
    assert_eq!(heartbeat.pulse(Micros::ZERO), Pulse::Ended);
    assert_eq!(rig::submit(&handle, vec![request(&[1], 1)]).await.err(), Some(RequestError::EngineStopped));
}

#[tokio::test]
async fn losing_every_sender_ends_the_loop_after_the_running_step() {
    let rig = plain(Setup::default());
    let mut running = rig.submit(&[7, 8, 9], 200).await;
    running.recv().await.expect("a token");
    let after = rig.join().await.snapshot();
    assert_eq!(collect(running).await.end, Err(RequestError::ShuttingDown));
    assert!(after.steps_total < 200);
}
