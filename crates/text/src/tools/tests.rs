//! Calls and texts, however the text is cut.

use proptest::prelude::*;

use super::*;
use crate::glyph::{Glyph, plain, special};

/// Texts as they are, calls as `name(arguments)`, with `·` between.
fn shown(pieces: &[Piece]) -> String {
    let mut out = String::new();
    let mut open = false;
    for piece in pieces {
        let close = if std::mem::take(&mut open) { ")" } else { "" };
        match piece {
            Piece::Arguments(more) => {
                out.push_str(more);
                open = true;
            }
            Piece::Text(text) => out.extend([close, if out.is_empty() { "" } else { "·" }, text]),
            Piece::Call { name } => {
                out.extend([close, if out.is_empty() { "" } else { "·" }, name, "("]);
                open = true;
            }
        }
    }
    out + if open { ")" } else { "" }
}

/// All pieces, texts next to each other joined.
fn parsed(parser: &mut ToolParser, chunks: impl IntoIterator<Item = Vec<Glyph>>) -> String {
    let mut pieces: Vec<Piece> = chunks.into_iter().flat_map(|chunk| parser.push(chunk)).collect();
    pieces.extend(parser.finish());
    assert_eq!(parser.held_bytes(), 0);
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(more)) => before.push_str(&more),
            (_, piece) => joined.push(piece),
        }
    }
    shown(&joined)
}

fn parser(family: ToolFamily) -> ToolParser {
    ToolParser::new(family, ["f", "get_weather", "g-2"].map(str::to_owned), false)
}

fn parse(family: ToolFamily, chunks: &[&str]) -> String {
    parsed(&mut parser(family), chunks.iter().map(|chunk| plain(chunk).collect()))
}

/// What a family makes of a text: whole, in every three parts, and character by character.
fn check(family: ToolFamily, text: &str, expected: &str) {
    assert_eq!(parse(family, &[text]), expected, "{family:?} {text:?}");
    let ends: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
    for &a in &ends {
        for &b in ends.iter().filter(|&&b| b >= a) {
            let chunks = [&text[..a], &text[a..b], &text[b..]];
            assert_eq!(parse(family, &chunks), expected, "{family:?} {chunks:?}");
        }
    }
    let single: Vec<&str> = ends.windows(2).map(|w| &text[w[0]..w[1]]).collect();
    assert_eq!(parse(family, &single), expected, "{family:?} {text:?} by characters");
}

#[test]
fn hermes() {
    for (text, expected) in [
        ("no <tool> here ü <tool_cal", "no <tool> here ü <tool_cal"),
        (r#"<tool_call>{"name":"f","arguments":{"a":"é😀"}}</tool_call>"#, r#"f({"a":"é😀"})"#),
        (
            "\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}\n</tool_call>\n<tool_call>\n{\"arguments\": {}, \"name\": \"g-2\"}\n</tool_call>\n",
            r#"f({"a": [1, {}]})·g-2({})"#,
        ),
        (
            "Let me see.\n<tool_call>{\"name\":\"f\",\"parameters\":{}}</tool_call>\n\nDone!",
            "Let me see.\n·f({})·\n\nDone!",
        ),
        // A mark inside a string, braces inside a string, escapes.
        (
            r#"<tool_call>{"name":"f","arguments":{"a":"</tool_call>}\""}}</tool_call>x"#,
            r#"f({"a":"</tool_call>}\""})·x"#,
        ),
        (
            r#"<tool_call>{"name":"\u0066","arguments":{"\u00e9":"\ud83d\ude00"}}</tool_call>"#,
            r#"f({"\u00e9":"\ud83d\ude00"})"#,
        ),
        // Arguments as a string; none at all.
        (r#"<tool_call>{"name":"f","arguments":"{\"a\":\"\\n\"}"}</tool_call>"#, r#"f({"a":"\n"})"#),
        (
            r#"<tool_call>{"name":"f"}</tool_call><tool_call>{"arguments":null,"name":"g-2"}</tool_call>"#,
            "f({})·g-2({})",
        ),
        // Other fields, before and after.
        (
            r#"<tool_call>{"id":"x}","n":-1e5,"type":"function","name":"f","arguments":{},"z":[{"name":"g-2"}],"y":true}</tool_call>"#,
            "f({})",
        ),
        // No calls: bad JSON, unknown names, arguments of another kind, nothing in the tags.
        ("<tool_call>{oops}</tool_call> ä", "<tool_call>{oops}</tool_call> ä"),
        (
            r#"<tool_call>{"name":"unknown","arguments":{}}</tool_call>"#,
            r#"<tool_call>{"name":"unknown","arguments":{}}</tool_call>"#,
        ),
        (
            r#"<tool_call>{"name":"f","arguments":[]}</tool_call>"#,
            r#"<tool_call>{"name":"f","arguments":[]}</tool_call>"#,
        ),
        (
            r#"<tool_call>{"name":"f","arguments":"x"}</tool_call>"#,
            r#"<tool_call>{"name":"f","arguments":"x"}</tool_call>"#,
        ),
        ("<tool_call>{}</tool_call><tool_call></tool_call>", "<tool_call>{}</tool_call><tool_call></tool_call>"),
        // What failed is looked at again.
        (
            r#"<tool_call>{"name": </tool_call><tool_call>{"name":"f","arguments":{}}"#,
            r#"<tool_call>{"name": </tool_call>·f({})"#,
        ),
        (r#"<tool_call<tool_call>{"name":"f","arguments":{}}</tool_call>"#, "<tool_call·f({})"),
        // Cut off before and after the call began.
        (r#"<tool_call>{"name":"f","#, r#"<tool_call>{"name":"f","#),
        (r#"x <tool_call>{"name":"f","arguments":{"a":"b"#, r#"x ·f({"a":"b)"#),
        (r#"<tool_call>{"name":"f","arguments":{}}</tool_"#, "f({})"),
        // One brace too many.
        (r#"<tool_call>{"name":"f","arguments":{}}}</tool_call>"#, "f({})·}</tool_call>"),
        // Broken after the arguments.
        (r#"<tool_call>{"name":"f","arguments":{}; </tool_call>"#, "f({})·; </tool_call>"),
        (" \n ", " \n "),
    ] {
        check(ToolFamily::Hermes, text, expected);
    }
}

#[test]
fn llama3() {
    for (text, expected) in [
        (r#"{"name": "f", "parameters": {"a": "b"}}"#, r#"f({"a": "b"})"#),
        (
            r#"{"type":"function","name":"f","parameters":{"a":1}}; {"name":"g-2","parameters":{}}"#,
            r#"f({"a":1})·g-2({})"#,
        ),
        (" <|python_tag|>{\"name\": \"f\", \"parameters\": {}}\n", "f({})"),
        ("<|python_tag|>print(1)", "<|python_tag|>print(1)"),
        ("Sure: {\"name\": \"f\", \"parameters\": {}}", "Sure: {\"name\": \"f\", \"parameters\": {}}"),
        (r#"{"name": "Bob", "age": 4}"#, r#"{"name": "Bob", "age": 4}"#),
        (r#"{"name": "f"}"#, r#"{"name": "f"}"#),
        (r#"{"name": "f", "parameters": {}};"#, "f({})·;"),
        (r#"{"name": "f", "parameters": {}}; and so"#, "f({})·; and so"),
        ("{", "{"),
    ] {
        check(ToolFamily::Llama3, text, expected);
    }
}

#[test]
fn mistral() {
    for (text, expected) in [
        (
            r#"[TOOL_CALLS] [{"name": "f", "arguments": {"a": "],["}}, {"name": "g-2", "arguments": {}}]"#,
            r#"f({"a": "],["})·g-2({})"#,
        ),
        (r#"[TOOL_CALLS]f[ARGS]{"a": {"b": "}"}}[TOOL_CALLS]g-2{}"#, r#"f({"a": {"b": "}"}})·g-2({})"#),
        (r#"Yes.[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{"a": 1}"#, r#"Yes.·f({"a": 1})"#),
        (r#"[TOOL_CALLS]h[ARGS]{"a": 1}"#, r#"[TOOL_CALLS]h[ARGS]{"a": 1}"#),
        ("[TOOL_CALLS] I cannot.", "[TOOL_CALLS] I cannot."),
        (r#"[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "h"}] x"#, r#"f({})·, {"name": "h"}] x"#),
        (r#"[TOOL_CALLS][{"name": "f", "arguments": {}}] x"#, "f({})· x"),
        ("[TOOL_CALLS][]", "[TOOL_CALLS][]"),
        (r#"[TOOL_CALLS]f[ARGS]{"a": "#, r#"f({"a": )"#),
    ] {
        check(ToolFamily::Mistral, text, expected);
    }
}

#[test]
fn phi() {
    for (text, expected) in [
        (
            r#"<|tool_call|>[{"name": "f", "arguments": {"a": 1}},{"name": "f", "arguments": {}}]<|/tool_call|>"#,
            r#"f({"a": 1})·f({})"#,
        ),
        (r#"functools[{"name": "f", "arguments": {"a": 1}}]"#, r#"f({"a": 1})"#),
        ("from functools import cache", "from functools import cache"),
        ("functools[0]", "functools[0]"),
    ] {
        check(ToolFamily::Phi, text, expected);
    }
}

#[test]
fn granite() {
    for (text, expected) in [
        (r#"<|tool_call|>[{"name": "f", "arguments": {"a": "é"}}]"#, r#"f({"a": "é"})"#),
        (r#"<tool_call>[{"name": "f", "arguments": {}}, {"name": "g-2", "arguments": {}}]"#, "f({})·g-2({})"),
        ("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "f({})"),
        ("<|tool_call|>{}", "<|tool_call|>{}"),
    ] {
        check(ToolFamily::Granite, text, expected);
    }
}

#[test]
fn deepseek() {
    for (text, expected) in [
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g-2\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "f({\"a\": \"```\"})·g-2({})",
        ),
        (
            "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "Hm.·f({\"a\":1})",
        ),
        ("<｜tool▁call▁begin｜>h<｜tool▁sep｜>{}", "<｜tool▁call▁begin｜>h<｜tool▁sep｜>{}"),
        ("<｜tool▁calls▁begin｜>none", "<｜tool▁calls▁begin｜>none"),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\nx{}", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\nx{}"),
    ] {
        check(ToolFamily::DeepSeek, text, expected);
    }
}

#[test]
fn json() {
    for (text, expected) in [
        ("\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n", r#"f({"a": 1})"#),
        (r#"[{"name": "f", "parameters": {}}, {"arguments": {}, "name": "g-2"}]"#, "f({})·g-2({})"),
        ("```json\n{\"name\": \"f\", \"arguments\": {}}\n```", "f({})"),
        ("```json\n{\"a\": 1}\n```", "```json\n{\"a\": 1}\n```"),
        ("[1, 2]", "[1, 2]"),
        ("As JSON: {\"name\": \"f\", \"arguments\": {}}", "As JSON: {\"name\": \"f\", \"arguments\": {}}"),
    ] {
        check(ToolFamily::Json, text, expected);
    }
}

#[test]
fn arguments_come_as_they_are_written() {
    let mut parser = parser(ToolFamily::Hermes);
    let call = Piece::Call { name: "f".into() };
    assert_eq!(parser.push(plain(r#"<tool_call>{"name": "f", "argum"#)), []);
    assert_eq!(parser.push(plain(r#"ents": {"a"#)), [call, Piece::Arguments(r#"{"a"#.into())]);
    assert_eq!(parser.push(plain(r#"": 1}"#)), [Piece::Arguments(r#"": 1}"#.into())]);
    assert_eq!(parser.push(plain("}\n</tool_call>")), []);
    assert_eq!(parser.held_bytes(), 0);
}

#[test]
fn after_the_only_call_nothing_is_read() {
    let mut parser = ToolParser::new(ToolFamily::Mistral, ["f".to_owned()], true);
    let text = r#"a[TOOL_CALLS][{"name":"f","arguments":{}},{"name":"f","arguments":{}}] more"#;
    assert!(!parser.ended());
    assert_eq!(parsed(&mut parser, [plain(text).collect()]), "a·f({})");
    assert!(parser.ended());
}

#[test]
fn special_tokens_are_marks_and_never_text() {
    let glyphs = |parts: &[(&str, bool)]| -> Vec<Glyph> {
        let of = |&(text, hidden): &(&str, bool)| -> Vec<Glyph> {
            if hidden { special(text).collect() } else { plain(text).collect() }
        };
        parts.iter().flat_map(of).collect()
    };
    let code = glyphs(&[("<|python_tag|>", true), ("print(1)", false)]);
    assert_eq!(parsed(&mut parser(ToolFamily::Llama3), [code]), "print(1)");
    let call = glyphs(&[
        ("[TOOL_CALLS]", true),
        ("f", false),
        ("[ARGS]", true),
        ("{\"a\":", false),
        ("[ARGS]", true),
        ("1}", false),
    ]);
    assert_eq!(parsed(&mut parser(ToolFamily::Mistral), [call]), r#"f({"a":1})"#);
}

#[test]
fn what_is_held_is_bounded() {
    let mut parser = parser(ToolFamily::Hermes);
    let mut text = String::new();
    let mut pieces = parser.push(plain(r#"<tool_call>{"arguments": {"a": ""#));
    for _ in 0..100 {
        pieces.extend(parser.push(plain(&"x".repeat(1_000))));
        assert!(parser.held_bytes() <= 65 << 10);
    }
    pieces.extend(parser.finish());
    for piece in pieces {
        let Piece::Text(more) = piece else { panic!("{piece:?}") };
        text += &more;
    }
    assert_eq!(text.len(), r#"<tool_call>{"arguments": {"a": ""#.len() + 100_000);
}

#[test]
fn templates_tell_the_family() {
    for (source, family) in [
        ("{{ tools }}<tool_call>", Some(ToolFamily::Hermes)),
        ("{{ tools }}<tool_call>\n<function=example>", None),
        ("{{ tools }}<|start_header_id|><|python_tag|>", Some(ToolFamily::Llama3)),
        ("{{ tools }}<|start_header_id|><tool_call>", Some(ToolFamily::Hermes)),
        ("{{ tools }}[AVAILABLE_TOOLS][TOOL_CALLS]", Some(ToolFamily::Mistral)),
        ("{{ message['tools'] }}<|tool|>", Some(ToolFamily::Phi)),
        ("{{ tools }}<|start_of_role|><|tool_call|>", Some(ToolFamily::Granite)),
        ("{{ tools }}<｜tool▁calls▁begin｜>", Some(ToolFamily::DeepSeek)),
        ("{{ tools }}", Some(ToolFamily::Json)),
        ("{{ tools }}<|tool_calls_section_begin|><|tool_call_begin|>", None),
        ("{{ tools }}<minimax:tool_call>", None),
        ("{{ tools }}<|channel|>commentary", None),
        ("{{ messages }}", None),
    ] {
        assert_eq!(ToolFamily::of_template(source), family, "{source}");
    }
}

/// Pieces of calls of all families, whole and broken, and words between them.
const SHARDS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<tool_",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|tool_call|>",
    "<|/tool_call|>",
    "functools",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "```json\n",
    "```",
    "\n",
    " ",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "\\",
    ":",
    ",",
    ";",
    "f",
    "g-2",
    "\"name\"",
    "\"name\": \"f\"",
    "\"arguments\"",
    "\"arguments\": ",
    "\"parameters\": {",
    "{\"a\": \"é😀\"}",
    "{\"name\": \"f\", \"arguments\": {",
    "{\"name\": \"g-2\", \"parameters\": {\"x\": [1, {}]}}",
    "null",
    "12",
    "<",
    "é",
    "word ",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_do_not_depend_on_the_cutting(
        family in proptest::sample::select(&ToolFamily::ALL[..]),
        shards in proptest::collection::vec((proptest::sample::select(SHARDS), any::<bool>()), 0..24),
        only_first in any::<bool>(),
        cuts in proptest::collection::vec(0..200usize, 0..12),
    ) {
        // Marks may be special tokens.
        let glyphs: Vec<Glyph> = shards
            .iter()
            .flat_map(|(shard, hide)| {
                if *hide && shard.len() > 4 && !shard.contains('"') { special(shard).collect() } else { plain(shard).collect::<Vec<_>>() }
            })
            .collect();
        let new = || ToolParser::new(family, ["f", "g-2"].map(str::to_owned), only_first);
        let whole = parsed(&mut new(), [glyphs.clone()]);
        prop_assert_eq!(&parsed(&mut new(), glyphs.iter().map(|&glyph| vec![glyph])), &whole);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(glyphs.len())).chain([0, glyphs.len()]).collect();
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|w| glyphs[w[0]..w[1]].to_vec());
        prop_assert_eq!(&parsed(&mut new(), chunks), &whole);
    }

    /// A text without any call comes out as it went in.
    #[test]
    fn without_calls_nothing_is_lost(
        family in proptest::sample::select(&ToolFamily::ALL[..]),
        shards in proptest::collection::vec(proptest::sample::select(SHARDS), 0..24),
    ) {
        let text = shards.concat();
        let mut parser = ToolParser::new(family, [], false);
        prop_assert_eq!(parsed(&mut parser, [plain(&text).collect()]), text);
    }
}
