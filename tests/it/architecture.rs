//! The house rules as a test: who may call whom, what pure files must not touch, where `unsafe` may stand.

mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use source::{Source, is_word};

/// Room → rooms it may use (`ARCHITECTURE.md`). The vocabulary (`request`, `step`, `report`, `units`) is open to all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["app", "config", "probe"]),
    ("ffi", &["app", "scheduler"]),
    (
        "app",
        &[
            "api",
            "client",
            "clock",
            "config",
            "engine",
            "generate",
            "intake",
            "jobs",
            "keys",
            "kv_events",
            "metrics",
            "model",
            "scheduler",
            "sim",
            "store",
            "telemetry",
            "text",
            "workers",
        ],
    ),
    ("config", &["intake", "jobs", "keys", "metrics", "model", "scheduler", "store", "text", "workers"]),
    ("probe", &[]),
    ("kv_events", &["clock", "engine", "kv"]),
    (
        "api",
        &["clock", "engine", "generate", "grammar", "jobs", "keys", "metrics", "sim", "store", "telemetry", "workers"],
    ),
    ("jobs", &["clock", "store"]),
    ("keys", &["clock", "store"]),
    ("store", &[]),
    ("telemetry", &["clock", "engine", "https"]),
    ("client", &["clock", "https", "sim"]),
    ("generate", &["clock", "engine", "grammar", "text", "workers"]),
    ("workers", &["clock", "engine", "https", "metrics", "scheduler"]),
    ("sim", &["engine", "intake", "kv", "scheduler"]),
    ("engine", &["clock", "grammar", "intake", "kv", "metrics", "model", "sampling", "scheduler"]),
    ("scheduler", &["kv"]),
    ("model", &["kernels", "sampling", "text"]),
    ("intake", &[]),
    ("kv", &[]),
    ("sampling", &[]),
    ("grammar", &["text"]),
    ("text", &[]),
    ("kernels", &[]),
    ("metrics", &[]),
    ("clock", &[]),
    ("https", &[]),
    ("request", &["grammar"]),
    ("step", &[]),
    ("report", &[]),
    ("units", &[]),
];
const VOCABULARY: &[&str] = &["request", "step", "report", "units"];

/// Values in, values out.
const PURE: &[&str] = &[
    "request/",
    "step.rs",
    "report.rs",
    "units.rs",
    "text/",
    "intake/",
    "scheduler/",
    "kv/",
    "sampling/",
    "grammar/",
    "kv_events/ledger.rs",
    "kv_events/wire.rs",
    "sim/",
    "engine/inbox.rs",
    "engine/core.rs",
    "engine/executor.rs",
    "engine/control.rs",
    "engine/history.rs",
    "engine/phases.rs",
    "engine/predict.rs",
    "engine/stats.rs",
    "engine/tape.rs",
    "engine/trace.rs",
    "engine/window.rs",
    "metrics/reservoir.rs",
    "metrics/timeline.rs",
    "workers/balance.rs",
    "workers/board.rs",
    "workers/breaker.rs",
    "workers/busy.rs",
    "workers/merge.rs",
    "workers/prefix.rs",
];
/// What a pure file must not reach for.
const IMPURE_PATHS: &[&str] = &[
    "tokio",
    "axum",
    "hyper",
    "candle_core",
    "candle_nn",
    "sqlx",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread::sleep",
    "std::thread::spawn",
    "tracing",
    "rand::rng",
    "crate::clock",
    "crate::metrics",
];
/// Clocks, dice, locks and talk, whatever path leads to them.
const IMPURE_WORDS: &[&str] = &["Instant", "SystemTime", "thread_rng", "Mutex", "RwLock", "println", "eprintln", "dbg"];

/// Where `unsafe` may stand, each block with its safety argument; `main.rs` has one line.
const MAY_BE_UNSAFE: &[&str] = &["kernels/", "ffi/", "model/weights/map.rs", "main.rs"];

const MAX_CODE_LINES: usize = 500;
/// Longer files that were accepted: path, lines they may have, when and why.
const LONGER: &[(&str, usize, &str)] = &[];

fn sources() -> Vec<Source> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    let source = |path: PathBuf| Source {
        text: std::fs::read_to_string(&path).expect("a source file"),
        path: path.strip_prefix(&root).expect("below src").to_string_lossy().replace('\\', "/"),
    };
    files.into_iter().map(source).collect()
}

/// Rooms that the code names: after `crate::`, in `main.rs` after `forebay::`, or after enough `super::`.
fn rooms_used(source: &Source) -> BTreeSet<String> {
    let room = |path: String| {
        let mut segments = path.split("::").peekable();
        let mut supers = 0;
        while segments.next_if_eq(&"super").is_some() {
            supers += 1;
        }
        let rooted = supers > 0 && supers >= source.depth();
        let named = supers == 0 && segments.next_if(|first| ["crate", "forebay"].contains(first)).is_some();
        let first = segments.next().filter(|_| rooted || named)?;
        MAY_USE.iter().any(|(room, _)| *room == first).then(|| first.to_owned())
    };
    source.paths().into_iter().filter_map(room).collect()
}

/// Everything that a source breaks.
fn violations(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    if !source.text.starts_with("//!") {
        found.push("does not begin with //!".into());
    }
    let lines = source.code().lines().filter(|line| !line.trim().is_empty()).count();
    let longest = LONGER.iter().find(|(path, ..)| *path == source.path).map_or(MAX_CODE_LINES, |(_, lines, _)| *lines);
    if lines > longest {
        found.push(format!("{lines} lines of code"));
    }
    // Test code, too: a test has no reason to be unsafe elsewhere.
    let allowed = match MAY_BE_UNSAFE.iter().any(|place| source.path.starts_with(place)) {
        true if source.path == "main.rs" => 1,
        true => usize::MAX,
        false => 0,
    };
    if source.bare().split(|c| !is_word(c)).filter(|word| *word == "unsafe").count() > allowed {
        found.push("unsafe".into());
    }
    if !source.is_test() {
        found.extend(impurities(source));
        found.extend(forbidden_rooms(source));
    }
    found.into_iter().map(|what| format!("src/{}: {what}", source.path)).collect()
}

fn impurities(source: &Source) -> Vec<String> {
    if !PURE.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let (paths, code) = (source.paths(), source.code());
    let below =
        |path: &str, of: &str| path.strip_prefix(of).is_some_and(|rest| rest.starts_with("::") || rest.is_empty());
    let paths = IMPURE_PATHS.iter().filter(|of| paths.iter().any(|path| path.contains("::") && below(path, of)));
    let words = IMPURE_WORDS.iter().filter(|word| code.split(|c| !is_word(c)).any(|other| other == **word));
    paths.chain(words).map(|what| format!("pure, but touches {what}")).collect()
}

fn forbidden_rooms(source: &Source) -> Vec<String> {
    if source.path == "lib.rs" {
        return Vec::new();
    }
    let Some((room, allowed)) = MAY_USE.iter().find(|(room, _)| *room == source.room()) else {
        return vec!["a room that the table does not know".into()];
    };
    let allowed = |used: &str| used == *room || VOCABULARY.contains(&used) || allowed.contains(&used);
    rooms_used(source)
        .into_iter()
        .filter(|used| !allowed(used))
        .map(|used| format!("{room} must not use {used}"))
        .collect()
}

#[test]
fn the_house_keeps_its_rules() {
    let found: Vec<String> = sources().iter().flat_map(violations).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A file that is renamed must not slip out of the list of pure ones, nor a room out of the table.
#[test]
fn the_tables_speak_of_what_is_there() {
    let sources = sources();
    for place in PURE {
        assert!(sources.iter().any(|source| source.path.starts_with(place)), "nothing is at src/{place}");
    }
    for (room, _) in MAY_USE {
        assert!(sources.iter().any(|source| source.room() == *room), "there is no room {room}");
    }
}

#[test]
fn a_planted_violation_is_found() {
    let planted = |path: &str, text: &str| violations(&Source { path: path.into(), text: text.into() });
    for (path, text, expected) in [
        ("kv/pool.rs", "//! x\nuse tokio::sync::mpsc;\n", "touches tokio"),
        ("kv/pool.rs", "//! x\nuse std::{fmt, fs};\n", "touches std::fs"),
        ("kv/pool.rs", "//! x\nfn f() { std::net::TcpStream::connect(a); }\n", "touches std::net"),
        ("kv/pool.rs", "//! x\n#[cfg(test)]\nmod tests { fn f() {} }\nuse tracing::info;\n", "touches tracing"),
        ("kv/pool.rs", "//! x\nuse std::sync::{Arc, Mutex};\n", "touches Mutex"),
        ("kv/pool.rs", "//! x\nfn f() { println!(); }\n", "touches println"),
        ("engine/core.rs", "//! x\nuse crate::metrics::Metrics;\n", "touches crate::metrics"),
        ("kv/pool.rs", "//! x\nuse crate::model::Model;\n", "must not use model"),
        ("kv/pool.rs", "//! x\nuse crate::{units, engine};\n", "must not use engine"),
        ("kv/pool.rs", "//! x\nuse crate::{\n    units,\n    engine::run,\n};\n", "must not use engine"),
        ("kv/pool.rs", "//! x\nuse super::super::engine;\n", "must not use engine"),
        ("kv/mod.rs", "//! x\nfn f() { super::engine::run(); }\n", "must not use engine"),
        ("kv/pool.rs", "//! x\n#[cfg(test)]\nuse a::b;\nuse crate::api;\n", "must not use api"),
        ("scheduler/mod.rs", "//! x\nfn f() { let t = std::time::Instant::now(); }\n", "Instant"),
        ("api/mod.rs", "//! x\nfn f() { unsafe { g() } }\n", "unsafe"),
        ("api/tests.rs", "//! x\nfn f() { unsafe { g() } }\n", "unsafe"),
        ("main.rs", "//! x\nfn f() { unsafe { g() }; unsafe { h() } }\n", "unsafe"),
        ("api/mod.rs", "fn f() {}\n", "//!"),
        ("attic/mod.rs", "//! x\n", "does not know"),
        ("main.rs", "//! x\nuse forebay_model;\n", "must not use model"),
    ] {
        let found = planted(path, text);
        assert!(found.iter().any(|violation| violation.contains(expected)), "{path}: {text}: {found:?}");
    }
    let long = format!("//! x\n{}", "fn f() {}\n".repeat(MAX_CODE_LINES + 1));
    assert!(planted("api/mod.rs", &long)[0].contains("lines of code"));
}

#[test]
fn words_in_comments_strings_and_tests_are_no_violations() {
    for (path, text) in [
        ("kv/pool.rs", "//! tokio::sync, unsafe\nfn f() {} // Instant::now\n"),
        ("kv/pool.rs", "//! x\nfn f() -> &'static str { \"unsafe Mutex std::fs\" }\n"),
        ("kv/pool.rs", "//! x\n#[cfg(test)]\nmod tests { use std::fs; }\n"),
        ("kv/pool.rs", "//! x\nuse super::engine;\nuse super::block_table;\n"),
        ("kv/tests.rs", "//! x\nuse std::fs;\n"),
        ("kernels/dot.rs", "//! x\nfn f() { unsafe { g() } }\n"),
    ] {
        let found = violations(&Source { path: path.into(), text: text.into() });
        assert!(found.is_empty(), "{text}: {found:?}");
    }
}

/// `docs/adding-a-model.md` says how many lines an architecture costs; the functions have so many.
#[test]
fn the_counted_lines_of_architectures_are_true() {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let document = read("docs/adding-a-model.md");
    let files = ["src/model/arch.rs", "src/model/gguf/spec.rs", "src/model/encoder/arch.rs"].map(read);
    let lines = |file: &str, name: &str| {
        let (_, from) = file.split_once(&format!("\nfn {name}(")).unwrap_or_else(|| panic!("no function {name}"));
        from.split_once("\n}\n").expect("an end").0.lines().count() + 1
    };
    let mut counted = 0;
    for row in document.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].to_lowercase().replace("-moe", "_moe").replace([' ', '-'], "");
        let encoder = cells.len() == 4;
        for (file, cell) in (if encoder { &files[2..] } else { &files[..2] }).iter().zip(&cells[1..]) {
            let Ok(said) = cell.parse::<usize>() else { continue };
            assert_eq!(lines(file, &name), said, "{row}");
            counted += 1;
        }
    }
    assert!(counted > 20, "{counted} functions");
}
