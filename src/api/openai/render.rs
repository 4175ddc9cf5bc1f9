//! `POST /v1/chat/completions/render`, `POST /v1/completions/render` and `POST /v1/chat/completions/input_tokens`: what the model
//! would read, without running it. The body is a chat's or a completion's, and is checked as one. Routers that look for
//! cached prefixes ask for `token_ids` before they choose a replica.

use axum::extract::{Request, State as Extract};
use axum::response::Response;
use serde_json::json;

use super::completions;
use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::openapi::shapes::chat::ChatRequest;
use crate::api::openapi::shapes::completions::CompletionRequest;
use crate::api::openapi::shapes::parameters::Strictness;
use crate::api::openapi::shapes::responses::InputTokens;
use crate::api::openapi::shapes::tokens::{Rendered, RenderedPrompt};
use crate::api::pipeline::chat;
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::Fields;
use crate::api::pipeline::wire;
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
    let body = json!({
        "object": "chat.completion.render",
        "model": state.generator.model_id(),
        "prompt": state.generator.spell_prompt(&tokens)?,
        "token_ids": tokens,
        "count": tokens.len(),
        "max_model_len": state.generator.limits().max_model_len,
    });
    Ok(wire::answer(body, ignored))
}

/// The tokens of each prompt, in their order.
#[utoipa::path(
    post,
    path = "/v1/completions/render",
    operation_id = "render_completion",
    tag = "openai",
    params(Strictness),
    request_body = CompletionRequest,
    responses((status = 200, description = "What the model would read, one entry for each prompt", body = Vec<RenderedPrompt>)),
)]
pub async fn render_completion(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let head = Head::read(&state, &request, "render-")?;
    let fields = Fields::new(read_object(request, state.body).await?);
    let (raws, ignored) = completions::raws(&state, &head, fields)?;
    let mut rendered = Vec::with_capacity(raws.len());
    for raw in &raws {
        let tokens = state.generator.prompt_tokens(raw).await?;
        rendered.push(json!({
            "object": "completion.render",
            "model": state.generator.model_id(),
            "prompt": state.generator.spell_prompt(&tokens)?,
            "token_ids": tokens,
            "count": tokens.len(),
            "max_model_len": state.generator.limits().max_model_len,
        }));
    }
    Ok(wire::answer(rendered.into(), ignored))
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
    Ok(wire::answer(json!({"object": "response.input_tokens", "input_tokens": tokens.len()}), ignored))
}

async fn rendered(state: &State, request: Request) -> Result<(Vec<TokenId>, Vec<String>), ApiError> {
    let head = Head::read(state, &request, "render-")?;
    let asked = chat::parse(state, &head, Fields::new(read_object(request, state.body).await?))?;
    Ok((state.generator.prompt_tokens(&asked.raw).await?, asked.ignored))
}
