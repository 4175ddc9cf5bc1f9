//! What sentence-transformers keeps beside a model: how hidden states become vectors.
//!
//! ```text
//! modules.json ─▶ Transformer (sentence_bert_config.json) ─▶ Pooling (1_Pooling/config.json) ─▶ Normalize
//! ```
//! What would make other vectors than those computed here is refused, not left out.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::files::json::{self, Fields};
use crate::types::error::LoadError;
use forebay_core::request::Pooling;

const MAX_FILE: u64 = 1 << 20;
const MODULES: &str = "modules.json";
/// Where the settings of the transformer are, which depends on what it was when the folder was written.
const SETTINGS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];
/// The longest limit on tokens that is taken seriously.
const MAX_TOKENS: usize = 1 << 28;

/// How a folder's makers want texts embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// `None` where they do not say.
    pub pooling: Option<Pooling>,
    /// Vectors are made as long as one: so they are where nobody says that they are not.
    pub normalised: bool,
    pub max_tokens: Option<u32>,
    /// Texts are lowered before the tokenizer sees them.
    pub lower_case: bool,
}

impl Default for Sentence {
    fn default() -> Sentence {
        Sentence { pooling: None, normalised: true, max_tokens: None, lower_case: false }
    }
}

impl Sentence {
    pub(crate) fn read(folder: &Path) -> Result<Sentence, LoadError> {
        let (pooling, normalised) = match present(folder, MODULES)? {
            Some(bytes) => modules(folder, &bytes)?,
            None => (Some(folder.join("1_Pooling")), true),
        };
        let pooling = match pooling {
            Some(place) => present(&place, "config.json")?
                .map(|bytes| pooling_of(&Fields::parse(&place.join("config.json"), &bytes)?))
                .transpose()?,
            None => None,
        };
        let mut sentence = Sentence { pooling, normalised, ..Sentence::default() };
        for name in SETTINGS {
            if let Some(bytes) = present(folder, name)? {
                let fields = Fields::parse(&folder.join(name), &bytes)?;
                sentence.max_tokens = fields.integer("max_seq_length", 1..=MAX_TOKENS)?.map(|tokens| tokens as u32);
                sentence.lower_case = fields.flag("do_lower_case")?.unwrap_or(false);
                break;
            }
        }
        Ok(sentence)
    }

    /// The tokenizer, with what has to be done to texts before it. One that cannot be read stays as it is: whoever makes a
    /// tokenizer of it says why.
    pub(crate) fn tokenizer(&self, tokenizer: Vec<u8>) -> Vec<u8> {
        if !self.lower_case {
            return tokenizer;
        }
        let Ok(Value::Object(mut file)) = serde_json::from_slice(&tokenizer) else { return tokenizer };
        let before = file.remove("normalizer").filter(|normalizer| !normalizer.is_null());
        let steps: Vec<Value> = [json!({"type": "Lowercase"})].into_iter().chain(before).collect();
        file.insert("normalizer".to_owned(), json!({"type": "Sequence", "normalizers": steps}));
        Value::Object(file).to_string().into_bytes()
    }
}

fn present(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, LoadError> {
    let path = folder.join(name);
    if path.exists() { json::read_file(&path, MAX_FILE).map(Some) } else { Ok(None) }
}

/// Where the pooling is described, and whether vectors are normalised after it.
fn modules(folder: &Path, bytes: &[u8]) -> Result<(Option<PathBuf>, bool), LoadError> {
    let path = folder.join(MODULES);
    let fault = |reason: String| LoadError::Json { path: path.clone(), reason };
    let list: Vec<Value> = serde_json::from_slice(bytes).map_err(|error| fault(error.to_string()))?;
    let (mut pooling, mut normalised) = (None, false);
    for (index, module) in list.iter().enumerate() {
        let text = |key: &str| module.get(key).and_then(Value::as_str);
        let rule =
            |key: &str, rule: String| LoadError::Key { path: path.clone(), key: format!("[{index}].{key}"), rule };
        let kind = text("type").ok_or_else(|| rule("type", "must be a string".into()))?;
        let place = text("path").unwrap_or_default();
        // A name of their own, or one in this folder, cannot lead out of it.
        if place.contains(['/', '\\', ':', '\0']) || place == ".." {
            return Err(rule("path", format!("must name a folder beside it, found {place:?}")));
        }
        match kind.rsplit('.').next().unwrap_or(kind) {
            "Transformer" if index == 0 && place.is_empty() => {}
            "Transformer" => {
                return Err(rule("path", "must be empty: the transformer lies beside modules.json".into()));
            }
            "Pooling" if pooling.is_none() && !normalised => pooling = Some(folder.join(place)),
            "Normalize" => normalised = true,
            _ => {
                let found: String = kind.chars().take(80).collect();
                return Err(rule(
                    "type",
                    format!("must be Transformer, Pooling or Normalize, in this order, found {found}"),
                ));
            }
        }
    }
    Ok((pooling, normalised))
}

/// The one way that a Pooling module asks for.
fn pooling_of(fields: &Fields) -> Result<Pooling, LoadError> {
    const MODES: [(&str, Option<Pooling>); 6] = [
        ("pooling_mode_cls_token", Some(Pooling::Cls)),
        ("pooling_mode_mean_tokens", Some(Pooling::Mean)),
        ("pooling_mode_lasttoken", Some(Pooling::Last)),
        ("pooling_mode_max_tokens", None),
        ("pooling_mode_mean_sqrt_len_tokens", None),
        ("pooling_mode_weightedmean_tokens", None),
    ];
    // As newer versions write it.
    if let Some(name) = fields.text("pooling_mode")? {
        return match name {
            "cls" => Ok(Pooling::Cls),
            "mean" => Ok(Pooling::Mean),
            "lasttoken" => Ok(Pooling::Last),
            _ => Err(fields.broken("pooling_mode", "must be cls, mean or lasttoken")),
        };
    }
    let mut asked = None;
    for (key, pooling) in MODES {
        if fields.flag(key)? != Some(true) {
            continue;
        }
        match pooling {
            None => return Err(fields.broken(key, "must be false: this way to pool is not supported")),
            Some(_) if asked.is_some() => {
                return Err(fields.broken(key, "must be false: vectors are not put together from several ways to pool"));
            }
            pooling => asked = pooling,
        }
    }
    // What sentence-transformers does where a file asks for nothing.
    Ok(asked.unwrap_or(Pooling::Mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSFORMER: &str =
        r#"{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}"#;
    const POOLING: &str =
        r#"{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}"#;
    const NORMALIZE: &str =
        r#"{"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}"#;

    /// A folder of these files, read.
    fn read(files: &[(&str, &str)]) -> Result<Sentence, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Sentence::read(folder.path()).map_err(|error| error.to_string())
    }

    fn modules(list: &[&str]) -> String {
        format!("[{}]", list.join(","))
    }

    #[test]
    fn a_folder_says_how_to_pool_and_whether_to_normalise() {
        assert_eq!(read(&[]), Ok(Sentence::default()));
        let pooling = "1_Pooling/config.json";
        let cls =
            r#"{"word_embedding_dimension": 64, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
        let mut expected = Sentence { pooling: Some(Pooling::Cls), ..Sentence::default() };
        assert_eq!(read(&[(pooling, cls)]), Ok(expected));
        let whole = modules(&[TRANSFORMER, POOLING, NORMALIZE]);
        assert_eq!(read(&[(pooling, cls), ("modules.json", &whole)]), Ok(expected));
        expected.normalised = false;
        let raw = modules(&[TRANSFORMER, POOLING]);
        assert_eq!(read(&[(pooling, cls), ("modules.json", &raw)]), Ok(expected));
        expected = Sentence { pooling: Some(Pooling::Last), max_tokens: Some(256), lower_case: true, normalised: true };
        let settings = r#"{"max_seq_length": 256, "do_lower_case": true}"#;
        let files = [(pooling, r#"{"pooling_mode": "lasttoken"}"#), ("sentence_bert_config.json", settings)];
        assert_eq!(read(&files), Ok(expected));
        assert_eq!(read(&[(pooling, "{}")]).unwrap().pooling, Some(Pooling::Mean));
    }

    #[test]
    fn what_would_make_other_vectors_is_refused() {
        let check = |files: &[(&str, &str)], parts: &[&str]| {
            let error = read(files).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        };
        let pooling = "1_Pooling/config.json";
        check(&[(pooling, r#"{"pooling_mode_max_tokens": true}"#)], &["pooling_mode_max_tokens", "not supported"]);
        let two = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}"#;
        check(&[(pooling, two)], &["pooling_mode_mean_tokens", "several"]);
        check(&[(pooling, r#"{"pooling_mode": "max"}"#)], &["`pooling_mode`"]);
        let dense = r#"{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}"#;
        check(&[("modules.json", &modules(&[TRANSFORMER, POOLING, dense]))], &["modules.json", "[2].type", "Dense"]);
        let elsewhere = r#"{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}"#;
        check(&[("modules.json", &modules(&[elsewhere]))], &["[0].path", "must be empty"]);
        let out = r#"{"path": "../other", "type": "sentence_transformers.models.Pooling"}"#;
        check(&[("modules.json", &modules(&[TRANSFORMER, out]))], &["[1].path"]);
        check(&[("modules.json", &modules(&[TRANSFORMER, NORMALIZE, POOLING]))], &["[2].type"]);
        check(&[("modules.json", "{}")], &["not valid JSON"]);
        check(&[("sentence_bert_config.json", r#"{"max_seq_length": 0}"#)], &["max_seq_length"]);
    }

    #[test]
    fn texts_are_lowered_before_the_tokenizer_sees_them() {
        let sentence = Sentence { lower_case: true, ..Sentence::default() };
        let normalizer = |file: &str| -> Value {
            let changed: Value = serde_json::from_slice(&sentence.tokenizer(file.into())).unwrap();
            changed["normalizer"]["normalizers"].clone()
        };
        assert_eq!(normalizer(r#"{"normalizer": null}"#), json!([{"type": "Lowercase"}]));
        assert_eq!(normalizer(r#"{"normalizer": {"type": "NFC"}}"#), json!([{"type": "Lowercase"}, {"type": "NFC"}]));
        assert_eq!(sentence.tokenizer(b"no".to_vec()), b"no");
        assert_eq!(Sentence::default().tokenizer(b"{}".to_vec()), b"{}");
    }
}
