//! The composition root: configuration in, a running server out, drained in order and everything joined.
//!
//! A runtime for each engine loop, on a thread of its own, whose blocking thread runs the steps; and the HTTP face's. A step
//! never occupies a thread that answers probes. Read `serve.rs` first.

mod bench;
mod doctor;
#[cfg(any(feature = "capi", test))]
pub mod embedded;
mod ending;
mod engine;
mod failure;
mod front;
#[cfg(feature = "hub")]
mod hub;
mod hub_id;
mod inspect;
mod keeper;
mod keys;
mod kv_events;
mod kv_plan;
mod listeners;
mod logging;
mod loops;
mod measures;
mod memory;
mod notify;
mod quantize;
mod reload;
mod serve;
mod services;
mod signals;
mod simulate;
mod simulated;
mod source;
mod thermal;
mod threads;
mod workers;

pub use bench::{bench, calibrate};
pub use doctor::doctor;
pub use ending::End;
pub use failure::Failure;
pub use inspect::inspect;
pub use keys::{db, keys, usage};
pub use quantize::quantize;
pub use serve::serve;
pub use simulate::simulate;
pub use threads::compute_threads;
