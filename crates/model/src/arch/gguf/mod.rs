//! The keys of a GGUF file to a [`DecoderSpec`](crate::types::spec::decoder::DecoderSpec).
//!
//! How keys lie in a file is known to [`crate::files::gguf`]; here is only what they mean.

pub(crate) mod decoder;
mod prefixed;
mod rope;
