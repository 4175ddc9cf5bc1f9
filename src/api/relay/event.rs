//! Server-sent events: cut out of bytes, and what each means to a stream that may still be begun elsewhere.

use axum::body::Bytes;
use serde_json::Value;

/// A longer event is nobody's token.
const LONGEST: usize = 16 << 20;

/// Cuts bytes into events, each with the blank line that ends it.
#[derive(Default)]
pub struct Splitter {
    rest: Vec<u8>,
    /// Where no end has been found.
    searched: usize,
}

/// An event that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub usize);

impl Splitter {
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Bytes>, TooLong> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut from = 0;
        while let Some(end) = end_of(&self.rest, self.searched.max(from)) {
            events.push(Bytes::copy_from_slice(&self.rest[from..end]));
            from = end;
        }
        self.rest.drain(..from);
        // An end may straddle what comes next.
        self.searched = self.rest.len().saturating_sub(3);
        if self.rest.len() > LONGEST { Err(TooLong(LONGEST)) } else { Ok(events) }
    }

    /// Whether the bytes so far end with an event's end.
    pub fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Where the first event after `from` ends.
fn end_of(bytes: &[u8], from: usize) -> Option<usize> {
    let tail = bytes.get(from..)?;
    let at =
        |pattern: &[u8]| tail.windows(pattern.len()).position(|window| window == pattern).map(|at| at + pattern.len());
    [at(b"\n\n"), at(b"\r\n\r\n"), at(b"\r\r")].into_iter().flatten().min().map(|end| from + end)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Keeps the connection alive.
    Silence,
    /// Something before the first token: roles, progress.
    Opening,
    /// A token, an end, or something that we do not know: from here on the answer is this worker's.
    Token,
    /// An error; whether the worker is to blame.
    Error {
        worker: bool,
    },
    Done,
}

pub fn meaning(event: &[u8]) -> Meaning {
    let text = String::from_utf8_lossy(event);
    let data: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|data| data.strip_prefix(' ').unwrap_or(data))
        .collect();
    if data.is_empty() {
        return Meaning::Silence;
    }
    let data = data.join("\n");
    if data.trim() == "[DONE]" {
        return Meaning::Done;
    }
    let Ok(object) = serde_json::from_str::<Value>(&data) else { return Meaning::Token };
    if !object["error"].is_null() {
        return Meaning::Error { worker: is_workers(&object["error"]) };
    }
    // Those of responses and of messages say what they are.
    match object["type"].as_str() {
        Some(kind) if OPENINGS.contains(&kind) => return Meaning::Opening,
        Some(kind) if ENDS.contains(&kind) => return Meaning::Done,
        Some("response.failed") => return Meaning::Error { worker: is_workers_code(&object["response"]["error"]) },
        _ => {}
    }
    match object["choices"].as_array() {
        Some(choices) if !choices.iter().any(has_token) => Meaning::Opening,
        _ => Meaning::Token,
    }
}

const OPENINGS: [&str; 7] = [
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "message_start",
    "ping",
];
const ENDS: [&str; 3] = ["response.completed", "response.incomplete", "message_stop"];

/// The same of a response, whose errors have a code and no type.
fn is_workers_code(error: &Value) -> bool {
    let codes =
        ["server_error", "step_failed", "internal_error", "worker_unavailable", "shutting_down", "circuit_open"];
    error["code"].as_str().is_some_and(|code| codes.contains(&code))
}

/// Whether an error inside a stream says that the worker failed, as `docs/errors.md` has them.
fn is_workers(error: &Value) -> bool {
    let kind = error["type"].as_str().unwrap_or_default();
    let request = matches!(error["code"].as_str(), Some("aborted" | "non_finite_logits"));
    matches!(kind, "server_error" | "overloaded_error" | "internal_error" | "api_error" | "InternalServerError")
        && !request
}

fn has_token(choice: &Value) -> bool {
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    let delta = &choice["delta"];
    let words = ["content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call"];
    says(&choice["finish_reason"]) || says(&choice["text"]) || words.iter().any(|word| says(&delta[word]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_mean_something() {
        for (event, expected) in [
            (": ping\n\n", Meaning::Silence),
            ("event: x\n\n", Meaning::Silence),
            ("data: [DONE]\n\n", Meaning::Done),
            (
                r#"data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
                Meaning::Opening,
            ),
            (r#"data: {"choices":[],"prompt_progress":{}}"#, Meaning::Opening),
            (r#"data:{"choices":[{"delta":{"content":"a"}}]}"#, Meaning::Token),
            (r#"data: {"choices":[{"text":"a"}]}"#, Meaning::Token),
            (r#"data: {"choices":[{"text":"","finish_reason":"stop"}]}"#, Meaning::Token),
            (r#"data: {"choices":[{"delta":{"tool_calls":[{}]}}]}"#, Meaning::Token),
            (r#"data: {"type":"response.created"}"#, Meaning::Opening),
            (r#"data: {"type":"response.output_text.delta","delta":"a"}"#, Meaning::Token),
            (r#"data: {"type":"response.completed","response":{}}"#, Meaning::Done),
            (
                r#"data: {"type":"response.failed","response":{"error":{"code":"step_failed"}}}"#,
                Meaning::Error { worker: true },
            ),
            (
                r#"data: {"type":"response.failed","response":{"error":{"code":"timeout"}}}"#,
                Meaning::Error { worker: false },
            ),
            ("event: message_start\ndata: {\"type\":\"message_start\"}", Meaning::Opening),
            (r#"data: {"type":"content_block_delta"}"#, Meaning::Token),
            (r#"data: {"type":"message_stop"}"#, Meaning::Done),
            (r#"data: {"type":"error","error":{"type":"overloaded_error"}}"#, Meaning::Error { worker: true }),
            (r#"data: {"type":"error","error":{"type":"invalid_request_error"}}"#, Meaning::Error { worker: false }),
            ("data: nonsense", Meaning::Token),
            (r#"data: {"error":{"type":"server_error","code":"step_failed"}}"#, Meaning::Error { worker: true }),
            (r#"data: {"error":{"type":"server_error","code":"aborted"}}"#, Meaning::Error { worker: false }),
            (r#"data: {"error":{"type":"timeout_error","code":"timeout"}}"#, Meaning::Error { worker: false }),
        ] {
            assert_eq!(meaning(event.as_bytes()), expected, "{event}");
        }
    }

    #[test]
    fn an_event_without_end_is_an_error() {
        let mut splitter = Splitter::default();
        let refused = (0..LONGEST / 1_000 + 2).find_map(|_| splitter.push(&[b'x'; 1_000]).err());
        assert_eq!(refused, Some(TooLong(LONGEST)));
    }

    proptest! {
        /// However the bytes are cut.
        #[test]
        fn events_do_not_depend_on_packets(
            events in proptest::collection::vec("[a-z]{0,5}(\n[a-z]{1,5}){0,2}(\n\n|\r\n\r\n)", 0..6),
            cuts in proptest::collection::vec(1usize..7, 1..40),
        ) {
            let whole: String = events.iter().map(|event| format!("x{event}")).collect();
            let mut splitter = Splitter::default();
            let (mut found, mut rest, mut cut) = (Vec::new(), whole.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (packet, after) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
                found.extend(splitter.push(packet).unwrap());
                rest = after;
            }
            prop_assert!(splitter.is_whole());
            let expected: Vec<String> = events.iter().map(|event| format!("x{event}")).collect();
            let found: Vec<String> = found.iter().map(|event| String::from_utf8(event.to_vec()).unwrap()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
