//! Scenario files, and what they draw.

use super::*;

fn one(arrivals: &str, class: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(&format!("name: x\narrivals:\n  {arrivals}\nrequests:\n  - {{{class}}}\n"))
}

const FLAT: &str = "{process: poisson, rate: [{at_s: 0, rps: 50}, {at_s: 20, rps: 50}]}";
const CHAT: &str = "name: chat, share: 1, prompt_tokens: 8, output_tokens: {min: 2, max: 4}";

fn arrivals(text: &str) -> String {
    format!("{{{text}}}")
}

#[test]
fn the_built_in_ones_are_what_they_say() {
    let names: Vec<String> = Scenario::all().into_iter().map(|scenario| scenario.name).collect();
    assert_eq!(names, ["steady_state", "ramp_up", "spike_test", "mixed_priority", "long_tail"]);
    assert_eq!(Scenario::names().len(), BUILT_IN.len());
    let rate = |name: &str, from: f64, to: f64| {
        let found = Scenario::built_in(name).unwrap().arrivals(3);
        let within = |arrival: &&Arrival| (from..to).contains(&arrival.at.as_secs_f64());
        found.iter().filter(within).count() as f64 / (to - from)
    };
    for (name, from, to, expected) in [
        ("steady_state", 0.0, 60.0, 100.0),
        ("ramp_up", 0.0, 6.0, 34.5),
        ("ramp_up", 54.0, 60.0, 475.5),
        ("spike_test", 0.0, 20.0, 100.0),
        ("spike_test", 20.0, 30.0, 1_000.0),
        ("spike_test", 30.0, 60.0, 100.0),
    ] {
        let found = rate(name, from, to);
        assert!((found / expected - 1.0).abs() < 0.1, "{name} {from}..{to}: {found}");
    }
    let shares = |name: &str| {
        let scenario = Scenario::built_in(name).unwrap();
        let drawn = scenario.arrivals(1);
        let share = |class| drawn.iter().filter(|a| a.class == class).count() as f64 / drawn.len() as f64;
        (0..scenario.classes.len()).map(|class| (share(class) * 100.0).round()).collect::<Vec<_>>()
    };
    for (name, expected) in [("mixed_priority", vec![80.0, 15.0, 5.0]), ("long_tail", vec![70.0, 30.0])] {
        assert!(shares(name).iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 2.0), "{name}: {:?}", shares(name));
    }
}

#[test]
fn the_same_seed_draws_the_same_and_rates_do_not_change_who_comes() {
    let scenario = Scenario::built_in("long_tail").unwrap();
    assert_eq!(scenario.arrivals(5), scenario.arrivals(5));
    assert_ne!(scenario.arrivals(5), scenario.arrivals(6));
    let lengths = |s: Scenario| s.arrivals(5).iter().map(|a| (a.class, a.prompt_tokens)).take(100).collect::<Vec<_>>();
    assert_eq!(lengths(scenario.scaled(0.1)), lengths(scenario));
}

#[test]
fn processes_differ_in_their_gaps() {
    let gaps = |arrivals: &str| {
        let drawn = one(arrivals, CHAT).unwrap().arrivals(1);
        assert!(
            drawn.is_sorted_by_key(|arrival| arrival.at) && drawn.iter().all(|a| (2..=4).contains(&a.output_tokens))
        );
        drawn.windows(2).map(|pair| pair[1].at.since(pair[0].at).0).collect::<Vec<_>>()
    };
    let rate = "rate: [{at_s: 0, rps: 50}, {at_s: 20, rps: 50}]";
    let constant = gaps(&arrivals(&format!("process: constant, {rate}")));
    assert!(constant.len() == 999 && constant.iter().all(|gap| gap.abs_diff(20_000) <= 1));
    let poisson = gaps(FLAT);
    assert!(poisson.iter().any(|gap| *gap < 2_000) && poisson.iter().any(|gap| *gap > 60_000));
    let burst = gaps(&arrivals(&format!("process: burst, burst: 10, {rate}")));
    assert_eq!(burst.iter().filter(|gap| **gap == 0).count(), (burst.len() + 1) / 10 * 9);
}

#[test]
fn scaling_means_a_share_of_what_the_engine_can_do() {
    let (cost, capacity) = (CostModel::simulated_worker(), Capacity { seats: 64, step_tokens: 512 });
    for scenario in Scenario::all() {
        let factor = scenario.factor(0.7, &cost, &capacity);
        assert!(factor < 1.0, "{} saturates the simulated worker as it stands", scenario.name);
        let again = scenario.scaled(factor).factor(0.7, &cost, &capacity);
        assert!((again - 1.0).abs() < 1e-9, "{}: {again}", scenario.name);
    }
}

#[test]
fn bad_files_are_refused_by_field() {
    let field = |arrivals: &str, class: &str| match one(arrivals, class) {
        Err(ScenarioError::Value { field, .. }) => field,
        Err(ScenarioError::Syntax(_)) => "syntax".into(),
        Ok(_) => "fine".into(),
    };
    let rate = |points: &str| arrivals(&format!("process: poisson, rate: [{points}]"));
    for (arrivals, expected) in [
        (FLAT.to_owned(), "fine"),
        (rate("{at_s: 0, rps: 1}"), "arrivals.rate"),
        (rate("{at_s: 1, rps: 1}, {at_s: 2, rps: 1}"), "arrivals.rate"),
        (rate("{at_s: 0, rps: 1}, {at_s: 2, rps: 1}, {at_s: 1, rps: 1}"), "arrivals.rate"),
        (rate("{at_s: 0, rps: -1}, {at_s: 2, rps: 1}"), "arrivals.rate"),
        (rate("{at_s: 0, rps: 0}, {at_s: 2, rps: 0}"), "arrivals.rate"),
        (rate("{at_s: 0, rps: 1}, {at_s: 2, rps: 1, colour: 3}"), "syntax"),
        (FLAT.replace("poisson", "uniform"), "arrivals.process"),
        (FLAT.replace("poisson", "burst"), "arrivals.burst"),
        (FLAT.replace("poisson", "poisson, burst: 2"), "arrivals.burst"),
    ] {
        assert_eq!(field(&arrivals, CHAT), expected, "{arrivals}");
    }
    for (class, expected) in [
        (CHAT.replace("share: 1", "share: 0"), "requests[0].share"),
        (CHAT.replace("share: 1", "share: 1, priority: urgent"), "requests[0].priority"),
        (CHAT.replace("prompt_tokens: 8", "prompt_tokens: 0"), "requests[0].prompt_tokens"),
        (CHAT.replace("min: 2", "min: 5"), "requests[0].output_tokens"),
        (CHAT.replace("min: 2", "least: 2"), "syntax"),
    ] {
        assert_eq!(field(FLAT, &class), expected, "{class}");
    }
    assert!(matches!(Scenario::parse("- 1"), Err(ScenarioError::Syntax(_))));
}
