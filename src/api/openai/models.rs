//! `GET /v1/models` and `GET /v1/models/{id}`.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Extract};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::error::ApiError;
use crate::api::pipeline::sampling::check_name;
use crate::api::{ServerInfo, State};
use crate::generate::Generator;

/// The names under which the model is served.
#[utoipa::path(get, path = "/v1/models", operation_id = "models", tag = "openai", responses((status = 200, description = "The model's names", body = ModelList)))]
pub async fn list(Extract(state): Extract<State>) -> Json<ModelList> {
    Json(ModelList::new(objects(&state.info, &state.generator)))
}

/// One name. The id may hold slashes, as it is or percent-encoded.
#[utoipa::path(get, path = "/v1/models/{id}", operation_id = "model", tag = "openai", params(("id" = String, Path)), responses((status = 200, description = "The model", body = ModelObject)))]
pub async fn one(
    Extract(state): Extract<State>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<ModelObject>, ApiError> {
    // Rejected: not UTF-8 once decoded, so no model's name.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    check_name(&state, &id)?;
    Ok(Json(object(&state.info, &state.generator, &id)))
}

/// Under each of its names.
pub fn objects(info: &ServerInfo, generator: &Generator) -> Vec<ModelObject> {
    let names = std::iter::once(generator.model_id()).chain(generator.model_aliases().iter().map(String::as_str));
    let names = names.chain(generator.adapters().iter().map(String::as_str));
    names.map(|name| object(info, generator, name)).collect()
}

fn object(info: &ServerInfo, generator: &Generator, name: &str) -> ModelObject {
    ModelObject {
        id: name.to_owned(),
        object: "model",
        created: info.created,
        owned_by: "forebay",
        root: Some(generator.model_id().to_owned()),
        parent: Some(generator.adapter(name).map(|_| generator.model_id().to_owned())),
        max_model_len: Some(generator.limits().max_model_len),
    }
}

#[derive(Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    object: &'static str,
    data: Vec<ModelObject>,
}

impl ModelList {
    pub fn new(data: Vec<ModelObject>) -> ModelList {
        ModelList { object: "list", data }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ModelObject {
    pub id: String,
    /// `model`.
    object: &'static str,
    created: u64,
    /// `forebay`, or `upstream` where another server has the model.
    owned_by: &'static str,
    /// The model behind the name. This and the following are known of the server's own model.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<String>,
    /// Of an adapter, the model that it changes, else `null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    parent: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<u32>,
}

impl ModelObject {
    /// A model that an upstream has.
    pub fn of_upstream(id: String, created: u64) -> ModelObject {
        let (root, parent, max_model_len) = (None, None, None);
        ModelObject { id, object: "model", created, owned_by: "upstream", root, parent, max_model_len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_an_upstreams_model_is_absent() {
        let theirs = serde_json::to_string(&ModelObject::of_upstream("m".into(), 7)).unwrap();
        assert_eq!(theirs, r#"{"id":"m","object":"model","created":7,"owned_by":"upstream"}"#);
    }
}
