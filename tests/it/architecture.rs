//! The house rules as a test: who may call whom, what pure files must not touch, where `unsafe` may stand.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Room → rooms it may use (`ARCHITECTURE.md`). The vocabulary (`request`, `step`, `report`, `units`) is open to all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["app", "config", "probe"]),
    ("app", &["api", "clock", "config", "engine", "generate", "intake", "metrics", "model", "scheduler", "text"]),
    ("config", &["model", "scheduler"]),
    ("probe", &[]),
    ("api", &["clock", "engine", "generate", "metrics"]),
    ("generate", &["clock", "engine", "text"]),
    ("engine", &["clock", "intake", "kv", "metrics", "model", "sampling", "scheduler"]),
    ("scheduler", &["kv"]),
    ("model", &["kernels", "text"]),
    ("intake", &[]),
    ("kv", &[]),
    ("sampling", &[]),
    ("text", &[]),
    ("kernels", &[]),
    ("metrics", &[]),
    ("clock", &[]),
    ("request", &[]),
    ("step", &[]),
    ("report", &[]),
    ("units", &[]),
];
const VOCABULARY: &[&str] = &["request", "step", "report", "units"];

/// Values in, values out.
const PURE: &[&str] = &[
    "request.rs",
    "step.rs",
    "report.rs",
    "units.rs",
    "text/",
    "intake/",
    "scheduler/",
    "kv/",
    "sampling/",
    "engine/inbox.rs",
    "engine/core.rs",
    "engine/executor.rs",
];
const IMPURE_PATHS: &[&str] = &[
    "tokio::",
    "axum::",
    "candle_core::",
    "candle_nn::",
    "sqlx::",
    "std::fs",
    "std::net",
    "tracing::",
    "crate::metrics",
    "Instant::now",
    "SystemTime",
    "thread_rng",
    "rand::rng",
    "Mutex",
];

/// Where `unsafe` may stand, each block with its safety argument.
const MAY_BE_UNSAFE: &[&str] = &["kernels/", "ffi.rs", "model/weights/map.rs", "model/candle.rs", "main.rs"];

const MAX_CODE_LINES: usize = 500;

struct Source {
    /// Relative to `src/`, with forward slashes.
    path: String,
    text: String,
}

impl Source {
    fn room(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    fn is_test(&self) -> bool {
        let stem = self.path.trim_end_matches(".rs");
        stem.ends_with("tests") || stem.ends_with("/testing") || stem.ends_with("/fixtures")
    }

    /// Lines outside comments and before the file's own test module.
    fn code(&self) -> impl Iterator<Item = &str> {
        self.text
            .lines()
            .take_while(|line| line.trim() != "#[cfg(test)]")
            .map(|line| line.split("//").next().unwrap_or_default())
            .filter(|line| !line.trim().is_empty())
    }
}

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

/// Rooms named as `crate::room` or, in `main.rs`, `forebay::room`; groups `crate::{a, b}` included.
fn rooms_used(source: &Source) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for line in source.code() {
        for start in
            ["crate::", "forebay::"].iter().flat_map(|root| line.match_indices(root).map(|(at, m)| at + m.len()))
        {
            let rest = &line[start..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(group) => group.split(['}', ',']).map(str::trim).collect(),
                None => vec![rest],
            };
            let first = |name: &str| name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
            rooms.extend(names.into_iter().map(first).filter(|name| MAY_USE.iter().any(|(room, _)| room == name)));
        }
    }
    rooms
}

/// Everything that a source breaks.
fn violations(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let mut complain = |what: String| found.push(format!("src/{}: {what}", source.path));
    if !source.text.starts_with("//!") {
        complain("does not begin with //!".into());
    }
    let lines = source.code().count();
    if lines > MAX_CODE_LINES {
        complain(format!("{lines} lines of code"));
    }
    let word = |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
    if !MAY_BE_UNSAFE.iter().any(|place| source.path.starts_with(place)) && source.code().any(word) {
        complain("unsafe".into());
    }
    if source.is_test() {
        return found;
    }
    if PURE.iter().any(|place| source.path.starts_with(place)) {
        for path in IMPURE_PATHS.iter().filter(|path| source.code().any(|line| line.contains(*path))) {
            found.push(format!("src/{}: pure, but touches {path}", source.path));
        }
    }
    let Some((room, allowed)) = MAY_USE.iter().find(|(room, _)| *room == source.room()) else {
        if source.path != "lib.rs" {
            found.push(format!("src/{}: a room that the table does not know", source.path));
        }
        return found;
    };
    for used in rooms_used(source) {
        let allowed = used == *room || VOCABULARY.contains(&used.as_str()) || allowed.contains(&used.as_str());
        if !allowed {
            found.push(format!("src/{}: {room} must not use {used}", source.path));
        }
    }
    found
}

#[test]
fn the_house_keeps_its_rules() {
    let found: Vec<String> = sources().iter().flat_map(violations).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_planted_violation_is_found() {
    let planted = |path: &str, text: &str| violations(&Source { path: path.into(), text: text.into() });
    for (path, text, expected) in [
        ("kv/pool.rs", "//! x\nuse tokio::sync::mpsc;\n", "tokio::"),
        ("kv/pool.rs", "//! x\nuse crate::model::Model;\n", "must not use model"),
        ("kv/pool.rs", "//! x\nuse crate::{units, engine};\n", "must not use engine"),
        ("scheduler/mod.rs", "//! x\nfn f() { let t = std::time::Instant::now(); }\n", "Instant::now"),
        ("api/mod.rs", "//! x\nfn f() { unsafe { g() } }\n", "unsafe"),
        ("api/mod.rs", "fn f() {}\n", "//!"),
        ("attic/mod.rs", "//! x\n", "does not know"),
        ("main.rs", "//! x\nuse forebay::model;\n", "must not use model"),
    ] {
        let found = planted(path, text);
        assert!(found.iter().any(|violation| violation.contains(expected)), "{path}: {found:?}");
    }
    let long = format!("//! x\n{}", "fn f() {}\n".repeat(MAX_CODE_LINES + 1));
    assert!(planted("api/mod.rs", &long)[0].contains("lines of code"));
    // Words in comments and in tests are no violations.
    assert!(planted("kv/pool.rs", "//! tokio::sync\nfn f() {} // Instant::now\n").is_empty());
    assert!(planted("kv/pool.rs", "//! x\n#[cfg(test)]\nmod tests { use std::fs; }\n").is_empty());
}
