//! The house rules as a test: who may depend on whom, what pure code must not touch, where `unsafe` may stand, and that
//! files use each other in one direction.

mod circles;
mod source;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use source::{Source, is_word};

/// Package → packages of ours that it may depend on (`ARCHITECTURE.md`). Cargo refuses circles; this keeps the arrows few.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("clock", &["core"]),
    ("core", &[]),
    ("engine", &["clock", "core", "model", "turn"]),
    ("kernels", &[]),
    ("model", &["core", "kernels", "text"]),
    ("sim", &["core", "turn"]),
    ("store", &["clock", "core"]),
    ("text", &["core"]),
    ("turn", &["core"]),
    ("forebay", &["clock", "core", "engine", "kernels", "model", "sim", "store", "text", "turn"]),
];

/// Values in, values out: their manifests have nothing that could reach a clock, a socket, a device or a log.
const PURE_PACKAGES: &[&str] = &["core", "text", "turn", "sim"];
/// What the manifest of a pure package must not name.
const IMPURE_DEPENDENCIES: &[&str] =
    &["axum", "candle-core", "candle-nn", "hyper", "rand", "reqwest", "sqlx", "tokio", "tracing"];

/// Folders and files of the server → those that they may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["app", "config", "probe"]),
    ("ffi", &["app", "generate"]),
    ("app", &["api", "client", "config", "generate"]),
    ("config", &["generate"]),
    ("probe", &[]),
    ("api", &["generate"]),
    ("client", &[]),
    ("generate", &[]),
];

/// Pure files of packages that are not pure as a whole.
const PURE_FILES: &[(&str, &str)] = &[
    ("engine", "kv_events/ledger.rs"),
    ("engine", "kv_events/wire.rs"),
    ("engine", "metrics/reservoir.rs"),
    ("engine", "metrics/timeline.rs"),
    ("engine", "phases.rs"),
    ("engine", "stats.rs"),
    ("engine", "trace.rs"),
    ("engine", "workers/merge.rs"),
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
    "forebay_clock",
];
/// Clocks, dice, locks and talk, whatever path leads to them.
const IMPURE_WORDS: &[&str] = &["Instant", "SystemTime", "thread_rng", "Mutex", "RwLock", "println", "eprintln", "dbg"];

/// Where `unsafe` may stand, each block with its safety argument; `main.rs` has one line.
const MAY_BE_UNSAFE: &[(&str, &str)] =
    &[("kernels", ""), ("forebay", "ffi/"), ("model", "files/map.rs"), ("forebay", "main.rs")];

const MAX_CODE_LINES: usize = 500;
/// Longer files that were accepted: package, path, lines they may have, when and why.
const LONGER: &[(&str, &str, usize, &str)] = &[];

/// Circles of files that were accepted: package, files, when and why.
const CIRCLES: &[(&str, &[&str], &str)] = &[];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The packages of the workspace and their folders.
fn packages() -> Vec<(String, PathBuf)> {
    let crates = std::fs::read_dir(root().join("crates")).expect("crates/");
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let mut packages: Vec<(String, PathBuf)> =
        crates.map(|entry| entry.expect("an entry").path()).map(|path| (name(&path), path)).collect();
    packages.push(("forebay".into(), root().to_path_buf()));
    packages.sort();
    packages
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
    let mut sources = Vec::new();
    for (package, folder) in packages() {
        let folder = folder.join("src");
        let mut files = Vec::new();
        walk(&folder, &mut files);
        sources.extend(files.into_iter().map(|path| Source {
            package: package.clone(),
            text: std::fs::read_to_string(&path).expect("a source file"),
            path: path.strip_prefix(&folder).expect("below src").to_string_lossy().replace('\\', "/"),
        }));
    }
    sources
}

/// The crates that a package's manifest names in `section`.
fn dependencies(manifest: &str, section: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| line.trim() != format!("[{section}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let name = |line: &str| line.split(['.', '=', ' ']).next().unwrap_or_default().to_owned();
    lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(name).collect()
}

/// Rooms of the server that the code names: after `crate::`, in `main.rs` after `forebay::`.
fn rooms_used(source: &Source) -> BTreeSet<String> {
    let room = |path: String| {
        let mut segments = path.split("::").peekable();
        segments.next_if(|first| ["crate", "forebay"].contains(first))?;
        let first = segments.next()?;
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
    let here = |package: &str, path: &str| package == source.package && path == source.path;
    let longer = LONGER.iter().find(|(package, path, ..)| here(package, path));
    let longest = longer.map_or(MAX_CODE_LINES, |(_, _, lines, _)| *lines);
    if lines > longest {
        found.push(format!("{lines} lines of code"));
    }
    // Test code, too: a test has no reason to be unsafe elsewhere.
    let place = |(package, path): &(&str, &str)| *package == source.package && source.path.starts_with(path);
    let allowed = match MAY_BE_UNSAFE.iter().any(place) {
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
    found.into_iter().map(|what| format!("{} {}: {what}", source.package, source.path)).collect()
}

fn impurities(source: &Source) -> Vec<String> {
    let pure = PURE_PACKAGES.contains(&source.package.as_str())
        || PURE_FILES.iter().any(|(package, path)| *package == source.package && *path == source.path);
    if !pure {
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
    if source.package != "forebay" || source.path == "lib.rs" {
        return Vec::new();
    }
    let Some((room, allowed)) = MAY_USE.iter().find(|(room, _)| *room == source.room()) else {
        return vec!["a room that the table does not know".into()];
    };
    let used = rooms_used(source).into_iter();
    let forbidden = used.filter(|used| used != room && !allowed.contains(&used.as_str()));
    forbidden.map(|used| format!("{room} must not use {used}")).collect()
}

/// What a manifest names that it must not.
fn forbidden_dependencies(package: &str, manifest: &str) -> Vec<String> {
    let Some((_, allowed)) = MAY_DEPEND.iter().find(|(name, _)| *name == package) else {
        return vec![format!("{package}: a package that the table does not know")];
    };
    let pure = PURE_PACKAGES.contains(&package);
    let named = dependencies(manifest, "dependencies");
    let refused = named.iter().filter(|name| match name.strip_prefix("forebay-") {
        Some(ours) => !allowed.contains(&ours),
        None => pure && IMPURE_DEPENDENCIES.contains(&name.as_str()),
    });
    refused.map(|name| format!("{package} must not depend on {name}")).collect()
}

#[test]
fn the_house_keeps_its_rules() {
    let found: Vec<String> = sources().iter().flat_map(violations).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn packages_depend_on_what_the_table_says() {
    let manifest = |folder: &Path| std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    let packages = packages();
    let found = packages.iter().flat_map(|(name, folder)| forbidden_dependencies(name, &manifest(folder)));
    assert_eq!(found.collect::<Vec<_>>(), Vec::<String>::new());
    let named: usize = packages.iter().map(|(_, folder)| dependencies(&manifest(folder), "dependencies").len()).sum();
    assert!(named > 50, "only {named} dependencies were read");
    let planted = "[dependencies]\nforebay-model.workspace = true\ntokio = { workspace = true }\n\n[dev-dependencies]\nsqlx = \"1\"\n";
    assert_eq!(forbidden_dependencies("core", planted).len(), 2);
}

#[test]
fn files_use_each_other_in_one_direction() {
    let sources = sources();
    let mut found = Vec::new();
    for (package, _) in packages() {
        // `main.rs` is a crate of its own.
        let own = sources.iter().filter(|source| source.package == package && source.path != "main.rs");
        let files = circles::Files::new(own);
        for circle in files.circles() {
            if !CIRCLES.iter().any(|(name, files, _)| *name == package && *files == circle) {
                found.push(format!("{package}: {}\n    {}", circle.join(", "), files.ties(&circle).join("\n    ")));
            }
        }
    }
    assert!(found.is_empty(), "circles of files:\n{}", found.join("\n"));
}

/// A file that is renamed must not slip out of the list of pure ones, nor a room out of the table.
#[test]
fn the_tables_speak_of_what_is_there() {
    let sources = sources();
    for (package, path) in PURE_FILES {
        let there = sources.iter().any(|source| source.package == *package && source.path == *path);
        assert!(there, "nothing is at {path} of {package}");
    }
    for (room, _) in MAY_USE {
        let there = sources.iter().any(|source| source.package == "forebay" && source.room() == *room);
        assert!(there, "there is no room {room}");
    }
    let packages: BTreeSet<String> = packages().into_iter().map(|(name, _)| name).collect();
    assert_eq!(packages, MAY_DEPEND.iter().map(|(name, _)| (*name).to_owned()).collect());
    assert!(PURE_PACKAGES.iter().all(|name| packages.contains(*name)));
}

#[test]
fn a_planted_violation_is_found() {
    let planted = |package: &str, path: &str, text: &str| {
        violations(&Source { package: package.into(), path: path.into(), text: text.into() })
    };
    for (package, path, text, expected) in [
        ("core", "kv/pool.rs", "//! x\nuse tokio::sync::mpsc;\n", "touches tokio"),
        ("core", "kv/pool.rs", "//! x\nuse std::{fmt, fs};\n", "touches std::fs"),
        ("core", "kv/pool.rs", "//! x\nfn f() { std::net::TcpStream::connect(a); }\n", "touches std::net"),
        ("core", "kv/pool.rs", "//! x\n#[cfg(test)]\nmod tests { fn f() {} }\nuse tracing::info;\n", "touches tracing"),
        ("core", "kv/pool.rs", "//! x\nuse std::sync::{Arc, Mutex};\n", "touches Mutex"),
        ("text", "stop.rs", "//! x\nfn f() { println!(); }\n", "touches println"),
        ("turn", "inbox.rs", "//! x\nuse forebay_clock::Clock;\n", "touches forebay_clock"),
        ("core", "scheduler/mod.rs", "//! x\nfn f() { let t = std::time::Instant::now(); }\n", "Instant"),
        ("engine", "workers/merge.rs", "//! x\nuse std::time::Instant;\n", "Instant"),
        ("forebay", "api/mod.rs", "//! x\nfn f() { unsafe { g() } }\n", "unsafe"),
        ("forebay", "api/tests.rs", "//! x\nfn f() { unsafe { g() } }\n", "unsafe"),
        ("forebay", "main.rs", "//! x\nfn f() { unsafe { g() }; unsafe { h() } }\n", "unsafe"),
        ("core", "kv/pool.rs", "fn f() {}\n", "//!"),
        ("forebay", "attic/mod.rs", "//! x\n", "does not know"),
        ("forebay", "main.rs", "//! x\nuse forebay::api;\n", "must not use api"),
        ("forebay", "generate/mod.rs", "//! x\nuse crate::{\n    config,\n    api::State,\n};\n", "must not use api"),
    ] {
        let found = planted(package, path, text);
        assert!(found.iter().any(|violation| violation.contains(expected)), "{path}: {text}: {found:?}");
    }
    let long = format!("//! x\n{}", "fn f() {}\n".repeat(MAX_CODE_LINES + 1));
    assert!(planted("forebay", "api/mod.rs", &long)[0].contains("lines of code"));
}

#[test]
fn words_in_comments_strings_and_tests_are_no_violations() {
    for (package, path, text) in [
        ("core", "kv/pool.rs", "//! tokio::sync, unsafe\nfn f() {} // Instant::now\n"),
        ("core", "kv/pool.rs", "//! x\nfn f() -> &'static str { \"unsafe Mutex std::fs\" }\n"),
        ("core", "kv/pool.rs", "//! x\n#[cfg(test)]\nmod tests { use std::fs; }\n"),
        ("core", "kv/tests.rs", "//! x\nuse std::fs;\n"),
        ("kernels", "dot.rs", "//! x\nfn f() { unsafe { g() } }\n"),
    ] {
        let found = violations(&Source { package: package.into(), path: path.into(), text: text.into() });
        assert!(found.is_empty(), "{text}: {found:?}");
    }
}

/// `docs/adding-a-model.md` says how many lines an architecture costs; the functions have so many.
#[test]
fn the_counted_lines_of_architectures_are_true() {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let document = read("docs/adding-a-model.md");
    let files =
        ["decoder.rs", "gguf/decoder.rs", "encoder.rs"].map(|file| read(&format!("crates/model/src/arch/{file}")));
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
