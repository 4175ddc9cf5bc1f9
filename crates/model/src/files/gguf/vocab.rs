//! The tokenizer's part of the metadata, handed on as it is: what it means is decided in `text`.

use super::file::Gguf;
use super::keys::Keys;
use super::value::Array;
use crate::types::error::LoadError;
use forebay_core::units::TokenId;
use forebay_text::GgufVocab;

const TOKENS: &str = "tokenizer.ggml.tokens";

/// What a file says about text.
pub(crate) struct Vocabulary {
    pub tokens: GgufVocab,
    /// Tokens that end a completion, ascending.
    pub ends: Vec<TokenId>,
    pub bos_text: Option<String>,
    pub eos_text: Option<String>,
}

/// Reads the keys and checks that the lists are as long as each other and that ids lie below `vocab`. A file without a
/// tokenizer gives an empty one of the model `none`, llama.cpp's word for that.
pub(crate) fn read_vocab(file: &Gguf, vocab: usize) -> Result<Vocabulary, LoadError> {
    let keys = file.keys();
    let tokens = strings(&keys, TOKENS)?;
    let scores = keys.array("tokenizer.ggml.scores", "F32", Array::floats)?.unwrap_or_default();
    let token_types = keys.array("tokenizer.ggml.token_type", "I32", Array::integers)?.unwrap_or_default();
    for (key, count) in [("tokenizer.ggml.scores", scores.len()), ("tokenizer.ggml.token_type", token_types.len())] {
        if count > 0 && count != tokens.len() {
            return Err(keys.broken(key, &format!("must have one element for each of the {} tokens", tokens.len())));
        }
    }
    let id = |name: &str| token(&keys, name, vocab);
    let (bos, eos) = (id("bos")?, id("eos")?);
    let mut ends: Vec<TokenId> = [eos, id("eot")?, id("eom")?].into_iter().flatten().collect();
    ends.sort_unstable();
    ends.dedup();
    let text = |id: Option<TokenId>| Some(String::from_utf8_lossy(tokens.get(id? as usize)?).into_owned());
    Ok(Vocabulary {
        ends,
        bos_text: text(bos),
        eos_text: text(eos),
        tokens: GgufVocab {
            model: keys.text("tokenizer.ggml.model")?.unwrap_or("none").to_string(),
            pre: keys.text("tokenizer.ggml.pre")?.map(str::to_string),
            scores,
            token_types,
            merges: merges(&keys)?,
            bos,
            eos,
            unknown: id("unknown")?,
            add_bos: keys.flag("tokenizer.ggml.add_bos_token")?,
            add_eos: keys.flag("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: keys.flag("tokenizer.ggml.add_space_prefix")?,
            // Spelt like this in the format.
            separator: id("seperator")?,
            lowercase: keys.flag("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: keys.flag("tokenizer.ggml.normalizer.strip_accents")?,
            chat_template: keys.text("tokenizer.chat_template")?.map(str::to_string),
            tokens,
        },
    })
}

/// Length of the token list, where there is one.
pub(crate) fn token_count(keys: &Keys) -> Result<Option<usize>, LoadError> {
    match keys.array(TOKENS, "strings", Array::strings)? {
        Some(tokens) if tokens.is_empty() => Err(keys.broken(TOKENS, "must not be empty")),
        tokens => Ok(tokens.map(|tokens| tokens.len())),
    }
}

fn strings(keys: &Keys, key: &str) -> Result<Vec<Vec<u8>>, LoadError> {
    let strings = keys.array(key, "strings", Array::strings)?.unwrap_or_default();
    Ok(strings.into_iter().map(<[u8]>::to_vec).collect())
}

fn merges(keys: &Keys) -> Result<Vec<String>, LoadError> {
    let key = "tokenizer.ggml.merges";
    let texts = strings(keys, key)?.into_iter().map(String::from_utf8).collect::<Result<_, _>>();
    texts.map_err(|_| keys.broken(key, "must be UTF-8"))
}

fn token(keys: &Keys, name: &str, vocab: usize) -> Result<Option<TokenId>, LoadError> {
    let id = keys.integer(&format!("tokenizer.ggml.{name}_token_id"), 0..=vocab.saturating_sub(1))?;
    Ok(id.map(|id| id as TokenId))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use forebay_text::Tokenizer;

    /// Folders with llama.cpp's vocabularies and vectors: two that we keep, more where they are at hand.
    fn folders() -> Vec<PathBuf> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let others = std::env::var_os("FOREBAY_TEST_VOCABS").map(PathBuf::from);
        [Some(here.join("../../tests/vocab")), Some(here.join("../../../shared/vocab")), others]
            .into_iter()
            .flatten()
            .collect()
    }

    /// llama.cpp's own vectors: texts, and the ids that its tokenizer makes of them without special tokens. What is wrong.
    fn check_vectors(file: &Path) -> Vec<String> {
        let vocab =
            read_vocab(&Gguf::open(file).expect("a GGUF file"), u32::MAX as usize).expect("a vocabulary").tokens;
        let tokenizer = Tokenizer::from_gguf(&vocab).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let read = |ending: &str| std::fs::read_to_string(format!("{}.{ending}", file.display())).expect("vectors");
        let (texts, expected) = (read("inp"), read("out"));
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        assert!(texts.len() > 30, "{} vectors", texts.len());
        let mut wrong = Vec::new();
        for (text, line) in texts.iter().zip(expected.lines()) {
            let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().expect("an id")).collect();
            let got = tokenizer.encode(text, false).expect("it encodes");
            if got != ids {
                wrong.push(format!("{}: {text:?}: {got:?} instead of {ids:?}", file.display()));
            }
        }
        wrong
    }

    #[test]
    fn every_vocabulary_equals_llama_cpps_vectors() {
        let (mut checked, mut wrong) = (0, Vec::new());
        for folder in folders() {
            let Ok(entries) = std::fs::read_dir(&folder) else {
                println!("skipped: {} is not here", folder.display());
                continue;
            };
            for file in entries.map(|entry| entry.expect("an entry").path()) {
                let has_vectors = PathBuf::from(format!("{}.inp", file.display())).exists();
                if file.extension().is_some_and(|extension| extension == "gguf") && has_vectors {
                    checked += 1;
                    wrong.extend(check_vectors(&file));
                }
            }
        }
        assert!(checked >= 2 && wrong.is_empty(), "{checked} vocabularies:\n{}", wrong.join("\n"));
    }
}
