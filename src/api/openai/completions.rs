//! `POST /v1/completions`.

use axum::Json;
use axum::extract::{Request, State as Extract};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::head::Head;
use super::params::{Fields, integers, wrong};
use super::running::{Finished, Running};
use super::sampling::{Delivery, check_model, take_delivery, take_sampling};
use super::wire::{self, Chunks, Identity};
use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::generate::{TextDelta, TokenLogprob, TopLogprob};
use crate::metrics::Route;
use crate::request::{FinishReason, Prompt, RawRequest, RequestError};
use crate::units::TokenId;

/// As OpenAI has it.
const DEFAULT_MAX_TOKENS: u32 = 16;
const MAX_PROMPTS: usize = 64;
/// As OpenAI has it; chat allows more.
const MAX_LOGPROBS: i64 = 5;

struct Asked {
    raws: Vec<RawRequest>,
    delivery: Delivery,
    ignored: Vec<String>,
}

pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let head = Head::read(&state, request.headers(), "cmpl")?;
    let asked = parse(&state, &head, Fields::new(read_object(request, state.body).await?))?;
    let delivery = asked.delivery;
    let running = Running::start(&state.generator, asked.raws).await?;
    let (clamped, predicted) = (running.max_tokens_clamped, running.predicted_ttft);
    let mut response = if delivery.stream {
        let identity = Identity::new(&state, &head, "text_completion");
        let chunks = TextChunks::new(&running, delivery);
        wire::stream(&state, Route::Completions, identity, running, chunks, delivery)
    } else {
        let identity = Identity::new(&state, &head, "text_completion");
        let (running, choices) = running.collect().await?;
        let mut body = whole(&identity, &running, choices, delivery);
        if delivery.traced {
            body["forebay_trace"] = wire::trace(&state.engine, &head.id).await;
        }
        Json(body).into_response()
    };
    wire::headers(&mut response, asked.ignored, clamped, predicted);
    Ok(response)
}

fn parse(state: &State, head: &Head, mut fields: Fields) -> Result<Asked, RequestError> {
    check_model(state, &mut fields)?;
    let prompts = prompts(fields.take("prompt"))?;
    let mut delivery = take_delivery(&mut fields, head)?;
    let mut raw = take_sampling(&mut fields, head)?;
    raw.default_max_tokens = Some(DEFAULT_MAX_TOKENS);
    delivery.logprobs = fields.integer("logprobs")?;
    if delivery.logprobs.is_some_and(|count| !(0..=MAX_LOGPROBS).contains(&count)) {
        return Err(RequestError::invalid("logprobs", format!("must be between 0 and {MAX_LOGPROBS}")));
    }
    raw.logprobs = delivery.logprobs;
    raw.logprobs_param = "logprobs";
    let raws = prompts.into_iter().map(|prompt| RawRequest { prompt, ..raw.clone() }).collect();
    Ok(Asked { raws, delivery, ignored: fields.finish()? })
}

/// A string, token ids, or a list of either. The number is checked before anything is copied.
fn prompts(value: Option<Value>) -> Result<Vec<Prompt>, RequestError> {
    const EXPECTED: &str = "a string, a list of token ids, or a list of either";
    let prompts = match value {
        None => return Err(RequestError::invalid("prompt", "is required")),
        Some(Value::String(text)) => vec![Prompt::Text(text)],
        Some(Value::Array(ids)) if ids.iter().all(Value::is_number) => vec![Prompt::Tokens(integers("prompt", &ids)?)],
        Some(Value::Array(list)) if list.len() > MAX_PROMPTS => {
            let message = format!("has {} prompts, at most {MAX_PROMPTS} are allowed", list.len());
            return Err(RequestError::invalid("prompt", message));
        }
        Some(Value::Array(list)) => {
            let one = |value| match value {
                Value::String(text) => Ok(Prompt::Text(text)),
                Value::Array(ids) => Ok(Prompt::Tokens(integers("prompt", &ids)?)),
                other => Err(wrong("prompt", EXPECTED, &other)),
            };
            list.into_iter().map(one).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong("prompt", EXPECTED, &other)),
    };
    let empty = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => text.is_empty(),
        Prompt::Tokens(ids) => ids.is_empty(),
        Prompt::Chat(messages) => messages.is_empty(),
    };
    if prompts.iter().any(empty) { Err(RequestError::EmptyPrompt) } else { Ok(prompts) }
}

fn whole(identity: &Identity, running: &Running, choices: Vec<Finished>, delivery: Delivery) -> Value {
    let usage = wire::usage_of(running, &choices);
    let choice = |(index, finished): (usize, Finished)| {
        let logprobs = delivery.logprobs.map(|count| legacy(&finished.logprobs, count, &mut 0));
        let mut choice = json!({
            "index": index,
            "text": finished.text,
            "logprobs": logprobs,
            "finish_reason": finished.reason.map(FinishReason::name),
        });
        if delivery.token_ids {
            choice["prompt_token_ids"] = json!(running.prompt_tokens.get(index / running.choices));
            choice["token_ids"] = json!(finished.tokens);
        }
        choice
    };
    let mut body = identity.wrap(choices.into_iter().enumerate().map(choice).collect());
    body["usage"] = usage;
    body
}

struct TextChunks {
    delivery: Delivery,
    /// Of each choice, in characters: where its next token begins.
    offsets: Vec<usize>,
    /// Of each choice, until its first chunk has carried them.
    prompts: Vec<Option<Vec<TokenId>>>,
}

impl TextChunks {
    fn new(running: &Running, delivery: Delivery) -> TextChunks {
        let of = |index: usize| running.prompt_tokens.get(index / running.choices).cloned();
        let prompts = (0..running.total()).map(|index| of(index).filter(|_| delivery.token_ids)).collect();
        TextChunks { delivery, offsets: vec![0; running.total()], prompts }
    }

    fn chunk(&mut self, index: usize, delta: &TextDelta, reason: Option<FinishReason>) -> Value {
        let offset = self.offsets.get_mut(index);
        let logprobs = match (self.delivery.logprobs, offset) {
            (Some(count), Some(offset)) if reason.is_none() => Some(legacy(&delta.logprobs, count, offset)),
            _ => None,
        };
        let mut chunk = json!({
            "index": index,
            "text": delta.text,
            "logprobs": logprobs,
            "finish_reason": reason.map(FinishReason::name),
        });
        if self.delivery.token_ids {
            chunk["token_ids"] = json!(delta.tokens);
            if let Some(prompt) = self.prompts.get_mut(index).and_then(Option::take) {
                chunk["prompt_token_ids"] = json!(prompt);
            }
        }
        chunk
    }
}

impl Chunks for TextChunks {
    fn opening(&mut self, _: &Running) -> Vec<Value> {
        Vec::new()
    }

    fn text(&mut self, index: usize, delta: TextDelta) -> Option<Value> {
        let shown = !delta.text.is_empty() || !delta.logprobs.is_empty() || self.delivery.token_ids;
        shown.then(|| self.chunk(index, &delta, None))
    }

    fn finish(&mut self, index: usize, reason: FinishReason) -> Value {
        self.chunk(index, &TextDelta::default(), Some(reason))
    }
}

/// The shape that completions had before chat. `offset`, in characters, moves past these tokens.
fn legacy(logprobs: &[TokenLogprob], count: i64, offset: &mut usize) -> Value {
    let mut offsets = Vec::new();
    for token in logprobs {
        offsets.push(*offset);
        // Continuation bytes begin no character, so tokens that split one agree with the text.
        *offset += token.bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count();
    }
    json!({
        "tokens": logprobs.iter().map(|token| spelled(&token.text, &token.bytes)).collect::<Vec<_>>(),
        "token_logprobs": logprobs.iter().map(|token| wire::logprob(token.logprob)).collect::<Vec<_>>(),
        "top_logprobs": (count > 0).then(|| logprobs.iter().map(alternatives).collect::<Vec<_>>()),
        "text_offset": offsets,
    })
}

/// Best first; the drawn token is always among them, as OpenAI has it.
fn alternatives(drawn: &TokenLogprob) -> Value {
    let entry = |top: &TopLogprob| (spelled(&top.text, &top.bytes), json!(wire::logprob(top.logprob)));
    let mut map: Map<String, Value> = drawn.top.iter().map(entry).collect();
    map.entry(spelled(&drawn.text, &drawn.bytes)).or_insert(json!(wire::logprob(drawn.logprob)));
    Value::Object(map)
}

/// Part of a character is written as OpenAI writes it, so that two such tokens do not become one key.
fn spelled(text: &str, bytes: &[u8]) -> String {
    if std::str::from_utf8(bytes).is_ok() {
        return text.to_owned();
    }
    bytes.iter().fold("bytes:".to_owned(), |spelled, byte| format!("{spelled}\\x{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_in_every_form() {
        let text = |text: &str| Prompt::Text(text.into());
        for (given, expected) in [
            (json!("a"), vec![text("a")]),
            (json!([1, 2]), vec![Prompt::Tokens(vec![1, 2])]),
            (json!(["a", "b"]), vec![text("a"), text("b")]),
            (json!([[1], [2, 3]]), vec![Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]),
            (json!([[1], "b"]), vec![Prompt::Tokens(vec![1]), text("b")]),
            (json!(vec!["a"; 64]), vec![text("a"); 64]),
        ] {
            assert_eq!(prompts(Some(given.clone())), Ok(expected), "{given}");
        }
    }

    #[test]
    fn bad_prompts_are_refused() {
        for empty in [json!(""), json!([]), json!([[]]), json!(["a", ""])] {
            assert_eq!(prompts(Some(empty.clone())), Err(RequestError::EmptyPrompt), "{empty}");
        }
        for bad in [json!(vec!["a"; 65]), json!(vec![[1]; 100]), json!(5), json!({}), json!([1.5]), json!([1, "a"])] {
            let refused = prompts(Some(bad.clone()));
            assert!(matches!(refused, Err(RequestError::InvalidValue { ref param, .. }) if param == "prompt"), "{bad}");
        }
        assert!(prompts(None).is_err());
    }

    #[test]
    fn legacy_logprobs_count_characters_and_keep_partial_ones_apart() {
        let token = |text: &str, bytes: &[u8], top: Vec<TopLogprob>| TokenLogprob {
            token: 1,
            text: text.into(),
            bytes: bytes.to_vec(),
            logprob: -0.5,
            top,
        };
        let top = |text: &str, bytes: &[u8]| TopLogprob {
            token: 2,
            text: text.into(),
            bytes: bytes.to_vec(),
            logprob: f32::NEG_INFINITY,
        };
        let tokens = [
            token("é", "é".as_bytes(), vec![top("a", b"a")]),
            token("\u{FFFD}", b"\xe2\x82", vec![top("\u{FFFD}", b"\xe2\x82"), top("\u{FFFD}", b"\xe2\x83")]),
            token("\u{FFFD}", b"\xac", vec![]),
            token("x", b"x", vec![]),
        ];
        let value = legacy(&tokens, 2, &mut 0);
        assert_eq!(value["text_offset"], json!([0, 1, 2, 2]));
        assert_eq!(value["tokens"], json!(["é", "bytes:\\xe2\\x82", "bytes:\\xac", "x"]));
        assert_eq!(value["top_logprobs"][0], json!({"a": -9999.0, "é": -0.5}));
        assert_eq!(value["top_logprobs"][1].as_object().unwrap().len(), 2);
        assert_eq!(legacy(&tokens, 0, &mut 0)["top_logprobs"], Value::Null);
    }
}
