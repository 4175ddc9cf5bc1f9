//! The engine: the only place where async meets compute.
//!
//! ```text
//! EngineHandle ─ EngineCommand ─▶ run.rs (one task)
//!                                  │  home: inbox (intake, orders), outlets (events to clients)
//!                                  │  away: core (scheduler, block pool, executor), moved into spawn_blocking and back
//! clients ◀────── Event ───────────┘
//! ```
//! No lock is shared with a step: what a step needs travels with it, what commands touch stays home.

pub mod command;
pub mod core;
pub mod executor;
pub mod forward;
pub mod handle;
pub mod heartbeat;
pub mod inbox;
pub mod outlet;
pub mod run;

pub use handle::EngineHandle;
