//! Policies, temperature, live changes and stalls, on the real scheduler.

use super::*;
use crate::report::Wait;

fn with(kind: PolicyKind, config: Config) -> Config {
    Config { policy: PolicyConfig { kind, ..config.policy }, ..config }
}

#[test]
fn latency_first_computes_prompts_before_it_goes_on() {
    let config = with(PolicyKind::LatencyFirst, Config { max_num_batched_tokens: 6, ..ROOMY });
    check("4+4 11+1@1", config, 16, "a[0..4]; b[0..6]; b[6..11] a+1; a+1; a+1");
}

#[test]
fn latency_first_lets_the_youngest_go_first() {
    let config = with(PolicyKind::LatencyFirst, Config { max_num_batched_tokens: 2, ..ROOMY });
    check("1+5 1+3@2", config, 16, "a[0..1]; a+1; b[0..1] a+1; b+1 a+1; b+1 a+1");
}

#[test]
fn throughput_first_defers_prompts_behind_its_burst() {
    let config = with(PolicyKind::ThroughputFirst, ROOMY);
    check("4+9 4+2@2", config, 16, "a[0..4]; a+1; a+1; a+1; a+1 b[0..4]; a+1 b+1; a+1; a+1; a+1");
}

/// A scheduler with its pool, driven by hand.
struct Hand {
    scheduler: Scheduler,
    pool: BlockPool,
    model: PagedModel,
    now: Micros,
}

impl Hand {
    fn new(config: Config, num_blocks: usize) -> Hand {
        Hand {
            scheduler: Scheduler::new(config),
            pool: BlockPool::new(num_blocks, 4),
            model: PagedModel { slots: vec![None; num_blocks * 4], block_size: 4 },
            now: Micros::ZERO,
        }
    }

    fn submit(&mut self, seq: u64, prompt: usize, output: usize) {
        self.scheduler.submit(request(seq, &job(prompt, output, 0)));
    }

    /// One step; what was planned, and who spoke.
    fn step(&mut self) -> Option<(StepPlan, Vec<SeqId>)> {
        let plan = self.scheduler.plan(&mut self.pool, self.now)?;
        let batch = self.scheduler.batch(&plan, &self.pool);
        let output = self.model.run(&batch);
        let events = self.scheduler.commit(plan.clone(), &output, &mut self.pool);
        let spoke = events.iter().filter(|(_, event)| matches!(event, Event::Token(_))).map(|(seq, _)| *seq).collect();
        Some((plan, spoke))
    }

    fn planned(&mut self) -> String {
        self.step().map_or("nothing".into(), |(plan, _)| describe(&plan))
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        for view in self.scheduler.sequences() {
            self.scheduler.abort(view.seq, &mut self.pool);
        }
    }
}

#[test]
fn fair_takes_turns_when_a_step_has_no_room_for_all() {
    let mut hand = Hand::new(ROOMY, 16);
    (0..3).for_each(|seq| hand.submit(seq, 1, 9));
    assert_eq!(hand.planned(), "a[0..1] b[0..1] c[0..1]");
    hand.scheduler.configure(Config { max_num_batched_tokens: 2, ..ROOMY });
    let turns: Vec<String> = (0..4).map(|_| hand.planned()).collect();
    assert_eq!(turns, ["a+1 b+1", "c+1 a+1", "b+1 c+1", "a+1 b+1"]);
}

#[test]
fn a_recomputed_chunk_of_one_token_is_no_decode() {
    let mut hand = Hand::new(Config { max_num_batched_tokens: 3, ..ROOMY }, 3);
    hand.submit(0, 3, 9);
    hand.submit(1, 1, 9);
    let mut recomputed = Vec::new();
    while let Some((plan, _)) = hand.step() {
        for chunk in plan.chunks.iter().filter(|chunk| chunk.seq == SeqId(1) && chunk.tokens.len() == 1) {
            // The first position is the prompt's, whatever was generated and lost since.
            assert_eq!(chunk.decode, chunk.tokens.start > 0 && chunk.sample, "{chunk:?}");
            recomputed.push(chunk.decode);
        }
    }
    assert!(recomputed.contains(&false) && recomputed.contains(&true), "{recomputed:?}");
}

#[test]
fn heat_halves_the_batch_and_others_take_turns() {
    let mut hand = Hand::new(Config { max_num_seqs: 4, ..ROOMY }, 64);
    (0..4).for_each(|seq| hand.submit(seq, 2, 30));
    assert_eq!(hand.planned(), "a[0..2] b[0..2] c[0..2] d[0..2]");
    hand.scheduler.set_thermal(Level::Serious);
    assert_eq!((hand.scheduler.seats(), hand.scheduler.free_seats()), (2, 0));
    let (plan, _) = hand.step().unwrap();
    assert_eq!(describe(&plan), "a+1 b+1");
    assert_eq!(plan.waits, [(SeqId(2), Wait::Thermal), (SeqId(3), Wait::Thermal)]);
    assert_eq!(hand.planned(), "c+1 d+1");
    hand.scheduler.set_thermal(Level::Emergency);
    assert_eq!(hand.planned(), "nothing");
    assert_eq!(hand.scheduler.running(), 4);
    hand.scheduler.set_thermal(Level::Nominal);
    assert_eq!(hand.planned(), "a+1 b+1 c+1 d+1");
}

#[test]
fn fewer_seats_drain_and_take_nobodys() {
    let mut hand = Hand::new(ROOMY, 64);
    (0..4).for_each(|seq| hand.submit(seq, 2, 3 + seq as usize));
    hand.planned();
    hand.scheduler.configure(Config { max_num_seqs: 2, ..ROOMY });
    hand.submit(4, 2, 1);
    let mut turns = Vec::new();
    while let Some((plan, _)) = hand.step() {
        assert!(plan.chunks.len() <= 4);
        turns.push(describe(&plan));
    }
    let seated = turns.iter().position(|turn| turn.contains("e[0..2]")).unwrap();
    // Two of the four had ended by then.
    assert!(turns[..seated].iter().any(|turn| turn.contains("b+1")) && !turns[seated].contains("a+1"), "{turns:?}");
}

#[test]
fn every_wait_has_its_cause() {
    let causes = |hand: &mut Hand| hand.step().unwrap().0.waits;
    // c needs more blocks than are left.
    let mut hand = Hand::new(ROOMY, 4);
    (0..3).for_each(|seq| hand.submit(seq, 5, 2));
    assert_eq!(causes(&mut hand), [(SeqId(2), Wait::Blocks)]);
    let mut hand = Hand::new(Config { max_num_seqs: 1, ..ROOMY }, 64);
    (0..2).for_each(|seq| hand.submit(seq, 5, 2));
    assert_eq!(causes(&mut hand), [(SeqId(1), Wait::Seats)]);
    let mut hand = Hand::new(ROOMY, 64);
    (0..2).for_each(|seq| hand.submit(seq, 16, 2));
    assert_eq!(causes(&mut hand), [(SeqId(1), Wait::TokenBudget)]);
    let mut hand = Hand::new(with(PolicyKind::ThroughputFirst, ROOMY), 64);
    hand.submit(0, 5, 9);
    hand.step();
    hand.submit(1, 5, 2);
    assert_eq!(causes(&mut hand), [(SeqId(1), Wait::DecodeBurst)]);
}

#[test]
fn deadlines_are_seen_wherever_the_sequence_is() {
    let mut hand = Hand::new(Config { max_num_seqs: 1, ..ROOMY }, 64);
    for seq in 0..3 {
        let raw = RawRequest {
            prompt: Prompt::Tokens(vec![5; 3]),
            max_tokens: Some(9),
            timeout_ms: (seq != 2).then_some(10 + seq),
            ..RawRequest::default()
        };
        let limits = Limits::new(4_096, 256, 8);
        let built = raw.check(&limits, 0).unwrap().into_requests(vec![5; 3], &[1], &limits, || SeqId(seq as u64));
        hand.scheduler.submit(built.unwrap().requests.remove(0));
    }
    hand.step();
    assert_eq!(hand.scheduler.overdue(Micros::from_millis(9)), []);
    let running = (SeqId(0), RequestError::Timeout { after_ms: 10 });
    assert_eq!(hand.scheduler.overdue(Micros::from_millis(10)), std::slice::from_ref(&running));
    let waiting = (SeqId(1), RequestError::Timeout { after_ms: 11 });
    assert_eq!(hand.scheduler.overdue(Micros::from_millis(99)), [running, waiting]);
}

/// A machine whose costs are known exactly, in microseconds: 2 ms a step, 500 µs a prompt token, 300 µs a decode, and
/// 1 ms for each prompt beyond the first.
fn cost_of(load: &StepLoad) -> Micros {
    let others = load.prefills.saturating_sub(1) as u64;
    Micros(2_000 + 500 * load.prefill_tokens as u64 + 300 * load.decode_tokens as u64 + 1_000 * others)
}

/// Four streams decode; then two very long prompts arrive. Returns the longest step and the longest gap between two tokens
/// of a stream, from when the cost of prefill is known; the steps with prefill, and the tokens of prompts not done with.
fn worst_with(kind: PolicyKind, max_stall: Option<Micros>) -> (Micros, Micros, usize, usize) {
    let config = Config { max_num_batched_tokens: 512, max_stall, ..with(kind, ROOMY) };
    let mut hand = Hand::new(config, 4_096);
    (0..4).for_each(|seq| hand.submit(seq, 20, 3_000));
    // Warm up: streams, and a prompt beside them.
    let mut heard = HashMap::new();
    let (mut longest, mut gap, mut steps) = (Micros::ZERO, Micros::ZERO, 0);
    // A burst of three steps lets a prompt go on in every fourth.
    let turns = if kind == PolicyKind::ThroughputFirst { 1_200 } else { 400 };
    for turn in 0..turns {
        match turn {
            40 => hand.submit(4, 600, 1),
            100 => (5..7).for_each(|seq| hand.submit(seq, 3_000, 1)),
            _ => {}
        }
        let (plan, spoke) = hand.step().expect("streams go on");
        let elapsed = cost_of(&plan.load);
        hand.scheduler.observe(&plan.load, elapsed);
        hand.now = hand.now + elapsed;
        if turn >= 100 {
            longest = longest.max(elapsed);
            steps += usize::from(plan.load.prefill_tokens > 0);
        }
        for seq in spoke.into_iter().filter(|seq| seq.0 < 4) {
            let before = heard.insert(seq, hand.now).unwrap_or(hand.now);
            if turn >= 100 {
                gap = gap.max(hand.now.since(before));
            }
        }
    }
    let computed =
        hand.scheduler.sequences().iter().filter(|view| view.seq.0 > 3).map(|view| view.computed_tokens).sum();
    (longest, gap, steps, computed)
}

#[test]
fn no_stream_waits_for_a_prompt_longer_than_it_may() {
    let limit = Micros::from_millis(50);
    for kind in PolicyKind::ALL {
        let (unlimited, _, few, _) = worst_with(kind, None);
        assert!(unlimited > Micros::from_millis(200), "{kind:?} has something to limit: {unlimited:?}");
        let (longest, gap, many, left) = worst_with(kind, Some(limit));
        assert_eq!(left, 0, "{kind:?}: the prompts were computed");
        assert!(longest <= limit, "{kind:?}: {longest:?}");
        assert!(gap <= limit, "{kind:?}: {gap:?}");
        // It uses the time that it has, and does not just crawl.
        assert!(longest > Micros(limit.0 * 7 / 10) && many > few, "{kind:?}: {longest:?} in {many} steps");
    }
}

#[test]
fn a_prompt_always_gets_a_little() {
    let (_, _, steps, left) = worst_with(PolicyKind::Fair, Some(Micros(1)));
    // The first of the two long prompts is done, and the second under way.
    assert_eq!(steps, 300);
    assert!(left >= 16 * 100, "{left}");
}

proptest! {
    /// The policy, the limits and the temperature change every few steps; answers do not.
    #[test]
    fn live_changes_change_no_answer(
        jobs in prop::collection::vec(any_job(), 1..12),
        changes in prop::collection::vec((any_policy(), 1usize..8, 1usize..24, 0usize..4), 1..20),
        every in 1usize..6,
    ) {
        let mut hand = Hand::new(ROOMY, 16);
        let mut outputs: HashMap<u64, Vec<TokenId>> = HashMap::new();
        let mut changes = changes.iter().cycle();
        let total: usize = jobs.iter().map(|job| job.prompt + job.output).sum();
        for turn in 0..total * (jobs.len() + 2) * 8 + 100 {
            for (seq, job) in jobs.iter().enumerate().filter(|(_, job)| job.arrival == turn) {
                hand.scheduler.submit(request(seq as u64, job));
            }
            if turn % every == 0 && let Some((kind, seats, tokens, level)) = changes.next() {
                let config = Config { max_num_seqs: *seats, max_num_batched_tokens: *tokens, ..with(*kind, ROOMY) };
                hand.scheduler.configure(config);
                hand.scheduler.set_thermal(Level::ALL[*level]);
            }
            let Some(plan) = hand.scheduler.plan(&mut hand.pool, Micros(turn as u64)) else { continue };
            let output = hand.model.run(&hand.scheduler.batch(&plan, &hand.pool));
            for (seq, event) in hand.scheduler.commit(plan, &output, &mut hand.pool) {
                if let Event::Token(sampled) = event {
                    outputs.entry(seq.0).or_default().push(sampled.token);
                }
            }
            hand.pool.check(hand.scheduler.tables());
        }
        prop_assert_eq!((hand.scheduler.running(), hand.scheduler.waiting(), hand.pool.used()), (0, 0, 0));
        for (seq, job) in jobs.iter().enumerate() {
            prop_assert_eq!(outputs.get(&(seq as u64)), Some(&solo(seq as u64, job)));
        }
    }
}
