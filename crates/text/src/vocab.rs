//! What a GGUF file says about its tokens, before anything is made of it. Plain data: the model room reads it from the
//! file, this room builds a tokenizer.

/// The `tokenizer.ggml.*` keys, under their names there. Lengths are as the file has them and may disagree.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufVocab {
    pub model: String,
    pub pre: Option<String>,
    pub tokens: Vec<Vec<u8>>,
    pub scores: Vec<f32>,
    pub token_types: Vec<i32>,
    pub merges: Vec<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    pub separator: Option<u32>,
    /// Of WordPiece.
    pub lowercase: Option<bool>,
    pub strip_accents: Option<bool>,
    pub chat_template: Option<String>,
}
