//! `forebay model quantize`: a GGUF file with quantised matrices, made of a checkpoint or of another GGUF file.
//!
//! Computes nothing with a model and knows no backend: tensors are read, repacked and written.
//!
//! ```text
//! a GGUF file ────────────▶ again ─────────────────────────────────────────┐
//! a Hugging Face folder ─▶ checkpoint (metadata, tensors) ─▶ written file ─┴▶ output
//!                               └── compare: the file says what the checkpoint does
//! ```

mod again;
mod checkpoint;
mod compare;
mod metadata;
mod output;
mod tensors;

use std::path::Path;

use crate::load::source::Source;
use crate::types::error::LoadError;
use forebay_kernels::packed::Quantised;
pub use output::Written;

/// Reads `from`, a file or a folder in the Hugging Face layout, and writes `to`, which must not exist and appears when it is
/// whole.
pub fn quantize(from: &Path, to: &Path, kind: Quantised) -> Result<Written, LoadError> {
    match Source::at(from.to_path_buf()).resolved()? {
        Source::Folder(folder) => checkpoint::export(&folder, to, kind),
        _ => again::rewrite(from, to, kind),
    }
}
