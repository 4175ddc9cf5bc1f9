//! The engine.

pub mod command;
pub mod executor;
