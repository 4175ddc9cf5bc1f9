//! `GET /v1/stream/{id}?from=N` and `DELETE /v1/stream/{id}`: a stream that was begun with `X-Conversation-Id`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Extract};
use axum::http::{StatusCode, Uri};
use axum::response::Response;

use crate::api::access::Owner;
use crate::api::error::ApiError;
use crate::api::pipeline::request_headers::ReadFrom;
use crate::api::{State, sse};
use forebay_core::request::RequestError;

/// Reads a stream again that was begun with `x-conversation-id`, from any of its payloads.
#[utoipa::path(get, path = "/v1/stream/{id}", operation_id = "read_stream", tag = "openai", params(("id" = String, Path), ReadFrom), responses((status = 200, description = "The stream", body = String, content_type = "text/event-stream")))]
pub async fn read(
    Extract(state): Extract<State>,
    owner: Owner,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = id.map(|Path(id)| id).unwrap_or_default();
    Ok(sse::response(state.replays.read(&owner.own(&id), from(&uri)?, state.clock.now())?))
}

/// Ends and forgets such a stream.
#[utoipa::path(delete, path = "/v1/stream/{id}", operation_id = "delete_stream", tag = "openai", params(("id" = String, Path)), responses((status = 204, description = "It is gone")))]
pub async fn delete(
    Extract(state): Extract<State>,
    owner: Owner,
    id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    let id = id.map(|Path(id)| id).unwrap_or_default();
    state.replays.delete(&owner.own(&id), state.clock.now())?;
    Ok(StatusCode::NO_CONTENT)
}

/// The number of the first payload that is wanted.
fn from(uri: &Uri) -> Result<u64, RequestError> {
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    match pairs.filter(|(name, _)| *name == "from").map(|(_, value)| value).next() {
        None => Ok(0),
        Some(number) => number.parse().map_err(|_| RequestError::invalid("from", "must be a number from 0 on")),
    }
}
