//! The fit against costs that are known.

use proptest::prelude::*;

use super::*;

fn load(prefill: usize, prefills: usize, decode: usize, context: usize) -> StepLoad {
    StepLoad { steps: 1, prefill_tokens: prefill, decode_tokens: decode, prefills, context_tokens: context }
}

fn truth(load: &StepLoad) -> f64 {
    let [steps, prefill, decode, prefills, context] = load.features();
    4_000.0 * steps + 50.0 * prefill + 200.0 * decode + 600.0 * prefills + 0.01 * context
}

/// Step `i` of a varied workload: decode-only, mixed, and prefill-only steps.
fn varied(i: usize) -> StepLoad {
    let decode = if i % 7 == 3 { 0 } else { 1 + i * 5 % 17 };
    let prefills = if i.is_multiple_of(3) { 0 } else { i % 4 };
    let prefill = prefills * (16 + i * 37 % 200);
    load(prefill, prefills, decode, decode * (100 + i % 900) + prefill * (i * 13 % 2_000))
}

fn trained(steps: usize, noise: impl Fn(usize) -> f64) -> StepCost {
    let mut cost = StepCost::default();
    for i in 0..steps {
        let load = varied(i);
        cost.observe(&load, Micros((truth(&load) * noise(i)) as u64));
    }
    cost
}

/// Deterministic noise in -1..1.
fn wobble(i: usize) -> f64 {
    let hash = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    hash as f64 / f64::from(u32::MAX) * 2.0 - 1.0
}

fn relative_error(cost: &StepCost, load: &StepLoad) -> f64 {
    cost.predict(load).expect("trained").0 as f64 / truth(load) - 1.0
}

#[test]
fn an_exact_linear_cost_is_found() {
    let cost = trained(300, |_| 1.0);
    for i in 1_000..1_100 {
        let error = relative_error(&cost, &varied(i));
        // The least margin is 2 %.
        assert!((0.015..0.025).contains(&error), "{error} for {:?}: {cost:?}", varied(i));
    }
}

#[test]
fn under_noise_predictions_are_bounds() {
    let noise = |i| 1.0 + 0.1 * wobble(i);
    let mut cost = trained(200, noise);
    let mut above = 0;
    for i in 200..1_200 {
        let time = truth(&varied(i)) * noise(i);
        let predicted = cost.predict(&varied(i)).expect("trained").0 as f64;
        above += usize::from(time > predicted);
        assert!(predicted < 1.4 * truth(&varied(i)), "too careful: {predicted}");
        cost.observe(&varied(i), Micros(time as u64));
    }
    assert!(above <= 20, "{above} of 1000 steps took longer than predicted");
}

#[test]
fn one_outlier_changes_next_to_nothing() {
    let mut cost = trained(300, |_| 1.0);
    let before = cost.predict(&varied(5)).expect("trained").0 as f64;
    cost.observe(&varied(301), Micros(60_000_000));
    (302..330).for_each(|i| cost.observe(&varied(i), Micros(truth(&varied(i)) as u64)));
    let after = cost.predict(&varied(5)).expect("trained").0 as f64;
    assert!((after / before - 1.0).abs() < 0.1, "{before} became {after}");
}

#[test]
fn a_lasting_change_is_followed() {
    let mut cost = trained(300, |_| 1.0);
    (300..700).for_each(|i| cost.observe(&varied(i), Micros((5.0 * truth(&varied(i))) as u64)));
    let ratio = cost.predict(&varied(5)).expect("trained").0 as f64 / truth(&varied(5));
    assert!((4.8..5.6).contains(&ratio), "{ratio}");
}

#[test]
fn nothing_is_predicted_that_was_not_seen() {
    let mut cost = StepCost::default();
    assert_eq!(cost.predict(&load(0, 0, 1, 1)), None);
    (0..50).for_each(|i| cost.observe(&load(0, 0, 4, 100 + i), Micros(5_000)));
    assert!(cost.predict(&load(0, 0, 8, 200)).is_some());
    assert_eq!(cost.predict(&load(32, 1, 4, 100)), None, "no prefill was ever measured");
    cost.observe(&StepLoad::default(), Micros(1));
    assert_eq!(cost.samples(), 50, "no step, no sample");
}

#[test]
fn chunks_of_one_size_do_not_hide_the_cost_of_longer_ones() {
    let mut cost = StepCost::default();
    for i in 0..40 {
        let load = if i % 2 == 0 { load(32, 1, 4, 4_000) } else { load(0, 0, 4, 4_000) };
        cost.observe(&load, Micros(truth(&load) as u64));
    }
    for prefill in [32, 64, 512, 4_096] {
        let load = load(prefill, 1, 4, 4_000);
        let predicted = cost.predict(&load).expect("trained").0 as f64;
        assert!(predicted > 0.999 * truth(&load), "{prefill} tokens: {predicted} of {}", truth(&load));
    }
}

#[test]
fn prefills_are_remembered_through_a_long_decode() {
    let mut cost = trained(300, |_| 1.0);
    for i in 0..300_000 {
        let load = load(0, 0, 1 + i % 8, 1_000 + i % 500);
        cost.observe(&load, Micros(truth(&load) as u64));
    }
    let error = relative_error(&cost, &load(500, 2, 8, 90_000));
    assert!((0.015..0.025).contains(&error), "{error}");
}

#[test]
fn the_longest_chunk_fits_and_one_more_does_not() {
    let cost = trained(300, |_| 1.0);
    let step = load(0, 0, 8, 4_000);
    let limit = Micros(20_000);
    let longest = cost.longest_chunk(step, 500, 10_000, limit).expect("trained");
    assert!((100..400).contains(&longest), "{longest}");
    assert!(cost.predict(&(step + StepLoad::prefill(500, longest))) <= Some(limit));
    assert!(cost.predict(&(step + StepLoad::prefill(500, longest + 1))) > Some(limit));
    assert_eq!(cost.longest_chunk(step, 500, 7, limit), Some(7));
    assert_eq!(cost.longest_chunk(step, 500, 100, Micros(1)), Some(0));
}

proptest! {
    #[test]
    fn whatever_it_is_told_it_stays_sane(
        samples in prop::collection::vec((0usize..3, 0usize..usize::MAX / 8, 0usize..999, 0usize..9, 0usize..usize::MAX / 8, any::<u64>()), 0..60),
    ) {
        let mut cost = StepCost::default();
        for (steps, prefill_tokens, decode_tokens, prefills, context_tokens, elapsed) in samples {
            let load = StepLoad { steps, prefill_tokens, decode_tokens, prefills, context_tokens };
            cost.observe(&load, Micros(elapsed));
            prop_assert!(cost.coefficients.iter().all(|c| c.is_finite() && *c >= 0.0), "{:?}", cost);
            prop_assert!(cost.spread().is_finite() && cost.spread() >= 0.0);
            let twice = load + load;
            prop_assert!(cost.predict(&load) <= cost.predict(&twice), "more work takes no less");
        }
    }
}

/// The worst relative error of a coefficient.
fn worst_coefficient(cost: &StepCost) -> f64 {
    let expected = [4_000.0, 50.0, 200.0, 600.0, 0.01];
    let errors = cost.coefficients.into_iter().zip(expected).map(|(found, truth)| (found / truth - 1.0).abs());
    errors.fold(0.0, f64::max)
}

#[test]
fn a_long_memory_finds_under_noise_what_a_short_one_cannot() {
    let noisy = |mut cost: StepCost| {
        for i in 0..10_000 {
            let load = varied(i);
            cost.observe(&load, Micros((truth(&load) * (1.0 + 0.3 * wobble(i))) as u64));
        }
        cost
    };
    let (quick, lasting) = (noisy(StepCost::default()), noisy(StepCost::lasting()));
    assert!(worst_coefficient(&lasting) < 0.1, "{lasting:?}");
    assert!(worst_coefficient(&quick) > 2.0 * worst_coefficient(&lasting), "{quick:?}");
    // Uniform noise of 30 % has a mean absolute error of 15 %.
    assert!((0.1..0.2).contains(&lasting.spread()), "{}", lasting.spread());
}

#[test]
fn a_long_memory_keeps_prefills_through_a_long_decode() {
    let mut cost = StepCost::lasting();
    (0..1_000).for_each(|i| cost.observe(&varied(i), Micros(truth(&varied(i)) as u64)));
    for i in 0..5_000 {
        let load = load(0, 0, 1, 100 + i % 50);
        cost.observe(&load, Micros((truth(&load) * 1.2) as u64));
    }
    let prefill = load(300, 1, 0, 300 * 150);
    let error = dot(&cost.coefficients, &prefill.features()) / truth(&prefill) - 1.0;
    assert!(error.abs() < 0.1, "{error} {cost:?}");
}
