//! Every kind: what it reads, what it refuses, and that it writes what it reads.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::units::Micros;

#[derive(Clone, Debug, Default, PartialEq)]
struct Config {
    seats: usize,
    context: Option<u32>,
    memory: Option<usize>,
    share: f64,
    wait: Micros,
    timeout: Duration,
    stall: Option<Micros>,
    path: Option<PathBuf>,
    names: Vec<String>,
    overlap: bool,
    victim: Victim,
    address: Option<(char, char)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Victim {
    #[default]
    Newest,
    Longest,
}

fn rows() -> Vec<Setting<Config>> {
    let show = |pair: &Option<(char, char)>| pair.map(|(a, b)| format!("{a}:{b}")).unwrap_or_default();
    let read = |text: &str| match text.chars().collect::<Vec<_>>()[..] {
        [] => Some(None),
        [a, ':', b] => Some(Some((a, b))),
        _ => None,
    };
    vec![
        Setting::new("a.seats", |c: &mut Config| &mut c.seats).whole(1..=64),
        Setting::new("a.context", |c: &mut Config| &mut c.context).whole(2..=100),
        Setting::new("a.memory", |c: &mut Config| &mut c.memory).gib(0.5..=1e3),
        Setting::new("a.share", |c: &mut Config| &mut c.share).real(0.25..=1.0),
        Setting::new("a.wait_ms", |c: &mut Config| &mut c.wait).millis(Micros::ZERO..=Micros::HOUR),
        Setting::new("a.timeout", |c: &mut Config| &mut c.timeout).duration(Micros::MILLISECOND..=Micros::DAY),
        Setting::new("a.stall_ms", |c: &mut Config| &mut c.stall).zero_is_off().millis(Micros::ZERO..=Micros::HOUR),
        Setting::new("a.path", |c: &mut Config| &mut c.path),
        Setting::new("a.names", |c: &mut Config| &mut c.names),
        Setting::new("a.overlap", |c: &mut Config| &mut c.overlap),
        Setting::one_of(
            "a.victim",
            |c: &mut Config| &mut c.victim,
            [("newest", Victim::Newest), ("longest", Victim::Longest)],
        ),
        Setting::own("a.address", |c: &mut Config| &mut c.address, "empty or X:Y", show, read),
    ]
}

/// What `text` makes of the default, and what it is written as.
fn put(key: &str, text: &str) -> Result<(Config, String), String> {
    let rows = rows();
    let row = rows.iter().find(|row| row.key == key).unwrap();
    let mut config = Config::default();
    row.put(&mut config, text)?;
    let written = row.text(&config);
    Ok((config, written))
}

#[test]
fn values_are_read_and_written_back() {
    for (key, text, written) in [
        ("a.seats", "1", "1"),
        ("a.seats", "6_4", "64"),
        ("a.context", "auto", "auto"),
        ("a.context", "100", "100"),
        ("a.memory", "auto", "auto"),
        ("a.memory", "0.5", "0.5"),
        ("a.memory", "1000", "1000"),
        ("a.share", "0.25", "0.25"),
        ("a.wait_ms", "3600000", "3600000"),
        ("a.wait_ms", "0.5", "0.5"),
        ("a.timeout", "250ms", "250ms"),
        ("a.timeout", "1.5m", "90s"),
        ("a.timeout", "1.5ms", "1.5ms"),
        ("a.timeout", "24h", "24h"),
        ("a.stall_ms", "0", "0"),
        ("a.stall_ms", "1.5", "1.5"),
        ("a.path", "", ""),
        ("a.path", "/x/y", "/x/y"),
        ("a.names", " a, ,b ", "a,b"),
        ("a.overlap", "true", "true"),
        ("a.victim", "longest", "longest"),
        ("a.address", "x:y", "x:y"),
        ("a.address", "", ""),
    ] {
        assert_eq!(put(key, text).map(|(_, text)| text), Ok(written.to_owned()), "{key} = {text}");
    }
    assert_eq!(put("a.memory", "0.5").unwrap().0.memory, Some(1 << 29));
    assert_eq!(put("a.stall_ms", "0").unwrap().0.stall, None);
    assert_eq!(put("a.path", "").unwrap().0.path, None);
    assert_eq!(put("a.timeout", "1.5m").unwrap().0.timeout, Duration::from_secs(90));
}

#[test]
fn what_is_outside_is_refused_with_the_range() {
    for (key, texts, allowed) in [
        ("a.seats", &["0", "65", "-1", "1.5", "", "auto", "NaN"][..], "a whole number from 1 to 64"),
        ("a.context", &["1", "101", "automatic"], "auto or a whole number from 2 to 100"),
        ("a.memory", &["0", "-1", "NaN", "1001"], "auto or a number of GiB from 0.5 to 1000"),
        ("a.share", &["0.2", "1.01", "NaN", "inf"], "a number from 0.25 to 1"),
        ("a.wait_ms", &["-1", "3600001", "5ms", "NaN", "inf"], "a number of milliseconds from 0 to 3600000"),
        (
            "a.timeout",
            &["30", "s", "-1s", "1d", "0s", "25h", "99999999999999999999h"],
            "a duration with a unit (ms, s, m, h) from 1ms to 24h",
        ),
        ("a.overlap", &["yes", "1", ""], "true or false"),
        ("a.victim", &["oldest", ""], "one of newest, longest"),
        ("a.address", &["xy"], "empty or X:Y"),
    ] {
        for text in texts {
            assert_eq!(put(key, text).unwrap_err(), allowed, "{key} = {text}");
        }
    }
}

#[test]
fn defaults_are_those_of_the_struct() {
    for row in rows() {
        let mut config = Config::default();
        assert_eq!(row.text(&config), row.default_text(), "{}", row.key);
        // `Config::default` is all zeros here, which not every range has.
        if row.put(&mut config, &row.default_text()).is_ok() {
            assert_eq!(config, Config::default(), "{}", row.key);
        }
    }
}

#[test]
fn a_part_keeps_its_rows() {
    #[derive(Clone, Default)]
    struct Whole {
        part: Config,
    }
    let rows: Vec<Setting<Whole>> =
        rows().into_iter().map(|row| row.within(|whole: &Whole| &whole.part, |whole| &mut whole.part)).collect();
    let mut whole = Whole::default();
    let seats = &rows[0];
    seats.put(&mut whole, "7").unwrap();
    assert_eq!((whole.part.seats, seats.text(&whole)), (7, "7".to_owned()));
    assert_eq!((seats.section(), seats.leaf(), seats.default_text()), ("a", "seats", "0".to_owned()));
}

#[test]
fn names_on_the_wire_say_the_unit() {
    let rows = rows();
    let name = |key: &str| rows.iter().find(|row| row.key == key).map(Setting::wire_name).unwrap();
    assert_eq!([name("a.timeout"), name("a.wait_ms"), name("a.seats")], ["timeout_ms", "wait_ms", "seats"]);
}

#[test]
fn what_memory_was_sized_for_ends_where_it_began() {
    let row = Setting::new("a.seats", |c: &mut Config| &mut c.seats).whole(1..=64).sized_at_start();
    let start = Config { seats: 8, ..Config::default() };
    assert_eq!(row.kind_since(&start), Kind::Whole { least: 1, most: 8 });
    assert_eq!(row.kind, Kind::Whole { least: 1, most: 64 });
}
