//! `POST /v1/chat/completions`.

use axum::Json;
use axum::extract::{Request, State as Extract};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::demand::demand;
use super::frames::{self, Chunks};
use super::head::Head;
use super::messages::take_messages;
use super::params::Fields;
use super::rename::renamed;
use super::running::{Call, Finished, Running};
use super::sampling::{Delivery, check_model, check_special, check_stream, take_delivery, take_sampling};
use super::tools::take_tools;
use super::wire::{self, About, Identity};
use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::openapi::shapes::chat::{ChatChunk, ChatCompletion, ChatRequest};
use crate::api::openapi::shapes::parameters::{ConversationHeader, RequestHeaders, Strictness};
use crate::generate::{CallDelta, TextDelta, TokenLogprob};
use crate::generate::{Prompt, RawRequest};
use forebay_core::request::{FinishReason, Parameters, RequestError};
use forebay_engine::metrics::Route;
use forebay_text::{ChatMessage, TemplateOptions};

/// A chat, understood; what every route that leads to one comes down to.
pub struct Asked {
    pub raw: RawRequest,
    pub delivery: Delivery,
    pub ignored: Vec<String>,
}

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
    let asked = parse(&state, &head, Fields::new(read_object(request, state.body).await?))?;
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

/// Every field of a chat.
pub fn parse(state: &State, head: &Head, mut fields: Fields) -> Result<Asked, RequestError> {
    let adapter = check_model(state, &mut fields)?;
    let messages = take_messages(&mut fields)?;
    name_unread(state, &mut fields, &messages);
    let prompt = Prompt::Chat(messages);
    check_special(&mut fields, false)?;
    let mut delivery = take_delivery(&mut fields, head)?;
    delivery.logprobs = take_logprobs(&mut fields)?;
    let (tools, choice) = take_tools(&mut fields)?;
    let template = TemplateOptions { tools, ..take_template(state, &mut fields)? };
    let max_thinking_tokens = fields.integer("max_thinking_tokens")?;
    let sampling = take_sampling(&mut fields, head)?;
    let parameters = Parameters {
        adapter,
        max_thinking_tokens,
        logprobs: delivery.logprobs,
        logprobs_param: "top_logprobs",
        ..sampling.parameters
    };
    let mut raw = RawRequest { prompt, template, parameters, ..sampling };
    demand(&mut raw, &choice, state.generator.call_format())?;
    delivery.prompt_logprobs = raw.parameters.prompt_logprobs;
    check_stream(&delivery)?;
    Ok(Asked { raw, delivery, ignored: fields.finish(head.strict)? })
}

/// A request of another face that was put into a chat's words. What is wrong with it, and what is ignored, is told in its own:
/// `named` translates back.
pub fn parse_translated(
    state: &State,
    head: &Head,
    chat: Map<String, Value>,
    mut ignored: Vec<String>,
    named: impl Fn(&str) -> Option<String>,
) -> Result<Asked, RequestError> {
    let asked = parse(state, head, Fields::translated(chat)).map_err(|error| renamed(error, &named))?;
    ignored.extend(asked.ignored.into_iter().map(|name| named(&name).unwrap_or(name)));
    Ok(Asked { ignored, ..asked })
}

/// What the chat template has no place for, so that the model never sees it.
fn name_unread(state: &State, fields: &mut Fields, messages: &[ChatMessage]) {
    let template = &state.generator;
    // The name of a tool's result is ours, of its call.
    let named = messages.iter().any(|message| message.name.is_some() && message.role != "tool");
    if named && !template.template_mentions("name") {
        fields.ignore("messages.name");
    }
    let thought = messages.iter().any(|message| message.reasoning.is_some());
    if thought && !template.template_mentions("reasoning_content") {
        fields.ignore("messages.reasoning_content");
    }
}

/// What the chat template hears beside the messages. A variable that it does not have would change nothing, so it is named
/// as ignored.
pub fn take_template(state: &State, fields: &mut Fields) -> Result<TemplateOptions, RequestError> {
    const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];
    let continue_final_message = fields.flag("continue_final_message")?;
    let generation_prompt = fields.optional_flag("add_generation_prompt")?.unwrap_or(!continue_final_message);
    let mut variables = Vec::new();
    if let Some(kwargs) = fields.object("chat_template_kwargs")? {
        for (name, value) in kwargs.into_rest() {
            if !state.generator.template_mentions(&name) {
                fields.ignore(format!("chat_template_kwargs.{name}"));
            }
            variables.push((name, value.to_string()));
        }
    }
    if let Some(effort) = fields.string("reasoning_effort")? {
        if !EFFORTS.contains(&effort.as_str()) {
            let message = format!("must be one of {}", EFFORTS.join(", "));
            return Err(RequestError::invalid("reasoning_effort", message));
        }
        if state.generator.template_mentions("reasoning_effort") {
            variables.push(("reasoning_effort".into(), json!(effort).to_string()));
        } else if effort == "none" && state.generator.template_mentions("enable_thinking") {
            variables.push(("enable_thinking".into(), "false".into()));
        } else if effort != "none" {
            fields.ignore("reasoning_effort");
        }
    }
    Ok(TemplateOptions { no_generation_prompt: !generation_prompt, continue_final_message, variables, tools: None })
}

fn take_logprobs(fields: &mut Fields) -> Result<Option<i64>, RequestError> {
    let (wanted, top) = (fields.flag("logprobs")?, fields.integer("top_logprobs")?);
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(RequestError::invalid("top_logprobs", "needs logprobs to be true")),
    }
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
