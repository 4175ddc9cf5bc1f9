//! Streamed equals whole: thinking, calls, stop strings, JSON and characters cut in the middle, all at once.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::choice::Choice;
use super::super::delta::Delta;
use super::*;
use forebay_core::request::Parameters;
use forebay_core::request::{Event, Limits};
use forebay_core::step::Sampled;
use forebay_core::units::{SeqId, TokenId};
use forebay_text::{ReasoningFamily, Tokenizer, fixtures};

fn manner(family: Option<ToolFamily>, reasoning: Option<(ReasoningFamily, bool)>, stop: &[String]) -> Manner {
    let tools = |family| Tools { family, names: vec!["f".into(), "g-2".into()], only_first: false };
    Manner { stop: stop.to_vec(), include_stop: false, keep_special_tokens: false, reasoning, tools: family.map(tools) }
}

/// Everything that a client hears of an answer, joined.
#[derive(Debug, Default, PartialEq)]
struct Joined {
    text: String,
    reasoning: String,
    /// Names and arguments.
    calls: Vec<(String, String)>,
    reason: Option<FinishReason>,
}

impl Joined {
    fn add(&mut self, text: &str, reasoning: &str, calls: Vec<CallDelta>) {
        self.text += text;
        self.reasoning += reasoning;
        for call in calls {
            if let Some(begins) = call.begins {
                assert_eq!(call.index, self.calls.len());
                assert!(begins.id.len() >= 9);
                self.calls.push((begins.name, String::new()));
            }
            self.calls[call.index].1 += &call.arguments;
        }
    }
}

/// Pushes the parts of a text, then ends it as a token limit would.
fn read<'a>(manner: &Manner, parts: impl IntoIterator<Item = &'a str>) -> Joined {
    let mut reader = Reader::new(manner);
    let mut joined = Joined::default();
    for part in parts {
        let heard = reader.push(glyph::plain(part).collect(), true);
        joined.add(&heard.text, &heard.reasoning, heard.calls);
        if heard.ended.is_some() {
            joined.reason = heard.ended;
            break;
        }
    }
    if joined.reason.is_none() {
        let heard = reader.finish(Vec::new());
        joined.add(&heard.text, &heard.reasoning, heard.calls);
        joined.reason = Some(heard.ended.unwrap_or(FinishReason::Length));
    }
    if joined.reason == Some(FinishReason::Stop) && reader.has_called() {
        joined.reason = Some(FinishReason::ToolCalls);
    }
    joined
}

/// The tokens of a text one by one, as the engine sends them.
fn heard(tokenizer: &Arc<Tokenizer>, manner: &Manner, ids: &[TokenId]) -> (Joined, Vec<TokenId>, usize) {
    let limits = Limits::new(4_096, fixtures::VOCAB, 16);
    let checked = Parameters::default().check(&limits, 0).unwrap();
    let built = checked.into_requests(vec![1], &[fixtures::END], &limits, || SeqId(0)).unwrap();
    let mut choice = Choice::new(tokenizer, &built.requests[0], manner);
    let (mut joined, mut tokens, mut thoughts) = (Joined::default(), Vec::new(), 0);
    let events = ids.iter().map(|&token| Event::Token(Sampled { token, logprobs: None }));
    for event in events.chain([Event::Finished(FinishReason::Length)]) {
        for delta in choice.hear(event) {
            match delta {
                Delta::Text(delta) => {
                    joined.add(&delta.text, &delta.reasoning, delta.calls);
                    tokens.extend(delta.tokens);
                    thoughts += delta.reasoning_tokens;
                }
                Delta::Finished { reason, completion_tokens, .. } => {
                    assert_eq!(completion_tokens as usize, tokens.len());
                    joined.reason = Some(reason);
                    return (joined, tokens, thoughts);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("it never ended")
}

const SHARDS: &[&str] = &[
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "<thi",
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|tool_call|>",
    "functools",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
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
    ":",
    ",",
    ";",
    "f",
    "g-2",
    "{\"name\": \"f\", \"arguments\": {\"é\": \"😀</think>\"}}",
    "{\"name\": \"g-2\", \"parameters\": ",
    "{\"a\": [1, {}]}",
    "{\"answer\": \"日本\", \"n\": [1.5e3, null]}",
    "STOP",
    "ST",
    "é",
    "日",
    "word ",
    "<",
];
const STOPS: &[&str] = &["STOP", "\n\n", "é", "}", "word w"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn streamed_equals_whole(
        family in proptest::option::of(proptest::sample::select(&ToolFamily::ALL[..])),
        reasoning in proptest::option::of((proptest::sample::select(&ReasoningFamily::ALL[..]), any::<bool>())),
        stops in proptest::collection::vec(proptest::sample::select(STOPS), 0..2),
        shards in proptest::collection::vec(proptest::sample::select(SHARDS), 0..20),
        cuts in proptest::collection::vec(0..400usize, 0..12),
    ) {
        let stops: Vec<String> = stops.into_iter().map(str::to_owned).collect();
        let manner = manner(family, reasoning, &stops);
        let text = shards.concat();
        let whole = read(&manner, [text.as_str()]);
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        prop_assert_eq!(&read(&manner, ends.windows(2).map(|w| &text[w[0]..w[1]])), &whole);
        let mut at: Vec<usize> = cuts.into_iter().map(|cut| ends[cut % ends.len()]).chain([0, text.len()]).collect();
        at.sort_unstable();
        prop_assert_eq!(&read(&manner, at.windows(2).map(|w| &text[w[0]..w[1]])), &whole);
        // Tokens: most of them a byte, so characters arrive in parts.
        let tokenizer = Arc::new(fixtures::byte_level());
        let ids = tokenizer.encode(&text, false).unwrap();
        let (joined, tokens, thoughts) = heard(&tokenizer, &manner, &ids);
        prop_assert_eq!(&joined, &whole);
        prop_assert_eq!(&tokens[..], &ids[..tokens.len()]);
        prop_assert!(joined.reason != Some(FinishReason::Length) || tokens.len() == ids.len());
        prop_assert!(thoughts <= tokens.len() && (joined.reasoning.is_empty() || thoughts > 0));
    }

    /// Without anything to find, all of the text is its text.
    #[test]
    fn without_parsers_the_text_is_the_text(shards in proptest::collection::vec(proptest::sample::select(SHARDS), 0..20)) {
        let joined = read(&manner(None, None, &[]), shards.iter().copied());
        prop_assert_eq!(joined.text, shards.concat());
    }
}

#[test]
fn stop_strings_end_words_and_neither_thoughts_nor_arguments() {
    let stops = ["END".to_owned()];
    let manner = manner(Some(ToolFamily::Hermes), Some((ReasoningFamily::Think, false)), &stops);
    let text = "<think>END</think>a<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\"END\"}}</tool_call>bENDc";
    let joined = read(&manner, [text]);
    assert_eq!((joined.text.as_str(), joined.reasoning.as_str()), ("ab", "END"));
    assert_eq!(joined.calls, [("f".to_owned(), "{\"x\":\"END\"}".to_owned())]);
    assert_eq!(joined.reason, Some(FinishReason::ToolCalls));
}

/// A vocabulary whose marks are special tokens, as in most.
fn marked() -> Arc<Tokenizer> {
    let json = fixtures::byte_level_json()
        .replace("<|user|>", "<tool_call>")
        .replace("<|assistant|>", "</think>")
        .replace("<|bos|>", "</tool_call>");
    Arc::new(Tokenizer::from_json(json.as_bytes()).unwrap())
}

#[test]
fn marks_that_are_special_tokens_are_seen_and_not_shown() {
    let tokenizer = marked();
    let manner = manner(Some(ToolFamily::Hermes), Some((ReasoningFamily::Think, true)), &[]);
    let text = "so</think>hello<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    let ids = tokenizer.encode(&format!("{text}<tool_call> no</think><|end|>"), false).unwrap();
    let (joined, tokens, thoughts) = heard(&tokenizer, &manner, &ids);
    assert_eq!((joined.reasoning.as_str(), joined.text.as_str()), ("so", "hello no"));
    assert_eq!(joined.calls, [("f".to_owned(), "{}".to_owned())]);
    assert_eq!(thoughts, 3, "two letters and the tag");
    assert_eq!(tokens, ids);
    // Without parsers they are not shown either, as before.
    let (joined, ..) = heard(&tokenizer, &super::tests::manner(None, None, &[]), &ids[..4]);
    assert_eq!(joined.text, "sohello");
}

#[test]
fn one_call_alone_ends_the_answer() {
    let mut manner = manner(Some(ToolFamily::Json), None, &["zz".to_owned()]);
    manner.tools.as_mut().unwrap().only_first = true;
    let tokenizer = Arc::new(fixtures::byte_level());
    let call = r#"{"name":"f","arguments":{"a":1}}"#;
    let ids = tokenizer.encode(&format!("[{call},{call}]"), false).unwrap();
    let (joined, tokens, _) = heard(&tokenizer, &manner, &ids);
    assert_eq!((joined.calls.len(), joined.text.as_str(), joined.reason), (1, "", Some(FinishReason::ToolCalls)));
    assert_eq!(tokens.len(), tokenizer.encode(&format!("[{call}"), false).unwrap().len());
}

#[test]
fn ids_have_the_form_that_the_family_needs() {
    let id = |family| {
        let reader = Reader::new(&manner(Some(family), None, &[]));
        (reader.call_id(), reader.call_id())
    };
    let (one, other) = id(ToolFamily::Hermes);
    assert!(one.starts_with("call_") && one.len() == 29 && one != other, "{one}");
    let (one, other) = id(ToolFamily::Mistral);
    assert!(one.len() == 9 && one.chars().all(|c| c.is_ascii_alphanumeric()) && one != other, "{one}");
}
