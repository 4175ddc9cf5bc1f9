//! OpenAI's error object.

use utoipa::ToSchema;

/// Every error but those of `/v1/messages` has this body; `docs/errors.md` lists them.
#[derive(ToSchema)]
pub struct ErrorAnswer {
    error: ErrorObject,
}

#[derive(ToSchema)]
pub struct ErrorObject {
    message: String,
    #[schema(example = "invalid_request_error")]
    r#type: String,
    /// The field that is wrong.
    param: Option<String>,
    #[schema(example = "invalid_value")]
    code: String,
}
