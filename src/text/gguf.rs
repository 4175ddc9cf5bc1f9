//! A GGUF file's vocabulary as a tokenizer.json: one engine for both, with the same checks, detokenizer and guards.
//!
//! `gpt2` vocabularies are byte-level BPE: merges in order, and a pre-tokenizer that the file names. `llama` ones are
//! SentencePiece's BPE: no merges but scores, where the pair with the best merged score goes first. A merge for every way
//! to cut a token in two known ones, in the order of scores, says the same.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::tokenizer::{Tokenizer, TokenizerError};
use super::vocab::GgufVocab;

/// Token types of GGUF.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// How words are cut before merging, by the names that files use. As the models' own tokenizers define it.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const PRE_TOKENIZERS: &[(&str, &str)] = &[
    ("gpt-2", GPT2),
    ("phi-2", GPT2),
    ("jina-es", GPT2),
    ("jina-de", GPT2),
    ("mpt", GPT2),
    ("olmo", GPT2),
    ("llama3", LLAMA3),
    ("llama-v3", LLAMA3),
    ("llama-bpe", LLAMA3),
    ("qwen2", QWEN2),
    ("deepseek-r1-qwen", QWEN2),
    ("stablelm2", QWEN2),
];

impl Tokenizer {
    /// From a GGUF file's keys. A kind or pre-tokenizer that we do not know is refused by name, never guessed.
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Tokenizer, TokenizerError> {
        let tokens = texts(vocab)?;
        let json = match vocab.model.as_str() {
            "gpt2" => byte_level(vocab, &tokens)?,
            "llama" => sentence_piece(vocab, &tokens)?,
            other => return Err(refuse(format!("tokenizer.ggml.model {other:?} is not supported"))),
        };
        Tokenizer::from_json(json.to_string().as_bytes())
    }
}

fn refuse(message: String) -> TokenizerError {
    TokenizerError::Invalid(message)
}

/// Every token as text, each once.
fn texts(vocab: &GgufVocab) -> Result<Vec<&str>, TokenizerError> {
    let texts = vocab.tokens.iter().enumerate().map(|(id, token)| text(id, token));
    let tokens: Vec<&str> = texts.collect::<Result<_, _>>()?;
    if !vocab.token_types.is_empty() && vocab.token_types.len() != tokens.len() {
        let message = format!("{} token types for {} tokens", vocab.token_types.len(), tokens.len());
        return Err(refuse(message));
    }
    let known = |id: Option<u32>| id.is_none_or(|id| (id as usize) < tokens.len());
    if ![vocab.bos, vocab.eos, vocab.unknown].into_iter().all(known) {
        return Err(refuse("a special token's id is outside the vocabulary".into()));
    }
    Ok(tokens)
}

fn text(id: usize, token: &[u8]) -> Result<&str, TokenizerError> {
    match std::str::from_utf8(token) {
        Ok("") => Err(refuse(format!("token {id} is empty"))),
        Ok(text) => Ok(text),
        Err(_) => Err(refuse(format!("token {id} is not UTF-8"))),
    }
}

fn kind(vocab: &GgufVocab, id: usize) -> i32 {
    vocab.token_types.get(id).copied().unwrap_or(1)
}

fn byte_level(vocab: &GgufVocab, tokens: &[&str]) -> Result<Value, TokenizerError> {
    let Some(pre) = vocab.pre.as_deref() else {
        return Err(refuse("tokenizer.ggml.pre is missing: how words are cut cannot be guessed".into()));
    };
    let Some((_, pattern)) = PRE_TOKENIZERS.iter().find(|(name, _)| *name == pre) else {
        return Err(refuse(format!("tokenizer.ggml.pre {pre:?} is not supported")));
    };
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let merges = vocab.merges.iter().map(|merge| {
        let halves = merge.split_once(' ').filter(|(a, b)| !a.is_empty() && !b.is_empty());
        halves.map(|(a, b)| json!([a, b])).ok_or_else(|| refuse(format!("the merge {merge:?} has no two halves")))
    });
    let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(vocab, tokens),
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": post_processor(vocab, tokens, vocab.add_bos.unwrap_or(false)),
        "decoder": byte_level,
        "model": {
            "type": "BPE", "fuse_unk": false, "byte_fallback": false, "ignore_merges": LLAMA3 == *pattern,
            "vocab": ids(tokens)?, "merges": merges.collect::<Result<Vec<_>, _>>()?,
        },
    }))
}

fn sentence_piece(vocab: &GgufVocab, tokens: &[&str]) -> Result<Value, TokenizerError> {
    if vocab.scores.len() != tokens.len() {
        return Err(refuse(format!("{} scores for {} tokens", vocab.scores.len(), tokens.len())));
    }
    if vocab.scores.iter().any(|score| score.is_nan()) {
        return Err(refuse("a score is not a number".into()));
    }
    let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prefixed = vocab.add_space_prefix.unwrap_or(true);
    let normalizers = if prefixed { vec![json!({"type": "Prepend", "prepend": "▁"}), space] } else { vec![space] };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefixed {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let unknown = vocab.unknown.unwrap_or(0) as usize;
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(vocab, tokens),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": null,
        "post_processor": post_processor(vocab, tokens, vocab.add_bos.unwrap_or(true)),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE", "fuse_unk": true, "byte_fallback": true, "unk_token": tokens[unknown],
            "vocab": ids(tokens)?, "merges": merges_by_score(vocab, tokens),
        },
    }))
}

/// Every way to cut a token into two known ones, best merged score first; equal scores by id.
fn merges_by_score(vocab: &GgufVocab, tokens: &[&str]) -> Vec<Value> {
    let mergeable = |id: usize| !matches!(kind(vocab, id), UNKNOWN | CONTROL | UNUSED | BYTE);
    let known: HashMap<&str, usize> =
        tokens.iter().enumerate().filter(|(id, _)| mergeable(*id)).map(|(id, text)| (*text, id)).collect();
    let mut merges = Vec::new();
    for (id, text) in tokens.iter().enumerate().filter(|(id, _)| mergeable(*id)) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if known.contains_key(left) && known.contains_key(right) {
                merges.push((vocab.scores[id], id, left, right));
            }
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    merges.into_iter().map(|(_, _, left, right)| json!([left, right])).collect()
}

fn ids(tokens: &[&str]) -> Result<HashMap<String, usize>, TokenizerError> {
    let ids: HashMap<String, usize> = tokens.iter().enumerate().map(|(id, text)| ((*text).to_owned(), id)).collect();
    // Two tokens of one text would leave one of them without a way to be written.
    if ids.len() == tokens.len() { Ok(ids) } else { Err(refuse("two tokens have the same text".into())) }
}

/// Control tokens, and tokens that the model's makers added: matched in the text before anything else.
fn added(vocab: &GgufVocab, tokens: &[&str]) -> Vec<Value> {
    let entry = |(id, text): (usize, &&str)| {
        let special = matches!(kind(vocab, id), CONTROL | UNKNOWN);
        (special || kind(vocab, id) == USER_DEFINED).then(|| {
            json!({
                "id": id, "content": text, "special": special,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
    };
    tokens.iter().enumerate().filter_map(entry).collect()
}

/// BOS before and EOS behind a text, where the file asks for them.
fn post_processor(vocab: &GgufVocab, tokens: &[&str], add_bos: bool) -> Value {
    let special = |id: Option<u32>, wanted: bool| id.filter(|_| wanted).map(|id| (id, tokens[id as usize]));
    let bos = special(vocab.bos, add_bos);
    let eos = special(vocab.eos, vocab.add_eos.unwrap_or(false));
    if bos.is_none() && eos.is_none() {
        return Value::Null;
    }
    let piece = |(_, text): (u32, &str)| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let around =
        |middle: Vec<Value>| -> Vec<Value> { bos.map(piece).into_iter().chain(middle).chain(eos.map(piece)).collect() };
    let described = bos
        .into_iter()
        .chain(eos)
        .map(|(id, text)| (text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})));
    json!({
        "type": "TemplateProcessing",
        "single": around(vec![sequence("A")]),
        "pair": around(vec![sequence("A"), sequence("B")]),
        "special_tokens": described.collect::<serde_json::Map<String, Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The alphabet, one merge, and the control tokens of a small byte-level vocabulary.
    fn small() -> GgufVocab {
        let tokens = ["<s>", "</s>", "a", "b", "ab", "Ġ"];
        GgufVocab {
            model: "gpt2".into(),
            pre: Some("gpt-2".into()),
            tokens: tokens.iter().map(|token| token.as_bytes().to_vec()).collect(),
            scores: vec![],
            token_types: vec![3, 3, 1, 1, 1, 1],
            merges: vec!["a b".into()],
            bos: Some(0),
            eos: Some(1),
            unknown: None,
            add_bos: Some(true),
            add_eos: None,
            add_space_prefix: None,
            chat_template: None,
        }
    }

    fn refused(change: impl FnOnce(&mut GgufVocab)) -> String {
        let mut vocab = small();
        change(&mut vocab);
        match Tokenizer::from_gguf(&vocab) {
            Ok(_) => panic!("it must be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn merges_and_control_tokens_are_taken_over() {
        let tokenizer = Tokenizer::from_gguf(&small()).expect("valid");
        assert_eq!(tokenizer.encode("ab a</s>", false), Ok(vec![4, 5, 2, 1]));
        assert_eq!(tokenizer.encode("b", true), Ok(vec![0, 3]));
        assert!(tokenizer.is_text(4) && !tokenizer.is_text(1));
        assert_eq!(tokenizer.token_bytes(5), b" ");
    }

    #[test]
    fn vocabularies_that_lie_are_refused_with_the_reason() {
        assert!(refused(|v| v.pre = Some("mystery".into())).contains("\"mystery\""));
        assert!(refused(|v| v.pre = None).contains("tokenizer.ggml.pre"));
        assert!(refused(|v| v.model = "rwkv".into()).contains("rwkv"));
        assert!(refused(|v| v.token_types.truncate(2)).contains("2 token types for 6"));
        assert!(refused(|v| v.tokens[2] = vec![]).contains("token 2 is empty"));
        assert!(refused(|v| v.tokens[3] = b"a".to_vec()).contains("same text"));
        assert!(refused(|v| v.merges = vec!["ab".into()]).contains("no two halves"));
        assert!(refused(|v| v.eos = Some(6)).contains("outside the vocabulary"));
        assert!(refused(|v| v.model = "llama".into()).contains("0 scores for 6"));
    }
}
