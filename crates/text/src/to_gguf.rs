//! A tokenizer.json as a GGUF file's vocabulary: the way back of [`super::gguf`].
//!
//! A file can say less than a tokenizer.json, so what was made is read again and has to cut [`SAMPLES`] as the original does.

use std::collections::HashMap;

use serde_json::Value;

use super::pre_tokenizers;
use super::tokenizer::{Tokenizer, TokenizerError};
use super::vocab::GgufVocab;

/// Token types of GGUF.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Tokens beyond this are not written: none has so many.
const MAX_IDS: u64 = 1 << 22;

/// What texts are made of, in a few of them.
const SAMPLES: [&str; 12] = [
    "Hello, world!",
    "  leading spaces,   many   between and behind   ",
    "It's what they'LL say: I'd've done that.",
    "In 2024, 1234567 people paid 3.14 €.",
    "Straße, naïve, Ωμέγα, Привет, שלום, مرحبا",
    "日本語のテキスト。中文文本，한국어",
    "👩‍👩‍👧 and 🇩🇪 and \u{fffd}",
    "one\n\ntwo\r\n\tthree\n    four\n",
    "fn main() { let x: Vec<u8> = b\"abc\".to_vec(); } // ok?",
    "snake_case camelCase SCREAMING http://example.com/a?b=c&d=%20",
    "a",
    " ",
];

/// What a vocabulary says beside its tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Specials {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
}

/// `None` where a file has no form for this kind of tokenizer; an error where it has one that says something else.
pub fn to_gguf(json: &[u8], specials: Specials, template: Option<&str>) -> Result<Option<GgufVocab>, TokenizerError> {
    let original = Tokenizer::from_json(json)?;
    let file: Value = serde_json::from_slice(json).map_err(|error| TokenizerError::Invalid(error.to_string()))?;
    let model = &file["model"];
    // Older files do not say it.
    if model["type"].as_str().unwrap_or("BPE") != "BPE" {
        return Ok(None);
    }
    let bytes = model["byte_fallback"] == true;
    let (texts, mut kinds) = tokens(&file, bytes)?;
    let merges = merges(model)?;
    let unknown = model["unk_token"].as_str().and_then(|text| texts.iter().position(|token| token == text));
    let around = original.encode("a", true)?;
    let mut vocab = GgufVocab {
        model: if bytes { "llama" } else { "gpt2" }.to_owned(),
        pre: None,
        scores: Vec::new(),
        token_types: Vec::new(),
        merges: Vec::new(),
        bos: specials.bos,
        eos: specials.eos,
        unknown: unknown.map(|id| id as u32),
        add_bos: Some(specials.bos.is_some() && around.first() == specials.bos.as_ref()),
        add_eos: Some(specials.eos.is_some() && around.last() == specials.eos.as_ref()),
        add_space_prefix: None,
        separator: None,
        lowercase: None,
        strip_accents: None,
        chat_template: template.map(str::to_owned),
        tokens: texts.iter().map(|text| text.clone().into_bytes()).collect(),
    };
    if bytes {
        if let Some(unknown) = unknown {
            kinds[unknown] = UNKNOWN;
        }
        vocab.scores = scores(&texts, &merges);
        vocab.add_space_prefix = Some(prefixes(&file));
    } else {
        vocab.pre = Some(pre_tokenizer(&file)?);
        vocab.merges = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    }
    vocab.token_types = kinds;
    alike(&original, &Tokenizer::from_gguf(&vocab)?)?;
    Ok(Some(vocab))
}

fn refuse(message: impl Into<String>) -> TokenizerError {
    TokenizerError::Invalid(message.into())
}

/// Every token and its type; ids that nobody has are unused ones.
fn tokens(file: &Value, bytes: bool) -> Result<(Vec<String>, Vec<i32>), TokenizerError> {
    let vocab = file["model"]["vocab"].as_object().ok_or_else(|| refuse("model.vocab must be an object"))?;
    let added = file["added_tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_vocab = vocab.iter().filter_map(|(text, id)| Some((id.as_u64()?, text.as_str(), NORMAL)));
    let of_added = added.iter().filter_map(|token| {
        let kind = if token["special"] == true { CONTROL } else { USER_DEFINED };
        Some((token["id"].as_u64()?, token["content"].as_str()?, kind))
    });
    let all: Vec<(u64, &str, i32)> = of_vocab.chain(of_added).collect();
    let count = all.iter().map(|(id, ..)| id + 1).max().unwrap_or(0);
    if count > MAX_IDS {
        return Err(refuse(format!("has the token id {}", count - 1)));
    }
    let mut texts: Vec<String> = (0..count).map(unused).collect();
    let mut kinds = vec![UNUSED; count as usize];
    for (id, text, kind) in all {
        let byte = bytes && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        kinds[id as usize] = if byte { BYTE } else { kind };
        text.clone_into(&mut texts[id as usize]);
    }
    Ok((texts, kinds))
}

/// The name of a token that nobody has, as llama.cpp's converter writes it.
pub fn unused(id: u64) -> String {
    format!("[PAD{id}]")
}

fn merges(model: &Value) -> Result<Vec<(&str, &str)>, TokenizerError> {
    let list = model["merges"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    list.map(halves).collect::<Option<_>>().ok_or_else(|| refuse("a merge has no two halves"))
}

fn halves(merge: &Value) -> Option<(&str, &str)> {
    match merge {
        Value::String(text) => text.split_once(' '),
        Value::Array(halves) => Some((halves.first()?.as_str()?, halves.get(1)?.as_str()?)),
        _ => None,
    }
}

/// What is merged first scores highest. What is never merged needs none.
fn scores(texts: &[String], merges: &[(&str, &str)]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::with_capacity(merges.len());
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry([*left, *right].concat()).or_insert(rank);
    }
    texts.iter().map(|text| ranks.get(text).map_or(0.0, |&rank| -(rank as f32) - 1.0)).collect()
}

/// Whether a space goes before a text.
fn prefixes(file: &Value) -> bool {
    let text = |part: &str| file[part].to_string();
    text("normalizer").contains("\"Prepend\"")
        || (text("pre_tokenizer").contains("\"Metaspace\"") && file["pre_tokenizer"]["prepend_scheme"] != "never")
}

fn pre_tokenizer(file: &Value) -> Result<String, TokenizerError> {
    let mut cuts = Vec::new();
    collect_cuts(&file["pre_tokenizer"], &mut cuts)?;
    let cuts: Vec<&str> = cuts.iter().map(String::as_str).collect();
    let whole = file["model"]["ignore_merges"] == true;
    let name = pre_tokenizers::named(&cuts, whole);
    name.map(str::to_owned).ok_or_else(|| refuse("no GGUF file can say how this tokenizer cuts words"))
}

/// Expressions that cut one after another.
fn collect_cuts(pre: &Value, cuts: &mut Vec<String>) -> Result<(), TokenizerError> {
    let kind = pre["type"].as_str().unwrap_or_default();
    match kind {
        "Sequence" => {
            let parts = pre["pretokenizers"].as_array().map(Vec::as_slice).unwrap_or_default();
            parts.iter().try_for_each(|part| collect_cuts(part, cuts))
        }
        "Split" if pre["behavior"] == "Isolated" && pre["invert"] == false && pre["pattern"]["Regex"].is_string() => {
            cuts.extend(pre["pattern"]["Regex"].as_str().map(str::to_owned));
            Ok(())
        }
        "Digits" if pre["individual_digits"] == true => {
            cuts.push(pre_tokenizers::ONE_DIGIT.to_owned());
            Ok(())
        }
        "ByteLevel" if pre["add_prefix_space"] != true => {
            // The cut of GPT-2 unless switched off.
            if pre["use_regex"] != false {
                cuts.push(pre_tokenizers::GPT2.to_owned());
            }
            Ok(())
        }
        _ => Err(refuse(format!("no GGUF file can say what its pre-tokenizer does ({kind:?})"))),
    }
}

fn alike(original: &Tokenizer, ours: &Tokenizer) -> Result<(), TokenizerError> {
    for text in SAMPLES {
        for special in [false, true] {
            if original.encode(text, special)? != ours.encode(text, special)? {
                return Err(refuse(format!("as a GGUF file has it, it would cut {text:?} into other tokens")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn check(json: &[u8], specials: Specials) -> GgufVocab {
        to_gguf(json, specials, Some("{{ x }}")).expect("it is alike").expect("it has a form")
    }

    #[test]
    fn byte_level_bpe_there_and_back() {
        let json = fixtures::byte_level_json().into_bytes();
        let vocab = check(&json, Specials { bos: Some(fixtures::BOS), eos: Some(fixtures::END) });
        assert_eq!(vocab.model, "gpt2");
        assert_eq!(vocab.chat_template.as_deref(), Some("{{ x }}"));
        let (ours, theirs) = (Tokenizer::from_gguf(&vocab).unwrap(), Tokenizer::from_json(&json).unwrap());
        assert_eq!(ours.vocab_size(), theirs.vocab_size());
        let text = "hello fish <|end|> is";
        assert_eq!(ours.encode(text, true), theirs.encode(text, true));
    }

    /// Merges in an order that scores have to keep.
    #[test]
    fn sentence_pieces_there_and_back() {
        let mut tokens = vec!["<unk>".to_owned(), "<s>".to_owned(), "</s>".to_owned()];
        tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
        tokens.extend("▁ abcdehlorwxHIJ,!.".chars().map(String::from));
        let merges =
            [("l", "l"), ("h", "e"), ("▁", "a"), ("he", "ll"), ("hell", "o"), ("▁", "w"), ("o", "r"), ("▁w", "or")];
        tokens.extend(merges.iter().map(|(left, right)| [*left, *right].concat()));
        tokens.dedup();
        let ids: serde_json::Map<String, Value> =
            tokens.iter().enumerate().map(|(id, text)| (text.clone(), json!(id))).collect();
        let special = |id: usize| {
            json!({
                "id": id, "content": tokens[id], "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        };
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special(0), special(1), special(2)],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ]},
            "pre_tokenizer": null,
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]},
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": ids, "merges": merges},
        })
        .to_string()
        .into_bytes();
        let vocab = check(&json, Specials { bos: Some(1), eos: Some(2) });
        assert_eq!((vocab.model.as_str(), vocab.add_space_prefix, vocab.unknown), ("llama", Some(true), Some(0)));
        assert_eq!((vocab.add_bos, vocab.add_eos), (Some(true), Some(false)));
        assert_eq!((vocab.token_types[0], vocab.token_types[1], vocab.token_types[5]), (UNKNOWN, CONTROL, BYTE));
        let (ours, theirs) = (Tokenizer::from_gguf(&vocab).unwrap(), Tokenizer::from_json(&json).unwrap());
        for text in ["hello a world", "hell, he wore a ll ☃"] {
            assert_eq!(ours.encode(text, true), theirs.encode(text, true), "{text}");
        }
    }

    #[test]
    fn what_a_file_cannot_say_is_refused_and_other_kinds_have_no_form() {
        let known: Value = serde_json::from_str(&fixtures::byte_level_json()).unwrap();
        let refused = |change: &dyn Fn(&mut Value)| {
            let mut file = known.clone();
            change(&mut file);
            to_gguf(file.to_string().as_bytes(), Specials::default(), None).unwrap_err().to_string()
        };
        let split = json!({"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": false});
        let error = refused(&|file| file["pre_tokenizer"] = split.clone());
        assert!(error.contains("how this tokenizer cuts words"), "{error}");
        let error = refused(&|file| file["pre_tokenizer"] = json!({"type": "Whitespace"}));
        assert!(error.contains("Whitespace"), "{error}");
        let error = refused(&|file| file["normalizer"] = json!({"type": "Lowercase"}));
        assert!(error.contains("other tokens"), "{error}");
        let words = json!({"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}});
        assert_eq!(to_gguf(words.to_string().as_bytes(), Specials::default(), None), Ok(None));
    }
}
