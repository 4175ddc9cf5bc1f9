//! Every setting at both ends of its range, through all that may change it: what one takes all take, and what is one step
//! beyond all refuse, in the same words. `aging_ms: 5000000` once was taken at the start and then refused at each reload.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_core::settings::{Effect, Kind, Value};
use forebay_core::units::Micros;
use forebay_turn::control::{Change, Group, Tuning, Value as Wire, knobs};

use super::load::{Loaded, load};
use super::table::{Row, find, table};

/// A key and its value.
type Pair = (&'static str, String);

/// The first and the last value of a range, and every name of a choice.
fn ends(kind: &Kind) -> Vec<String> {
    let show = |values: [Value; 2]| values.map(|value| kind.show(&value)).to_vec();
    match kind {
        Kind::Bool => vec!["false".into(), "true".into()],
        Kind::OneOf(names) => names.iter().map(|name| (*name).to_owned()).collect(),
        Kind::Whole { least, most } => show([Value::Whole(*least), Value::Whole(*most)]),
        Kind::AutoWhole { least, most } => vec!["auto".into(), least.to_string(), most.to_string()],
        Kind::Real { least, most } => show([Value::Real(*least), Value::Real(*most)]),
        Kind::AutoGib { least, most } => vec!["auto".into(), least.to_string(), most.to_string()],
        Kind::Millis { least, most } | Kind::Duration { least, most } => {
            show([Value::Time(*least), Value::Time(*most)])
        }
        // They have no ends, and forms of their own have tests of their own.
        Kind::Text | Kind::List => Vec::new(),
    }
}

/// One step beyond each end.
fn beyond(kind: &Kind) -> Vec<String> {
    let time = |time: Micros| kind.show(&Value::Time(time));
    let negative = if matches!(kind, Kind::Duration { .. }) { "-1s" } else { "-1" };
    match kind {
        Kind::Bool => vec!["maybe".into()],
        Kind::OneOf(_) => vec!["nonsense".into()],
        Kind::Whole { least, most } | Kind::AutoWhole { least, most } => {
            vec![(i128::from(*least) - 1).to_string(), (i128::from(*most) + 1).to_string()]
        }
        Kind::Real { least, most } => vec![(least - 1e-4).to_string(), (most + 1e-4).to_string()],
        Kind::AutoGib { least, most } => vec![(least / 2.0).to_string(), (most * 2.0).to_string()],
        Kind::Millis { least, most } | Kind::Duration { least, most } => {
            let below = if *least > Micros::ZERO { time(Micros(least.0 - 1)) } else { negative.to_owned() };
            vec![below, time(*most + Micros(1))]
        }
        Kind::Text | Kind::List => Vec::new(),
    }
}

/// The pair, and others without which it would contradict a default.
fn with_companions(row: &Row, text: &str) -> Vec<Pair> {
    const ALIKE: [&[&str]; 5] = [
        &["batching.min_batch", "batching.max_batch"],
        &["batching.min_batch_size", "batching.max_batch_size"],
        &["batching.min_wait_ms", "batching.max_wait_ms"],
        &["batching.queue_depth_low_threshold", "batching.queue_depth_high_threshold"],
        &["thermal.fair_celsius", "thermal.serious_celsius", "thermal.critical_celsius", "thermal.emergency_celsius"],
    ];
    if let Some(keys) = ALIKE.iter().find(|keys| keys.contains(&row.key)) {
        return keys.iter().map(|key| (*key, text.to_owned())).collect();
    }
    let mut pairs = vec![(row.key, text.to_owned())];
    if (row.key, text) == ("workers.count", "0") {
        pairs.push(("workers.upstreams", "http://localhost:1".to_owned()));
    }
    pairs
}

fn write(path: &Path, pairs: &[Pair]) {
    let mut sections: BTreeMap<&str, String> = BTreeMap::new();
    for (key, value) in pairs {
        let (section, leaf) = key.split_once('.').unwrap();
        *sections.entry(section).or_default() += &format!("  {leaf}: {value}\n");
    }
    let text: String = sections.iter().map(|(section, lines)| format!("{section}:\n{lines}")).collect();
    std::fs::write(path, text).unwrap();
}

fn tuning(loaded: &Loaded) -> Tuning {
    Tuning { intake: loaded.config.intake, scheduler: loaded.config.scheduler }
}

/// What `/admin` is sent for `text`.
fn wire(kind: &Kind, text: &str) -> Option<Wire> {
    match kind {
        Kind::Bool => text.parse().ok().map(Wire::Bool),
        Kind::Duration { .. } => match (Kind::Duration { least: Micros::ZERO, most: Micros(u64::MAX) }).parse(text) {
            Some(Value::Time(time)) => Some(Wire::Number(time.0 as f64 / 1e3)),
            _ => Some(Wire::Number(-1.0)),
        },
        Kind::OneOf(_) => Some(Wire::Name(text.to_owned())),
        _ => text.parse().ok().map(Wire::Number),
    }
}

/// The orders to `/admin` that say the same as `pairs`, as far as it may be said there.
fn orders(pairs: &[Pair]) -> Vec<Change> {
    let order = |(key, text): &Pair| {
        let row = find(key)?;
        let group = Group::ALL.into_iter().find(|group| row.effect == Effect::Tuned(group.resource()))?;
        if row.leaf() == group.resource() {
            return Some(Change { group, name: Some(text.clone()), values: Vec::new() });
        }
        Some(Change { group, name: None, values: vec![(row.wire_name(), wire(&row.kind, text)?)] })
    };
    pairs.iter().filter_map(order).collect()
}

/// A server that memory was sized for as generously as the ranges allow, so that nothing else is in the way.
fn roomy(path: &Path) -> Loaded {
    let sized = table().iter().filter(|row| row.sized_at_start);
    let most = sized.map(|row| (row.key, ends(&row.kind).pop().unwrap()));
    write(path, &most.collect::<Vec<_>>());
    load(Some(path), BTreeMap::new(), &[]).unwrap()
}

#[test]
fn what_is_at_an_end_is_taken_at_the_start_at_a_reload_and_by_admin() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let started = roomy(file.path());
    for row in table() {
        for text in ends(&row.kind) {
            let pairs = with_companions(row, &text);
            write(file.path(), &pairs);
            let fresh = load(Some(file.path()), BTreeMap::new(), &[]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(row.kind.parse(&row.text(&fresh.config)), row.kind.parse(&text), "{}", row.key);
            let again = started.again().unwrap_or_else(|error| panic!("{error}"));
            let start = tuning(&started);
            let reloaded = start.changed_by(&tuning(&again).changes(), &start);
            let (reloaded, _) = reloaded.unwrap_or_else(|error| panic!("{} = {text}: {error}", row.key));
            for knob in knobs() {
                assert_eq!(knob.value(&reloaded), knob.value(&tuning(&again)), "{} = {text}: {}", row.key, knob.key);
            }
            let ordered = start.changed_by(&orders(&pairs), &start);
            let (ordered, _) = ordered.unwrap_or_else(|error| panic!("{} = {text}: {error}", row.key));
            for knob in knobs().iter().filter(|knob| pairs.iter().any(|(key, _)| knob.key == *key)) {
                assert_eq!(knob.value(&ordered), knob.value(&reloaded), "{} = {text}", knob.key);
            }
        }
    }
}

#[test]
fn what_is_one_step_beyond_is_refused_at_the_start_at_a_reload_and_by_admin_in_the_same_words() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let started = roomy(file.path());
    let start = tuning(&started);
    for row in table() {
        for text in beyond(&row.kind) {
            let pairs = [(row.key, text.clone())];
            write(file.path(), &pairs);
            let said = |message: String| {
                assert!(message.contains(&format!("must be {}", row.allowed())), "{} = {text}: {message}", row.key);
            };
            said(load(Some(file.path()), BTreeMap::new(), &[]).expect_err(row.key).to_string());
            said(started.again().expect_err(row.key).to_string());
            let of = |group: &Group| row.effect == Effect::Tuned(group.resource());
            let parameter =
                Group::ALL.iter().find(|group| of(group)).is_some_and(|group| row.leaf() != group.resource());
            if !parameter || row.kind == Kind::Bool {
                continue;
            }
            said(start.changed_by(&orders(&pairs), &start).expect_err(row.key).to_string());
        }
    }
}
