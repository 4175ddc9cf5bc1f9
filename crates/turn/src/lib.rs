//! One engine between its steps: what is queued, what computes, what may be changed. No clock, threads or models.
//!
//! ```text
//! commands ─▶ turn (inbox: queue, tuning, orders) ◀── lent between steps ──▶ core (scheduler, block pool, executor)
//!                │                                                             │ moved by value into each step
//!                └─▶ effects: events, ends, releases, changes, for the driver to send, trace and count
//! ```
//! Read [`turn::Turn`] first: it says which calls a driver makes, in which order.

pub mod control;
pub mod core;
pub mod decision_log;
pub mod executor;
pub mod history;
pub mod inbox;
mod predict;
pub mod stats;
pub mod turn;
pub mod window;
