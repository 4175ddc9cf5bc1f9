//! The engine: the only place where async meets compute.
//!
//! ```text
//! EngineHandle ─ EngineCommand ─▶ run.rs (one task)
//!                                  │  stays: LoopState (the pure Turn, senders of events, traces, measurements)
//!                                  │  moves: Core (scheduler, block pool, executor), into spawn_blocking and back
//! clients ◀────── Event ───────────┘
//! ```
//! No lock is shared with a step: what a step needs travels with it, what commands touch stays with the loop.

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
