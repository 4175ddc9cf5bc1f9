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
pub mod control;
pub mod core;
pub mod executor;
pub mod export;
pub mod forward;
mod guide;
pub mod handle;
pub mod heartbeat;
pub mod history;
pub mod home;
pub mod inbox;
mod masks;
mod meanwhile;
pub mod outlet;
pub mod permit;
pub mod phases;
mod pooler;
mod predict;
pub mod run;
pub mod stats;
pub mod tape;
pub mod trace;
pub mod window;

pub use handle::EngineHandle;

#[cfg(test)]
mod batch_tests;
