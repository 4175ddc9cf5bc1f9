//! What a completion is to be: OpenAI's `response_format`, vLLM's `structured_outputs` and `guided_*`, llama-server's
//! `grammar` and `json_schema`.

use std::sync::Arc;

use serde_json::Value;

use super::params::{Fields, wrong};
use crate::generate::RawGrammar;
use forebay_core::request::RequestError;
use forebay_text::grammar::{GrammarSpec, Whitespace};

/// At most one may be given.
pub fn take_grammar(fields: &mut Fields) -> Result<Option<Arc<RawGrammar>>, RequestError> {
    let mut given = Vec::new();
    let mut add = |param: &str, spec: GrammarSpec| given.push(RawGrammar { param: param.to_owned(), spec });
    if let Some(spec) = response_format(fields)? {
        add("response_format", spec);
    }
    if let Some(spec) = structured_outputs(fields)? {
        add("structured_outputs", spec);
    }
    let guided_whitespace = fields.string("guided_whitespace_pattern")?.map(Whitespace::Pattern);
    if guided_whitespace.is_some() && !fields.has("guided_json") {
        fields.ignore("guided_whitespace_pattern");
    }
    for (name, read) in READERS {
        if let Some(value) = fields.take(name) {
            let spec = read(name, value)?;
            add(
                name,
                match (spec, &guided_whitespace) {
                    (GrammarSpec::Json { schema, .. }, Some(pattern)) if *name == "guided_json" => {
                        GrammarSpec::Json { schema, whitespace: pattern.clone() }
                    }
                    (spec, _) => spec,
                },
            );
        }
    }
    // llama-server's own page sends an empty one for none.
    if let Some(grammar) = fields.string("grammar")?.filter(|grammar| !grammar.is_empty()) {
        add("grammar", llama_grammar(grammar));
    }
    match &given[..] {
        [first, second, ..] => {
            Err(RequestError::invalid(second.param.clone(), format!("cannot be given together with {}", first.param)))
        }
        _ => Ok(given.pop().map(Arc::new)),
    }
}

type Read = fn(&str, Value) -> Result<GrammarSpec, RequestError>;

/// Fields that hold one grammar each.
const READERS: &[(&str, Read)] = &[
    ("guided_json", json),
    ("guided_regex", regex),
    ("guided_choice", choice),
    ("guided_grammar", grammar),
    ("json_schema", json),
];

fn response_format(fields: &mut Fields) -> Result<Option<GrammarSpec>, RequestError> {
    const NAME: &str = "response_format";
    let Some(mut format) = fields.object(NAME)? else { return Ok(None) };
    let spec = match format.take("type") {
        Some(Value::String(kind)) if kind == "text" => None,
        Some(Value::String(kind)) if kind == "json_object" => Some(match format.take("schema") {
            // llama-server's way to give one.
            Some(schema) => json("response_format.schema", schema)?,
            None => GrammarSpec::json_object(),
        }),
        Some(Value::String(kind)) if kind == "json_schema" => Some(json_schema(&mut format)?),
        other => {
            let expected = "text, json_object or json_schema";
            return Err(wrong("response_format.type", expected, &other.unwrap_or_default()));
        }
    };
    fields.absorb(NAME, format);
    Ok(spec)
}

/// `strict` false is enforced as well: nobody is served by text that is nearly right.
fn json_schema(format: &mut Fields) -> Result<GrammarSpec, RequestError> {
    const NAME: &str = "response_format.json_schema";
    let inner = format.take("json_schema");
    let Some(Value::Object(object)) = inner else { return Err(wrong(NAME, "an object", &inner.unwrap_or_default())) };
    let mut inner = Fields::inside(format!("{NAME}."), object);
    let named = |name: &str| format!("{NAME}.{name}");
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match inner.take("name") {
        None => {}
        Some(Value::String(name)) if (1..=64).contains(&name.len()) && name.chars().all(allowed) => {}
        Some(other) => return Err(wrong(&named("name"), "1 to 64 letters, digits, _ and -", &other)),
    }
    if let Some(other) = inner.take("description").filter(|value| !value.is_string()) {
        return Err(wrong(&named("description"), "a string", &other));
    }
    if let Some(other) = inner.take("strict").filter(|value| !value.is_boolean()) {
        return Err(wrong(&named("strict"), "a boolean", &other));
    }
    let Some(schema) = inner.take("schema") else {
        return Err(RequestError::invalid(named("schema"), "is required"));
    };
    format.absorb("json_schema", inner);
    json(&named("schema"), schema)
}

fn structured_outputs(fields: &mut Fields) -> Result<Option<GrammarSpec>, RequestError> {
    const NAME: &str = "structured_outputs";
    let Some(mut inner) = fields.object(NAME)? else { return Ok(None) };
    let named = |name: &str| format!("{NAME}.{name}");
    let mut given: Vec<(&str, GrammarSpec)> = Vec::new();
    let readers: [(&str, Read); 4] = [("json", json), ("regex", regex), ("choice", choice), ("grammar", grammar)];
    for (name, read) in readers {
        if let Some(value) = inner.take(name) {
            given.push((name, read(&named(name), value)?));
        }
    }
    if inner.flag("json_object")? {
        given.push(("json_object", GrammarSpec::json_object()));
    }
    let compact = inner.flag("disable_any_whitespace")?;
    let pattern = inner.string("whitespace_pattern")?;
    for refused in ["structural_tag", "disable_additional_properties"] {
        if inner.take(refused).is_some_and(|value| value != Value::Bool(false)) {
            let message = "it has no meaning here yet".to_owned();
            return Err(RequestError::Unsupported { param: named(refused), message });
        }
    }
    fields.absorb(NAME, inner);
    let json = given.iter().any(|(_, spec)| matches!(spec, GrammarSpec::Json { .. }));
    for (name, asked) in [("disable_any_whitespace", compact), ("whitespace_pattern", pattern.is_some())] {
        if asked && !json {
            fields.ignore(named(name));
        }
    }
    let whitespace = match (compact, pattern) {
        (true, Some(_)) => {
            let message = "cannot be given together with disable_any_whitespace";
            return Err(RequestError::invalid(named("whitespace_pattern"), message));
        }
        (true, None) => Whitespace::None,
        (false, Some(pattern)) => Whitespace::Pattern(pattern),
        (false, None) => Whitespace::Usual,
    };
    match given.pop() {
        None => Err(RequestError::invalid(NAME, "must have one of json, regex, choice, grammar and json_object")),
        Some((last, _)) if !given.is_empty() => {
            Err(RequestError::invalid(named(last), format!("cannot be given together with {}", given[0].0)))
        }
        Some((_, GrammarSpec::Json { schema, .. })) => Ok(Some(GrammarSpec::Json { schema, whitespace })),
        Some((_, spec)) => Ok(Some(spec)),
    }
}

/// A schema, or the text of one.
fn json(name: &str, value: Value) -> Result<GrammarSpec, RequestError> {
    match value {
        Value::String(text) => Ok(GrammarSpec::json(text)),
        schema @ (Value::Object(_) | Value::Bool(_)) => Ok(GrammarSpec::json(schema.to_string())),
        other => Err(wrong(name, "a JSON schema", &other)),
    }
}

fn regex(name: &str, value: Value) -> Result<GrammarSpec, RequestError> {
    text(name, value).map(GrammarSpec::Regex)
}

fn choice(name: &str, value: Value) -> Result<GrammarSpec, RequestError> {
    match value {
        Value::Array(list) => {
            let texts = list.into_iter().map(|value| text(name, value)).collect::<Result<_, _>>()?;
            Ok(GrammarSpec::Choice(texts))
        }
        other => Err(wrong(name, "a list of strings", &other)),
    }
}

fn grammar(name: &str, value: Value) -> Result<GrammarSpec, RequestError> {
    text(name, value).map(GrammarSpec::guess)
}

/// llama-server's own notation, or Lark behind the mark that it has for it.
fn llama_grammar(grammar: String) -> GrammarSpec {
    if grammar.trim_start().starts_with("%llguidance") {
        GrammarSpec::Lark(grammar)
    } else {
        GrammarSpec::Gbnf(grammar)
    }
}

fn text(name: &str, value: Value) -> Result<String, RequestError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(name, "a string", &other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn take(value: Value) -> Result<Option<(String, GrammarSpec)>, RequestError> {
        let mut fields = Fields::new(value.as_object().unwrap().clone());
        let grammar = take_grammar(&mut fields)?;
        assert_eq!(fields.finish(true), Ok(vec![]), "{value}");
        Ok(grammar.map(|grammar| (grammar.param.clone(), grammar.spec.clone())))
    }

    #[test]
    fn every_name_for_the_same() {
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let spec = GrammarSpec::json(schema.to_string());
        let compact = GrammarSpec::Json { schema: schema.to_string(), whitespace: Whitespace::None };
        let spaced = GrammarSpec::Json { schema: schema.to_string(), whitespace: Whitespace::Pattern(" ?".into()) };
        let format = json!({"type": "json_schema", "json_schema": {"name": "a-1", "schema": schema, "strict": false, "description": ""}});
        let gbnf = "root ::= \"a\"";
        for (given, param, expected) in [
            (json!({"response_format": format}), "response_format", spec.clone()),
            (json!({"response_format": {"type": "json_object", "schema": schema}}), "response_format", spec.clone()),
            (json!({"response_format": {"type": "json_object"}}), "response_format", GrammarSpec::json_object()),
            (json!({"response_format": {"type": "text"}, "guided_json": schema}), "guided_json", spec.clone()),
            (json!({"guided_json": schema.to_string()}), "guided_json", spec.clone()),
            (json!({"guided_json": schema, "guided_whitespace_pattern": " ?"}), "guided_json", spaced.clone()),
            (json!({"structured_outputs": {"json": schema, "regex": null}}), "structured_outputs", spec.clone()),
            (
                json!({"structured_outputs": {"json": schema, "disable_any_whitespace": true}}),
                "structured_outputs",
                compact,
            ),
            (json!({"structured_outputs": {"json": schema, "whitespace_pattern": " ?"}}), "structured_outputs", spaced),
            (json!({"structured_outputs": {"json_object": true}}), "structured_outputs", GrammarSpec::json_object()),
            (json!({"json_schema": schema}), "json_schema", spec),
            (json!({"guided_regex": "a+"}), "guided_regex", GrammarSpec::Regex("a+".into())),
            (json!({"guided_choice": ["a", "b"]}), "guided_choice", GrammarSpec::Choice(vec!["a".into(), "b".into()])),
            (json!({"guided_grammar": gbnf}), "guided_grammar", GrammarSpec::Gbnf(gbnf.into())),
            (json!({"guided_grammar": "start: \"a\""}), "guided_grammar", GrammarSpec::lark("start: \"a\"")),
            (json!({"grammar": gbnf}), "grammar", GrammarSpec::Gbnf(gbnf.into())),
            (
                json!({"grammar": "%llguidance {}\nstart: \"a\""}),
                "grammar",
                GrammarSpec::lark("%llguidance {}\nstart: \"a\""),
            ),
        ] {
            assert_eq!(take(given.clone()), Ok(Some((param.to_owned(), expected))), "{given}");
        }
        for none in
            [json!({}), json!({"response_format": {"type": "text"}}), json!({"grammar": "", "guided_json": null})]
        {
            assert_eq!(take(none), Ok(None));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let schema = json!({"type": "object"});
        for (given, param) in [
            (json!({"response_format": "json"}), "response_format"),
            (json!({"response_format": {}}), "response_format.type"),
            (json!({"response_format": {"type": "yaml"}}), "response_format.type"),
            (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
                "response_format.json_schema.schema",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": schema}}}),
                "response_format.json_schema.name",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"strict": 1, "schema": schema}}}),
                "response_format.json_schema.strict",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}}),
                "response_format.json_schema.schema",
            ),
            (json!({"guided_json": 5}), "guided_json"),
            (json!({"guided_regex": ["a"]}), "guided_regex"),
            (json!({"guided_choice": "a"}), "guided_choice"),
            (json!({"guided_choice": [1]}), "guided_choice"),
            (json!({"guided_json": schema, "guided_regex": "a"}), "guided_regex"),
            (json!({"response_format": {"type": "json_object"}, "grammar": "root ::= \"a\""}), "grammar"),
            (json!({"structured_outputs": {}}), "structured_outputs"),
            (json!({"structured_outputs": {"json": schema, "choice": ["a"]}}), "structured_outputs.choice"),
            (json!({"structured_outputs": {"regex": 5}}), "structured_outputs.regex"),
            (json!({"structured_outputs": {"structural_tag": "{}"}}), "structured_outputs.structural_tag"),
        ] {
            match take(given.clone()) {
                Err(
                    RequestError::InvalidValue { param: named, .. } | RequestError::Unsupported { param: named, .. },
                ) => {
                    assert_eq!(named, param, "{given}");
                }
                other => panic!("{given}: {other:?}"),
            }
        }
    }
}
