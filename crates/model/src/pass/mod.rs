//! The one forward pass: every architecture, every backend.
//!
//! Knows its backend as a trait alone, and neither architectures by name nor how weights came to where they are. A [`Step`]
//! of plain vectors comes in, plain vectors go out.
//!
//! ```text
//! net (Parts) ─▶ kv_memory (copies) ─▶ decoder (rope, lora, weights) or encoder ─▶ backend (the trait)
//! ```
//!
//! [`Step`]: crate::types::batch::Step

pub(crate) mod backend;
pub(crate) mod decoder;
pub(crate) mod encoder;
pub(crate) mod kv_memory;
pub(crate) mod lora;
pub(crate) mod net;
pub(crate) mod rope;
pub(crate) mod weights;
