//! Plain data that every other folder speaks in: what a model computes, how it is loaded, what a step holds, and errors.
//!
//! Knows no files, no devices and no backends. What is computed here are indices, sizes and frequencies.
//!
//! ```text
//! spec/ ── what a model computes      options ── how it is loaded       device ── a device's memory, and why it refused
//! forward ── what a pass is asked for and returns      cache ── sizes of the paged cache      batch ── a checked step
//! error ── everything that can fail
//! ```

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod forward;
pub(crate) mod options;
pub(crate) mod spec;
