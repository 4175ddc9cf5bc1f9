//! Batches run on what the others leave: to the others it is as if there were none.

use proptest::prelude::*;

use super::tests::*;
use super::*;
use crate::request::Priority;

/// Jobs as `jobs_of` reads them; those that begin with `~` are batches.
fn mixed(text: &str) -> Vec<Job> {
    let job = |text: &str| {
        let batch = text.starts_with('~');
        let job = jobs_of(text.trim_start_matches('~')).remove(0);
        Job { priority: if batch { Priority::Batch } else { job.priority }, ..job }
    };
    text.split(' ').map(job).collect()
}

fn check(jobs: &str, config: Config, num_blocks: usize, expected: &str) {
    let jobs = mixed(jobs);
    let run = run(&jobs, config, num_blocks, 4);
    assert_eq!(run.trace.join("; "), expected);
    for (seq, job) in jobs.iter().enumerate() {
        assert_eq!(run.outputs[&(seq as u64)], solo(seq as u64, job));
    }
}

#[test]
fn a_batch_fills_what_is_left_of_a_step() {
    check("3+4 ~5+3", ROOMY, 16, "a[0..3] b[0..5]; a+1 b+1; a+1 b+1; a+1");
}

/// The batches hold every seat and would use every token of the step.
#[test]
fn whoever_comes_has_a_seat_in_the_next_step_and_goes_first() {
    let config = Config { max_num_seqs: 2, max_num_batched_tokens: 4, ..ROOMY };
    check("~2+4 ~2+4 3+2@2", config, 16, "a[0..2] b[0..2]; a+1 b+1; c[0..3] a+1 preempt b; c+1 a+1; b[0..4]; b+1");
}

#[test]
fn whoever_comes_takes_the_blocks_of_batches() {
    check("~7+4 9+2@1", ROOMY, 3, "a[0..7]; b[0..9] preempt a; b+1; a[0..8]; a+1; a+1");
}

/// An old batch does not go before a young request, and a step that has no room for it leaves it where it is.
#[test]
fn a_batch_that_was_passed_over_for_long_stays_behind() {
    let config = Config { max_num_batched_tokens: 2, ..ROOMY };
    let jobs = mixed("~2+3 2+20 2+20");
    let run = run(&jobs, config, 16, 4);
    let steps: Vec<&String> = run.trace.iter().take_while(|step| step.contains("b+1") || step.contains('[')).collect();
    assert!(steps.iter().filter(|step| step.contains("b+1 c+1")).count() >= 16, "{:?}", run.trace);
    let urgent =
        run.trace.iter().rposition(|step| step.contains('b') && step.contains('c')).expect("they decode together");
    assert!(run.trace[..=urgent].iter().skip(2).all(|step| !step.contains('a')), "{:?}", run.trace);
}

#[test]
fn a_batch_waits_where_one_that_is_none_found_no_blocks() {
    // c needs more than is left while b runs; the batch must not take what c waits for.
    check("4+6 12+1@1 ~3+2@1", ROOMY, 5, "a[0..4]; a+1; a+1; a+1; a+1; a+1; b[0..12] c[0..3]; c+1");
}

/// What a plan gives to those that are no batches.
fn urgent(step: &str, jobs: &[Job]) -> String {
    let is_urgent = |word: &&str| jobs[usize::from(word.as_bytes()[0] - b'a')].priority != Priority::Batch;
    let words: Vec<&str> =
        step.split(' ').filter(|word| *word != "preempt" && !word.is_empty()).filter(is_urgent).collect();
    words.join(" ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Step by step, the others are planned as if the batches were not there.
    #[test]
    fn the_others_notice_nothing(
        jobs in prop::collection::vec((any_job(), any::<bool>()), 1..12),
        seats in 1usize..6,
        tokens in 1usize..24,
        blocks in 12usize..40,
        policy in prop::sample::select(PolicyKind::ALL.to_vec()),
    ) {
        // Batches keep their places in the list, so that the others keep their names; never arriving, they are not there.
        let jobs: Vec<Job> = jobs
            .into_iter()
            .map(|(job, batch)| Job { priority: if batch { Priority::Batch } else { Priority::Normal }, ..job })
            .collect();
        let is_batch = |job: &&Job| job.priority == Priority::Batch;
        prop_assume!(!jobs.iter().all(|job| is_batch(&job)));
        let config = Config {
            max_num_seqs: seats,
            max_num_batched_tokens: tokens,
            policy: PolicyConfig { kind: policy, ..FAIR },
            ..ROOMY
        };
        let late = |job: &Job| if is_batch(&job) { Job { arrival: 5_000, abort: None, ..*job } } else { *job };
        let alone: Vec<Job> = jobs.iter().map(late).collect();
        let steps = |jobs: &[Job]| -> Vec<String> {
            let steps = run(jobs, config, blocks, 4).trace;
            steps.iter().map(|step| urgent(step, jobs)).filter(|step| !step.is_empty()).collect()
        };
        prop_assert_eq!(steps(&jobs), steps(&alone));
    }
}
