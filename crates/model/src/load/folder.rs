//! The small files of a Hugging Face folder: configuration, tokenizer, chat template.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::chat::{ChatFiles, chat_files};
use super::generation::eos_tokens;
use super::sentence::Sentence;
use crate::files::json::{self, Fields};
use crate::types::error::LoadError;
use forebay_core::units::TokenId;

const MAX_CONFIG: u64 = 16 << 20;
const MAX_TOKENIZER: u64 = 512 << 20;

/// The small files, read and (where JSON) parsed.
pub(crate) struct Files {
    pub id: String,
    pub config: Fields,
    pub generation_config: Option<Fields>,
    pub tokenizer: Vec<u8>,
    pub tokenizer_config: Option<Fields>,
    pub chat_template: Option<String>,
    pub sentence: Sentence,
}

impl Files {
    /// Those of a folder in the Hugging Face layout.
    pub(crate) fn folder(folder: &Path) -> Result<Files, LoadError> {
        let read = |name: &str, limit| json::read_file(&folder.join(name), limit);
        let parse = |name: &str| Fields::parse(&folder.join(name), &read(name, MAX_CONFIG)?);
        let present = |name: &str| folder.join(name).exists();
        let parse_present = |name: &str| present(name).then(|| parse(name)).transpose();
        let template = "chat_template.jinja";
        let chat_template = present(template).then(|| read(template, MAX_CONFIG)).transpose()?;
        Ok(Files {
            config: parse("config.json")?,
            id: folder_name(folder),
            generation_config: parse_present("generation_config.json")?,
            tokenizer: read("tokenizer.json", MAX_TOKENIZER)?,
            tokenizer_config: parse_present("tokenizer_config.json")?,
            chat_template: chat_template.map(|bytes| utf8(&folder.join(template), bytes)).transpose()?,
            sentence: Sentence::read(folder)?,
        })
    }

    pub(crate) fn tokenizer_json(&self) -> &[u8] {
        &self.tokenizer
    }

    /// The id of the token with this text, where the tokenizer says it.
    pub(crate) fn token_id(&self, text: &str) -> Option<TokenId> {
        let file: Value = serde_json::from_slice(&self.tokenizer).ok()?;
        let added = file.get("added_tokens")?.as_array()?.iter();
        let mut ids = added.filter(|token| token["content"] == text).map(|token| &token["id"]);
        let id = ids.next().or_else(|| file.get("model")?.get("vocab")?.get(text))?;
        id.as_u64().and_then(|id| TokenId::try_from(id).ok())
    }

    /// Tokens that end a completion, ascending.
    pub(crate) fn ends(&self, vocab: usize) -> Result<Vec<TokenId>, LoadError> {
        let mut ends = BTreeSet::new();
        for fields in [Some(&self.config), self.generation_config.as_ref()].into_iter().flatten() {
            ends.extend(eos_tokens(fields, vocab)?);
        }
        Ok(ends.into_iter().collect())
    }

    /// What they say about chats.
    pub(crate) fn chat(&self) -> Result<ChatFiles, LoadError> {
        chat_files(self.tokenizer_config.as_ref(), self.chat_template.as_deref())
    }
}

/// The last component of the path; `.` and the like are resolved first.
fn folder_name(folder: &Path) -> String {
    let resolved = folder.file_name().is_none().then(|| folder.canonicalize().ok()).flatten();
    let name = resolved.as_deref().unwrap_or(folder).file_name();
    name.map_or_else(|| "model".to_string(), |name| name.to_string_lossy().into_owned())
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, LoadError> {
    String::from_utf8(bytes).map_err(|error| LoadError::Key {
        path: path.to_path_buf(),
        key: format!("byte {}", error.utf8_error().valid_up_to()),
        rule: "must be UTF-8".to_string(),
    })
}
