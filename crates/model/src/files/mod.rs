//! The formats that models come in: every file is checked in full before anything is taken from it.
//!
//! Knows no backend and no folder layout, and of models only how their tensors are named: a file goes in, named values and
//! tensors come out, or an error that names the file and what is wrong with it.
//!
//! ```text
//! map (mapped bytes) ┬─▶ safetensors (header, index) ─┬─▶ numbers (a tensor on its way), by names
//!                    └─▶ gguf/ (keys and tensors) ────┘
//! json (an object whose values are checked)
//! ```

pub(crate) mod gguf;
pub(crate) mod json;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod safetensors;
