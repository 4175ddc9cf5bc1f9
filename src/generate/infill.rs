//! Filling a hole in a text, for models whose vocabulary has tokens for that.

use forebay_core::request::RequestError;
use forebay_core::units::TokenId;
use forebay_text::Tokenizer;

/// The tokens before the first text, between the two, and after the second, as model families spell them: Qwen2.5-Coder and
/// CodeGemma, StarCoder, Granite, DeepSeek-Coder, CodeLlama.
const FAMILIES: &[[&str; 3]] = &[
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
];

/// The tokens of a prompt that asks for what stands between `before` and `after`; both are plain text.
pub fn tokens(
    tokenizer: &Tokenizer,
    encode: impl Fn(&str) -> Result<Vec<TokenId>, RequestError>,
    before: &str,
    after: &str,
) -> Result<Vec<TokenId>, RequestError> {
    let id = |spelling: &'static str| tokenizer.token_id(spelling);
    let ids = |family: &[&'static str; 3]| Some([id(family[0])?, id(family[1])?, id(family[2])?]);
    let Some([first, hole, last]) = FAMILIES.iter().find_map(ids) else {
        let message = "the model's vocabulary has no tokens for filling in the middle".to_owned();
        return Err(RequestError::Unsupported { param: "suffix".into(), message });
    };
    Ok([&[first], &encode(before)?[..], &[hole], &encode(after)?[..], &[last]].concat())
}
