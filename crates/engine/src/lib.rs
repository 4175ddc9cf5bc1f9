//! The engine: the only place where async meets compute.
//!
//! ```text
//! EngineHandle ─ EngineCommand ─▶ run.rs (one task)
//!                                  │  stays: LoopState (the pure Turn, senders of events, traces, measurements)
//!                                  │  moves: Core (scheduler, block pool, executor), into spawn_blocking and back
//! clients ◀────── Event ───────────┘
//! ```
//! No lock is shared with a step: what a step needs travels with it, what commands touch stays with the loop.
//!
//! Around the loop: [`workers`] (which loop or upstream takes a request), [`metrics`], [`telemetry`], `kv_events`. This crate
//! knows neither text nor JSON nor configuration files; tokens go in, and [`forebay_core::request::Event`]s come out.
//!
//! Read [`run::run`], [`loop_state::LoopState`], [`EngineHandle`], [`forward::Forward`] and [`workers::Pool`] first.
//!
//! ```
//! use forebay_engine::metrics::Metrics;
//!
//! let metrics = Metrics::new();
//! metrics.admitted(1, 12);
//! assert!(metrics.render(0).lines().any(|line| line.starts_with("forebay_") && line.ends_with(" 12")));
//! ```

mod answers;
pub mod cache_feed;
pub mod command;
mod decision_log;
mod event_senders;
pub mod export;
pub mod forward;
mod guide;
pub mod handle;
pub mod heartbeat;
pub mod https;
#[cfg(feature = "kv-events")]
pub mod kv_events;
pub mod loop_state;
mod masks;
pub mod metrics;
mod overlap;
pub mod permit;
pub mod phases;
mod pooler;
pub mod run;
pub mod stats;
pub mod telemetry;
pub mod trace;
pub mod workers;

pub use handle::EngineHandle;
