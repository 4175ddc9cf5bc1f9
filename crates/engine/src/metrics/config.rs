//! What is kept and shown beside the counters.

use forebay_core::units::Micros;

/// What is kept for `/metrics/json`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Between two samples.
    pub interval: Micros,
    /// Values behind a percentile.
    pub percentile_window: usize,
    /// How long samples are kept.
    pub retention: Micros,
    /// Whose names `/metrics` has beside ours.
    pub compat: Vec<Compat>,
    /// Between two samples that go to the store, and how long it keeps them.
    pub kept_every: Option<Micros>,
    pub kept_for: Micros,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            interval: Micros::from_millis(100),
            percentile_window: 1_000,
            retention: Micros::from_millis(3_600_000),
            compat: vec![Compat::Vllm],
            kept_every: Some(Micros::from_millis(60_000)),
            kept_for: Micros::from_millis(7 * 24 * 3_600_000),
        }
    }
}

/// Whose names are shown beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    Vllm,
    LlamaServer,
}

impl Compat {
    pub const ALL: [Compat; 2] = [Compat::Vllm, Compat::LlamaServer];

    pub const fn name(self) -> &'static str {
        match self {
            Compat::Vllm => "vllm",
            Compat::LlamaServer => "llama-server",
        }
    }
}
