//! Draws against frequencies, filters against definitions, logprobs against a plain softmax.

use proptest::prelude::*;

use super::*;

fn params(temperature: f32) -> SamplingParams {
    SamplingParams { temperature, ..SamplingParams::GREEDY }
}

fn token(logits: &[f32], params: &SamplingParams, position: u32) -> TokenId {
    sample(logits, params, position, None).expect("finite").token
}

/// The set of tokens that 2,000 positions draw.
fn drawn(logits: &[f32], params: &SamplingParams) -> Vec<TokenId> {
    let mut tokens: Vec<_> = (0..2_000).map(|position| token(logits, params, position)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

#[test]
fn greedy_takes_the_highest_and_ties_go_to_the_lowest_id() {
    assert_eq!(token(&[0.0, 3.0, 3.0, -1.0], &SamplingParams::GREEDY, 9), 1);
    assert_eq!(token(&[f32::NEG_INFINITY, -5.0], &SamplingParams::GREEDY, 0), 1);
}

#[test]
fn values_that_are_not_finite_are_refused() {
    for logits in [vec![0.0, f32::NAN], vec![f32::INFINITY, 0.0], vec![f32::NEG_INFINITY; 3], vec![]] {
        assert_eq!(sample(&logits, &params(1.0), 0, None), Err(NonFinite), "{logits:?}");
        assert_eq!(sample(&logits, &SamplingParams::GREEDY, 0, Some(2)), Err(NonFinite), "{logits:?}");
    }
}

#[test]
fn frequencies_follow_the_softmax_at_any_temperature() {
    let logits = [1.0f32, 2.0, 0.0, 3.0];
    for temperature in [0.5f32, 1.0, 2.0] {
        let weights: Vec<f64> = logits.iter().map(|l| (f64::from(*l) / f64::from(temperature)).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut counts = [0u32; 4];
        for position in 0..20_000 {
            counts[token(&logits, &params(temperature), position) as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(&weights) {
            let (seen, expected) = (f64::from(*count) / 20_000.0, weight / total);
            assert!((seen - expected).abs() < 0.015, "t {temperature}: {seen} against {expected}");
        }
    }
}

#[test]
fn top_k_keeps_the_k_highest_with_ties_by_id() {
    let logits = [1.0, 2.0, 2.0, 2.0, 0.0];
    assert_eq!(drawn(&logits, &SamplingParams { top_k: 2, ..params(1.0) }), [1, 2]);
    assert_eq!(drawn(&logits, &SamplingParams { top_k: 9, ..params(5.0) }), [0, 1, 2, 3, 4]);
}

#[test]
fn top_p_keeps_the_smallest_nucleus() {
    // Probabilities 0.5, 0.3, 0.15, 0.05.
    let logits = [0.15f32.ln(), 0.5f32.ln(), 0.05f32.ln(), 0.3f32.ln()];
    assert_eq!(drawn(&logits, &SamplingParams { top_p: 0.45, ..params(1.0) }), [1]);
    assert_eq!(drawn(&logits, &SamplingParams { top_p: 0.7, ..params(1.0) }), [1, 3]);
    assert_eq!(drawn(&logits, &SamplingParams { top_p: 0.0, ..params(1.0) }), [1]);
    assert_eq!(drawn(&logits, &params(1.0)), [0, 1, 2, 3]);
}

#[test]
fn top_p_over_a_flat_vocabulary_needs_more_than_one_head() {
    let logits = vec![0.0f32; 1_000];
    let mut candidates = Vec::new();
    filters::weigh(&logits, 0.0, &params(1.0), &mut candidates);
    filters::top_p(&mut candidates, 0.5);
    assert_eq!(candidates.len(), 500);
    assert!(candidates.iter().enumerate().all(|(i, c)| c.token as usize == i), "ties keep the lowest ids");
}

#[test]
fn min_p_is_relative_to_the_best() {
    let logits = [0.5f32.ln(), 0.3f32.ln(), 0.04f32.ln()];
    assert_eq!(drawn(&logits, &SamplingParams { min_p: 0.1, ..params(1.0) }), [0, 1]);
    assert_eq!(drawn(&logits, &SamplingParams { min_p: 1.0, ..params(1.0) }), [0]);
}

#[test]
fn typical_prefers_what_is_as_surprising_as_expected() {
    // Probabilities 0.5, 0.25, 0.2, 0.05: the entropy, 1.16 nats, is nearest to the surprise of 0.25 (1.39), then of 0.2
    // (1.61) and 0.5 (0.69) with 0.45 and 0.47, then of 0.05.
    let logits = [0.5f32.ln(), 0.25f32.ln(), 0.2f32.ln(), 0.05f32.ln()];
    let typical = |p| drawn(&logits, &SamplingParams { typical_p: p, ..params(1.0) });
    assert_eq!(typical(0.0), [1]);
    assert_eq!(typical(0.2), [1]);
    assert_eq!(typical(0.4), [1, 2]);
    assert_eq!(typical(0.9), [0, 1, 2]);
    assert_eq!(typical(1.0), [0, 1, 2, 3]);
}

#[test]
fn tiny_temperatures_are_greedy_and_not_nan() {
    assert_eq!(drawn(&[1.0, 1.5, -2.0], &params(1e-45)), [1]);
}

#[test]
fn a_draw_depends_on_seed_and_position_only() {
    let logits: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin()).collect();
    let with_seed =
        |seed| (0..64).map(|p| token(&logits, &SamplingParams { seed, ..params(1.0) }, p)).collect::<Vec<_>>();
    assert_eq!(with_seed(7), with_seed(7));
    assert_ne!(with_seed(7), with_seed(8));
}

#[test]
fn uniform_fills_its_range_evenly() {
    let mut tenths = [0u32; 10];
    for position in 0..10_000 {
        let x = rng::uniform(42, position);
        assert!((0.0..1.0).contains(&x));
        tenths[(x * 10.0) as usize] += 1;
    }
    assert!(tenths.iter().all(|&n| (850..1_150).contains(&n)), "{tenths:?}");
}

proptest! {
    #[test]
    fn logprobs_are_the_log_softmax_best_first(logits in prop::collection::vec(-20f32..20.0, 1..200), count in 0u32..20) {
        let sampled = sample(&logits, &SamplingParams::GREEDY, 0, Some(count)).unwrap();
        let logprobs = sampled.logprobs.unwrap();
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let expected = |token: u32| f64::from(logits[token as usize]) - total.ln();
        prop_assert!((f64::from(logprobs.sampled) - expected(sampled.token)).abs() < 1e-5);
        prop_assert_eq!(logprobs.top.len(), (count as usize).min(logits.len()));
        prop_assert!(logprobs.top.iter().all(|(token, lp)| (f64::from(*lp) - expected(*token)).abs() < 1e-5));
        prop_assert!(logprobs.top.windows(2).all(|w| w[0].1 >= w[1].1));
        if count > 0 {
            prop_assert_eq!(logprobs.top[0].0, sampled.token, "greedy is the first");
        }
        let mut sorted: Vec<TokenId> = (0..logits.len() as TokenId).collect();
        sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]));
        sorted.truncate(count as usize);
        prop_assert_eq!(logprobs.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), sorted, "ties by lowest id");
    }

    #[test]
    fn filters_never_empty_the_field(
        logits in prop::collection::vec(-50f32..50.0, 1..300),
        temperature in 1e-6f32..2.0, top_p in 0f32..1.0, top_k in 0u32..10, min_p in 0f32..1.0, typical_p in 0f32..1.1,
        position: u32, seed: u64,
    ) {
        let params = SamplingParams { temperature, top_p, top_k, min_p, typical_p, seed };
        let token = sample(&logits, &params, position, None).unwrap().token;
        prop_assert!((token as usize) < logits.len());
        if top_k == 1 {
            prop_assert_eq!(token, greedy(&logits).unwrap());
        }
    }
}
