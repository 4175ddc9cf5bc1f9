//! The engine: the only place where async meets compute.
//!
//! ```text
//! EngineHandle ─ EngineCommand ─▶ run.rs (one task)
//!                                  │  home: inbox (intake, orders), outlets (events to clients), traces, measurements
//!                                  │  away: core (scheduler, block pool, executor), moved into spawn_blocking and back
//! clients ◀────── Event ───────────┘
//! ```
//! No lock is shared with a step: what a step needs travels with it, what commands touch stays home.

mod answers;
pub mod cache_feed;
pub mod command;
pub mod export;
pub mod forward;
mod guide;
pub mod handle;
pub mod heartbeat;
pub mod home;
pub mod https;
#[cfg(feature = "kv-events")]
pub mod kv_events;
mod masks;
mod meanwhile;
pub mod metrics;
pub mod outlet;
pub mod permit;
pub mod phases;
mod pooler;
pub mod run;
pub mod stats;
pub mod telemetry;
pub mod trace;
pub mod workers;

pub use handle::EngineHandle;
