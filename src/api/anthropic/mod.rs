//! Anthropic's `POST /v1/messages` and `POST /v1/messages/count_tokens`, over the same chats and the same queue.
//!
//! ```text
//! input.rs   blocks → a chat's messages ─▶ pipeline/translated.rs, the same checks as for any chat
//! writer.rs  parts → blocks (answer.rs), whole or as events · error.rs  Anthropic's error object · request.rs  what bodies may hold
//! ```

mod answer;
pub mod error;
mod input;
pub mod request;
mod writer;

use axum::extract::{Request, State as Extract};
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::api::State;
use crate::api::extract::read_object;
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::{Fields, wrong};
use crate::api::pipeline::request_headers::{RequestHeaders, Strictness};
use crate::api::pipeline::translated::Translated;
use crate::api::pipeline::wire;
use answer::{MessageAnswer, MessageEvent, TokenCount};
use error::MessagesError;
use forebay_core::request::RequestError;
use input::Input;
use request::{CountRequest, MessageRequest};
use writer::MessageWriter;

/// Fields that mean the same in a chat. The later ones are ours.
const PASSED: &[&str] = &[
    "model",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "repetition_penalty",
    "chat_template_kwargs",
    "cache_salt",
    "priority",
    "timeout_ms",
    "deadline_ms",
];

/// Whether an answer is wanted, or only the number of tokens that are read for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Answer,
    Count,
}

/// Answers messages with blocks.
#[utoipa::path(
    post,
    path = "/v1/messages",
    operation_id = "messages",
    tag = "anthropic",
    params(Strictness, RequestHeaders),
    request_body = MessageRequest,
    responses((status = 200, description = "The answer, or a stream of it", content(
        (MessageAnswer = "application/json"), (MessageEvent = "text/event-stream"),
    ))),
)]
pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, MessagesError> {
    let head = Head::read(&state, &request, "msg_")?;
    head.refuse_conversation()?;
    let fields = Fields::new(read_object(request, state.body).await?);
    let translated = translate(&state, &head, fields, Wanted::Answer)?;
    Ok(translated.answer(&state, head, MessageWriter::new).await?)
}

/// Counts the tokens that would be read for such a request.
#[utoipa::path(
    post,
    path = "/v1/messages/count_tokens",
    operation_id = "count_tokens",
    tag = "anthropic",
    params(Strictness),
    request_body = CountRequest,
    responses((status = 200, description = "Their number", body = TokenCount)),
)]
pub async fn count_tokens(Extract(state): Extract<State>, request: Request) -> Result<Response, MessagesError> {
    let head = Head::read(&state, &request, "msg_")?;
    let fields = Fields::new(read_object(request, state.body).await?);
    let (input_tokens, ignored) = translate(&state, &head, fields, Wanted::Count)?.count(&state, &head).await?;
    Ok(wire::answer(TokenCount { input_tokens }, ignored))
}

/// Messages as a chat.
fn translate(state: &State, head: &Head, mut fields: Fields, wanted: Wanted) -> Result<Translated, RequestError> {
    let mut chat = Map::new();
    if wanted == Wanted::Count {
        chat.extend(fields.take("model").map(|model| ("model".to_owned(), model)));
        chat.extend(fields.take("chat_template_kwargs").map(|kwargs| ("chat_template_kwargs".to_owned(), kwargs)));
    } else {
        for name in PASSED {
            chat.extend(fields.take(name).map(|value| ((*name).to_owned(), value)));
        }
        let Some(most) = fields.take("max_tokens") else {
            return Err(RequestError::invalid("max_tokens", "is required"));
        };
        chat.insert("max_tokens".into(), most);
        if let Some(stop) = fields.take("stop_sequences") {
            if !stop.is_array() {
                return Err(wrong("stop_sequences", "a list of strings", &stop));
            }
            chat.insert("stop".into(), stop);
        }
        take_metadata(&mut fields, &mut chat)?;
        match fields.string("service_tier")?.as_deref() {
            None | Some("auto" | "standard_only") => {}
            Some(other) => return Err(wrong("service_tier", "auto or standard_only", &json!(other))),
        }
    }
    let input = Input::read(&mut fields)?;
    chat.insert("messages".into(), input.messages.clone().into());
    if input.continues {
        chat.insert("continue_final_message".into(), true.into());
    }
    take_tools(&mut fields, &mut chat)?;
    take_thinking(state, &mut fields, &mut chat, wanted)?;
    take_output(&mut fields, &mut chat)?;
    // Prefixes are cached without being told to be.
    drop(fields.take("cache_control"));
    for name in ["container", "mcp_servers", "context_management"] {
        if fields.take(name).is_some_and(|value| value != json!([])) {
            let message = "nothing is stored or called by the server here".into();
            return Err(RequestError::Unsupported { param: name.into(), message });
        }
    }
    let ignored = fields.finish(head.strict)?;
    Ok(Translated { chat, ignored, named: Box::new(move |param| input.named(param)) })
}

/// Whom a request is for.
fn take_metadata(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), RequestError> {
    let Some(mut metadata) = fields.object("metadata")? else { return Ok(()) };
    if let Some(user) = metadata.string("user_id")? {
        chat.insert("user".into(), user.into());
    }
    fields.absorb("metadata", metadata);
    Ok(())
}

fn take_tools(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), RequestError> {
    if let Some(tools) = fields.take("tools") {
        let Value::Array(list) = tools else { return Err(wrong("tools", "a list", &tools)) };
        let mut nested = Vec::with_capacity(list.len());
        for (index, tool) in list.into_iter().enumerate() {
            let at = |name: &str| format!("tools[{index}]{name}");
            let Value::Object(tool) = tool else { return Err(wrong(&at(""), "an object", &tool)) };
            let mut tool = Fields::inside("tools[].", tool);
            match tool.take("type") {
                None => {}
                Some(Value::String(kind)) if kind == "custom" => {}
                Some(Value::String(_)) => {
                    let message = "only tools of the client's own can be called".to_owned();
                    return Err(RequestError::Unsupported { param: at(".type"), message });
                }
                Some(other) => return Err(wrong(&at(".type"), "custom", &other)),
            }
            let Some(schema) = tool.take("input_schema") else {
                return Err(RequestError::invalid(at(".input_schema"), "is required"));
            };
            let mut function = Map::from_iter([("parameters".to_owned(), schema)]);
            for name in ["name", "description", "strict"] {
                function.extend(tool.take(name).map(|value| (name.to_owned(), value)));
            }
            drop(tool.take("cache_control"));
            fields.absorb("tools", tool);
            nested.push(json!({"type": "function", "function": function}));
        }
        chat.insert("tools".into(), nested.into());
    }
    let Some(mut choice) = fields.object("tool_choice")? else { return Ok(()) };
    let name = choice.string("name")?;
    let chosen = match (choice.string("type")?.as_deref(), name) {
        (Some("auto"), None) => json!("auto"),
        (Some("any"), None) => json!("required"),
        (Some("none"), None) => json!("none"),
        (Some("tool"), Some(name)) => json!({"type": "function", "function": {"name": name}}),
        (Some("tool"), None) => return Err(RequestError::invalid("tool_choice.name", "is required")),
        (Some("auto" | "any" | "none"), Some(_)) => {
            return Err(RequestError::invalid("tool_choice.name", "is only for the type tool"));
        }
        _ => return Err(RequestError::invalid("tool_choice.type", "must be auto, any, tool or none")),
    };
    chat.insert("tool_choice".into(), chosen);
    if choice.flag("disable_parallel_tool_use")? {
        chat.insert("parallel_tool_calls".into(), false.into());
    }
    fields.absorb("tool_choice", choice);
    Ok(())
}

/// Whether the model thinks, and how long it may. A template that has no word for it cannot be told.
fn take_thinking(
    state: &State,
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    wanted: Wanted,
) -> Result<(), RequestError> {
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(()) };
    let budget = thinking.take("budget_tokens");
    let asked = thinking.string("type")?;
    let enabled = match asked.as_deref() {
        Some("enabled") => {
            let Some(budget) = budget else {
                return Err(RequestError::invalid("thinking.budget_tokens", "is required"));
            };
            if budget.as_i64().is_none_or(|tokens| tokens < 0) {
                return Err(wrong("thinking.budget_tokens", "an integer from 0 on", &budget));
            }
            // A permission to think, which a model that cannot may leave.
            if state.generator.thinks() {
                chat.insert("max_thinking_tokens".into(), budget);
            } else if wanted == Wanted::Answer {
                fields.ignore("thinking.budget_tokens");
            }
            Some(true)
        }
        Some("disabled") => Some(false),
        Some("adaptive") => None,
        _ => return Err(RequestError::invalid("thinking.type", "must be enabled, disabled or adaptive")),
    };
    // Thinking is always shown.
    if thinking.string("display")?.is_some_and(|display| display != "summarized") {
        fields.ignore("thinking.display");
    }
    if let Some(enabled) = enabled {
        if state.generator.template_mentions("enable_thinking") {
            let kwargs = chat.entry("chat_template_kwargs").or_insert_with(|| json!({}));
            if let Some(kwargs) = kwargs.as_object_mut() {
                kwargs.entry("enable_thinking").or_insert_with(|| enabled.into());
            }
        } else if !enabled && state.generator.thinks() {
            // Without a word for it, thinking can still be given no room.
            chat.insert("max_thinking_tokens".into(), 0.into());
        }
    }
    fields.absorb("thinking", thinking);
    Ok(())
}

/// What the answer is to be, and how hard it is to be thought about.
fn take_output(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), RequestError> {
    let Some(mut output) = fields.object("output_config")? else { return Ok(()) };
    if let Some(mut format) = output.object("format")? {
        match format.string("type")?.as_deref() {
            Some("json_schema") => {}
            _ => return Err(RequestError::invalid("output_config.format.type", "must be json_schema")),
        }
        let Some(schema) = format.take("schema") else {
            return Err(RequestError::invalid("output_config.format.schema", "is required"));
        };
        let nested = json!({"type": "json_schema", "json_schema": {"schema": schema}});
        chat.insert("response_format".into(), nested);
        output.absorb("format", format);
    }
    if let Some(effort) = output.take("effort") {
        // Their highest has another name.
        let effort = if effort == "max" { json!("xhigh") } else { effort };
        chat.insert("reasoning_effort".into(), effort);
    }
    fields.absorb("output_config", output);
    Ok(())
}

#[cfg(test)]
mod tests;
