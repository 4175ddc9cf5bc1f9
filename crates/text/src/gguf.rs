//! A GGUF file's vocabulary as a tokenizer.json: one engine for both, with the same checks, detokenizer and guards.
//!
//! `gpt2` vocabularies are byte-level BPE: merges in order, and a pre-tokenizer that the file names. `llama` ones are
//! SentencePiece's BPE: no merges but scores, where the pair with the best merged score goes first. A merge for every way
//! to cut a token in two known ones, in the order of scores, says the same. `bert` ones are WordPiece, written with `▁`
//! before words where BERT itself writes `##` before the rest.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::pre_tokenizers::{self, PreTokenizer, Spelling};
use super::tokenizer::{Tokenizer, TokenizerError};
use super::vocab::GgufVocab;

/// Token types of GGUF.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

impl Tokenizer {
    /// From a GGUF file's keys. A kind or pre-tokenizer that we do not know is refused by name, never guessed.
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Tokenizer, TokenizerError> {
        let tokens = texts(vocab)?;
        let json = match vocab.model.as_str() {
            "gpt2" => byte_level(vocab, vocab.pre.as_deref(), &tokens)?,
            // Names the model instead of the cut.
            "gemma4" => byte_level(vocab, Some("gemma4"), &tokens)?,
            "llama" => sentence_piece(vocab, &tokens)?,
            "bert" => word_piece(vocab, &tokens)?,
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
    if ![vocab.bos, vocab.eos, vocab.unknown, vocab.separator].into_iter().all(known) {
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

fn byte_level(vocab: &GgufVocab, pre: Option<&str>, tokens: &[&str]) -> Result<Value, TokenizerError> {
    let Some(name) = pre else {
        return Err(refuse("tokenizer.ggml.pre is missing: how words are cut cannot be guessed".into()));
    };
    let Some(pre) = pre_tokenizers::find(name) else {
        return Err(refuse(format!("tokenizer.ggml.pre {name:?} is not supported")));
    };
    let merges = vocab.merges.iter().map(|merge| {
        // A half may begin with a space where spaces are written as they are.
        let at = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        let halves = at.map(|at| (&merge[..at], &merge[at + 1..])).filter(|(_, b)| !b.is_empty());
        halves.map(|(a, b)| json!([a, b])).ok_or_else(|| refuse(format!("the merge {merge:?} has no two halves")))
    });
    let spelled = spelled(pre, tokens);
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(vocab, tokens),
        "normalizer": spelled.normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": spelled.pre_tokenizers},
        "post_processor": post_processor(vocab, tokens, vocab.add_bos.unwrap_or(pre.add_bos)),
        "decoder": spelled.decoder,
        "model": {
            "type": "BPE", "fuse_unk": false, "byte_fallback": spelled.byte_fallback,
            "unk_token": spelled.unknown, "ignore_merges": pre.ignore_merges,
            "vocab": ids(tokens)?, "merges": merges.collect::<Result<Vec<_>, _>>()?,
        },
    }))
}

/// The parts of a tokenizer.json that follow from how pieces are written.
struct Spelled {
    normalizer: Value,
    pre_tokenizers: Vec<Value>,
    decoder: Value,
    byte_fallback: bool,
    unknown: Value,
}

fn spelled(pre: &PreTokenizer, tokens: &[&str]) -> Spelled {
    let split =
        |cut: &&str| json!({"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated", "invert": false});
    let mut pre_tokenizers: Vec<Value> = pre.cuts.iter().map(split).collect();
    match pre.spelling {
        Spelling::ByteLevel => {
            let byte_level =
                json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
            pre_tokenizers.push(byte_level.clone());
            Spelled {
                normalizer: Value::Null,
                pre_tokenizers,
                decoder: byte_level,
                byte_fallback: false,
                unknown: Value::Null,
            }
        }
        Spelling::Metaspace => Spelled {
            normalizer: json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}),
            pre_tokenizers,
            decoder: json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ]}),
            byte_fallback: true,
            unknown: tokens.iter().find(|token| **token == "<unk>").map_or(Value::Null, |token| json!(token)),
        },
    }
}

/// BERT's own ids where the file names none.
const CLS: u32 = 101;
const SEP: u32 = 102;
const UNK: u32 = 100;

fn word_piece(vocab: &GgufVocab, tokens: &[&str]) -> Result<Value, TokenizerError> {
    let special = |id: Option<u32>, default: u32| {
        let id = id.unwrap_or(default);
        tokens.get(id as usize).map(|text| (id, *text)).ok_or_else(|| refuse(format!("there is no token {id}")))
    };
    let (cls, sep, unknown) = (special(vocab.bos, CLS)?, special(vocab.separator, SEP)?, special(vocab.unknown, UNK)?);
    let spelled = |(id, text): (usize, &&str)| match (kind(vocab, id), text.strip_prefix('▁')) {
        (CONTROL | UNKNOWN | USER_DEFINED | UNUSED, _) => (*text).to_owned(),
        (_, Some(word)) if !word.is_empty() => word.to_owned(),
        (_, Some(_)) => "▁".to_owned(),
        (_, None) => format!("##{text}"),
    };
    let spelled: Vec<String> = tokens.iter().enumerate().map(spelled).collect();
    let spelled: Vec<&str> = spelled.iter().map(String::as_str).collect();
    let lowercase = vocab.lowercase.unwrap_or(true);
    Ok(json!({
        "version": "1.0",
        "added_tokens": added(vocab, tokens),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": vocab.strip_accents.unwrap_or(lowercase), "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": around(Some(cls), Some(sep)),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": unknown.1, "continuing_subword_prefix": "##",
            // BERT gives up on words of more than 100 letters, llama.cpp on none.
            "max_input_chars_per_word": 1_000_000, "vocab": ids(&spelled)?,
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
    around(special(vocab.bos, add_bos), special(vocab.eos, vocab.add_eos.unwrap_or(false)))
}

fn around(bos: Option<(u32, &str)>, eos: Option<(u32, &str)>) -> Value {
    if bos.is_none() && eos.is_none() {
        return Value::Null;
    }
    let piece = |(_, text): (u32, &str)| json!({"SpecialToken": {"id": text, "type_id": 0}});
    let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let between =
        |middle: Vec<Value>| -> Vec<Value> { bos.map(piece).into_iter().chain(middle).chain(eos.map(piece)).collect() };
    let described = bos
        .into_iter()
        .chain(eos)
        .map(|(id, text)| (text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})));
    json!({
        "type": "TemplateProcessing",
        "single": between(vec![sequence("A")]),
        "pair": between(vec![sequence("A"), sequence("B")]),
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
            separator: None,
            lowercase: None,
            strip_accents: None,
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
    fn bos_is_the_names_business_unless_the_file_says_otherwise() {
        for (pre, add_bos, expected) in [
            ("gpt-2", None, vec![3]),
            ("llama-bpe", None, vec![0, 3]),
            ("llama-bpe", Some(false), vec![3]),
            ("tekken", None, vec![0, 3]),
            ("glm4", Some(true), vec![0, 3]),
        ] {
            let vocab = GgufVocab { pre: Some(pre.into()), add_bos, ..small() };
            assert_eq!(Tokenizer::from_gguf(&vocab).unwrap().encode("b", true), Ok(expected), "{pre}");
        }
    }

    #[test]
    fn a_whole_piece_goes_before_its_merges_where_the_name_says_so() {
        // "aab" is a token, but merges lead to "aa" + "b" or "a" + "ab".
        let tokens = ["a", "b", "ab", "aab"].map(|token| token.as_bytes().to_vec()).to_vec();
        let vocab = |pre: &str| GgufVocab {
            pre: Some(pre.into()),
            tokens: tokens.clone(),
            token_types: vec![],
            bos: None,
            eos: None,
            add_bos: None,
            ..small()
        };
        assert_eq!(Tokenizer::from_gguf(&vocab("gpt-2")).unwrap().encode("aab", false), Ok(vec![0, 2]));
        assert_eq!(Tokenizer::from_gguf(&vocab("glm4")).unwrap().encode("aab", false), Ok(vec![3]));
    }

    #[test]
    fn spaces_as_they_are_fall_back_to_bytes() {
        let tokens = ["<unk>", "▁a", "▁", "a", "<0xC3>", "<0xA9>", "\n\n", "\n"];
        let vocab = GgufVocab {
            model: "gemma4".into(),
            pre: None,
            tokens: tokens.iter().map(|token| token.as_bytes().to_vec()).collect(),
            token_types: vec![2, 1, 1, 1, 6, 6, 1, 1],
            merges: vec!["▁ a".into(), "\n \n".into()],
            bos: None,
            eos: None,
            add_bos: None,
            ..small()
        };
        let tokenizer = Tokenizer::from_gguf(&vocab).expect("valid");
        assert_eq!(tokenizer.encode("a aé\n\n", false), Ok(vec![3, 1, 4, 5, 6]));
    }

    #[test]
    fn word_piece_is_written_back_as_bert_writes_it() {
        let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "able", "▁able", "▁,", "▁中"];
        let vocab = GgufVocab {
            model: "bert".into(),
            pre: None,
            tokens: tokens.iter().map(|token| token.as_bytes().to_vec()).collect(),
            token_types: vec![3, 2, 3, 3, 1, 1, 1, 1, 1],
            merges: vec![],
            bos: Some(2),
            eos: None,
            unknown: Some(1),
            separator: Some(3),
            add_bos: None,
            ..small()
        };
        let tokenizer = Tokenizer::from_gguf(&vocab).expect("valid");
        assert_eq!(tokenizer.encode("Unable, ÁBLE 中 xyz", true), Ok(vec![2, 4, 5, 7, 6, 8, 1, 3]));
        let cased = Tokenizer::from_gguf(&GgufVocab { lowercase: Some(false), ..vocab.clone() }).expect("valid");
        assert_eq!(cased.encode("Unable able", false), Ok(vec![1, 6]));
        let short = GgufVocab { separator: None, ..vocab };
        assert!(Tokenizer::from_gguf(&short).is_err_and(|error| error.to_string().contains("no token 102")));
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
