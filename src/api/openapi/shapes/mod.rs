//! The wire types as the document shows them. The parsers take JSON objects apart themselves, since they account for every
//! field; `openapi/tests.rs` holds the two together, field by field.

#![allow(dead_code)] // they are shown, never made

pub mod admin;
pub mod batches;
pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod errors;
pub mod formats;
pub mod measures;
pub mod messages;
pub mod models;
pub mod parameters;
pub mod responses;
pub mod sampling;
pub mod tokens;
pub mod usage;
