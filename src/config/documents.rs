//! What is written from the rows: config.yaml, and docs/configuration.md. `FOREBAY_BLESS=1 cargo test
//! the_documents_are_the_table` writes both; otherwise the test compares.

use std::fmt::Write;
use std::path::PathBuf;

use forebay_core::settings::Effect;

use super::table::{Row, SECTIONS, env_name, table};

const HEAD: &str = "\
# Forebay: every key, with its default. Flags go before the environment (FOREBAY__SERVER__PORT=...), the environment
# before this file, this file before the defaults. `forebay config` prints the effective values and where each came from.
";

const INTRODUCTION: &str = "\
# Configuration

Every setting of `forebay serve`. Flags go before the environment, the environment before the file of `--config`, the file
before the defaults; `forebay config` prints the effective values and where each came from. An unknown key and a value
outside its range are refused, with what is allowed.

- In YAML a key is `server:` and below it `port: 8080`. [config.yaml](../config.yaml) has every key with its default.
- In the environment the same key is `FOREBAY__SERVER__PORT`.
- A time without a unit in its key's name is written with one: `250ms`, `30s`, `5m`, `1h`.
- A list is a YAML list, or texts separated by commas.

What a new value in the file needs: a *restart*, or a *reload* (SIGHUP or `POST /admin/reload`). What `/admin/strategy`,
`/admin/policy` or `/admin/limits` changes without a file is marked so; there times are numbers of milliseconds, and
`batching.queue_timeout` is `queue_timeout_ms`. What memory was sized for can be changed up to its value at the start.

This page is written from the table that the server reads (`FOREBAY_BLESS=1 cargo test the_documents_are_the_table`).
";

fn rows(section: &str) -> impl Iterator<Item = &'static Row> {
    table().iter().filter(move |row| row.section() == section)
}

fn yaml() -> String {
    let mut out = HEAD.to_owned();
    for (section, remark) in SECTIONS {
        write!(out, "\n# {remark}\n{section}:\n").unwrap();
        for row in rows(section) {
            let default = row.default_text();
            let space = if default.is_empty() { "" } else { " " };
            writeln!(out, "  {}:{space}{default}   # {}", row.leaf(), row.help).unwrap();
        }
    }
    out
}

fn page() -> String {
    let mut out = INTRODUCTION.to_owned();
    for (section, remark) in SECTIONS {
        write!(out, "\n## {section}\n\n{remark}\n\n").unwrap();
        out += "| key | default | allowed | a new value needs | flag | what it does |\n|---|---|---|---|---|---|\n";
        rows(section).for_each(|row| line(&mut out, row));
    }
    out
}

fn line(out: &mut String, row: &Row) {
    let default = row.default_text();
    let default = if default.is_empty() { "empty".to_owned() } else { format!("`{default}`") };
    let needs = match row.effect {
        Effect::Restart => "a restart".to_owned(),
        Effect::Reload => "a reload".to_owned(),
        Effect::Tuned(resource) if row.sized_at_start => {
            format!("a reload or `/admin/{resource}`, up to its value at the start")
        }
        Effect::Tuned(resource) => format!("a reload or `/admin/{resource}`"),
    };
    let flag = row.flag.map(|flag| format!("`--{flag}`")).unwrap_or_default();
    let plain = |text: &str| text.replace('|', "\\|").replace('*', "\\*");
    let (allowed, help) = (plain(&row.allowed()), plain(row.help));
    writeln!(out, "| `{}` | {default} | {allowed} | {needs} | {flag} | {help} |", row.leaf()).unwrap();
}

#[test]
fn the_documents_are_the_table() {
    for (name, document) in [("config.yaml", yaml()), ("docs/configuration.md", page())] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
        if std::env::var_os("FOREBAY_BLESS").is_some() {
            std::fs::write(&path, &document).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == document, "{name}: FOREBAY_BLESS=1 cargo test the_documents_are_the_table");
    }
}

#[test]
fn every_row_is_complete_and_there_once() {
    for (index, row) in table().iter().enumerate() {
        assert!(SECTIONS.iter().any(|(section, _)| *section == row.section()), "{}", row.key);
        assert!(!row.help.is_empty() && !row.help.contains('\n'), "{}", row.key);
        for other in &table()[..index] {
            assert_ne!(other.key, row.key);
            assert!(other.flag.is_none() || other.flag != row.flag, "{} and {}", other.key, row.key);
            assert_ne!(env_name(other.key), env_name(row.key));
        }
    }
}
