//! `POST /v1/responses` and `POST /v1/responses/input_tokens`, without a memory: nothing is stored, so the whole conversation
//! comes with each request.
//!
//! ```text
//! input.rs   items → a chat's messages ─▶ pipeline/translated.rs, the same checks as for any chat ─▶ the same queue
//! writer.rs  parts → items (answer.rs), whole or as events · echo.rs  what it repeats of the request · request.rs  what that may hold
//! ```

pub mod answer;
mod echo;
mod input;
pub mod request;
mod writer;

use axum::extract::{Request, State as Extract};
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::openai::render::InputTokens;
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::{Fields, wrong};
use crate::api::pipeline::request_headers::{RequestHeaders, Strictness};
use crate::api::pipeline::translated::Translated;
use crate::api::pipeline::wire;
use answer::{ResponseAnswer, ResponseEvent};
use echo::Echo;
use forebay_core::request::RequestError;
use input::Input;
use request::ResponseRequest;
use writer::ResponseWriter;

/// Fields that mean the same in a chat.
const PASSED: &[&str] = &[
    "model",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "max_thinking_tokens",
    "chat_template_kwargs",
    "parallel_tool_calls",
    "truncate_prompt_tokens",
    "cache_prompt",
    "cache_salt",
    "user",
    "service_tier",
    "priority",
    "timeout_ms",
    "deadline_ms",
];

/// Answers items with items. Nothing is stored: `previous_response_id` is refused, `store` has no effect.
#[utoipa::path(
    post,
    path = "/v1/responses",
    operation_id = "responses",
    tag = "openai",
    params(Strictness, RequestHeaders),
    request_body = ResponseRequest,
    responses((status = 200, description = "The answer, or a stream of it", content(
        (ResponseAnswer = "application/json"), (ResponseEvent = "text/event-stream"),
    ))),
)]
pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let head = Head::read(&state, &request, "resp_")?;
    head.refuse_conversation()?;
    let (translated, echo) = translate(&head, Fields::new(read_object(request, state.body).await?))?;
    Ok(translated.answer(&state, head, |state, head| ResponseWriter::new(state, head, echo)).await?)
}

/// Counts the tokens that the input of such a request has.
#[utoipa::path(
    post,
    path = "/v1/responses/input_tokens",
    operation_id = "response_input_tokens",
    tag = "openai",
    params(Strictness),
    request_body = ResponseRequest,
    responses((status = 200, description = "Their number", body = InputTokens)),
)]
pub async fn input_tokens(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let head = Head::read(&state, &request, "resp_")?;
    let (translated, _) = translate(&head, Fields::new(read_object(request, state.body).await?))?;
    let (count, ignored) = translated.count(&state, &head).await?;
    Ok(wire::answer(InputTokens::new(count), ignored))
}

/// A response as a chat, and what its answer repeats.
fn translate(head: &Head, mut fields: Fields) -> Result<(Translated, Echo), RequestError> {
    refuse_memory(&mut fields)?;
    let mut chat = Map::new();
    for name in PASSED {
        if let Some(value) = fields.take(name) {
            chat.insert((*name).to_owned(), value);
        }
    }
    let mut echo = Echo::read(&mut fields, &chat)?;
    let input = Input::read(&mut fields, echo.instructions.as_deref())?;
    chat.insert("messages".into(), input.messages.clone().into());
    if let Some(most) = fields.take("max_output_tokens") {
        echo.max_output_tokens = most.clone();
        chat.insert("max_completion_tokens".into(), most);
    }
    take_tools(&mut fields, &mut chat, &mut echo)?;
    take_text(&mut fields, &mut chat, &mut echo)?;
    take_reasoning(&mut fields, &mut chat, &mut echo)?;
    take_logprobs(&mut fields, &mut chat, &mut echo)?;
    take_without_effect(&mut fields)?;
    let ignored = fields.finish(head.strict)?;
    Ok((Translated { chat, ignored, named: Box::new(move |param| input.named(param)) }, echo))
}

/// What would need answers that are stored.
fn refuse_memory(fields: &mut Fields) -> Result<(), RequestError> {
    for name in ["previous_response_id", "conversation", "prompt"] {
        if fields.take(name).is_some() {
            let message = "nothing is stored here; send the whole conversation as input".into();
            return Err(RequestError::Unsupported { param: name.into(), message });
        }
    }
    if fields.flag("background")? {
        let message = "nothing is stored here, so there would be nowhere to fetch the answer".into();
        return Err(RequestError::Unsupported { param: "background".into(), message });
    }
    if fields.flag("store")? {
        fields.ignore("store");
    }
    Ok(())
}

/// Known, and without effect here; named where they ask for one.
fn take_without_effect(fields: &mut Fields) -> Result<(), RequestError> {
    if fields.take("max_tool_calls").is_some() {
        // There are no tools of the server's own.
        fields.ignore("max_tool_calls");
    }
    match fields.string("truncation")?.as_deref() {
        None | Some("disabled") => {}
        Some("auto") => fields.ignore("truncation"),
        Some(other) => return Err(wrong("truncation", "auto or disabled", &json!(other))),
    }
    if let Some(mut options) = fields.object("stream_options")? {
        if options.flag("include_obfuscation")? {
            fields.ignore("stream_options.include_obfuscation");
        }
        fields.absorb("stream_options", options);
    }
    Ok(())
}

/// Functions, one level flatter than a chat's.
fn take_tools(fields: &mut Fields, chat: &mut Map<String, Value>, echo: &mut Echo) -> Result<(), RequestError> {
    if let Some(tools) = fields.take("tools") {
        let Value::Array(list) = &tools else { return Err(wrong("tools", "a list", &tools)) };
        let mut nested = Vec::with_capacity(list.len());
        for (index, tool) in list.iter().enumerate() {
            let Value::Object(tool) = tool else { return Err(wrong(&format!("tools[{index}]"), "an object", tool)) };
            let mut tool = Fields::inside("tools[].", tool.clone());
            let kind = tool.take("type").unwrap_or_default();
            let mut function = Map::new();
            for name in ["name", "description", "parameters", "strict"] {
                if let Some(value) = tool.take(name) {
                    function.insert(name.to_owned(), value);
                }
            }
            // Other tools than functions are refused for their type; what they hold does not matter.
            if kind == "function" {
                fields.absorb("tools", tool);
            }
            nested.push(json!({"type": kind, "function": function}));
        }
        chat.insert("tools".into(), nested.into());
        echo.tools = tools;
    }
    if let Some(choice) = fields.take("tool_choice") {
        let nested = match (choice["type"].as_str(), choice.get("name")) {
            (Some("function"), name) => json!({"type": "function", "function": {"name": name}}),
            _ => choice.clone(),
        };
        chat.insert("tool_choice".into(), nested);
        echo.tool_choice = choice;
    }
    Ok(())
}

fn take_text(fields: &mut Fields, chat: &mut Map<String, Value>, echo: &mut Echo) -> Result<(), RequestError> {
    let Some(mut text) = fields.object("text")? else { return Ok(()) };
    if let Some(mut format) = text.object("format")? {
        let kind = format.take("type");
        let mut inner = Map::new();
        for name in ["name", "description", "schema", "strict"] {
            if let Some(value) = format.take(name) {
                inner.insert(name.to_owned(), value);
            }
        }
        echo.format = Value::Object(inner.clone());
        echo.format["type"] = kind.clone().unwrap_or_default();
        let mut nested = json!({"type": kind});
        if nested["type"] == "json_schema" {
            nested["json_schema"] = Value::Object(inner);
        }
        chat.insert("response_format".into(), nested);
        text.absorb("format", format);
    }
    match text.string("verbosity")?.as_deref() {
        None | Some("medium") => {}
        Some("low" | "high") => fields.ignore("text.verbosity"),
        Some(other) => return Err(wrong("text.verbosity", "low, medium or high", &json!(other))),
    }
    fields.absorb("text", text);
    Ok(())
}

fn take_reasoning(fields: &mut Fields, chat: &mut Map<String, Value>, echo: &mut Echo) -> Result<(), RequestError> {
    let Some(mut reasoning) = fields.object("reasoning")? else { return Ok(()) };
    if let Some(effort) = reasoning.take("effort") {
        echo.effort = effort.clone();
        chat.insert("reasoning_effort".into(), effort);
    }
    // Thinking is shown as it is.
    for name in ["summary", "generate_summary"] {
        if reasoning.take(name).is_some() {
            fields.ignore(format!("reasoning.{name}"));
        }
    }
    fields.absorb("reasoning", reasoning);
    Ok(())
}

/// Asked for by name, or by their number.
fn take_logprobs(fields: &mut Fields, chat: &mut Map<String, Value>, echo: &mut Echo) -> Result<(), RequestError> {
    const NAMED: &str = "message.output_text.logprobs";
    let included = fields.take("include");
    let list = match &included {
        None => &[][..],
        Some(Value::Array(list)) if list.iter().all(Value::is_string) => &list[..],
        Some(other) => return Err(wrong("include", "a list of strings", other)),
    };
    for other in list.iter().filter_map(Value::as_str).filter(|name| *name != NAMED) {
        fields.ignore(format!("include.{}", other.chars().take(64).collect::<String>()));
    }
    let top = fields.take("top_logprobs");
    if list.iter().any(|name| name == NAMED) || top.is_some() {
        chat.insert("logprobs".into(), true.into());
    }
    if let Some(top) = top {
        echo.top_logprobs = top.clone();
        chat.insert("top_logprobs".into(), top);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
