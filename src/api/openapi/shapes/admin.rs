//! `/admin`.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use crate::api::pipeline::traces::SequenceTrace;

/// A name, its parameters, or both. Parameters may stand beside the name, too.
#[derive(ToSchema)]
pub struct ControlChange {
    /// Not for limits.
    name: Option<String>,
    /// Numbers and booleans.
    parameters: Option<BTreeMap<String, Value>>,
}

#[derive(ToSchema)]
pub struct Control {
    parameters: BTreeMap<String, Value>,
    name: Option<String>,
    available: Option<Vec<String>>,
    /// After a change.
    changed: Option<Vec<ControlChanged>>,
    /// Only where it is false: the change is in force, and the store did not take it.
    audited: Option<bool>,
}

#[derive(ToSchema)]
pub struct ControlChanged {
    what: String,
    from: String,
    to: String,
}

#[derive(ToSchema)]
pub struct ReloadAnswer {
    changed: Vec<ControlChanged>,
    restart_needed: Vec<RestartNeeded>,
}

/// A key whose new value is not in force before a restart.
#[derive(ToSchema)]
pub struct RestartNeeded {
    key: String,
    from: String,
    to: String,
    why: String,
}

#[derive(ToSchema)]
pub struct ControlName {
    name: String,
    active: bool,
    parameters: BTreeMap<String, Value>,
}

#[derive(ToSchema)]
pub struct ThermalChange {
    /// A level's name, or `auto`.
    level: String,
}

#[derive(ToSchema)]
pub struct Thermal {
    level: String,
    forced: bool,
    #[schema(required = true)]
    celsius: Option<f64>,
    available: Vec<String>,
    /// Of one level.
    active: Option<bool>,
}

#[derive(ToSchema)]
pub struct EngineState {
    paused: bool,
    draining: bool,
}

#[derive(ToSchema)]
pub struct Draining {
    draining: bool,
}

#[derive(ToSchema)]
pub struct Reset {
    reset: bool,
}

/// The engine in numbers; `docs/batching.md` explains them.
#[derive(ToSchema)]
pub struct AdminState {
    strategy: String,
    policy: String,
    thermal: Value,
    paused: bool,
    draining: bool,
    queue_depth: usize,
    queue: Value,
    requests_queued: usize,
    requests_waiting: usize,
    requests_running: usize,
    batches_formed: u64,
    avg_batch_size: f64,
    last_batches: Vec<Value>,
    blocks_total: usize,
    blocks_used: usize,
    preemptions_total: u64,
    steps_total: u64,
    total_tokens_generated: u64,
    current_tok_per_sec: f64,
    pending_out: usize,
    window: Value,
    limits: BTreeMap<String, Value>,
    workers: Vec<Worker>,
}

#[derive(ToSchema)]
pub struct WorkerList {
    /// `list`.
    object: String,
    data: Vec<Worker>,
}

/// Who takes requests; `docs/workers.md` explains it.
#[derive(ToSchema)]
pub struct Worker {
    id: String,
    /// `engine` or `upstream`.
    kind: String,
    #[schema(required = true)]
    url: Option<String>,
    models: Vec<String>,
    /// `idle`, `busy` or `unhealthy`.
    status: String,
    /// `closed`, `open` or `half_open`.
    breaker: String,
    /// Sequences under way.
    pending: usize,
    /// From 0 to 1, lately.
    utilisation: f64,
    requests: Verdicts,
}

#[derive(ToSchema)]
pub struct Verdicts {
    success: u64,
    failure: u64,
    uncounted: u64,
}

/// What a step costs, as the engine has learnt.
#[derive(ToSchema)]
pub struct Cost {
    samples: u64,
    spread: Option<f64>,
    /// Microseconds, by name; the file that `forebay simulate --cost` reads.
    #[schema(required = true)]
    model: Option<BTreeMap<String, f64>>,
}

#[derive(ToSchema)]
pub struct Recommendation {
    window_s: f64,
    requests: usize,
    objective: Value,
    actual: Value,
    /// Relative, of the strategy and policy in force.
    #[schema(required = true)]
    error: Option<Value>,
    predictions: Vec<Value>,
    #[schema(required = true)]
    recommended: Option<Recommended>,
    /// `change`, `keep` or `refused`.
    verdict: String,
    why: String,
}

#[derive(ToSchema)]
pub struct Recommended {
    strategy: String,
    policy: String,
}

/// A strategy on trial.
#[derive(ToSchema)]
pub struct Canary {
    strategy: String,
    instead_of: String,
    share: f64,
    seconds: f64,
    running: bool,
    on_trial: Value,
    in_force: Value,
    /// Once it is over.
    #[schema(required = true)]
    kept: Option<bool>,
    #[schema(required = true)]
    why: Option<String>,
}

#[derive(ToSchema)]
pub struct LiveList {
    /// `list`.
    object: String,
    data: Vec<LiveSequence>,
}

#[derive(ToSchema)]
pub struct LiveSequence {
    id: String,
    sequence: String,
    state: String,
    #[schema(required = true)]
    waits_for: Option<String>,
    priority: String,
    tenant: String,
    age_ms: f64,
    #[schema(required = true)]
    deadline_in_ms: Option<f64>,
    prompt_tokens: usize,
    max_tokens: usize,
    computed_tokens: usize,
    generated_tokens: usize,
    blocks: usize,
}

#[derive(ToSchema)]
pub struct LiveRequest {
    id: String,
    sequences: Vec<LiveSequence>,
}

#[derive(ToSchema)]
pub struct Cancelled {
    id: String,
    sequences_ended: usize,
}

#[derive(ToSchema)]
pub struct RequestTrace {
    id: String,
    sequences: Vec<SequenceTrace>,
}
