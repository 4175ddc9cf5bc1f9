//! GGUF files, versions 2 and 3: everything about a model in one file, its weights used where they are mapped.
//!
//! A file is checked in full before anything is taken from it: counts against its length, keys and names once each,
//! every tensor's type, shape, offset and end. Values stay in the file as ranges of bytes, so a file costs no memory
//! beyond its list of keys, whatever it claims. What the keys mean for a model is decided in [`crate::arch::gguf`].
//!
//! ```text
//! header (cursor, value, tensor_type) ─▶ file (Gguf) ┬─▶ keys ─▶ vocab (GgufVocab)
//!                                                    └─▶ tensors (weights by our names)
//! writer (keys and values of a file to be written)
//! ```

mod cursor;
pub(crate) mod file;
pub(crate) mod header;
pub(crate) mod keys;
pub(crate) mod tensor_type;
pub(crate) mod tensors;
pub(crate) mod value;
pub(crate) mod vocab;
pub(crate) mod writer;
