//! `/v1/models`.

use utoipa::ToSchema;

#[derive(ToSchema)]
pub struct ModelList {
    /// `list`.
    object: String,
    data: Vec<ModelObject>,
}

#[derive(ToSchema)]
pub struct ModelObject {
    id: String,
    /// `model`.
    object: String,
    created: u64,
    owned_by: String,
    /// The model behind the name.
    root: String,
    #[schema(required = true)]
    parent: Option<String>,
    max_model_len: u32,
}
