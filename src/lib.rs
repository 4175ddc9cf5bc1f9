//! Forebay: an OpenAI-compatible inference server. One request's journey, in reading order:
//!
//! `api` parses JSON into a [`request::RawRequest`]; `generate` renders, tokenises and checks it into one
//! [`request::Request`] per choice; `workers` picks an engine loop (or `api` relays the request to another server); the loop's inbox queues them in `intake`; between two steps the core admits them to
//! the `scheduler`, which takes blocks from `kv` and plans token ranges; `model` runs the packed batch in
//! `spawn_blocking`; `grammar` says which tokens may come; `sampling` draws; events flow back to `generate`, which makes text, and `api` frames it.
//!
//! Before all of it `keys` says who may ask, and how much. Beside it `jobs` asks the same routes for the lines of batches, and `store` keeps what outlives the process.

pub mod app;
pub mod config;
pub mod probe;

pub mod api;
#[cfg(any(feature = "capi", test))]
pub mod ffi;
pub mod generate;

pub mod client;
