//! The wire types as the document shows them. The parsers take JSON objects apart themselves, since they account for every
//! field; `openapi/tests.rs` holds the two together, field by field.

#![allow(dead_code)] // they are shown, never made

pub mod admin;
pub mod batches;
pub mod errors;
pub mod measures;
