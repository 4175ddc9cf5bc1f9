//! Long prompts at streams that decode, in virtual time against a cost that the scheduler has to learn.

use std::collections::HashMap;

use super::policy::thermal::Level;
use super::tests::*;
use super::*;
use crate::kv::BlockPool;
use crate::request::Event;
use crate::request::Priority;
use crate::step::{Sampled, StepOutput};
use crate::units::{Micros, SeqId};

const MAX_STALL: Micros = Micros::from_millis(50);

/// Steps of the simulated machine, in microseconds.
fn true_cost(load: &StepLoad) -> f64 {
    3_000.0
        + 60.0 * load.prefill_tokens as f64
        + 150.0 * load.decode_tokens as f64
        + 700.0 * load.prefills as f64
        + 0.02 * load.context_tokens as f64
}

struct Outcome {
    /// Slowest step, and largest gap between two tokens of a stream, after the warm-up.
    worst_step: Micros,
    worst_gap: Micros,
    /// From the arrival of the prompts until all of them are computed.
    prefill_time: Micros,
    steps: usize,
    /// Of which took longer than the limit.
    late: usize,
}

fn attack(config: Config, streams: usize, prompts: &[usize], noise: impl Fn(usize) -> f64) -> Outcome {
    attack_in_heat(Level::Nominal, config, streams, prompts, noise)
}

/// Streams of short prompts decode; after 40 steps `prompts` arrive, and 20 later it gets hot. Ends when all prompts have
/// their first token.
fn attack_in_heat(
    heat: Level,
    config: Config,
    streams: usize,
    prompts: &[usize],
    noise: impl Fn(usize) -> f64,
) -> Outcome {
    let mut pool = BlockPool::new(8_192, 16);
    let mut scheduler = Scheduler::new(config);
    (0..streams as u64).for_each(|seq| scheduler.submit(request(seq, &job(12, 3_000, 0))));
    let (mut now, mut attack_at, mut first_tokens) = (Micros::ZERO, Micros::ZERO, 0);
    let mut last_token: HashMap<SeqId, Micros> = HashMap::new();
    let (mut worst_step, mut worst_gap, mut late) = (Micros::ZERO, Micros::ZERO, 0);
    for step in 0..20_000 {
        if step == 40 {
            attack_at = now;
            let arrive = |(i, &length)| scheduler.submit(request(100 + i as u64, &job(length, 1_000, 0)));
            prompts.iter().enumerate().for_each(arrive);
        }
        if step == 60 {
            scheduler.set_thermal(heat);
        }
        let plan = scheduler.plan(&mut pool, now).expect("live");
        let cost = Micros((true_cost(&plan.load) * noise(step)) as u64);
        now = now + cost;
        scheduler.observe(&plan.load, cost);
        let decoding = plan.load.decode_tokens > 0;
        let tokens = plan.chunks.iter().filter(|chunk| chunk.sample);
        let sampled = |seq| (seq, crate::step::Outcome::Token(Sampled { token: 9, logprobs: None }));
        let output = StepOutput { outcomes: tokens.map(|chunk| sampled(chunk.seq)).collect(), ..StepOutput::default() };
        let events = scheduler.commit(plan, &output, &mut pool).into_iter();
        for (seq, _) in events.filter(|(_, event)| matches!(event, Event::Token(_))) {
            let before = last_token.insert(seq, now);
            first_tokens += usize::from(before.is_none() && seq.0 >= 100);
            if let Some(before) = before.filter(|_| step >= 20) {
                worst_gap = worst_gap.max(now.since(before));
            }
        }
        if decoding && step >= 20 {
            worst_step = worst_step.max(cost);
            late += usize::from(cost > MAX_STALL);
        }
        if step > 40 && first_tokens == prompts.len() {
            scheduler.sequences(&pool).iter().for_each(|view| _ = scheduler.abort(view.seq, &mut pool));
            return Outcome { worst_step, worst_gap, prefill_time: now.since(attack_at), steps: step - 40, late };
        }
    }
    panic!("the prompts were never computed");
}

fn config(kind: PolicyKind, max_stall: Option<Micros>) -> Config {
    Config {
        max_num_seqs: 64,
        max_num_batched_tokens: 2_048,
        max_model_len: 100_000,
        policy: PolicyConfig { kind, ..FAIR },
        max_stall,
        ..ROOMY
    }
}

/// What the policy makes of [`MAX_STALL`] beside eight streams of class normal.
fn limit(kind: PolicyKind) -> Micros {
    let config = config(kind, Some(MAX_STALL));
    let promise = config.slo.promise(Priority::Normal).map(|promise| promise.itl);
    config.stall_limit(8, promise).expect("a limit")
}

/// Deterministic noise in -1..1.
fn wobble(i: usize) -> f64 {
    let hash = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    hash as f64 / f64::from(u32::MAX) * 2.0 - 1.0
}

#[test]
fn a_long_prompt_never_stalls_the_streams() {
    let free = attack(config(PolicyKind::Fair, None), 8, &[30_000], |_| 1.0);
    assert!(free.worst_gap > Micros::from_millis(700), "without the limit they stall: {:?}", free.worst_gap);
    for kind in PolicyKind::ALL {
        let held = attack(config(kind, Some(MAX_STALL)), 8, &[30_000], |_| 1.0);
        assert!(held.worst_step <= limit(kind), "{kind:?}: a step took {:?}", held.worst_step);
        assert!(held.worst_gap <= limit(kind), "{kind:?}: a stream waited {:?}", held.worst_gap);
        // Of what the limit allows nearly all is used: decodes and fixed costs alone make it a tenth slower.
        let bound = if kind == PolicyKind::ThroughputFirst { 2.0 } else { 1.12 };
        let slower = held.prefill_time.as_secs_f64() / free.prefill_time.as_secs_f64();
        assert!(slower < bound, "{kind:?}: the prompt took {slower} times as long, {} steps", held.steps);
    }
}

#[test]
fn many_prompts_at_once_never_stall_the_streams() {
    for kind in PolicyKind::ALL {
        let prompts = [900, 20, 3_000, 40, 5, 64, 17, 2_000, 300, 8];
        let held = attack(config(kind, Some(MAX_STALL)), 8, &prompts, |_| 1.0);
        assert!(held.worst_step <= limit(kind) && held.worst_gap <= limit(kind), "{kind:?}: {:?}", held.worst_gap);
    }
}

#[test]
fn a_noisy_machine_rarely_stalls_a_stream() {
    let (mut late, mut steps) = (0, 0);
    for seed in 0..50 {
        let noise = |i| 1.0 + 0.1 * wobble(i + seed * 9_999);
        let held = attack(config(PolicyKind::Fair, Some(MAX_STALL)), 8, &[20_000], noise);
        assert!(held.worst_gap <= Micros(MAX_STALL.0 * 11 / 10), "seed {seed}: {:?}", held.worst_gap);
        (late, steps) = (late + held.late, steps + held.steps);
    }
    assert!(late * 500 < steps, "{late} of {steps} steps were late");
}

#[test]
fn a_hiccup_of_the_machine_does_not_outlast_itself() {
    let hiccup = |i| if i % 97 == 60 { 4.0 } else { 1.0 };
    let calm = attack(config(PolicyKind::Fair, Some(MAX_STALL)), 8, &[20_000], |_| 1.0);
    let held = attack(config(PolicyKind::Fair, Some(MAX_STALL)), 8, &[20_000], hiccup);
    assert!(held.steps < calm.steps * 6 / 5, "{} steps instead of {}", held.steps, calm.steps);
}

#[test]
fn prompts_first_only_until_a_stream_is_late() {
    // 16 tokens per step are steps of 5 ms, and the prompt wants them all.
    let limit = Micros::from_millis(25);
    let config =
        Config { max_num_seqs: 8, max_num_batched_tokens: 16, ..config(PolicyKind::LatencyFirst, Some(limit)) };
    let held = attack(config, 4, &[2_000], |_| 1.0);
    assert!(held.worst_gap <= limit, "{:?}", held.worst_gap);
    assert!(held.worst_gap > Micros::from_millis(15), "the prompt went first: {:?}", held.worst_gap);
}

#[test]
fn streams_that_take_turns_are_not_stalled_either() {
    for (seats, streams) in [(8, 6), (64, 40)] {
        // In the heat two thirds of the streams have a token in each step.
        let config = Config { max_num_seqs: seats, ..config(PolicyKind::LatencyFirst, Some(MAX_STALL)) };
        let held = attack_in_heat(Level::Serious, config, streams, &[20_000], |_| 1.0);
        assert!(held.worst_gap <= MAX_STALL, "{streams} streams: {:?}", held.worst_gap);
        assert!(held.steps < 1_000, "{streams} streams: {} steps", held.steps);
    }
}

#[test]
fn a_limit_that_cannot_be_kept_still_lets_the_prompt_through() {
    let held = attack(config(PolicyKind::Fair, Some(Micros(1))), 8, &[800], |_| 1.0);
    assert!(held.steps <= 800 / 16, "16 tokens in each step at least: {} steps", held.steps);
}
