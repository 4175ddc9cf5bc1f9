//! `tool_choice` `required` or a name: the answer is held to calls, as the model's family writes them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::tools::ToolChoice;
use crate::generate::{RawGrammar, RawRequest};
use forebay_core::request::RequestError;
use forebay_text::grammar::{GrammarSpec, TaggedCalls, Tool};

const PARAM: &str = "tool_choice";

/// Makes the answer keep to the choice. `format` is how the model writes calls; without one, tools are refused elsewhere.
pub fn enforce(raw: &mut RawRequest, choice: &ToolChoice, format: Option<TaggedCalls>) -> Result<(), RequestError> {
    let (Some(tools), Some(mut format)) = (&raw.template.tools, format) else { return Ok(()) };
    let only = match choice {
        ToolChoice::Auto => return Ok(()),
        ToolChoice::Required => None,
        ToolChoice::Named(name) => Some(name.as_str()),
    };
    if let Some(other) = &raw.grammar {
        let message = format!("is not possible together with {}", other.param);
        return Err(RequestError::Unsupported { param: PARAM.into(), message });
    }
    let definitions: Value = serde_json::from_str(&tools.json).map_err(|_| RequestError::Internal)?;
    let definitions = definitions.as_array().into_iter().flatten().map(|tool| &tool["function"]);
    let called = definitions.filter(|function| only.is_none_or(|only| function["name"] == only));
    if tools.only_first || only.is_some() {
        format.separator = None;
    }
    let spec = GrammarSpec::Calls { tools: called.map(tool_of).collect(), format };
    // What cannot be enforced is a tool's schema.
    raw.grammar = Some(Arc::new(RawGrammar { param: "tools".into(), spec }));
    Ok(())
}

fn tool_of(function: &Value) -> Tool {
    let mut parameters = function["parameters"].clone();
    if parameters.is_null() {
        parameters = json!({});
    }
    // Arguments are an object, whether or not the schema says so.
    if let Some(schema) = parameters.as_object_mut() {
        schema.entry("type").or_insert_with(|| "object".into());
    }
    Tool { name: function["name"].as_str().unwrap_or_default().to_owned(), parameters: parameters.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_text::{TemplateOptions, Tools};

    const TOOLS: &str = r#"[
        {"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}},
        {"type": "function", "function": {"name": "stop"}}]"#;

    fn raw(only_first: bool) -> RawRequest {
        let names = vec!["add".to_owned(), "stop".to_owned()];
        let tools = Some(Tools { json: TOOLS.into(), names, only_first });
        RawRequest { template: TemplateOptions { tools, ..TemplateOptions::default() }, ..RawRequest::default() }
    }

    fn format() -> TaggedCalls {
        TaggedCalls { separator: Some(", ".into()), ..TaggedCalls::default() }
    }

    fn demanded(choice: ToolChoice, only_first: bool) -> (Vec<Tool>, Option<String>) {
        let mut raw = raw(only_first);
        enforce(&mut raw, &choice, Some(format())).unwrap();
        match &raw.grammar.unwrap().spec {
            GrammarSpec::Calls { tools, format } => (tools.clone(), format.separator.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn choices_become_grammars() {
        let add = Tool {
            name: "add".into(),
            parameters: r#"{"properties":{"a":{"type":"integer"}},"type":"object"}"#.into(),
        };
        let stop = Tool { name: "stop".into(), parameters: r#"{"type":"object"}"#.into() };
        let both = vec![add.clone(), stop];
        assert_eq!(demanded(ToolChoice::Required, false), (both.clone(), Some(", ".into())));
        assert_eq!(demanded(ToolChoice::Required, true), (both, None));
        assert_eq!(demanded(ToolChoice::Named("add".into()), false), (vec![add], None));
    }

    #[test]
    fn only_one_thing_holds_an_answer() {
        let mut held = raw(false);
        held.grammar = Some(Arc::new(RawGrammar { param: "response_format".into(), spec: GrammarSpec::json_object() }));
        let error = enforce(&mut held, &ToolChoice::Required, Some(format())).unwrap_err();
        assert!(matches!(error, RequestError::Unsupported { param, .. } if param == "tool_choice"));
        let mut free = raw(false);
        enforce(&mut free, &ToolChoice::Auto, Some(format())).unwrap();
        assert!(free.grammar.is_none());
    }
}
