//! One engine between its steps: what is queued, what computes, what may be changed. No clock, threads or models.

pub mod control;
pub mod core;
pub mod executor;
pub mod history;
pub mod inbox;
mod predict;
pub mod stats;
pub mod tape;
pub mod window;

#[cfg(test)]
mod batch_tests;
