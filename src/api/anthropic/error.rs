//! Anthropic's error object, of the same table of errors.

use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::error::{face, respond};
use forebay_core::request::RequestError;

/// Every error of these routes.
#[derive(Serialize, ToSchema)]
pub struct MessageErrorAnswer {
    /// `error`.
    r#type: &'static str,
    error: MessageErrorObject,
}

#[derive(Serialize, ToSchema)]
pub struct MessageErrorObject {
    #[schema(example = "invalid_request_error")]
    r#type: &'static str,
    message: String,
}

impl MessageErrorAnswer {
    /// The body of an error, and the data of an error's event.
    pub fn of(error: &RequestError) -> MessageErrorAnswer {
        MessageErrorAnswer { r#type: "error", error: MessageErrorObject::of(error) }
    }
}

impl MessageErrorObject {
    pub fn of(error: &RequestError) -> MessageErrorObject {
        MessageErrorObject { r#type: kind(error), message: error.to_string() }
    }
}

/// Anthropic's `type`, by status.
fn kind(error: &RequestError) -> &'static str {
    match face(error).status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        408 | 504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// A [`RequestError`] as what a handler of these routes returns: the same status and headers as anywhere, another body.
#[derive(Debug, PartialEq)]
pub struct MessagesError(pub RequestError);

impl From<RequestError> for MessagesError {
    fn from(error: RequestError) -> MessagesError {
        MessagesError(error)
    }
}

impl IntoResponse for MessagesError {
    fn into_response(self) -> Response {
        respond(&self.0, MessageErrorAnswer::of(&self.0))
    }
}
