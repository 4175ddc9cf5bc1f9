//! Forebay's server: an OpenAI-compatible inference server over the crates of this workspace (ARCHITECTURE.md).
//!
//! One request's journey: [`api`] parses JSON into a [`generate::RawRequest`]; [`generate`] renders, tokenises and checks it
//! into one `forebay_core::request::Request` per choice; `forebay_engine::workers` picks an engine loop (or [`api`] relays the
//! request to another server); the loop's turn queues it and plans steps, the model computes them in `spawn_blocking`; events
//! flow back to [`generate`], which makes text, and [`api`] frames it.
//!
//! [`config`] joins the crates' tables of settings, [`app`] builds a server of them and ends it in order, [`client`] is a client
//! and load generator for such servers.

pub mod app;
pub mod config;
pub mod probe;

pub mod api;
#[cfg(any(feature = "capi", test))]
pub mod ffi;
pub mod generate;

pub mod client;
