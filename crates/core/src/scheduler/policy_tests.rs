//! The live scheduler under each policy, as traces.

use super::tests::*;
use super::*;
use crate::kv::BlockPool;
use crate::report::{Preempted, Wait};
use crate::request::Priority;
use crate::step::StepOutput;
use crate::units::{Micros, SeqId};

fn with(kind: PolicyKind) -> Config {
    Config { policy: PolicyConfig { kind, decode_burst_budget: 3, ..FAIR }, ..ROOMY }
}

fn name(seq: SeqId) -> char {
    (b'a' + seq.0 as u8) as char
}

/// `a+1 c[0..4] | b seats`: what computes, and what everyone else waits for.
fn explain(plan: &StepPlan) -> String {
    let wait = |(seq, wait): &(SeqId, Wait)| format!("{} {}", name(*seq), wait.name());
    let waits: Vec<String> = plan.waits.iter().map(wait).collect();
    format!("{} | {}", describe(plan), waits.join(", "))
}

/// `jobs` like "8+4 6+2@1", as in `tests`.
fn check_explained(jobs: &str, config: Config, num_blocks: usize, expected: &[&str]) {
    let jobs = jobs_of(jobs);
    let mut pool = BlockPool::new(num_blocks, 4);
    let mut model = PagedModel { slots: vec![None; num_blocks * 4], block_size: 4 };
    let mut scheduler = Scheduler::new(config);
    for (turn, expected) in expected.iter().enumerate() {
        let arriving = jobs.iter().enumerate().filter(|(_, job)| job.arrival == turn);
        arriving.for_each(|(seq, job)| scheduler.submit(request(seq as u64, job)));
        let plan = scheduler.plan(&mut pool, Micros(turn as u64)).expect("live");
        assert_eq!(explain(&plan), *expected, "step {turn}");
        let output = model.run(&scheduler.batch(&plan, &pool));
        scheduler.commit(plan, &output, &mut pool);
    }
    jobs.iter().enumerate().for_each(|(seq, _)| _ = scheduler.abort(SeqId(seq as u64), &mut pool));
}

#[test]
fn fair_rotates_when_tokens_are_short() {
    let config = Config { max_num_batched_tokens: 2, ..with(PolicyKind::Fair) };
    let expected = [
        "a[0..1] b[0..1] | c token_budget",
        "a+1 b+1 | c token_budget",
        "a+1 b+1 | c token_budget",
        "c[0..1] | ",
        "c+1 | ",
    ];
    check_explained("1+3 1+3 1+9", config, 16, &expected);
    let config = Config { max_num_batched_tokens: 3, ..config };
    let expected = [
        "a[0..1] b[0..1] c[0..1] | ",
        "a+1 b+1 | c token_budget",
        "a+1 c+1 | b token_budget",
        "b+1 c+1 | a token_budget",
    ];
    check_change("1+9 1+9 1+9", config, Config { max_num_batched_tokens: 2, ..config }, &expected);
}

/// The config changes after the first step.
fn check_change(jobs: &str, before: Config, after: Config, expected: &[&str]) {
    let jobs = jobs_of(jobs);
    let mut pool = BlockPool::new(32, 4);
    let mut model = PagedModel { slots: vec![None; 128], block_size: 4 };
    let mut scheduler = Scheduler::new(before);
    jobs.iter().enumerate().for_each(|(seq, job)| scheduler.submit(request(seq as u64, job)));
    for expected in expected {
        let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("live");
        assert_eq!(explain(&plan), *expected);
        let output = model.run(&scheduler.batch(&plan, &pool));
        scheduler.commit(plan, &output, &mut pool);
        scheduler.configure(after);
    }
    jobs.iter().enumerate().for_each(|(seq, _)| _ = scheduler.abort(SeqId(seq as u64), &mut pool));
}

#[test]
fn latency_first_gives_the_tokens_to_prompts() {
    let config = Config { max_num_batched_tokens: 6, ..with(PolicyKind::LatencyFirst) };
    let expected = ["a[0..4] | ", "b[0..6] | a token_budget", "a+1 b[6..11] | ", "a+1 b+1 | "];
    check_explained("4+9 11+9@1", config, 16, &expected);
}

/// The new one wants every token, and would take the block that a needs for its next; but then a would take it back.
#[test]
fn latency_first_admits_nobody_into_blocks_that_decodes_will_need() {
    let config = Config { max_num_batched_tokens: 7, ..with(PolicyKind::LatencyFirst) };
    check_explained("7+9 7+9@2", config, 4, &["a[0..7] | ", "a+1 | ", "a+1 | b blocks", "a+1 | b blocks"]);
    check_explained("7+9 7+9@2", config, 5, &["a[0..7] | ", "a+1 | ", "b[0..7] | a token_budget", "a+1 b+1 | "]);
}

/// An old prompt is computed again, deferred behind the burst of the only one that decodes, who finds no block.
#[test]
fn a_step_is_never_empty() {
    let mut pool = BlockPool::new(4, 4);
    let mut model = PagedModel { slots: vec![None; 16], block_size: 4 };
    let mut scheduler = Scheduler::new(with(PolicyKind::ThroughputFirst));
    (0..2).for_each(|seq| scheduler.submit(request(seq, &job(7, 9, 0))));
    let mut step = |scheduler: &mut Scheduler| {
        let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("a step that computes something");
        let output = model.run(&scheduler.batch(&plan, &pool));
        scheduler.commit(plan.clone(), &output, &mut pool);
        explain(&plan)
    };
    assert_eq!(step(&mut scheduler), "a[0..7] b[0..7] | ");
    assert_eq!(step(&mut scheduler), "a+1 b+1 | ");
    scheduler.queues.running[0].computed = 5;
    assert_eq!(step(&mut scheduler), "a[5..9] preempt b | b blocks");
    (0..2).for_each(|seq| _ = scheduler.abort(SeqId(seq), &mut pool));
}

#[test]
fn latency_first_comes_back_to_who_waited_eight_steps() {
    let config = Config { max_num_batched_tokens: 4, ..with(PolicyKind::LatencyFirst) };
    let mut expected = vec!["a[0..4] | ".to_owned()];
    expected.extend((0..8).map(|i| format!("b[{}..{}] | a token_budget", i * 4, i * 4 + 4)));
    expected.extend(["a+1 b[32..35] | ".to_owned(), "b[35..39] | a token_budget".to_owned()]);
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_explained("4+9 60+9@1", config, 32, &expected);
}

#[test]
fn throughput_first_lets_few_prompt_tokens_wait_while_nearly_all_seats_decode() {
    let config = Config { max_num_seqs: 8, ..with(PolicyKind::ThroughputFirst) };
    let seven = "1+20 1+20 1+20 1+20 1+20 1+20 1+20";
    let decodes = "a+1 b+1 c+1 d+1 e+1 f+1 g+1";
    let [waits, goes] = [format!("{decodes} | h decode_burst"), format!("{decodes} h[0..4] | ")];
    let begin = "a[0..1] b[0..1] c[0..1] d[0..1] e[0..1] f[0..1] g[0..1] | ";
    check_explained(&format!("{seven} 4+3@1"), config, 64, &[begin, &waits, &waits, &waits, &goes]);
    // What fills a step goes at once, and so does an urgent prompt, or any while seats stand empty.
    let goes = format!("{decodes} h[0..9] | ");
    check_explained(&format!("{seven} 19+3@1"), config, 64, &[begin, &goes]);
    check_explained("1+20 4+3@1", config, 64, &["a[0..1] | ", "a+1 b[0..4] | "]);
}

/// A prompt above class normal takes the seat of the newest sequence of the lowest class, and is computed first.
#[test]
fn an_urgent_prompt_takes_a_seat_and_the_first_tokens() {
    let jobs: Vec<Job> = [Priority::Low, Priority::Normal, Priority::Low, Priority::Critical]
        .map(|priority| Job { priority, ..job(20, 5, 0) })
        .into();
    let mut pool = BlockPool::new(64, 4);
    let mut scheduler = Scheduler::new(Config { max_num_seqs: 3, prefix_caching: false, ..with(PolicyKind::Fair) });
    (0..3).for_each(|seq| scheduler.submit(request(seq, &jobs[seq as usize])));
    let step = |scheduler: &mut Scheduler, pool: &mut BlockPool| {
        let plan = scheduler.plan(pool, Micros::ZERO).expect("live");
        let told = explain(&plan);
        scheduler.commit(plan, &StepOutput::default(), pool);
        told
    };
    // 16 tokens a step: the normal one first.
    assert_eq!(step(&mut scheduler, &mut pool), "b[0..16] | a token_budget, c token_budget");
    scheduler.submit(request(3, &jobs[3]));
    assert_eq!(scheduler.seats_for(), [2, 2, 0, 0, 0], "the critical one has its own, the others give way");
    assert_eq!(step(&mut scheduler, &mut pool), "d[0..16] | b token_budget, a token_budget, c token_budget");
    (0..4).for_each(|seq| _ = scheduler.abort(SeqId(seq), &mut pool));
}

#[test]
fn who_waits_is_told_why() {
    let seats = Config { max_num_seqs: 1, ..with(PolicyKind::Fair) };
    check_explained("3+2 3+2", seats, 16, &["a[0..3] | b seats", "a+1 | b seats", "b[0..3] | "]);
    check_explained("4+9 12+1", with(PolicyKind::Fair), 4, &["a[0..4] | b blocks", "a+1 | b blocks"]);
    let expected = ["a[0..7] b[0..6] | ", "a+1 b+1 | ", "a+1 preempt b | b blocks", "a+1 | b blocks"];
    check_explained("7+6 6+6", with(PolicyKind::Fair), 4, &expected);
    // Until steps were measured, prefills beside decodes share 32 tokens.
    let stall = Config { max_stall: Some(Micros(1)), max_num_batched_tokens: 64, ..with(PolicyKind::Fair) };
    check_explained("4+9 60+9@1 20+9@1", stall, 64, &["a[0..4] | ", "a+1 b[0..32] | c stall_limit"]);
}

#[test]
fn a_preempted_sequence_knows_by_whom() {
    let mut pool = BlockPool::new(4, 4);
    let mut model = PagedModel { slots: vec![None; 16], block_size: 4 };
    let mut scheduler = Scheduler::new(ROOMY);
    (0..2).for_each(|seq| scheduler.submit(request(seq, &job(7 - seq as usize, 6, 0))));
    let preempted = loop {
        let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("live");
        let preempted = plan.preempted.clone();
        let output = model.run(&scheduler.batch(&plan, &pool));
        scheduler.commit(plan, &output, &mut pool);
        if !preempted.is_empty() {
            break preempted;
        }
    };
    assert_eq!(preempted, [Preempted { seq: SeqId(1), by: SeqId(0) }]);
    (0..2).for_each(|seq| _ = scheduler.abort(SeqId(seq), &mut pool));
}

/// The budget leaves one token for a prompt that is computed again.
#[test]
fn a_recomputed_chunk_of_one_token_is_no_decode() {
    let config = Config { max_num_batched_tokens: 2, ..ROOMY };
    let mut pool = BlockPool::new(16, 4);
    let mut model = PagedModel { slots: vec![None; 64], block_size: 4 };
    let mut scheduler = Scheduler::new(ROOMY);
    (0..2).for_each(|seq| scheduler.submit(request(seq, &job(3, 9, 0))));
    let mut step = |scheduler: &mut Scheduler, pool: &mut BlockPool| {
        let plan = scheduler.plan(pool, Micros::ZERO).expect("live");
        let output = model.run(&scheduler.batch(&plan, pool));
        scheduler.commit(plan.clone(), &output, pool);
        plan
    };
    (0..3).for_each(|_| _ = step(&mut scheduler, &mut pool));
    // What preemption does, without having to fill the pool first.
    let waiting = scheduler.queues.running.remove(1).preempt(&mut pool);
    scheduler.queues.waiting.push_front(waiting);
    scheduler.configure(config);
    let mut plans = Vec::new();
    for _ in 0..6 {
        plans.push(step(&mut scheduler, &mut pool));
    }
    let last = &plans[5].chunks[1];
    for plan in &plans[..5] {
        assert_eq!((plan.load.decode_tokens, plan.load.prefill_tokens, plan.load.prefills), (1, 1, 1), "{plan:?}");
        assert!(!plan.chunks[1].decode && !plan.chunks[1].sample && !plan.is_decode_only());
    }
    // Its newest token was never computed before: this is a decode.
    assert!(last.decode && last.sample && last.tokens == (5..6), "{last:?}");
    (0..2).for_each(|seq| _ = scheduler.abort(SeqId(seq), &mut pool));
}

#[test]
fn ties_among_victims_go_by_policy() {
    // Equally long, so it depends on the policy who yields: b has generated more, c has the longer prompt.
    let victim = |kind| {
        let mut scheduler =
            Scheduler::new(Config { preemption: Preemption::Longest, max_num_batched_tokens: 64, ..with(kind) });
        let mut pool = BlockPool::new(64, 4);
        let mut model = PagedModel { slots: vec![None; 256], block_size: 4 };
        let mut step = |scheduler: &mut Scheduler, pool: &mut BlockPool| {
            let plan = scheduler.plan(pool, Micros::ZERO).expect("live");
            let output = model.run(&scheduler.batch(&plan, pool));
            scheduler.commit(plan, &output, pool);
        };
        (0..2).for_each(|seq| scheduler.submit(request(seq, &job(4, 20, 0))));
        (0..4).for_each(|_| step(&mut scheduler, &mut pool));
        scheduler.submit(request(2, &job(8, 20, 0)));
        while scheduler.running() < 3 {
            step(&mut scheduler, &mut pool);
        }
        let length = |seq: usize| scheduler.queues.running[seq].tokens().len();
        assert_eq!(length(1), length(2), "{kind:?}");
        let running = &scheduler.queues.running;
        let victim = Preemption::Longest.victim(running.iter(), running, kind).expect("one");
        (0..3).for_each(|seq| _ = scheduler.abort(SeqId(seq), &mut pool));
        name(victim)
    };
    assert_eq!(victim(PolicyKind::Fair), 'c');
    assert_eq!(victim(PolicyKind::LatencyFirst), 'b');
}

#[test]
fn the_state_can_be_read() {
    use crate::report::Stage;
    let mut pool = BlockPool::new(8, 4);
    let mut model = PagedModel { slots: vec![None; 32], block_size: 4 };
    let mut scheduler = Scheduler::new(Config { max_num_seqs: 2, max_num_batched_tokens: 8, ..ROOMY });
    for (seq, prompt) in [(0, 3), (1, 9), (2, 5)] {
        scheduler.submit(request(seq, &job(prompt, 4, 0)));
    }
    let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("live");
    let output = model.run(&scheduler.batch(&plan, &pool));
    scheduler.commit(plan, &output, &mut pool);
    let stages: Vec<_> = scheduler
        .sequences(&pool)
        .iter()
        .map(|view| (view.seq.0, view.stage, view.computed_tokens, view.generated_tokens, view.blocks))
        .collect();
    assert_eq!(stages, [(0, Stage::Decode, 3, 1, 1), (1, Stage::Prefill, 5, 0, 3), (2, Stage::Waiting, 0, 0, 0)]);
    let backlog = Backlog {
        prefill_tokens: 4 + 5,
        prompts: 2,
        decoding: 1,
        context_tokens: 4,
        waiting: 1,
        prefill: [0, 0, 9, 9, 9],
    };
    assert_eq!(scheduler.backlog(&pool), backlog);
    assert!(scheduler.overdue(Micros(u64::MAX)).is_empty(), "none has a deadline");
    scheduler.submit(request_by(3, &job(2, 4, 0), Some(50)));
    assert!(scheduler.overdue(Micros::from_millis(49)).is_empty());
    let overdue = scheduler.overdue(Micros::from_millis(50));
    assert_eq!(overdue.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>(), [SeqId(3)]);
    assert!(scheduler.abort(SeqId(3), &mut pool));
    (0..3).for_each(|seq| _ = scheduler.abort(SeqId(seq), &mut pool));
}

#[test]
fn a_switch_clears_the_ordering_and_other_changes_do_not() {
    let fair = Config { max_num_batched_tokens: 2, ..with(PolicyKind::Fair) };
    let short = Config { max_num_batched_tokens: 1, ..fair };
    let latency = Config { policy: with(PolicyKind::LatencyFirst).policy, ..short };
    let mut pool = BlockPool::new(8, 4);
    let mut model = PagedModel { slots: vec![None; 32], block_size: 4 };
    let mut scheduler = Scheduler::new(fair);
    (0..2).for_each(|seq| scheduler.submit(request(seq, &job(1, 20, 0))));
    let mut steps = |configs: &[Config]| {
        configs.iter().for_each(|&config| scheduler.configure(config));
        let plan = scheduler.plan(&mut pool, Micros::ZERO).expect("live");
        let output = model.run(&scheduler.batch(&plan, &pool));
        scheduler.commit(plan.clone(), &output, &mut pool);
        describe(&plan)
    };
    assert_eq!(steps(&[fair]), "a[0..1] b[0..1]");
    assert_eq!([steps(&[short]), steps(&[short])], ["a+1", "b+1"]);
    assert_eq!([steps(&[short]), steps(&[latency, short])], ["a+1", "a+1"]);
    assert_eq!([steps(&[]), steps(&[Config { max_num_seqs: 3, ..short }])], ["b+1", "a+1"]);
    (0..2).for_each(|seq| _ = scheduler.abort(SeqId(seq), &mut pool));
}
