//! The configuration as the server uses it: typed and checked, a part per room.

use forebay_core::{intake, scheduler};
use forebay_engine::{metrics, telemetry};
use forebay_store::{jobs, keys};
use forebay_text::grammar::GrammarConfig;

use super::engine::{EngineConfig, KvCacheConfig, ThermalConfig};
use super::kv_events::KvEventsConfig;
use super::logging::LoggingConfig;
use super::model::ModelConfig;
use super::server::{ServerConfig, UploadsConfig};
use super::workers::WorkersConfig;

/// The server's configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub server: ServerConfig,
    pub model: ModelConfig,
    pub intake: intake::Config,
    /// Without the model's part: its `max_model_len` is 0, and no prompt need be whole.
    pub scheduler: scheduler::Config,
    pub thermal: ThermalConfig,
    pub engine: EngineConfig,
    pub kv_cache: KvCacheConfig,
    pub kv_events: KvEventsConfig,
    pub structured_output: GrammarConfig,
    pub metrics: metrics::Config,
    pub workers: WorkersConfig,
    pub store: forebay_store::Config,
    pub keys: keys::Config,
    pub jobs: jobs::Config,
    pub uploads: UploadsConfig,
    pub logging: LoggingConfig,
    pub tracing: telemetry::Config,
}
