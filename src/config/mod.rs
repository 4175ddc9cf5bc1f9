//! What the user wrote and what it means: one typed, validated struct, a part per room.
//!
//! ```text
//! table.rs   every setting, one row each, joined from the crates' tables in the order of config.yaml
//! cli.rs     flags      raw.rs  file and environment, merged into texts (origin.rs) with their places (place.rs)
//! load.rs    a walk over the rows fills `whole.rs`; checks.rs is for what no row can see
//! live.rs    the same again while the server runs: what differs, and when that counts
//! ```
//! Precedence: flags, environment (`FOREBAY__SERVER__PORT`), file, defaults. A key's name, range, default and help stand in
//! its row and nowhere else; config.yaml and docs/configuration.md are written from the rows (`documents.rs`).

mod checks;
mod cli;
#[cfg(test)]
mod documents;
mod engine;
mod error;
mod kv_events;
mod live;
mod load;
mod logging;
mod model;
mod operator;
mod origin;
mod place;
mod proxies;
mod raw;
mod server;
mod table;
mod tools;
mod whole;
mod workers;

pub use cli::{Command, DoctorFormat, InspectFormat};
pub use engine::{EngineConfig, KvCacheConfig, ThermalConfig};
pub use error::ConfigError;
pub use kv_events::KvEventsConfig;
pub use live::Difference;
#[cfg(any(feature = "capi", test))]
pub use load::embedded;
pub use load::{Loaded, from_args};
pub use logging::{LogFormat, LoggingConfig};
pub use model::ModelConfig;
pub use operator::{DbArgs, KeysArgs, UsageArgs};
pub use place::Place;
pub use server::{AdminAccess, ServerConfig, TlsFiles, UploadsConfig};
pub use tools::{BenchArgs, CalibrateArgs, SimulateArgs, TargetArgs};
pub use whole::Config;
pub use workers::{Simulated, WorkersConfig};

#[cfg(test)]
mod ends;
#[cfg(test)]
mod tests;
