//! How families of models write calls, for answers that are held to them: what `text`'s parsers read.

use forebay_text::ToolFamily;
use forebay_text::grammar::{Naming, TaggedCalls};

/// What the family's parser reads.
pub fn format_of(family: ToolFamily) -> TaggedCalls {
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
    use std::sync::Arc;

    use super::*;
    use forebay_core::constraint::{ConstraintState, Progress};
    use forebay_text::glyph::plain;
    use forebay_text::grammar::{Grammar, GrammarSpec, Limits, Matcher, STACK_BYTES, Tool, Vocabulary};
    use forebay_text::{Piece, ToolParser, fixtures};

    fn grammar(tools: &[Tool], family: ToolFamily, one: bool) -> Grammar {
        let mut format = format_of(family);
        if one {
            format.separator = None;
        }
        let spec = GrammarSpec::Calls { tools: tools.to_vec(), format };
        let compile = || {
            let tokenizer = Arc::new(fixtures::byte_level());
            let limits = Limits::default();
            Vocabulary::new(&tokenizer, fixtures::VOCAB as usize, &[fixtures::END], limits)
                .unwrap()
                .compile(&spec)
                .unwrap()
        };
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, compile).unwrap().join().unwrap()
        })
    }

    /// A text of the grammar, drawn at random.
    fn written(grammar: &Grammar, mut state: u64) -> String {
        let tokenizer = fixtures::byte_level();
        let mut matcher = Matcher::new(grammar);
        let mut bytes = Vec::new();
        while matcher.progress() == Progress::Open && bytes.len() < 2_000 {
            let mask = matcher.allowed().unwrap();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if mask.may_end() && state >> 62 == 0 {
                break;
            }
            let texts: Vec<u32> =
                (0..fixtures::VOCAB).filter(|id| mask.allows(*id) && !mask.ends().contains(id)).collect();
            if texts.is_empty() {
                break;
            }
            let token = texts[(state >> 33) as usize % texts.len()];
            matcher.advance(token).unwrap();
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
        let tool = |name: &str, parameters: &str| Tool { name: name.into(), parameters: parameters.into() };
        let add = r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["{", "\"}]", null]}},
            "required": ["a"], "additionalProperties": false}"#;
        let tools = [tool("add-2", add), tool("stop", r#"{"type": "object", "additionalProperties": false}"#)];
        for family in ToolFamily::ALL {
            for (tools, one) in [(&tools[..], false), (&tools[..], true), (&tools[..1], true)] {
                let grammar = grammar(tools, family, one);
                for seed in 0..20 {
                    let text = written(&grammar, seed);
                    let calls = calls(family, &text);
                    let most = if one { 1 } else { usize::MAX };
                    assert!((1..=most).contains(&calls.len()), "{family:?} {text:?}: {calls:?}");
                    for (name, arguments) in calls {
                        assert!(tools.iter().any(|tool| tool.name == name), "{text:?}");
                        assert!(arguments.starts_with('{') && arguments.ends_with('}'), "{text:?}");
                        assert!(name == "stop" || arguments.contains("\"a\""), "{text:?}");
                    }
                }
            }
        }
    }
}
