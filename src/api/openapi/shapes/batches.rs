//! `/v1/files`, `/v1/batches`, and what is kept beside them.

use std::collections::BTreeMap;

use utoipa::{IntoParams, ToSchema};

/// A form, its fields in any order.
#[derive(ToSchema)]
pub struct FileUpload {
    /// JSON Lines: `{"custom_id", "method", "url", "body"}`.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// `batch`.
    purpose: String,
    /// `created_at`.
    #[schema(rename = "expires_after[anchor]")]
    expires_after_anchor: Option<String>,
    #[schema(rename = "expires_after[seconds]", minimum = 3600, maximum = 2592000)]
    expires_after_seconds: Option<i64>,
}

#[derive(ToSchema)]
pub struct FileObject {
    id: String,
    /// `file`.
    object: String,
    bytes: i64,
    /// Unix seconds.
    created_at: i64,
    #[schema(required = true)]
    expires_at: Option<i64>,
    filename: String,
    /// `batch` or `batch_output`.
    purpose: String,
    /// `processed`.
    status: String,
    #[schema(required = true)]
    status_details: Option<String>,
}

#[derive(ToSchema)]
pub struct FileList {
    /// `list`.
    object: String,
    data: Vec<FileObject>,
    #[schema(required = true)]
    first_id: Option<String>,
    #[schema(required = true)]
    last_id: Option<String>,
    has_more: bool,
}

#[derive(ToSchema)]
pub struct FileDeleted {
    id: String,
    /// `file`.
    object: String,
    deleted: bool,
}

#[derive(ToSchema)]
pub struct BatchRequest {
    /// Of a file of the purpose `batch`.
    input_file_id: String,
    /// The route that all of its lines ask.
    endpoint: String,
    /// `24h`, or another number of `s`, `m`, `h` or `d` up to `30d`.
    completion_window: String,
    /// Up to 16 strings.
    metadata: Option<BTreeMap<String, String>>,
    output_expires_after: Option<OutputExpiry>,
}

#[derive(ToSchema)]
pub struct OutputExpiry {
    /// `created_at`.
    anchor: String,
    #[schema(minimum = 3600, maximum = 2592000)]
    seconds: i64,
}

#[derive(ToSchema)]
pub struct BatchObject {
    id: String,
    /// `batch`.
    object: String,
    endpoint: String,
    /// Of a failed one: what is wrong with its file, and in which lines.
    #[schema(required = true)]
    errors: Option<BatchErrors>,
    input_file_id: String,
    completion_window: String,
    /// `validating`, `failed`, `in_progress`, `finalizing`, `completed`, `expired`, `cancelling`, `cancelled`.
    status: String,
    #[schema(required = true)]
    output_file_id: Option<String>,
    #[schema(required = true)]
    error_file_id: Option<String>,
    /// Unix seconds, as the following.
    created_at: i64,
    #[schema(required = true)]
    in_progress_at: Option<i64>,
    expires_at: i64,
    #[schema(required = true)]
    finalizing_at: Option<i64>,
    #[schema(required = true)]
    completed_at: Option<i64>,
    #[schema(required = true)]
    failed_at: Option<i64>,
    #[schema(required = true)]
    expired_at: Option<i64>,
    #[schema(required = true)]
    cancelling_at: Option<i64>,
    #[schema(required = true)]
    cancelled_at: Option<i64>,
    request_counts: RequestCounts,
    #[schema(required = true)]
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(ToSchema)]
pub struct BatchErrors {
    /// `list`.
    object: String,
    data: Vec<BatchError>,
}

#[derive(ToSchema)]
pub struct BatchError {
    code: String,
    message: String,
    #[schema(required = true)]
    param: Option<String>,
    /// From 1.
    #[schema(required = true)]
    line: Option<i64>,
}

/// Lines whose answers are in the store.
#[derive(ToSchema)]
pub struct RequestCounts {
    total: i64,
    completed: i64,
    failed: i64,
}

#[derive(ToSchema)]
pub struct BatchList {
    /// `list`.
    object: String,
    data: Vec<BatchObject>,
    #[schema(required = true)]
    first_id: Option<String>,
    #[schema(required = true)]
    last_id: Option<String>,
    has_more: bool,
}

/// Changes by the operator, newest first.
#[derive(ToSchema)]
pub struct AuditList {
    /// `list`.
    object: String,
    data: Vec<AuditChange>,
    #[schema(required = true)]
    first_id: Option<String>,
    #[schema(required = true)]
    last_id: Option<String>,
    has_more: bool,
}

#[derive(ToSchema)]
pub struct AuditChange {
    id: String,
    /// Unix seconds.
    at: f64,
    /// An address, and the name that a tool gave itself.
    who: String,
    what: String,
    from: String,
    to: String,
}

/// Which part of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ListPart {
    /// The id of the last one that is known.
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilePart {
    purpose: Option<String>,
    /// `asc` or `desc`, the default.
    order: Option<String>,
}
