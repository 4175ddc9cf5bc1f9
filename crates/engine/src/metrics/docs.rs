//! The lists in `docs/metrics.md`, made from what `/metrics` says of itself. `FOREBAY_BLESS=1 cargo test every_series_is_in_the_document` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::*;
use forebay_core::report::Snapshot;
use forebay_core::units::Micros;

/// Everything there can be, each series once at least.
fn all() -> String {
    let config = Config { compat: Compat::ALL.to_vec(), ..Config::default() };
    let metrics = Metrics::with(&config);
    metrics.serves("model");
    metrics.adapts(&["adapter".to_owned()]);
    metrics.error("queue_full", Route::Chat);
    metrics.released([Micros(1)].into_iter(), "full");
    metrics.selected("queue_depth", "fair");
    metrics.worker("engine-0");
    metrics.state(&Snapshot { blocks_total: 8, ..Snapshot::default() }, 16);
    metrics.render(0)
}

#[derive(Default)]
struct Family {
    help: String,
    kind: String,
    labels: BTreeSet<String>,
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(help)) => {
                families.entry(name.into()).or_default().help = help.into()
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                families.entry(name.into()).or_default().kind = kind.into()
            }
            _ => {
                let name = line.split([' ', '{']).next().unwrap_or_default();
                let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let of = base.filter(|base| families.contains_key(*base)).unwrap_or(name).to_owned();
                let labels =
                    line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').map_or("", |(labels, _)| labels));
                let names = labels.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.to_owned());
                let family = families.get_mut(&of).unwrap_or_else(|| panic!("{line} has no head"));
                family.labels.extend(names.filter(|name| name != "le"));
            }
        }
    }
    families
}

fn table(families: &BTreeMap<String, Family>, ours: impl Fn(&str) -> bool) -> String {
    let mut out = "| name | kind | labels | what |\n|---|---|---|---|\n".to_owned();
    for (name, Family { help, kind, labels }) in families.iter().filter(|(name, _)| ours(name)) {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(out, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
    }
    out
}

/// Where what is made begins.
const MARK: &str = "\n## Ours\n";

fn document(written: &str) -> String {
    let families = families(&all());
    let process = |name: &str| name.starts_with("process_");
    let vllm = |name: &str| name.starts_with("vllm:");
    let llama = |name: &str| name.starts_with("llamacpp:");
    let (head, _) = written.split_once(MARK).expect("a head");
    format!(
        "{head}{MARK}\n{}\n## vLLM's\n\nBy default; `metrics.compat: none` leaves them out. All carry `model_name` and `engine`, \
         where the server has a model of its own, and vLLM's buckets.\n\n{}\n## llama-server's\n\nWith `metrics.compat: vllm,llama-server`.\n\n{}\n\
         ## The process\n\nRead once a second, on Linux.\n\n{}",
        table(&families, |name| !process(name) && !vllm(name) && !llama(name)),
        table(&families, vllm),
        table(&families, llama),
        table(&families, process),
    )
}

#[cfg(target_os = "linux")]
#[test]
fn every_series_is_in_the_document() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let written = std::fs::read_to_string(path).unwrap();
    let document = document(&written);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        return std::fs::write(path, &document).unwrap();
    }
    assert_eq!(written, document, "FOREBAY_BLESS=1 cargo test every_series_is_in_the_document");
}

/// A family without a series is not in the text, and would be missed above.
#[test]
fn every_name_in_the_source_is_in_the_text() {
    let families = families(&all());
    let source = concat!(include_str!("prometheus.rs"), include_str!("compat.rs"));
    let quoted = source.split('"').skip(1).step_by(2);
    let prefixes = ["forebay_", "vllm:", "batcher_", "request_latency", "requests_total", "worker_util"];
    let named: BTreeSet<&str> = quoted
        .filter(|text| {
            prefixes.iter().any(|prefix| text.starts_with(prefix) && text.len() > prefix.len() || text == prefix)
        })
        .filter(|text| !text.contains(' ') && !text.ends_with([':', '_']))
        .collect();
    assert!(named.len() > 80, "{}", named.len());
    for name in named {
        assert!(families.contains_key(name), "{name} has no series");
    }
}

#[test]
fn every_series_says_what_it_is() {
    for (name, family) in families(&all()) {
        assert!(!family.help.is_empty() && !family.kind.is_empty(), "{name}");
    }
}
