//! `POST /tokenize` and `POST /detokenize`, as vLLM has them.

use std::collections::BTreeMap;

use axum::extract::{Request, State as Extract};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::openai::chat::request::{ChatMessage, Tool, ToolChoice};
use crate::api::pipeline::chat::take_template;
use crate::api::pipeline::head;
use crate::api::pipeline::messages::take_messages;
use crate::api::pipeline::params::Fields;
use crate::api::pipeline::request_headers::Strictness;
use crate::api::pipeline::sampling::check_model;
use crate::api::pipeline::tools::take_tools;
use crate::api::pipeline::wire;
use crate::generate::AddSpecial;
use crate::generate::Prompt;
use forebay_core::request::RequestError;
use forebay_core::units::TokenId;
use forebay_text::TemplateOptions;

/// The tokens of a text or a chat.
#[utoipa::path(
    post,
    path = "/v1/tokenize",
    operation_id = "tokenize",
    tag = "openai",
    params(Strictness),
    request_body = TokenizeRequest,
    responses((status = 200, description = "Its tokens", body = Tokens)),
)]
pub async fn tokenize(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let strict = head::strict(request.uri(), request.headers())?;
    let mut fields = Fields::new(read_object(request, state.body).await?);
    check_model(&state, &mut fields)?;
    let prompt = prompt(&mut fields)?;
    // Absent is yes for a text; a chat template writes its own.
    let add_special = match (fields.optional_flag("add_special_tokens")?, &prompt) {
        (Some(true), Prompt::Chat(_)) => {
            let message = "the chat template writes them; it is for prompts".into();
            return Err(RequestError::Unsupported { param: "add_special_tokens".into(), message }.into());
        }
        (Some(false), _) | (None, Prompt::Chat(_)) => AddSpecial::No,
        (Some(true) | None, _) => AddSpecial::Yes,
    };
    let template = match &prompt {
        Prompt::Chat(_) => {
            let (tools, _) = take_tools(&mut fields)?;
            TemplateOptions { tools, ..take_template(&state, &mut fields)? }
        }
        _ => TemplateOptions::default(),
    };
    let strings = fields.flag("return_token_strs")?;
    let ignored = fields.finish(strict)?;
    let tokens = state.generator.tokenize(prompt, add_special, template).await?;
    let body = Tokens {
        count: tokens.len(),
        max_model_len: state.generator.limits().max_model_len,
        token_strs: strings.then(|| tokens.iter().map(|&token| state.generator.token_text(token)).collect()),
        tokens,
    };
    Ok(wire::answer(body, ignored))
}

fn prompt(fields: &mut Fields) -> Result<Prompt, RequestError> {
    match (fields.string("prompt")?, fields.has("messages")) {
        (Some(_), true) => Err(RequestError::invalid("messages", "only one of prompt and messages is allowed")),
        (Some(text), false) => Ok(Prompt::Text(text)),
        (None, true) => Ok(Prompt::Chat(take_messages(fields)?)),
        (None, false) => Err(RequestError::invalid("prompt", "one of prompt and messages is required")),
    }
}

/// The text of tokens.
#[utoipa::path(
    post,
    path = "/v1/detokenize",
    operation_id = "detokenize",
    tag = "openai",
    params(Strictness),
    request_body = DetokenizeRequest,
    responses((status = 200, description = "Their text", body = Text)),
)]
pub async fn detokenize(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let strict = head::strict(request.uri(), request.headers())?;
    let mut fields = Fields::new(read_object(request, state.body).await?);
    check_model(&state, &mut fields)?;
    if !fields.has("tokens") {
        return Err(RequestError::invalid("tokens", "is required").into());
    }
    let tokens = fields.integers("tokens")?;
    let ignored = fields.finish(strict)?;
    Ok(wire::answer(Text { prompt: state.generator.detokenize(&tokens)? }, ignored))
}

/// One of `prompt` and `messages`.
#[derive(Serialize, ToSchema)]
pub struct TokenizeRequest {
    model: Option<String>,
    prompt: Option<String>,
    /// Rendered as for a completion.
    messages: Option<Vec<ChatMessage>>,
    /// With `messages`, as the following.
    #[schema(max_items = 128)]
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    reasoning_effort: Option<String>,
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
    /// Variables of the chat template.
    chat_template_kwargs: Option<BTreeMap<String, Value>>,
    /// Absent is yes for a prompt; a chat's template writes its own.
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

#[derive(Serialize, ToSchema)]
pub struct Tokens {
    tokens: Vec<TokenId>,
    count: usize,
    max_model_len: u32,
    /// With `return_token_strs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<Vec<String>>,
}

#[derive(Serialize, ToSchema)]
pub struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<i64>,
}

#[derive(Serialize, ToSchema)]
pub struct Text {
    prompt: String,
}
