//! Every knob at and beyond its bounds; changes as wholes.

use super::*;

fn start() -> Tuning {
    let scheduler = scheduler::Config { max_model_len: 1024, ..scheduler::Config::default() };
    Tuning { intake: intake::Config::default(), scheduler }
}

/// Each parameter of each group, by its name in JSON and as it stands at the start.
fn parameters() -> impl Iterator<Item = (Group, String, Value)> {
    let of = |group: Group| start().values(group).into_iter().map(move |(name, value)| (group, name, value));
    Group::ALL.into_iter().flat_map(of)
}

/// What one of them is in `tuning`.
fn stands(tuning: &Tuning, group: Group, name: &str) -> Value {
    tuning.values(group).into_iter().find(|(known, _)| known == name).map(|(_, value)| value).unwrap()
}

fn set(group: Group, name: &str, value: Value) -> Result<Tuning, RequestError> {
    let change = Change { group, name: None, values: vec![(name.to_owned(), value)] };
    start().changed(&change, &start()).map(|(tuning, _)| tuning)
}

fn refused_param(group: Group, name: &str, value: Value) -> String {
    match set(group, name, value.clone()) {
        Err(RequestError::InvalidValue { param, .. }) => param,
        other => panic!("{name} = {value}: {other:?}"),
    }
}

#[test]
fn every_knob_belongs_to_a_group_that_there_is() {
    let mut known: Vec<&str> = Group::ALL.iter().flat_map(|group| group.parameters()).map(|knob| knob.key).collect();
    known.extend(["batching.strategy", "batching.policy"]);
    known.sort_unstable();
    let mut all: Vec<&str> = knobs().iter().map(|knob| knob.key).collect();
    all.sort_unstable();
    assert_eq!(all, known);
}

#[test]
fn every_knob_takes_its_own_value_back_and_refuses_nonsense() {
    for (group, name, now) in parameters() {
        let same = set(group, &name, now.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(same, start(), "{name}");
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
            assert_eq!(refused_param(group, &name, Value::Number(bad)), name);
        }
        let wrong_kind = match now {
            Value::Bool(_) => Value::Number(1.0),
            Value::Number(_) | Value::Name(_) => Value::Bool(true),
        };
        assert_eq!(refused_param(group, &name, wrong_kind), name);
        for word in ["", "1", "4", "true", "nonsense"] {
            assert_eq!(refused_param(group, &name, Value::Name(word.into())), name, "{word}");
        }
    }
}

/// A name that the parameter which is called `now` could have instead.
fn another(group: Group, now: &str) -> String {
    let choices = group.parameters().filter_map(|knob| knob.kind.names()).find(|names| names.contains(&now));
    choices.and_then(|names| names.iter().find(|name| **name != now)).expect("a choice has two names").to_string()
}

#[test]
fn a_parameter_that_is_a_name_is_changed_beside_the_name_of_its_group() {
    let values = vec![("preemption".to_owned(), Value::Name("longest".into()))];
    let change = Change { group: Group::Policy, name: Some("latency_first".into()), values };
    let (tuning, changed) = start().changed(&change, &start()).unwrap();
    assert_eq!(tuning.selected(Group::Policy), Some("latency_first"));
    assert_eq!(tuning.scheduler.preemption, scheduler::Preemption::Longest);
    let last = changed.last().expect("two changes");
    assert_eq!((last.what.as_str(), last.from.as_str(), last.to.as_str()), ("preemption", "most_recent", "longest"));
    let message = set(Group::Policy, "preemption", Value::Name("nobody".repeat(40))).unwrap_err().to_string();
    assert!(message.contains("one of most_recent, longest, lowest_priority"), "{message}");
    assert!(message.len() < 200, "what comes from outside is shortened: {message}");
}

#[test]
fn every_knob_reads_what_was_set() {
    for (group, name, now) in parameters() {
        let other = match now {
            Value::Bool(set) => Value::Bool(!set),
            Value::Number(n) => Value::Number(if n > 40.0 {
                n - 1.0
            } else if n == 1.0 {
                2.0
            } else {
                n / 2.0
            }),
            Value::Name(name) => Value::Name(another(group, &name)),
        };
        // Beside the knob's own range, waits and depths have an order.
        let Ok(tuning) = set(group, &name, other.clone()) else { continue };
        assert_eq!(stands(&tuning, group, &name), other, "{name}");
        let mut others = parameters().filter(|(_, known, _)| *known != name);
        assert!(others.all(|(group, known, was)| stands(&tuning, group, &known) == was), "{name} changed another");
    }
}

#[test]
fn a_number_beyond_its_range_is_refused_with_the_range() {
    let refused = |name: &str, value: f64| set(Group::Limits, name, Value::Number(value)).unwrap_err().to_string();
    let message = refused("aging_ms", 5_000_000.0);
    assert!(message.contains("a number of milliseconds from 1 to 3600000, got 5000000"), "{message}");
    let message = refused("queue_timeout_ms", 86_400_001.0);
    assert!(message.contains("from 1ms to 24h"), "{message}");
    let message = refused("max_num_seqs", 65.0);
    assert!(message.contains("a whole number from 1 to 64"), "memory was sized for it: {message}");
}

#[test]
fn limits_that_memory_was_sized_for_end_where_they_began() {
    for (name, most) in [("max_num_seqs", 64.0), ("max_num_batched_tokens", 512.0)] {
        assert!(set(Group::Limits, name, Value::Number(most)).is_ok());
        assert!(set(Group::Limits, name, Value::Number(1.0)).is_ok());
        for outside in [most + 1.0, 0.0, 1.5] {
            assert_eq!(refused_param(Group::Limits, name, Value::Number(outside)), name);
        }
    }
    assert_eq!(set(Group::Limits, "max_stall_ms", Value::Number(0.0)).unwrap().scheduler.max_stall, None);
}

#[test]
fn names_select_and_unknown_ones_list_what_there_is() {
    let change = |group, name: &str| Change { group, name: Some(name.to_owned()), values: Vec::new() };
    let (tuning, changed) = start().changed(&change(Group::Strategy, "fixed"), &start()).unwrap();
    assert_eq!(tuning.selected(Group::Strategy), Some("fixed"));
    assert_eq!(changed, [Changed { what: "strategy".into(), from: "queue_depth".into(), to: "fixed".into() }]);
    for (group, valid) in [(Group::Strategy, "latency_aware"), (Group::Policy, "throughput_first")] {
        for name in group.names() {
            assert_eq!(start().changed(&change(group, name), &start()).unwrap().0.selected(group), Some(name));
        }
        match start().changed(&change(group, "nonsense"), &start()) {
            Err(RequestError::UnknownName { name, valid: listed, .. }) => {
                assert_eq!(name, "nonsense");
                assert!(listed.contains(valid), "{listed}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_change_is_taken_whole_or_not_at_all() {
    let values = vec![("min_wait_ms".to_owned(), Value::Number(3.0)), ("max_wait_ms".to_owned(), Value::Number(-3.0))];
    let change = Change { group: Group::Strategy, name: Some("fixed".into()), values };
    assert!(start().changed(&change, &start()).is_err());
    let contradiction = vec![("min_wait_ms".to_owned(), Value::Number(200.0))];
    let change = Change { group: Group::Strategy, name: None, values: contradiction };
    assert!(start().changed(&change, &start()).is_err(), "the shortest wait above the longest");
    let unknown = Change { group: Group::Limits, name: None, values: vec![("max_wait".into(), Value::Number(1.0))] };
    assert!(matches!(start().changed(&unknown, &start()), Err(RequestError::InvalidValue { .. })));
}
