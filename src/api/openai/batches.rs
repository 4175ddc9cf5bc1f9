//! `/v1/batches`: create, list, look, cancel. Who runs them is `jobs`; what happens here is written down and told to it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State as Extract};
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use super::files::expiry_seconds;
use crate::api::Front;
use crate::api::access::Owner;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::pipeline::lists::{self, ListPage, ListPart, Query};
use crate::api::pipeline::params::{Fields, wrong};
use forebay_core::request::RequestError;
use forebay_store::jobs::{self, ROUTES};
use forebay_store::{Batch, BatchStatus, NewBatch};

type Answer<T> = Result<Json<T>, ApiError>;

/// As OpenAI has them.
const DEFAULT_LISTED: usize = 20;
const MOST_LISTED: usize = 100;
const MAX_PAIRS: usize = 16;
const MAX_KEY_CHARS: usize = 64;
const MAX_VALUE_CHARS: usize = 512;

/// Begins a batch over an uploaded file.
#[utoipa::path(post, path = "/v1/batches", operation_id = "create_batch", tag = "openai", request_body = BatchRequest, responses((status = 200, description = "The batch, which is validated next", body = BatchObject)))]
pub async fn create(Extract(state): Extract<Front>, owner: Owner, request: Request) -> Answer<BatchObject> {
    let mut asked = parse(Fields::new(read_object(request, state.body).await?), state.clock.unix_millis())?;
    asked.owner = owner.0.clone();
    let input = state.store.file(&asked.input_file_id, asked.created_ms).await.map_err(RequestError::from)?;
    match input.filter(|file| owner.sees(file.owner.as_deref())) {
        Some(file) if file.purpose == "batch" => {}
        Some(_) => return Err(RequestError::invalid("input_file_id", "is a file of another purpose than batch").into()),
        None => return Err(RequestError::invalid("input_file_id", "is the id of no file").into()),
    }
    state.store.create_batch(&asked).await.map_err(RequestError::from)?;
    // As it was made: once woken, the runner changes it.
    let batch = find(&state, &owner, &asked.id).await?;
    state.batches.notify_one();
    Ok(Json(BatchObject::of(batch)))
}

fn parse(mut fields: Fields, now: i64) -> Result<NewBatch, RequestError> {
    let required = |name: &str, value: Option<String>| value.ok_or_else(|| RequestError::invalid(name, "is required"));
    let input_file_id = required("input_file_id", fields.string("input_file_id")?)?;
    let endpoint = required("endpoint", fields.string("endpoint")?)?;
    if !ROUTES.contains(&endpoint.as_str()) {
        return Err(RequestError::invalid("endpoint", format!("must be one of {}", ROUTES.join(", "))));
    }
    let completion_window = required("completion_window", fields.string("completion_window")?)?;
    let window = jobs::window_ms(&completion_window).ok_or_else(|| {
        RequestError::invalid("completion_window", "must be 24h, or another number of s, m, h or d up to 30d")
    })?;
    let metadata = fields.take("metadata").map(metadata).transpose()?;
    let output_expires_s = fields.object("output_expires_after")?.map(output_expiry).transpose()?;
    if let Some(name) = fields.into_rest().keys().next() {
        let param = name.chars().take(64).collect();
        return Err(RequestError::Unsupported { param, message: "it has no meaning for a batch".into() });
    }
    Ok(NewBatch {
        id: format!("batch_{}", Uuid::new_v4().simple()),
        created_ms: now,
        endpoint,
        owner: None,
        input_file_id,
        completion_window,
        expires_ms: now + window,
        output_expires_s,
        metadata,
    })
}

fn output_expiry(mut fields: Fields) -> Result<i64, RequestError> {
    if fields.string("anchor")?.as_deref() != Some("created_at") {
        return Err(RequestError::invalid("output_expires_after.anchor", "must be created_at"));
    }
    let seconds = fields.integer("seconds")?;
    let seconds = seconds.ok_or_else(|| RequestError::invalid("output_expires_after.seconds", "is required"))?;
    expiry_seconds("output_expires_after.seconds", seconds)
}

fn metadata(value: Value) -> Result<String, RequestError> {
    let Value::Object(pairs) = value else { return Err(wrong("metadata", "an object of strings", &value)) };
    if pairs.len() > MAX_PAIRS {
        return Err(RequestError::invalid("metadata", format!("must have at most {MAX_PAIRS} pairs")));
    }
    for (key, value) in &pairs {
        let Some(text) = value.as_str() else { return Err(wrong("metadata", "an object of strings", value)) };
        if key.chars().count() > MAX_KEY_CHARS || text.chars().count() > MAX_VALUE_CHARS {
            let message =
                format!("has keys of at most {MAX_KEY_CHARS} characters and values of at most {MAX_VALUE_CHARS}");
            return Err(RequestError::invalid("metadata", message));
        }
        if key.contains('\0') || text.contains('\0') {
            return Err(RequestError::invalid("metadata", "must not contain NUL"));
        }
    }
    Ok(Value::Object(pairs).to_string())
}

/// The batches, newest first.
#[utoipa::path(get, path = "/v1/batches", operation_id = "batches", tag = "openai", params(ListPart), responses((status = 200, description = "A part of the list", body = ListPage<BatchObject>)))]
pub async fn list(Extract(state): Extract<Front>, Owner(owner): Owner, uri: Uri) -> Answer<ListPage<BatchObject>> {
    let mut query = Query::of(&uri)?;
    let paging = query.paging(DEFAULT_LISTED, MOST_LISTED)?;
    query.finish()?;
    let page = state.store.batches(&paging, owner.as_deref()).await.map_err(RequestError::from)?;
    Ok(Json(ListPage::of(page, |batch| &batch.id, BatchObject::of)?))
}

/// A batch: how far it is, and its files once it is over.
#[utoipa::path(get, path = "/v1/batches/{id}", operation_id = "batch", tag = "openai", params(("id" = String, Path)), responses((status = 200, description = "The batch", body = BatchObject)))]
pub async fn one(
    Extract(state): Extract<Front>,
    owner: Owner,
    path: Result<Path<String>, PathRejection>,
) -> Answer<BatchObject> {
    Ok(Json(BatchObject::of(find(&state, &owner, &lists::id("batch", "batch_", path)?).await?)))
}

/// Lines that are being answered end; those that were answered keep their answers.
#[utoipa::path(post, path = "/v1/batches/{id}/cancel", operation_id = "cancel_batch", tag = "openai", params(("id" = String, Path)), responses((status = 200, description = "The batch", body = BatchObject)))]
pub async fn cancel(
    Extract(state): Extract<Front>,
    owner: Owner,
    path: Result<Path<String>, PathRejection>,
) -> Answer<BatchObject> {
    let id = lists::id("batch", "batch_", path)?;
    find(&state, &owner, &id).await?;
    let moved = state.store.cancel_batch(&id, state.clock.unix_millis()).await.map_err(RequestError::from)?;
    let batch = find(&state, &owner, &id).await?;
    state.batches.notify_one();
    if !moved && !matches!(batch.status, BatchStatus::Cancelling | BatchStatus::Cancelled) {
        let message = format!("cannot be cancelled: it is {}", batch.status.name());
        return Err(RequestError::invalid("batch_id", message).into());
    }
    Ok(Json(BatchObject::of(batch)))
}

async fn find(state: &Front, owner: &Owner, id: &str) -> Result<Batch, RequestError> {
    let batch = state.store.batch(id).await?;
    batch.filter(|batch| owner.sees(batch.owner.as_deref())).ok_or_else(|| lists::missing("batch", id))
}

#[expect(dead_code, reason = "it describes what `parse` takes apart, and is never made")]
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

#[expect(dead_code, reason = "it describes what `output_expiry` takes apart, and is never made")]
#[derive(ToSchema)]
pub struct OutputExpiry {
    /// `created_at`.
    anchor: String,
    #[schema(minimum = 3600, maximum = 2592000)]
    seconds: i64,
}

#[derive(Serialize, ToSchema)]
pub struct BatchObject {
    id: String,
    /// `batch`.
    object: &'static str,
    endpoint: String,
    /// Of a failed one: what is wrong with its file, and in which lines.
    #[schema(required = true)]
    errors: Option<BatchErrors>,
    input_file_id: String,
    completion_window: String,
    /// `validating`, `failed`, `in_progress`, `finalizing`, `completed`, `expired`, `cancelling`, `cancelled`.
    status: &'static str,
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
    /// As the client sent it.
    #[schema(required = true, value_type = Option<BTreeMap<String, String>>)]
    metadata: Option<Map<String, Value>>,
}

/// As the store keeps it.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct BatchErrors {
    /// `list`.
    object: String,
    data: Vec<BatchError>,
}

#[derive(Serialize, Deserialize, ToSchema)]
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
#[derive(Serialize, ToSchema)]
pub struct RequestCounts {
    total: i64,
    completed: i64,
    failed: i64,
}

impl BatchObject {
    fn of(batch: Batch) -> BatchObject {
        let seconds = |ms: Option<i64>| ms.map(|ms| ms / 1_000);
        BatchObject {
            id: batch.id,
            object: "batch",
            endpoint: batch.endpoint,
            // Errors and metadata were written by ourselves.
            errors: batch.errors.and_then(|text| serde_json::from_str(&text).ok()),
            input_file_id: batch.input_file_id,
            completion_window: batch.completion_window,
            status: batch.status.name(),
            output_file_id: batch.output_file_id,
            error_file_id: batch.error_file_id,
            created_at: batch.created_ms / 1_000,
            in_progress_at: seconds(batch.in_progress_ms),
            expires_at: batch.expires_ms / 1_000,
            finalizing_at: seconds(batch.finalizing_ms),
            completed_at: seconds(batch.completed_ms),
            failed_at: seconds(batch.failed_ms),
            expired_at: seconds(batch.expired_ms),
            cancelling_at: seconds(batch.cancelling_ms),
            cancelled_at: seconds(batch.cancelled_ms),
            request_counts: RequestCounts { total: batch.total, completed: batch.completed, failed: batch.failed },
            metadata: batch.metadata.and_then(|text| serde_json::from_str(&text).ok()),
        }
    }
}
