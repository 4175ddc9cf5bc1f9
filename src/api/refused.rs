//! Errors that layers and fallbacks answer with, in the shape that the clients of the path know.

use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};

use crate::api::anthropic::error::MessagesError;
use crate::api::error::ApiError;
use forebay_core::request::RequestError;

pub async fn no_route(request: Request) -> Response {
    const SHOWN: usize = 200;
    let path = request.uri().path();
    refused(path, RequestError::RouteNotFound { path: path.chars().take(SHOWN).collect() })
}

pub async fn no_method(method: Method, uri: Uri) -> Response {
    refused(uri.path(), RequestError::MethodNotAllowed { method: method.as_str().chars().take(20).collect() })
}

/// An error in the shape that the path's clients know.
pub fn refused(path: &str, error: RequestError) -> Response {
    let messages = path.strip_prefix("/v1").unwrap_or(path).strip_prefix("/messages");
    match messages {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => MessagesError(error).into_response(),
        _ => ApiError(error).into_response(),
    }
}
