//! `/v1/files`: upload, list, look, read, delete.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Multipart, Path, Request, State as Extract};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::api::Front;
use crate::api::access::Owner;
use crate::api::error::{ApiError, ErrorAnswer};
use crate::api::pipeline::lists::{self, ListPage, ListPart, Query};
use forebay_core::request::RequestError;
use forebay_store::jobs::{LineFault, LineReader};
use forebay_store::{self as store, FileQuery, NewFile, Store};

type Answer<T> = Result<Json<T>, ApiError>;

/// As OpenAI has it.
const MOST_LISTED: usize = 10_000;
/// Of a field that is no file.
const MAX_FIELD_BYTES: usize = 1_024;
const MAX_NAME_CHARS: usize = 255;
/// A part of a file in the store, unless a single line is longer.
const PART_BYTES: usize = 256 << 10;

/// Takes a file of lines for a batch, checked as it comes.
#[utoipa::path(post, path = "/v1/files", operation_id = "upload_file", tag = "openai", request_body(content = FileUpload, content_type = "multipart/form-data"), responses((status = 200, description = "The file", body = FileObject), (status = 507, description = "The store is full", body = ErrorAnswer)))]
pub async fn upload(Extract(state): Extract<Front>, owner: Owner, request: Request) -> Answer<FileObject> {
    // Says only what is wrong with the content type.
    let form = Multipart::from_request(request, &()).await.map_err(|_| RequestError::NotMultipart)?;
    let draft = Draft { store: state.store.clone(), id: new_id(), kept: false };
    let id = draft.id.clone();
    match receive(&state, form, &id, &owner).await {
        Ok(()) => draft.keep(),
        Err(error) => {
            draft.discard().await;
            return Err(error.into());
        }
    }
    Ok(Json(FileObject::of(find(&state, &owner, &id).await?)))
}

/// An upload under way. Dropped, since its client left, its parts go.
struct Draft {
    store: Store,
    id: String,
    kept: bool,
}

impl Draft {
    fn keep(mut self) {
        self.kept = true;
    }

    async fn discard(mut self) {
        self.kept = true;
        // What cannot be deleted now is swept later.
        let _ = self.store.delete_file(&self.id).await;
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            let (store, id) = (self.store.clone(), std::mem::take(&mut self.id));
            tokio::spawn(async move { store.delete_file(&id).await });
        }
    }
}

/// What a form said, in whatever order.
#[derive(Default)]
struct Form {
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
    bytes: Option<i64>,
}

async fn receive(state: &Front, mut form: Multipart, id: &str, owner: &Owner) -> Result<(), RequestError> {
    let mut said = Form::default();
    while let Some(field) = patiently(state, form.next_field()).await? {
        let name = field.name().unwrap_or_default().to_owned();
        let slot = match name.as_str() {
            "file" if said.bytes.is_none() => {
                said.bytes = Some(receive_file(state, field, id, owner).await?);
                continue;
            }
            "purpose" => &mut said.purpose,
            "expires_after[anchor]" => &mut said.anchor,
            "expires_after[seconds]" => &mut said.seconds,
            "file" => return Err(RequestError::invalid("file", "was given twice")),
            other => {
                let param = other.chars().take(64).collect();
                return Err(RequestError::Unsupported { param, message: "it is no field of an upload".into() });
            }
        };
        if slot.replace(text(state, &name, field).await?).is_some() {
            return Err(RequestError::invalid(name, "was given twice"));
        }
    }
    let now = state.clock.unix_millis();
    let bytes = said.bytes.ok_or_else(|| RequestError::invalid("file", "is required"))?;
    match said.purpose.as_deref() {
        Some("batch") => {}
        None => return Err(RequestError::invalid("purpose", "is required")),
        Some(_) => return Err(RequestError::invalid("purpose", "must be batch: other files have no use here")),
    }
    let expires = expires_ms(said.anchor, said.seconds, now)?;
    Ok(state.store.finish_file(id, "batch", bytes, expires).await?)
}

fn expires_ms(anchor: Option<String>, seconds: Option<String>, now: i64) -> Result<Option<i64>, RequestError> {
    let Some(seconds) = seconds else {
        return match anchor {
            None => Ok(None),
            Some(_) => Err(RequestError::invalid("expires_after[seconds]", "is required beside the anchor")),
        };
    };
    if anchor.as_deref() != Some("created_at") {
        return Err(RequestError::invalid("expires_after[anchor]", "must be created_at"));
    }
    let seconds = seconds.parse().map_err(|_| RequestError::invalid("expires_after[seconds]", "must be an integer"))?;
    Ok(Some(now + 1_000 * expiry_seconds("expires_after[seconds]", seconds)?))
}

/// An hour to 30 days, as OpenAI has it.
pub fn expiry_seconds(param: &str, seconds: i64) -> Result<i64, RequestError> {
    if (3_600..=2_592_000).contains(&seconds) {
        return Ok(seconds);
    }
    Err(RequestError::invalid(param, format!("must be between 3600 and 2592000, got {seconds}")))
}

async fn text(state: &Front, name: &str, mut field: Field<'_>) -> Result<String, RequestError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = patiently(state, field.chunk()).await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_FIELD_BYTES {
            return Err(RequestError::invalid(name, format!("must have at most {MAX_FIELD_BYTES} bytes")));
        }
    }
    String::from_utf8(bytes).map_err(|_| RequestError::invalid(name, "must be UTF-8"))
}

/// Puts the file into the store as it comes; returns its bytes.
async fn receive_file(state: &Front, mut field: Field<'_>, id: &str, owner: &Owner) -> Result<i64, RequestError> {
    let label = field.file_name().unwrap_or("file.jsonl");
    let filename: String = label.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    let file = NewFile { id: id.into(), created_ms: state.clock.unix_millis(), filename, owner: owner.0.clone() };
    state.store.begin_file(&file).await?;
    let mut reader = LineReader::new(state.body.max_bytes);
    let (mut bytes, mut part, mut ready) = (0, 0, String::new());
    while let Some(chunk) = patiently(state, field.chunk()).await? {
        bytes += chunk.len();
        if bytes > state.max_file_bytes {
            return Err(RequestError::BodyTooLarge { limit: state.max_file_bytes });
        }
        ready.push_str(&reader.push(&chunk).map_err(refused)?);
        if ready.len() >= PART_BYTES {
            state.store.add_part(id, part, &ready).await?;
            part += 1;
            ready.clear();
        }
    }
    ready.push_str(&reader.finish().map_err(refused)?);
    state.store.add_part(id, part, &ready).await?;
    Ok(bytes as i64)
}

fn refused(fault: LineFault) -> RequestError {
    RequestError::invalid("file", fault.to_string())
}

/// A client may be slow, but not silent.
async fn patiently<T>(state: &Front, next: impl Future<Output = Result<T, MultipartError>>) -> Result<T, RequestError> {
    let patience = state.body.read_timeout;
    match timeout(patience, next).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(RequestError::BodyTooLarge { limit: state.max_file_bytes })
        }
        Ok(Err(_)) => Err(RequestError::invalid("body", "is no whole form")),
        Err(_) => Err(RequestError::BodyTimeout { seconds: patience.as_secs() }),
    }
}

/// The files, newest first.
#[utoipa::path(get, path = "/v1/files", operation_id = "files", tag = "openai", params(ListPart, FilePart), responses((status = 200, description = "A part of the list", body = ListPage<FileObject>)))]
pub async fn list(Extract(state): Extract<Front>, Owner(owner): Owner, uri: Uri) -> Answer<ListPage<FileObject>> {
    let mut query = Query::of(&uri)?;
    let paging = query.paging(MOST_LISTED, MOST_LISTED)?;
    let oldest_first = match query.take("order").as_deref() {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(RequestError::invalid("order", "must be asc or desc").into()),
    };
    let purpose = query.take("purpose");
    query.finish()?;
    let now_ms = state.clock.unix_millis();
    let page = state
        .store
        .files(&FileQuery { paging, oldest_first, purpose, owner, now_ms })
        .await
        .map_err(RequestError::from)?;
    Ok(Json(ListPage::of(page, |file| &file.id, FileObject::of)?))
}

/// A file, without its content.
#[utoipa::path(get, path = "/v1/files/{id}", operation_id = "file", tag = "openai", params(("id" = String, Path)), responses((status = 200, description = "The file", body = FileObject)))]
pub async fn one(
    Extract(state): Extract<Front>,
    owner: Owner,
    path: Result<Path<String>, PathRejection>,
) -> Answer<FileObject> {
    let id = lists::id("file", "file-", path)?;
    Ok(Json(FileObject::of(find(&state, &owner, &id).await?)))
}

/// A file's content.
#[utoipa::path(get, path = "/v1/files/{id}/content", operation_id = "file_content", tag = "openai", params(("id" = String, Path)), responses((status = 200, description = "Its lines", body = String, content_type = "application/jsonl")))]
pub async fn content(
    Extract(state): Extract<Front>,
    owner: Owner,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let file = find(&state, &owner, &lists::id("file", "file-", path)?).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl".to_owned()),
        (header::CONTENT_LENGTH, file.bytes.to_string()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    let parts = unfold((state.store.clone(), file, -1), |(store, file, at)| async move {
        match store.part(&file, at).await {
            Ok(None) => None,
            Ok(Some(part)) => Some((Ok(Bytes::from(part.content)), (store, file, part.at))),
            // The length that was promised does not come, so the client knows.
            Err(error) => Some((Err(error), (store, file, i64::MAX))),
        }
    });
    Ok((headers, Body::from_stream(parts)).into_response())
}

/// Deletes a file and its content.
#[utoipa::path(delete, path = "/v1/files/{id}", operation_id = "delete_file", tag = "openai", params(("id" = String, Path)), responses((status = 200, description = "It is gone", body = FileDeleted)))]
pub async fn delete(
    Extract(state): Extract<Front>,
    owner: Owner,
    path: Result<Path<String>, PathRejection>,
) -> Answer<FileDeleted> {
    let file = find(&state, &owner, &lists::id("file", "file-", path)?).await?;
    state.store.delete_file(&file.id).await.map_err(RequestError::from)?;
    Ok(Json(FileDeleted { id: file.id, object: "file", deleted: true }))
}

async fn find(state: &Front, owner: &Owner, id: &str) -> Result<store::FileObject, RequestError> {
    let file = state.store.file(id, state.clock.unix_millis()).await?;
    file.filter(|file| owner.sees(file.owner.as_deref())).ok_or_else(|| lists::missing("file", id))
}

fn new_id() -> String {
    format!("file-{}", Uuid::new_v4().simple())
}

/// A form, its fields in any order.
#[expect(dead_code, reason = "it describes what `receive` takes apart, and is never made")]
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

#[expect(dead_code, reason = "it describes what `list` takes apart, and is never made")]
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilePart {
    purpose: Option<String>,
    /// `asc` or `desc`, the default.
    order: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct FileObject {
    id: String,
    /// `file`.
    object: &'static str,
    bytes: i64,
    /// Unix seconds.
    created_at: i64,
    #[schema(required = true)]
    expires_at: Option<i64>,
    filename: String,
    /// `batch` or `batch_output`.
    purpose: String,
    /// `processed`.
    status: &'static str,
    #[schema(required = true)]
    status_details: Option<String>,
}

impl FileObject {
    fn of(file: store::FileObject) -> FileObject {
        FileObject {
            id: file.id,
            object: "file",
            bytes: file.bytes,
            created_at: file.created_ms / 1_000,
            expires_at: file.expires_ms.map(|ms| ms / 1_000),
            filename: file.filename,
            purpose: file.purpose,
            status: "processed",
            status_details: None,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct FileDeleted {
    id: String,
    /// `file`.
    object: &'static str,
    deleted: bool,
}
