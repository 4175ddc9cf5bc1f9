//! `POST /v1/chat/completions/render`, `POST /v1/completions/render` and `POST /v1/chat/completions/input_tokens`: what the model
//! would read, without running it. The body is a chat's or a completion's, and is checked as one. Routers that look for
//! cached prefixes ask for `token_ids` before they choose a replica.

use axum::extract::{Request, State as Extract};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::chat::request::ChatRequest;
use super::completions;
use super::completions::request::CompletionRequest;
use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::pipeline::chat;
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::Fields;
use crate::api::pipeline::request_headers::Strictness;
use crate::api::pipeline::wire;
use crate::generate::Generator;
use forebay_core::request::RequestError;
use forebay_core::units::TokenId;

/// The text that a chat's template makes of it, and its tokens.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/render",
    operation_id = "render_chat",
    tag = "openai",
    params(Strictness),
    request_body = ChatRequest,
    responses((status = 200, description = "What the model would read", body = Rendered)),
)]
pub async fn render(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let (tokens, ignored) = rendered(&state, request).await?;
    Ok(wire::answer(Rendered::of(&state.generator, "chat.completion.render", tokens)?, ignored))
}

/// The tokens of each prompt, in their order.
#[utoipa::path(
    post,
    path = "/v1/completions/render",
    operation_id = "render_completion",
    tag = "openai",
    params(Strictness),
    request_body = CompletionRequest,
    responses((status = 200, description = "What the model would read, one entry for each prompt", body = Vec<Rendered>)),
)]
pub async fn render_completion(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let head = Head::read(&state, &request, "render-")?;
    let fields = Fields::new(read_object(request, state.body).await?);
    let (raws, ignored) = completions::raws(&state, &head, fields)?;
    let mut rendered = Vec::with_capacity(raws.len());
    for raw in &raws {
        let tokens = state.generator.prompt_tokens(raw).await?;
        rendered.push(Rendered::of(&state.generator, "completion.render", tokens)?);
    }
    Ok(wire::answer(rendered, ignored))
}

/// Counts the tokens of a chat's prompt.
#[utoipa::path(
    post,
    path = "/v1/chat/completions/input_tokens",
    operation_id = "chat_input_tokens",
    tag = "openai",
    params(Strictness),
    request_body = ChatRequest,
    responses((status = 200, description = "Their number", body = InputTokens)),
)]
pub async fn input_tokens(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let (tokens, ignored) = rendered(&state, request).await?;
    Ok(wire::answer(InputTokens::new(tokens.len()), ignored))
}

async fn rendered(state: &State, request: Request) -> Result<(Vec<TokenId>, Vec<String>), ApiError> {
    let head = Head::read(state, &request, "render-")?;
    let asked = chat::parse(state, &head, Fields::new(read_object(request, state.body).await?))?;
    Ok((state.generator.prompt_tokens(&asked.raw).await?, asked.ignored))
}

/// What the model would read of a chat, or of one prompt.
#[derive(Serialize, ToSchema)]
pub struct Rendered {
    /// `chat.completion.render` or `completion.render`.
    object: &'static str,
    model: String,
    /// The text, special tokens spelled out.
    prompt: String,
    token_ids: Vec<TokenId>,
    count: usize,
    max_model_len: u32,
}

impl Rendered {
    fn of(generator: &Generator, object: &'static str, tokens: Vec<TokenId>) -> Result<Rendered, RequestError> {
        Ok(Rendered {
            object,
            model: generator.model_id().to_owned(),
            prompt: generator.spell_prompt(&tokens)?,
            count: tokens.len(),
            max_model_len: generator.limits().max_model_len,
            token_ids: tokens,
        })
    }
}

/// The length of a prompt.
#[derive(Serialize, ToSchema)]
pub struct InputTokens {
    /// `response.input_tokens`.
    object: &'static str,
    input_tokens: usize,
}

impl InputTokens {
    pub fn new(input_tokens: usize) -> InputTokens {
        InputTokens { object: "response.input_tokens", input_tokens }
    }
}
