//! The settings of what is measured, and of how long it is kept.

use forebay_core::settings::{Setting, list};
use forebay_core::units::Micros;

use super::config::{Compat, Config};

const COMPAT: &str = "none, or a list of vllm and llama-server";

/// In the order of config.yaml.
pub fn settings() -> Vec<Setting<Config>> {
    vec![
        Setting::new("metrics.collection_interval", |c: &mut Config| &mut c.interval)
            .duration(Micros::from_millis(10)..=Micros::MINUTE)
            .help("between two samples of /metrics/json/history"),
        Setting::new("metrics.percentile_window_size", |c: &mut Config| &mut c.percentile_window)
            .whole(10..=1_000_000)
            .help("measured times behind the percentiles of /metrics/json"),
        Setting::new("metrics.history_retention", |c: &mut Config| &mut c.retention)
            .duration(Micros::SECOND..=Micros(7 * Micros::DAY.0))
            .help("how long samples are kept, the older ones ten and more at a time"),
        Setting::own("metrics.compat", |c: &mut Config| &mut c.compat, COMPAT, |compat| show(compat), read)
            .help("whose names /metrics has beside ours: a list of vllm and llama-server, or none"),
        Setting::new("metrics.snapshot_interval", |c: &mut Config| &mut c.kept_every)
            .zero_is_off()
            .duration(Micros::ZERO..=Micros::DAY)
            .help("between two samples that are written to the store; 0s writes none"),
        Setting::new("metrics.snapshot_retention", |c: &mut Config| &mut c.kept_for)
            .duration(Micros::MINUTE..=Micros(366 * Micros::DAY.0))
            .help("how long the store keeps them; at most 100000 of each server"),
    ]
}

fn show(compat: &[Compat]) -> String {
    let names: Vec<&str> = compat.iter().map(|compat| compat.name()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// A list of other servers' names, or `none`.
fn read(text: &str) -> Option<Vec<Compat>> {
    let named = list(text);
    if named == ["none"] {
        return Some(Vec::new());
    }
    let one = |name: &String| Compat::ALL.into_iter().find(|compat| compat.name() == name);
    named.iter().map(one).collect::<Option<Vec<Compat>>>().filter(|all| !all.is_empty())
}
