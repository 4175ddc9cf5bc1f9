//! `POST /v1/chat/completions`.

use axum::Json;
use axum::extract::{Request, State as Extract};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::openapi::shapes::chat::{ChatChunk, ChatCompletion, ChatRequest};
use crate::api::openapi::shapes::parameters::{ConversationHeader, RequestHeaders, Strictness};
use crate::api::pipeline::chat;
use crate::api::pipeline::frames::{self, Chunks};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::Fields;
use crate::api::pipeline::running::{Call, Finished, Running};
use crate::api::pipeline::sampling::Delivery;
use crate::api::pipeline::wire::{self, About, Identity};
use crate::generate::{CallDelta, TextDelta, TokenLogprob};
use forebay_core::request::FinishReason;
use forebay_engine::metrics::Route;

/// Answers a chat.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    operation_id = "chat",
    tag = "openai",
    params(Strictness, RequestHeaders, ConversationHeader),
    request_body = ChatRequest,
    responses((status = 200, description = "The answer, or a stream of it", content(
        (ChatCompletion = "application/json"), (ChatChunk = "text/event-stream"),
    ))),
)]
pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let mut head = Head::read(&state, &request, "chatcmpl-")?;
    let asked = chat::parse(&state, &head, Fields::new(read_object(request, state.body).await?))?;
    let delivery = asked.delivery;
    head.adapter = asked.raw.parameters.adapter;
    let running = Running::start(&state, &head, vec![asked.raw], delivery).await?;
    let about = About::new(&running, asked.ignored);
    let mut response = if delivery.stream {
        frames::stream(&state, &head, running, ChatChunks { delivery }, delivery).await?
    } else {
        let identity = Identity::new(&state, &head, "chat.completion");
        let (running, choices) = running.collect().await?;
        let mut body = whole(&identity, &running, choices, delivery);
        if delivery.traced {
            body["forebay_trace"] = wire::trace(&state.workers, &head.id).await;
        }
        Json(body).into_response()
    };
    wire::headers(&mut response, about);
    Ok(response)
}

fn whole(identity: &Identity, running: &Running, choices: Vec<Finished>, delivery: Delivery) -> Value {
    let prompt = choices.first().and_then(|choice| choice.prompt.clone()).unwrap_or_default();
    let choice = |(index, finished): (usize, Finished)| {
        let mut choice = json!({
            "index": index,
            "message": message(&finished),
            "logprobs": delivery.logprobs.map(|_| content_logprobs(&finished.logprobs)),
            "finish_reason": finished.reason.map(FinishReason::name),
        });
        if delivery.token_ids {
            choice["token_ids"] = json!(finished.tokens);
        }
        choice
    };
    let mut body = identity.wrap(choices.into_iter().enumerate().map(choice).collect());
    body["usage"] = wire::usage_of(running);
    body["timings"] = wire::timings(&running.timings());
    if let Some(count) = delivery.prompt_logprobs {
        body["prompt_logprobs"] = wire::prompt_logprobs(&prompt, count);
    }
    if delivery.token_ids {
        body["prompt_token_ids"] = json!(running.started.first().map(|started| &started.prompt_tokens));
    }
    body
}

/// Content is null where only calls came.
fn message(finished: &Finished) -> Value {
    let content = Some(&finished.text).filter(|text| !text.is_empty() || finished.calls.is_empty());
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !finished.reasoning.is_empty() {
        message["reasoning_content"] = json!(finished.reasoning);
    }
    if !finished.calls.is_empty() {
        let function = |call: &Call| json!({"name": call.name, "arguments": call.arguments});
        let call = |call: &Call| json!({"id": call.id, "type": "function", "function": function(call)});
        message["tool_calls"] = finished.calls.iter().map(call).collect();
    }
    message
}

struct ChatChunks {
    delivery: Delivery,
}

impl ChatChunks {
    fn chunk(&self, index: usize, delta: Value, logprobs: Option<Value>, reason: Option<FinishReason>) -> Value {
        json!({
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": reason.map(FinishReason::name),
        })
    }
}

impl Chunks for ChatChunks {
    const ROUTE: Route = Route::Chat;
    const OBJECT: &'static str = "chat.completion.chunk";

    /// A role for each choice.
    fn opening(&mut self, running: &Running) -> Vec<Value> {
        let role = json!({"role": "assistant", "content": ""});
        let chunk = |index| {
            let mut chunk = self.chunk(index, role.clone(), None, None);
            if self.delivery.token_ids {
                chunk["prompt_token_ids"] = json!(running.started.first().map(|started| &started.prompt_tokens));
            }
            chunk
        };
        (0..running.total()).map(chunk).collect()
    }

    /// One for thinking and words, one for each part of a call. The first has the tokens.
    fn text(&mut self, index: usize, delta: TextDelta) -> Vec<Value> {
        let mut deltas: Vec<Value> = delta.calls.iter().map(|call| json!({"tool_calls": [call_part(call)]})).collect();
        let silent = delta.text.is_empty() && delta.reasoning.is_empty();
        if !silent || deltas.is_empty() && (!delta.logprobs.is_empty() || self.delivery.token_ids) {
            let mut words = json!({});
            if !delta.reasoning.is_empty() {
                words["reasoning_content"] = json!(delta.reasoning);
            }
            if !delta.text.is_empty() || delta.reasoning.is_empty() {
                words["content"] = json!(delta.text);
            }
            deltas.insert(0, words);
        }
        let mut chunks: Vec<Value> = deltas.into_iter().map(|delta| self.chunk(index, delta, None, None)).collect();
        if let Some(first) = chunks.first_mut() {
            first["logprobs"] = json!(self.delivery.logprobs.map(|_| content_logprobs(&delta.logprobs)));
            if self.delivery.token_ids {
                first["token_ids"] = json!(delta.tokens);
            }
        }
        chunks
    }

    fn finish(&mut self, index: usize, reason: FinishReason) -> Value {
        self.chunk(index, json!({}), None, Some(reason))
    }
}

fn call_part(call: &CallDelta) -> Value {
    match &call.begins {
        Some(begins) => json!({
            "index": call.index,
            "id": begins.id,
            "type": "function",
            "function": {"name": begins.name, "arguments": call.arguments},
        }),
        None => json!({"index": call.index, "function": {"arguments": call.arguments}}),
    }
}

/// Of each token, with its alternatives.
pub fn token_logprobs(tokens: &[TokenLogprob]) -> Vec<Value> {
    let entry = |text: &str, logprob: f32, bytes: &[u8]| json!({"token": text, "logprob": wire::logprob(logprob), "bytes": bytes});
    let content = tokens.iter().map(|token| {
        let mut drawn = entry(&token.text, token.logprob, &token.bytes);
        let top = token.top.iter().map(|top| entry(&top.text, top.logprob, &top.bytes)).collect::<Vec<_>>();
        drawn["top_logprobs"] = json!(top);
        drawn
    });
    content.collect()
}

fn content_logprobs(tokens: &[TokenLogprob]) -> Value {
    json!({"content": token_logprobs(tokens), "refusal": null})
}
