//! `tool_choice` `required` or a name: the answer is held to calls, as the model's family writes them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::tools::ToolChoice;
use crate::grammar::{GrammarSpec, Naming, TaggedCalls, Tool};
use crate::request::{RawGrammar, RawRequest, RequestError};
use crate::text::ToolFamily;

const PARAM: &str = "tool_choice";

/// Makes the answer keep to the choice. `family` is how the model writes calls; without one, tools are refused elsewhere.
pub fn demand(raw: &mut RawRequest, choice: &ToolChoice, family: Option<ToolFamily>) -> Result<(), RequestError> {
    let (Some(tools), Some(family)) = (&raw.template.tools, family) else { return Ok(()) };
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
    let mut format = format_of(family);
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

/// What the family's parser reads.
fn format_of(family: ToolFamily) -> TaggedCalls {
    let list = |begin: &str, end: &str| TaggedCalls {
        begin: begin.into(),
        separator: Some(", ".into()),
        end: end.into(),
        ..TaggedCalls::default()
    };
    match family {
        ToolFamily::Hermes => TaggedCalls {
            open: "<tool_call>\n".into(),
            close: "\n</tool_call>".into(),
            separator: Some("\n".into()),
            ..TaggedCalls::default()
        },
        ToolFamily::Llama3 => TaggedCalls {
            naming: Naming::Keys { name: "name".into(), arguments: "parameters".into() },
            separator: Some("; ".into()),
            ..TaggedCalls::default()
        },
        ToolFamily::Mistral => list("[TOOL_CALLS][", "]"),
        ToolFamily::Phi => list("<|tool_call|>[", "]<|/tool_call|>"),
        ToolFamily::Granite => list("<|tool_call|>[", "]"),
        ToolFamily::DeepSeek => TaggedCalls {
            begin: "<｜tool▁calls▁begin｜>".into(),
            open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>".into(),
            naming: Naming::Before("\n```json\n".into()),
            close: "\n```<｜tool▁call▁end｜>".into(),
            separator: Some("\n".into()),
            end: "<｜tool▁calls▁end｜>".into(),
        },
        ToolFamily::Json => list("[", "]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::{Grammar, Limits, Matcher, STACK_BYTES, State, Vocabulary};
    use crate::request::{TemplateOptions, Tools};
    use crate::text::fixtures;
    use crate::text::glyph::plain;
    use crate::text::{Piece, ToolParser};

    const TOOLS: &str = r#"[
        {"type": "function", "function": {"name": "add-2", "parameters":
            {"properties": {"a": {"type": "integer"}, "b": {"enum": ["{", "\"}]", null]}}, "required": ["a"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "stop"}}]"#;

    fn raw(only_first: bool) -> RawRequest {
        let names = vec!["add-2".to_owned(), "stop".to_owned()];
        let tools = Some(Tools { json: TOOLS.into(), names, only_first });
        RawRequest { template: TemplateOptions { tools, ..TemplateOptions::default() }, ..RawRequest::default() }
    }

    fn grammar(choice: &ToolChoice, family: ToolFamily, only_first: bool) -> Grammar {
        let mut raw = raw(only_first);
        demand(&mut raw, choice, Some(family)).unwrap();
        let spec = &raw.grammar.unwrap().spec;
        let compile = || {
            let tokenizer = Arc::new(fixtures::byte_level());
            let limits = Limits::default();
            Vocabulary::new(&tokenizer, fixtures::VOCAB as usize, &[fixtures::END], limits)
                .unwrap()
                .compile(spec)
                .unwrap()
        };
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, compile).unwrap().join().unwrap()
        })
    }

    /// A text of the grammar, byte by byte, drawn at random but for ends, which are taken when they may come.
    fn written(grammar: &Grammar, mut state: u64) -> String {
        let tokenizer = fixtures::byte_level();
        let mut matcher = Matcher::new(grammar);
        let mut bytes = Vec::new();
        while matcher.state() == State::Open && bytes.len() < 2_000 {
            let mask = matcher.mask().unwrap();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if mask.may_end() && state >> 62 == 0 {
                break;
            }
            let texts: Vec<u32> = (0..256).filter(|&id| mask.allows(id)).collect();
            if texts.is_empty() {
                break;
            }
            let token = texts[(state >> 33) as usize % texts.len()];
            matcher.accept(token).unwrap();
            bytes.extend_from_slice(tokenizer.token_bytes(token));
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Names and arguments, if the text is calls and nothing else.
    fn calls(family: ToolFamily, text: &str) -> Vec<(String, String)> {
        let mut parser = ToolParser::new(family, ["add-2", "stop"].map(str::to_owned), false);
        let mut pieces = parser.push(plain(text));
        pieces.extend(parser.finish());
        let mut calls: Vec<(String, String)> = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Call { name } => calls.push((name, String::new())),
                Piece::Arguments(more) => calls.last_mut().unwrap().1.push_str(&more),
                Piece::Text(between) => assert!(between.trim().is_empty(), "{family:?} {text:?} has {between:?}"),
            }
        }
        calls
    }

    #[test]
    fn what_is_demanded_is_what_parsers_read() {
        for family in ToolFamily::ALL {
            let required = grammar(&ToolChoice::Required, family, false);
            let named = grammar(&ToolChoice::Named("add-2".into()), family, false);
            let one = grammar(&ToolChoice::Required, family, true);
            for seed in 0..20 {
                let check = |grammar, most: usize, only: Option<&str>| {
                    let text = written(grammar, seed);
                    let calls = calls(family, &text);
                    assert!((1..=most).contains(&calls.len()), "{family:?} {text:?}: {calls:?}");
                    for (name, arguments) in calls {
                        assert!(only.is_none_or(|only| name == only), "{text:?}");
                        let arguments: Value = serde_json::from_str(&arguments).expect("JSON");
                        assert!(name == "stop" || arguments["a"].is_i64() || arguments["a"].is_number(), "{text:?}");
                    }
                };
                check(&required, usize::MAX, None);
                check(&named, 1, Some("add-2"));
                check(&one, 1, None);
            }
        }
    }

    #[test]
    fn only_one_thing_holds_an_answer() {
        let mut held = raw(false);
        held.grammar = Some(Arc::new(RawGrammar { param: "response_format".into(), spec: GrammarSpec::json_object() }));
        let error = demand(&mut held, &ToolChoice::Required, Some(ToolFamily::Hermes)).unwrap_err();
        assert!(matches!(error, RequestError::Unsupported { param, .. } if param == "tool_choice"));
        let mut free = raw(false);
        demand(&mut free, &ToolChoice::Auto, Some(ToolFamily::Hermes)).unwrap();
        assert!(free.grammar.is_none());
    }
}
