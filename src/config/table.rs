//! Every setting, in the order of config.yaml: the crates' tables, joined.

use std::sync::LazyLock;

use forebay_core::settings::Setting;
use forebay_core::{intake, scheduler};
use forebay_engine::{metrics, telemetry};
use forebay_store::keys;
use forebay_text::grammar;

use super::whole::Config;
use super::{engine, kv_events, logging, model, server, workers};

pub type Row = Setting<Config>;

/// What keys begin with, in the order of config.yaml, and what stands above it there.
pub const SECTIONS: &[(&str, &str)] = &[
    ("server", "The HTTP face."),
    ("model", "What is served."),
    ("batching", "The queue in front of the scheduler, and the order inside it."),
    ("thermal", "Heat. Levels are held for 10 s at least, and end 5 degrees below where they begin."),
    ("engine", "The loop and its scheduler."),
    ("kv_cache", "The paged KV cache."),
    (
        "kv_events",
        "What the prefix cache holds, told to routers over ZMQ (cargo feature kv-events). See docs/scale-out.md.",
    ),
    ("structured_output", "Grammars of structured output."),
    ("store", "What outlives the process."),
    ("keys", "API keys. See docs/keys.md."),
    ("batches", "The Batch API."),
    ("workers", "Who takes requests: engine loops of this process, and other servers. See docs/workers.md."),
    ("health", "Checks of upstreams, and every worker's circuit breaker."),
    ("metrics", "What /metrics and /metrics/json tell. See docs/metrics.md."),
    ("logging", "Logs, on stdout. Prompts and keys are never logged."),
    ("tracing", "OpenTelemetry. See docs/operations.md; OTEL_* variables are read, too."),
];

static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let mut rows = joined();
    // Several crates have keys in one section; within it the order of the tables stays.
    rows.sort_by_key(|row| SECTIONS.iter().position(|(section, _)| *section == row.section()));
    rows
});

/// Every row.
pub fn table() -> &'static [Row] {
    &TABLE
}

pub fn find(key: &str) -> Option<&'static Row> {
    table().iter().find(|row| row.key == key)
}

/// The rows that have a flag, and its name: `--port` is `server.port`.
pub fn flags() -> impl Iterator<Item = (&'static str, &'static Row)> {
    table().iter().filter_map(|row| Some((row.flag?, row)))
}

/// The environment variable of a key: `server.port` is `FOREBAY__SERVER__PORT`.
pub fn env_name(key: &str) -> String {
    format!("FOREBAY__{}", key.to_uppercase().replace('.', "__"))
}

/// Rows of a part of the configuration as rows of the whole.
fn of<C: 'static>(
    rows: Vec<Setting<C>>,
    part: fn(&Config) -> &C,
    part_mut: fn(&mut Config) -> &mut C,
) -> impl Iterator<Item = Row> {
    rows.into_iter().map(move |row| row.within(part, part_mut))
}

fn joined() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(of(server::settings(), |c| &c.server, |c| &mut c.server));
    rows.extend(of(engine::kv_cache_settings(), |c| &c.kv_cache, |c| &mut c.kv_cache));
    rows.extend(of(model::settings(), |c| &c.model, |c| &mut c.model));
    rows.extend(of(intake::settings(), |c| &c.intake, |c| &mut c.intake));
    rows.extend(of(scheduler::settings(), |c| &c.scheduler, |c| &mut c.scheduler));
    rows.extend(of(engine::thermal_settings(), |c| &c.thermal, |c| &mut c.thermal));
    rows.extend(of(engine::engine_settings(), |c| &c.engine, |c| &mut c.engine));
    rows.extend(of(kv_events::settings(), |c| &c.kv_events, |c| &mut c.kv_events));
    rows.extend(of(grammar::settings(), |c| &c.structured_output, |c| &mut c.structured_output));
    rows.extend(of(forebay_store::settings(), |c| &c.store, |c| &mut c.store));
    rows.extend(of(keys::settings(), |c| &c.keys, |c| &mut c.keys));
    rows.extend(of(server::uploads_settings(), |c| &c.uploads, |c| &mut c.uploads));
    rows.extend(of(forebay_store::jobs_settings(), |c| &c.jobs, |c| &mut c.jobs));
    rows.extend(of(workers::settings(), |c| &c.workers, |c| &mut c.workers));
    rows.extend(of(metrics::settings(), |c| &c.metrics, |c| &mut c.metrics));
    rows.extend(of(logging::settings(), |c| &c.logging, |c| &mut c.logging));
    rows.extend(of(telemetry::settings(), |c| &c.tracing, |c| &mut c.tracing));
    rows
}
