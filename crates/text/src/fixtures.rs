//! Small tokenizers for the tests of this room and of `generate`.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::Tokenizer;
use forebay_core::units::TokenId;

/// Ids of the byte-level tokenizer: 0 to 255 are single bytes in the alphabet's order, then the merges, then these.
pub const BOS: TokenId = 256 + MERGES.len() as TokenId;
pub const END: TokenId = BOS + 1;
pub const USER: TokenId = BOS + 2;
pub const ASSISTANT: TokenId = BOS + 3;
pub const VOCAB: TokenId = BOS + 4;

const MERGES: [[&str; 2]; 8] =
    [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], ["Ġ", "f"], ["i", "s"], ["Ġf", "is"], ["Ġfis", "h"]];

/// A byte-level BPE with `<|bos|>`, `<|end|>`, `<|user|>` and `<|assistant|>`; its post-processor puts BOS first.
pub fn byte_level() -> Tokenizer {
    Tokenizer::from_json(byte_level_json().as_bytes()).unwrap()
}

pub fn byte_level_json() -> String {
    let mut alphabet: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    alphabet.sort_unstable();
    let merged = MERGES.iter().map(|pair| pair.concat());
    let vocab = numbered(alphabet.iter().map(char::to_string).chain(merged));
    let special = |(i, content): (usize, &str)| {
        json!({"id": BOS as usize + i, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    let specials = ["<|bos|>", "<|end|>", "<|user|>", "<|assistant|>"].into_iter().enumerate().map(special);
    let bos = json!({"SpecialToken": {"id": "<|bos|>", "type_id": 0}});
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": specials.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing", "single": [bos, text("A")], "pair": [bos, text("A"), text("B")],
            "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [BOS], "tokens": ["<|bos|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": MERGES},
    })
    .to_string()
}

/// The golden checkpoints' tokenizer: id `i` is the word `ti`, below 320.
pub const WORD_LEVEL_JSON: &str = include_str!("../../../tests/fixtures/word_level_tokenizer.json");

pub fn word_level() -> Tokenizer {
    Tokenizer::from_json(WORD_LEVEL_JSON.as_bytes()).unwrap()
}

/// Like Llama 2's: spaces are `▁`, one is put first, and what is not in the vocabulary falls back to bytes.
pub fn sentencepiece() -> Tokenizer {
    let bytes = (0..=255u8).map(|byte| {
        let mut token = String::new();
        write!(token, "<0x{byte:02X}>").unwrap();
        token
    });
    let pieces = ["▁", "a", "f", "i", "s", "h", "▁f", "is"].map(str::to_owned);
    let model = json!({"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
        "vocab": numbered(["<unk>".to_owned()].into_iter().chain(bytes).chain(pieces)),
        "merges": [["▁", "f"], ["i", "s"]]});
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    let decoder = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    load(normalizer, decoder, model)
}

/// Decoders whose text depends on the neighbours.
pub const DECODERS: &[&str] = &[
    "null",
    r###"{"type": "WordPiece", "prefix": "##", "cleanup": true}"###,
    r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}"#,
    r#"{"type": "BPEDecoder", "suffix": "</w>"}"#,
    r#"{"type": "Sequence", "decoders": [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}]}"#,
];

/// How many tokens [`with_decoder`]'s vocabulary has.
pub const PIECES: TokenId = 12;

pub fn with_decoder(decoder: &str) -> Tokenizer {
    let pieces = ["a", "##b", "▁c", "d</w>", ".", "é", "▁", "n't", "##é", "▁▁", "\u{FFFD}", "e</w>"].map(str::to_owned);
    let model = json!({"type": "WordLevel", "vocab": numbered(pieces.into_iter()), "unk_token": "a"});
    load(Value::Null, serde_json::from_str(decoder).unwrap(), model)
}

fn load(normalizer: Value, decoder: Value, model: Value) -> Tokenizer {
    let json = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": normalizer, "pre_tokenizer": null, "post_processor": null, "decoder": decoder, "model": model});
    Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
}

fn numbered(tokens: impl Iterator<Item = String>) -> Map<String, Value> {
    tokens.enumerate().map(|(id, token)| (token, id.into())).collect()
}
