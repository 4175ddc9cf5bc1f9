//! `GET /v1/models` and `GET /v1/models/{id}`.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Extract};
use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::openapi::shapes::models::{ModelList, ModelObject};
use crate::api::pipeline::sampling::check_name;
use crate::api::{ServerInfo, State};
use crate::generate::Generator;

/// The names under which the model is served.
#[utoipa::path(get, path = "/v1/models", operation_id = "models", tag = "openai", responses((status = 200, description = "The model's names", body = ModelList)))]
pub async fn list(Extract(state): Extract<State>) -> Json<Value> {
    let generator = &state.generator;
    Json(json!({"object": "list", "data": objects(&state.info, generator)}))
}

/// One name. The id may hold slashes, as it is or percent-encoded.
#[utoipa::path(get, path = "/v1/models/{id}", operation_id = "model", tag = "openai", params(("id" = String, Path)), responses((status = 200, description = "The model", body = ModelObject)))]
pub async fn one(
    Extract(state): Extract<State>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    // Rejected: not UTF-8 once decoded, so no model's name.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    check_name(&state, &id)?;
    Ok(Json(object(&state.info, &state.generator, &id)))
}

/// Under each of its names.
pub fn objects(info: &ServerInfo, generator: &Generator) -> Vec<Value> {
    let names = std::iter::once(generator.model_id()).chain(generator.model_aliases().iter().map(String::as_str));
    let names = names.chain(generator.adapters().iter().map(String::as_str));
    names.map(|name| object(info, generator, name)).collect()
}

fn object(info: &ServerInfo, generator: &Generator, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": info.created,
        "owned_by": "forebay",
        "root": generator.model_id(),
        "parent": generator.adapter(name).map(|_| generator.model_id()),
        "max_model_len": generator.limits().max_model_len,
    })
}
