//! Levels against readings, second by second.

use proptest::prelude::*;

use super::*;

/// One reading per entry, `step_s` apart; answers the level after each, abbreviated: `n f s c e`.
fn levels(readings: &[f64], step_s: u64) -> String {
    let mut governor = Governor::new(Thresholds::default());
    let mut now = Micros::ZERO;
    let mut level = |celsius: &f64| {
        now = now + Micros::from_millis(step_s * 1_000);
        // Reading::Lost is spelled -1, which is as incredible.
        governor.observe(Reading::Celsius(*celsius), now);
        governor.level().name().chars().next().expect("a name")
    };
    readings.iter().map(&mut level).collect()
}

#[test]
fn levels_rise_at_thresholds_and_fall_five_degrees_below() {
    assert_eq!(levels(&[69.9, 70.0, 66.0, 65.1, 65.0], 10), "nfffn");
    assert_eq!(levels(&[80.0, 76.0, 75.0, 71.0, 65.1, 64.0], 10), "ssfffn");
    assert_eq!(levels(&[105.0, 105.0, 96.0, 94.0, 86.0, 40.0], 10), "neeccn");
}

#[test]
fn at_most_one_change_in_ten_seconds() {
    assert_eq!(levels(&[70.0, 80.0, 80.0, 20.0, 20.0], 5), "ffssn");
    let hovering: Vec<f64> = (0..60).map(|i| if i % 2 == 0 { 71.0 } else { 20.0 }).collect();
    let changes = levels(&hovering, 1).as_bytes().windows(2).filter(|w| w[0] != w[1]).count();
    assert!(changes <= 6, "{changes} changes in a minute");
}

#[test]
fn one_spike_is_no_emergency() {
    assert_eq!(levels(&[60.0, 140.0, 60.0, 140.0, 60.0], 10), "nnnnn");
    assert_eq!(levels(&[85.0, 95.0, 85.0, 95.0, 95.0], 10), "ssssc");
    // The second of two hot readings confirms only what both say.
    assert_eq!(levels(&[92.0, 110.0, 110.0], 10), "nce");
    assert_eq!(levels(&[92.0, -1.0, 92.0, 92.0], 10), "nnnc", "a loss between them: not in a row");
}

#[test]
fn a_lost_or_lying_sensor_is_no_emergency() {
    for lie in [-1.0, f64::NAN, 151.0, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(levels(&[85.0, lie, lie, lie, lie, lie, lie, lie, lie], 10), "sssssssnn", "{lie}");
        assert_eq!(levels(&[lie; 10], 10), "nnnnnnnnnn", "{lie}");
    }
    assert_eq!(
        levels(&[85.0, -1.0, -1.0, 85.0, -1.0, -1.0, -1.0, -1.0, -1.0], 10),
        "sssssssss",
        "it came back between"
    );
    let mut governor = Governor::new(Thresholds::default());
    assert_eq!(governor.observe(Reading::Lost, Micros::ZERO), None);
}

#[test]
fn the_operator_has_the_word() {
    let second = |s: u64| Micros::from_millis(s * 1_000);
    let mut governor = Governor::new(Thresholds::default());
    let change = |from, to| Some(Change { from, to });
    assert_eq!(governor.force(Some(Level::Emergency), second(1)), change(Level::Nominal, Level::Emergency));
    assert_eq!(governor.force(Some(Level::Emergency), second(1)), None);
    assert_eq!(governor.force(Some(Level::Serious), second(2)), change(Level::Emergency, Level::Serious));
    assert_eq!(governor.observe(Reading::Celsius(75.0), second(30)), None, "followed, not obeyed");
    assert_eq!((governor.level(), governor.forced()), (Level::Serious, Some(Level::Serious)));
    assert_eq!(governor.force(None, second(31)), change(Level::Serious, Level::Fair));
    assert_eq!(governor.observe(Reading::Celsius(20.0), second(40)), None, "within 10 s of a change");
    assert_eq!(governor.observe(Reading::Celsius(20.0), second(41)), change(Level::Fair, Level::Nominal));
}

#[test]
fn names_and_thresholds() {
    assert!(Level::ALL.is_sorted());
    assert!(Level::ALL.iter().all(|&level| Level::from_name(level.name()) == Some(level)));
    assert_eq!((Level::from_name("EMERGENCY"), Level::from_name("hot")), (Some(Level::Emergency), None));
    assert!(Thresholds::default().check().is_ok());
    let with = |fair, emergency| Thresholds { fair, emergency, ..Thresholds::default() };
    for bad in [with(85.0, 100.0), with(-1.0, 100.0), with(f64::NAN, 100.0), with(70.0, f64::INFINITY)] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn whatever_the_sensor_says_levels_change_rarely_and_no_single_reading_is_critical(
        readings in prop::collection::vec((prop_oneof![4 => 40.0f64..130.0, 1 => Just(f64::NAN), 1 => -50.0f64..300.0], 0u64..15_000), 0..200),
    ) {
        let mut governor = Governor::new(Thresholds::default());
        let (mut now, mut changed_at, mut before) = (Micros::ZERO, None, 0.0);
        for (celsius, after_ms) in readings {
            now = now + Micros::from_millis(after_ms);
            let from = governor.level();
            if let Some(change) = governor.observe(Reading::Celsius(celsius), now) {
                prop_assert_eq!((change.from, change.to), (from, governor.level()));
                prop_assert!(changed_at.is_none_or(|at| now.since(at) >= MIN_INTERVAL));
                let hot = change.to > change.from && change.to >= Level::Critical;
                prop_assert!(!hot || (celsius >= 90.0 && before >= 90.0), "{before} and {celsius} made {change:?}");
                changed_at = Some(now);
            }
            before = celsius;
        }
    }
}
