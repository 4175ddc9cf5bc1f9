//! The engine.

pub mod command;
pub mod executor;
pub mod handle;

pub use handle::EngineHandle;
