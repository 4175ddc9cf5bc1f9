//! Every error's face: status, OpenAI error object, headers, for JSON bodies and SSE frames alike.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use forebay_core::request::RequestError;

/// How a client meets an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Face {
    pub status: StatusCode,
    /// OpenAI's `type`.
    pub kind: &'static str,
    pub code: &'static str,
    pub param: Option<String>,
    /// Seconds, 1 to 60: the SDKs ignore more.
    pub retry_after_s: Option<u32>,
    /// `x-should-retry: false`, for errors that the SDKs would retry by their status.
    pub never_retry: bool,
    /// Unread bytes of the body may follow, so the connection cannot be used again.
    pub close: bool,
    /// `WWW-Authenticate: Bearer`.
    pub challenge: bool,
}

/// Whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    Never,
    Later,
    /// After the seconds of `Retry-After`.
    After,
}

/// Another replica takes over, or a loop is begun again, within seconds.
const GONE_S: u32 = 5;
/// A queue that nobody emptied in time does not empty at once.
const BUSY_S: u32 = 10;

const INVALID: &str = "invalid_request_error";

impl Face {
    fn new(status: StatusCode, kind: &'static str, code: &'static str) -> Face {
        Face {
            status,
            kind,
            code,
            param: None,
            retry_after_s: None,
            never_retry: false,
            close: false,
            challenge: false,
        }
    }

    fn bad_request(code: &'static str) -> Face {
        Face::new(StatusCode::BAD_REQUEST, INVALID, code)
    }

    fn server_error(code: &'static str) -> Face {
        Face::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", code)
    }

    fn overloaded(code: &'static str) -> Face {
        Face::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded_error", code)
    }

    pub fn retry(&self) -> Retry {
        let transient = self.status.is_server_error() || matches!(self.status.as_u16(), 408 | 429);
        match (self.retry_after_s, transient && !self.never_retry) {
            (Some(_), _) => Retry::After,
            (None, true) => Retry::Later,
            (None, false) => Retry::Never,
        }
    }

    fn about(self, param: &str) -> Face {
        Face { param: Some(param.to_owned()), ..self }
    }

    fn never_retry(self) -> Face {
        Face { never_retry: true, ..self }
    }

    fn challenge(self) -> Face {
        Face { challenge: true, ..self }
    }

    fn close(self) -> Face {
        Face { close: true, ..self }
    }
}

/// The table.
pub fn face(error: &RequestError) -> Face {
    use RequestError as E;
    match error {
        E::InvalidJson { .. } => Face::bad_request("invalid_json"),
        E::InvalidValue { param, .. } => Face::bad_request("invalid_value").about(param),
        E::Unsupported { param, .. } => Face::bad_request("unsupported_parameter").about(param),
        E::GrammarTooComplex { param, .. } => Face::bad_request("grammar_too_complex").about(param),
        E::GrammarBusy { retry_after_s } => {
            Face { retry_after_s: Some((*retry_after_s).clamp(1, 60)), ..Face::overloaded("compiler_busy") }
        }
        E::Unauthorized { .. } => {
            Face::new(StatusCode::UNAUTHORIZED, "authentication_error", "invalid_api_key").challenge()
        }
        E::RateLimited { retry_after_ms, .. } => Face {
            retry_after_s: Some(retry_after_ms.div_ceil(1_000).clamp(1, 60) as u32),
            ..Face::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "rate_limit_exceeded")
        },
        // Until the month ends, or somebody raises the limit.
        E::QuotaExceeded { .. } => {
            Face::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "insufficient_quota").never_retry()
        }
        E::LedgerFull => Face { retry_after_s: Some(GONE_S), ..Face::overloaded("ledger_full") },
        E::EmptyPrompt => Face::bad_request("empty_prompt").about("prompt"),
        E::ContextLength { .. } | E::PromptLength { .. } => Face::bad_request("context_length_exceeded"),
        E::OnlyEmbeds => Face::bad_request("model_only_embeds").about("model"),
        E::Template { .. } => Face::bad_request("invalid_value").about("messages"),
        E::TemplateLimit { .. } => Face::bad_request("template_limit").about("messages"),
        E::ModelNotFound { .. } => {
            Face::new(StatusCode::NOT_FOUND, "not_found_error", "model_not_found").about("model")
        }
        E::RouteNotFound { .. } => Face::new(StatusCode::NOT_FOUND, "not_found_error", "not_found"),
        E::Misdirected { .. } => Face::new(StatusCode::MISDIRECTED_REQUEST, INVALID, "misdirected_request"),
        E::Forbidden { .. } => Face::new(StatusCode::FORBIDDEN, "permission_error", "forbidden"),
        E::MethodNotAllowed { .. } => Face::new(StatusCode::METHOD_NOT_ALLOWED, INVALID, "method_not_allowed"),
        E::BodyTooLarge { .. } => Face::new(StatusCode::PAYLOAD_TOO_LARGE, INVALID, "body_too_large").close(),
        E::BodyTimeout { .. } => {
            Face::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", "timeout").never_retry().close()
        }
        E::UnsupportedMediaType | E::UnsupportedEncoding | E::NotMultipart => {
            Face::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID, "unsupported_media_type").close()
        }
        E::QueueFull { retry_after_s, .. } => Face {
            retry_after_s: Some((*retry_after_s).clamp(1, 60)),
            ..Face::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "queue_full")
        },
        E::PromiseUnreachable { retry_after_s, .. } => Face {
            retry_after_s: Some((*retry_after_s).clamp(1, 60)),
            ..Face::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "promise_unreachable")
        },
        E::Timeout { .. } | E::DeadlineUnreachable { .. } => {
            Face::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", "timeout").never_retry()
        }
        E::BatchTimeout { .. } => Face {
            retry_after_s: Some(BUSY_S),
            ..Face::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", "batch_timeout")
        },
        E::ThermalLimit { retry_after_s } => {
            Face { retry_after_s: Some((*retry_after_s).clamp(1, 60)), ..Face::overloaded("thermal_limit") }
        }
        E::UnknownName { .. } => Face::new(StatusCode::NOT_FOUND, "not_found_error", "not_found"),
        E::NotFound { .. } => Face::new(StatusCode::NOT_FOUND, "not_found_error", "not_found"),
        // More room is the operator's to give, and does not come by asking again.
        E::StoreFull => {
            Face::new(StatusCode::INSUFFICIENT_STORAGE, "server_error", "insufficient_storage").never_retry()
        }
        E::StoreBusy => Face::overloaded("store_busy"),
        E::StoreUnavailable => Face::overloaded("store_unavailable"),
        E::ModelLoading => Face { retry_after_s: Some(GONE_S), ..Face::overloaded("model_loading") },
        E::EngineStalled { .. } => Face { retry_after_s: Some(GONE_S), ..Face::overloaded("engine_stalled") },
        E::ShuttingDown => Face { retry_after_s: Some(GONE_S), ..Face::overloaded("shutting_down") },
        E::EngineStopped => Face { retry_after_s: Some(GONE_S), ..Face::overloaded("worker_unavailable") },
        E::CircuitOpen { retry_after_s } => {
            Face { retry_after_s: Some((*retry_after_s).clamp(1, 60)), ..Face::overloaded("circuit_open") }
        }
        E::Aborted => Face::server_error("aborted").never_retry(),
        E::Configuration { .. } => Face::bad_request("invalid_configuration"),
        E::StreamEnded { .. } => Face::bad_request("stream_ended"),
        E::NonFiniteLogits => Face::server_error("non_finite_logits").never_retry(),
        // The client's grammar asked for too much, and would again.
        E::Grammar { .. } => Face::bad_request("grammar_failed"),
        E::StepFailed => Face::server_error("step_failed"),
        // What others hold is given back as they end.
        E::OutOfMemory => Face { retry_after_s: Some(GONE_S), ..Face::overloaded("out_of_memory") },
        E::Internal => Face::server_error("internal_error"),
    }
}

/// Every error but those of `/v1/messages` has this body; `docs/errors.md` lists them.
#[derive(Serialize, ToSchema)]
pub struct ErrorAnswer {
    pub error: ErrorObject,
}

/// OpenAI's error object.
#[derive(Serialize, ToSchema)]
pub struct ErrorObject {
    message: String,
    #[schema(example = "invalid_request_error")]
    r#type: &'static str,
    /// The field that is wrong.
    param: Option<String>,
    #[schema(example = "invalid_value")]
    code: &'static str,
}

/// The body of an error response and of an error frame in a stream.
pub fn object(error: &RequestError) -> ErrorAnswer {
    let Face { kind, param, code, .. } = face(error);
    ErrorAnswer { error: ErrorObject { message: error.to_string(), r#type: kind, param, code } }
}

/// The code of an error response, for the layer that counts them.
#[derive(Clone, Copy, Debug)]
pub struct ErrorCode(pub &'static str);

/// A [`RequestError`] as what a handler returns.
#[derive(Debug, PartialEq)]
pub struct ApiError(pub RequestError);

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> ApiError {
        ApiError(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        respond(&self.0, object(&self.0))
    }
}

/// The answer to a request that failed: what the table says, around `body`.
pub fn respond(error: &RequestError, body: impl Serialize) -> Response {
    let face = face(error);
    let mut response = (face.status, axum::Json(body)).into_response();
    let headers = response.headers_mut();
    if let Some(seconds) = face.retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if face.never_retry {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    if face.challenge {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if face.close {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response.extensions_mut().insert(ErrorCode(face.code));
    response
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn all() -> Vec<(RequestError, u16, &'static str)> {
        use RequestError as E;
        let text = || "x".to_owned();
        vec![
            (E::InvalidJson { message: text() }, 400, "invalid_json"),
            (E::invalid("n", "x"), 400, "invalid_value"),
            (E::Unsupported { param: text(), message: text() }, 400, "unsupported_parameter"),
            (E::Unauthorized { why: "no key" }, 401, "invalid_api_key"),
            (E::RateLimited { what: "x", limit: 8, retry_after_ms: 8 }, 429, "rate_limit_exceeded"),
            (E::QuotaExceeded { used: 9, limit: 8 }, 429, "insufficient_quota"),
            (E::LedgerFull, 503, "ledger_full"),
            (E::EmptyPrompt, 400, "empty_prompt"),
            (E::ContextLength { prompt: 9, limit: 8 }, 400, "context_length_exceeded"),
            (E::PromptLength { prompt: 9, limit: 8 }, 400, "context_length_exceeded"),
            (E::OnlyEmbeds, 400, "model_only_embeds"),
            (E::Template { message: text() }, 400, "invalid_value"),
            (E::TemplateLimit { message: text() }, 400, "template_limit"),
            (E::GrammarTooComplex { param: text(), message: text() }, 400, "grammar_too_complex"),
            (E::GrammarBusy { retry_after_s: 2 }, 503, "compiler_busy"),
            (E::ModelNotFound { model: text() }, 404, "model_not_found"),
            (E::RouteNotFound { path: text() }, 404, "not_found"),
            (E::Misdirected { host: text() }, 421, "misdirected_request"),
            (E::Forbidden { message: text() }, 403, "forbidden"),
            (E::MethodNotAllowed { method: text() }, 405, "method_not_allowed"),
            (E::BodyTooLarge { limit: 8 }, 413, "body_too_large"),
            (E::BodyTimeout { seconds: 8 }, 408, "timeout"),
            (E::UnsupportedMediaType, 415, "unsupported_media_type"),
            (E::UnsupportedEncoding, 415, "unsupported_media_type"),
            (E::QueueFull { capacity: 8, retry_after_s: 7 }, 429, "queue_full"),
            (E::Timeout { after_ms: 8 }, 408, "timeout"),
            (E::DeadlineUnreachable { after_ms: 8, predicted_ms: 9 }, 408, "timeout"),
            (E::PromiseUnreachable { promised_ms: 8, predicted_ms: 9, retry_after_s: 7 }, 429, "promise_unreachable"),
            (E::BatchTimeout { waited_ms: 8 }, 504, "batch_timeout"),
            (E::ThermalLimit { retry_after_s: 8 }, 503, "thermal_limit"),
            (E::UnknownName { what: "policy", name: text(), valid: text() }, 404, "not_found"),
            (E::NotFound { what: "file", id: text() }, 404, "not_found"),
            (E::NotMultipart, 415, "unsupported_media_type"),
            (E::StoreFull, 507, "insufficient_storage"),
            (E::StoreBusy, 503, "store_busy"),
            (E::StoreUnavailable, 503, "store_unavailable"),
            (E::ModelLoading, 503, "model_loading"),
            (E::EngineStalled { seconds: 60 }, 503, "engine_stalled"),
            (E::ShuttingDown, 503, "shutting_down"),
            (E::EngineStopped, 503, "worker_unavailable"),
            (E::CircuitOpen { retry_after_s: 8 }, 503, "circuit_open"),
            (E::Aborted, 500, "aborted"),
            (E::Configuration { message: text() }, 400, "invalid_configuration"),
            (E::StreamEnded { why: "it was deleted" }, 400, "stream_ended"),
            (E::NonFiniteLogits, 500, "non_finite_logits"),
            (E::Grammar { message: text() }, 400, "grammar_failed"),
            (E::StepFailed, 500, "step_failed"),
            (E::OutOfMemory, 503, "out_of_memory"),
            (E::Internal, 500, "internal_error"),
        ]
    }

    #[tokio::test]
    async fn every_variant_has_its_status_and_the_openai_object() {
        for (error, status, code) in all() {
            let message = error.to_string();
            let face = face(&error);
            let response = ApiError(error).into_response();
            assert_eq!(response.status(), status, "{message}");
            assert_eq!(response.headers()["content-type"], "application/json");
            assert_eq!(
                response.headers().contains_key("retry-after"),
                matches!(status, 429 | 503 | 504)
                    && !["store_busy", "store_unavailable", "insufficient_quota"].contains(&code),
                "{message}"
            );
            // Both SDKs retry 408, 429 and all of 500 and above unless told otherwise.
            assert_eq!(response.headers().contains_key("x-should-retry"), face.never_retry);
            let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let object = body["error"].as_object().unwrap();
            assert_eq!(object.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"]);
            assert_eq!((&body["error"]["message"], &body["error"]["code"]), (&json!(message), &json!(code)));
        }
    }

    #[test]
    fn the_type_follows_from_the_status() {
        for (error, status, _) in all() {
            let kind = match status {
                400 | 405 | 413 | 415 | 421 => INVALID,
                401 => "authentication_error",
                403 => "permission_error",
                404 => "not_found_error",
                408 | 504 => "timeout_error",
                429 => "rate_limit_error",
                503 => "overloaded_error",
                _ => "server_error",
            };
            assert_eq!(face(&error).kind, kind, "{error}");
        }
    }

    #[test]
    fn retry_after_stays_within_what_the_sdks_obey() {
        for (asked, told) in [(0, 1), (7, 7), (500, 60)] {
            assert_eq!(face(&RequestError::QueueFull { capacity: 1, retry_after_s: asked }).retry_after_s, Some(told));
        }
    }
}
