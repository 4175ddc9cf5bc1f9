//! What a folder's files say about chats: the template, and the tokens around a text.

use serde_json::Value;

use crate::files::json::Fields;
use crate::types::error::LoadError;

/// What `tokenizer_config.json` and `chat_template.jinja` say about chats; `None` where they say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatFiles {
    pub template: Option<String>,
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
}

/// `chat_template.jinja` goes before the template inside `tokenizer_config.json`.
/// Of the two files, as far as they are there.
pub(super) fn chat_files(config: Option<&Fields>, template: Option<&str>) -> Result<ChatFiles, LoadError> {
    let template = template.map(str::to_string);
    let Some(config) = config else {
        return Ok(ChatFiles { template, ..ChatFiles::default() });
    };
    let template = match template {
        Some(template) => Some(template),
        None => embedded_template(config)?,
    };
    let (bos_token, eos_token) = (special_token(config, "bos_token")?, special_token(config, "eos_token")?);
    Ok(ChatFiles { template, bos_token, eos_token })
}

/// A template, or a list of named ones, of which `default` is taken.
fn embedded_template(config: &Fields) -> Result<Option<String>, LoadError> {
    const KEY: &str = "chat_template";
    let Some(Value::Array(list)) = config.get(KEY) else {
        return Ok(config.text(KEY)?.map(str::to_string));
    };
    let named = |value: &&Value| value.get("name").and_then(Value::as_str) == Some("default");
    let template = list.iter().find(named).and_then(|value| value.get("template")).and_then(Value::as_str);
    template.map(|text| Some(text.to_string())).ok_or_else(|| config.broken(KEY, "must hold one named default"))
}

/// A string, or an object that describes the token and holds it under `content`.
fn special_token(config: &Fields, key: &str) -> Result<Option<String>, LoadError> {
    if !matches!(config.get(key), Some(Value::Object(_))) {
        return Ok(config.text(key)?.map(str::to_string));
    }
    match config.object(key)? {
        Some(token) => Ok(token.text("content")?.map(str::to_string)),
        None => Ok(None),
    }
}
