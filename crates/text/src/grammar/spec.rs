//! What a completion is to be, in every form in which clients say it.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::pattern::escaped;
use super::{GrammarError, gbnf};

/// What a completion is to be. Text as the client wrote it; nothing is checked before it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GrammarSpec {
    /// A value that satisfies a JSON schema.
    Json { schema: String, whitespace: Whitespace },
    /// A text that matches a regular expression as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in llguidance's dialect of Lark.
    Lark(String),
    /// A grammar in llama.cpp's notation.
    Gbnf(String),
    /// Calls of tools, at least one.
    Calls { tools: Vec<Tool>, format: TaggedCalls },
}

/// What may stand between the tokens of a JSON text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Whitespace {
    /// A space, or a line break or two with an indentation. Bounded, for small models like to go on with it forever.
    #[default]
    Usual,
    None,
    /// A regular expression.
    Pattern(String),
}

/// As llama.cpp has it (`json-schema-to-grammar`, `SPACE_RULE`).
const USUAL_SPACE: &str = r" |\n{1,2}[ \t]{0,20}";

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tool {
    pub name: String,
    /// JSON schema of its arguments.
    pub parameters: String,
}

/// How a family of models writes calls: `begin`, calls with `separator` between them, `end`. A call is `open`, the tool's name
/// and its arguments, `close`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaggedCalls {
    pub begin: String,
    pub open: String,
    pub naming: Naming,
    pub close: String,
    /// `None` is exactly one call.
    pub separator: Option<String>,
    pub end: String,
}

/// Where a call says what is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// In an object with these keys, in this order.
    Keys { name: String, arguments: String },
    /// Before the arguments, which are an object of their own, and this text.
    Before(String),
}

impl Default for Naming {
    fn default() -> Naming {
        Naming::Keys { name: "name".into(), arguments: "arguments".into() }
    }
}

impl GrammarSpec {
    pub fn json(schema: impl Into<String>) -> GrammarSpec {
        GrammarSpec::Json { schema: schema.into(), whitespace: Whitespace::Usual }
    }

    /// Any JSON object.
    pub fn json_object() -> GrammarSpec {
        GrammarSpec::json(r#"{"type":"object"}"#)
    }

    pub fn lark(grammar: impl Into<String>) -> GrammarSpec {
        GrammarSpec::Lark(grammar.into())
    }

    /// A grammar of unknown notation: `::=` is llama.cpp's and nobody else's, as vLLM decides it too.
    pub fn guess(grammar: String) -> GrammarSpec {
        if grammar.contains("::=") { GrammarSpec::Gbnf(grammar) } else { GrammarSpec::Lark(grammar) }
    }

    /// Bytes of what the client wrote.
    pub fn bytes(&self) -> usize {
        match self {
            GrammarSpec::Json { schema, whitespace: Whitespace::Pattern(pattern) } => schema.len() + pattern.len(),
            GrammarSpec::Json { schema: text, .. } => text.len(),
            GrammarSpec::Regex(text) | GrammarSpec::Lark(text) | GrammarSpec::Gbnf(text) => text.len(),
            GrammarSpec::Choice(texts) => texts.iter().map(String::len).sum(),
            GrammarSpec::Calls { tools, .. } => tools.iter().map(|tool| tool.name.len() + tool.parameters.len()).sum(),
        }
    }

    /// As llguidance reads it.
    pub(super) fn source(&self) -> Result<Source, GrammarError> {
        match self {
            GrammarSpec::Json { schema, whitespace } => json_source(schema, whitespace),
            GrammarSpec::Regex(pattern) => Ok(Source::Regex(unanchored(pattern)?.to_owned())),
            GrammarSpec::Choice(texts) => choice(texts).map(Source::Regex),
            GrammarSpec::Lark(grammar) if grammar.trim().is_empty() => empty(),
            GrammarSpec::Lark(grammar) => Ok(Source::Lark(grammar.clone())),
            GrammarSpec::Gbnf(grammar) => gbnf::to_lark(grammar).map(Source::Lark),
            GrammarSpec::Calls { tools, format } => calls(tools, format).map(Source::Lark),
        }
    }
}

/// What llguidance compiles.
pub(super) enum Source {
    Json(Value),
    Regex(String),
    Lark(String),
}

fn empty<T>() -> Result<T, GrammarError> {
    Err(GrammarError::Invalid("is empty".into()))
}

fn json_source(schema: &str, whitespace: &Whitespace) -> Result<Source, GrammarError> {
    let mut schema = object(schema)?;
    annotate(&mut schema, whitespace);
    Ok(Source::Json(Value::Object(schema)))
}

/// A schema as an object; `true` is the empty one.
fn object(schema: &str) -> Result<Map<String, Value>, GrammarError> {
    match serde_json::from_str(schema) {
        Ok(Value::Object(map)) if map.contains_key("x-guidance") => {
            // It could ask for keywords to be ignored.
            Err(GrammarError::Invalid("'x-guidance' is not for clients to set".into()))
        }
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Bool(true)) => Ok(Map::new()),
        Ok(Value::Bool(false)) => Err(GrammarError::Unsatisfiable),
        Ok(_) => Err(GrammarError::Invalid("a schema is an object or a boolean".into())),
        Err(error) => Err(GrammarError::Invalid(format!("is not JSON: {error}"))),
    }
}

fn annotate(schema: &mut Map<String, Value>, whitespace: &Whitespace) {
    let options = match whitespace {
        Whitespace::Usual => json!({"whitespace_pattern": USUAL_SPACE}),
        Whitespace::None => json!({"whitespace_flexible": false}),
        Whitespace::Pattern(pattern) => json!({"whitespace_pattern": pattern}),
    };
    schema.insert("x-guidance".into(), options);
}

/// Each tool is a rule: tags are text, what stands between them is JSON.
fn calls(tools: &[Tool], format: &TaggedCalls) -> Result<String, GrammarError> {
    if tools.is_empty() {
        return Err(GrammarError::Invalid("there are no tools to call".into()));
    }
    let (begin, end) = (text(&format.begin), text(&format.end));
    let mut lark = match &format.separator {
        None => format!("start: {begin}call{end}\n"),
        Some(separator) => format!("start: {begin}call ({} call)*{end}\n", quoted(separator)),
    };
    let names = (0..tools.len()).map(|index| format!("tool_{index}")).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(lark, "call: {}({names}){}", text(&format.open), text(&format.close));
    for (index, tool) in tools.iter().enumerate() {
        let (before, mut schema) = match &format.naming {
            Naming::Keys { name, arguments } => (String::new(), call_schema(tool, name, arguments)?),
            Naming::Before(rest) => (text(&format!("{}{rest}", tool.name)), object(&tool.parameters)?),
        };
        annotate(&mut schema, &Whitespace::Usual);
        let _ = writeln!(lark, "tool_{index}: {before}%json {}", Value::Object(schema));
    }
    Ok(lark)
}

/// Definitions have to stand at the root, where their references look for them.
fn call_schema(tool: &Tool, name: &str, arguments: &str) -> Result<Map<String, Value>, GrammarError> {
    let mut parameters = object(&tool.parameters)?;
    let mut schema = Map::new();
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = parameters.shift_remove(key) {
            schema.insert(key.into(), definitions);
        }
    }
    if refers_to_root(&Value::Object(parameters.clone())) || schema.values().any(refers_to_root) {
        let message = format!("the parameters of '{}' refer to their own root, which a call's are not", tool.name);
        return Err(GrammarError::Invalid(message));
    }
    schema.insert("type".into(), "object".into());
    let properties =
        [(name.to_owned(), json!({"const": tool.name})), (arguments.to_owned(), Value::Object(parameters))];
    schema.insert("properties".into(), Value::Object(properties.into_iter().collect()));
    schema.insert("required".into(), json!([name, arguments]));
    schema.insert("additionalProperties".into(), false.into());
    Ok(schema)
}

/// Whether there is a reference that wrapping the schema would lead elsewhere.
fn refers_to_root(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| match value {
            Value::String(to) if key == "$ref" => !to.starts_with("#/$defs/") && !to.starts_with("#/definitions/"),
            other => refers_to_root(other),
        }),
        Value::Array(list) => list.iter().any(refers_to_root),
        _ => false,
    }
}

/// The whole text has to match anyway, and the compiler knows no anchors.
fn unanchored(pattern: &str) -> Result<&str, GrammarError> {
    if pattern.is_empty() {
        return empty();
    }
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let Some(rest) = pattern.strip_suffix('$') else { return Ok(pattern) };
    let escapes = rest.bytes().rev().take_while(|byte| *byte == b'\\').count();
    Ok(if escapes % 2 == 0 { rest } else { pattern })
}

fn choice(texts: &[String]) -> Result<String, GrammarError> {
    match texts {
        [] => empty(),
        texts if texts.iter().any(String::is_empty) => Err(GrammarError::Invalid("has an empty choice".into())),
        texts => Ok(texts.iter().map(|text| escaped(text)).collect::<Vec<_>>().join("|")),
    }
}

/// A string of Lark with a space around it, or nothing: Lark has no empty strings.
fn text(text: &str) -> String {
    if text.is_empty() { " ".into() } else { format!(" {} ", quoted(text)) }
}

/// A string of Lark.
pub(super) fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
