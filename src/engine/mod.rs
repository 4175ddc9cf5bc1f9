//! The engine.

pub mod command;
pub mod executor;
pub mod handle;
pub mod heartbeat;

pub use handle::EngineHandle;
