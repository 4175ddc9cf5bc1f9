//! Weights from where they are to where they compute: tensors by name, handed to whatever backend there is.
//!
//! Knows the backend as the trait alone, and asks it what stays quantised; knows no folder layout.
//!
//! ```text
//! files: safetensors, gguf ─┬─▶ source (Weights) ─▶ loader (decoder, encoder) ─▶ pass::weights on the device
//! dummy (seeded numbers) ───┘
//! an adapter's folder ────────────────────────────▶ lora ─▶ pass::lora on the device
//! ```

pub(crate) mod decoder;
mod dummy;
pub(crate) mod encoder;
pub(crate) mod loader;
pub(crate) mod lora;
pub(crate) mod source;
