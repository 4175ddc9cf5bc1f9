//! `/v1/embeddings` and `/v1/rerank`.

use serde::Serialize;
use utoipa::ToSchema;

use super::completions::PromptInput;
use super::sampling::PriorityValue;
use super::usage::{PromptDetails, SequenceTrace};

#[derive(Serialize, ToSchema)]
pub struct EmbeddingRequest {
    /// One of the names of `/v1/models`, or `default`; absent is the default.
    model: Option<String>,
    /// At most 2,048 texts or lists of token ids.
    input: PromptInput,
    /// `float`, or `base64`: little-endian 32-bit floats.
    encoding_format: Option<String>,
    /// So many of the first numbers are kept, and the vector made as long as 1 again.
    #[schema(minimum = 1)]
    dimensions: Option<i64>,
    #[serde(flatten)]
    queueing: Queueing,
}

/// How a prompt is taken in, and how urgent it is.
#[derive(Serialize, ToSchema)]
pub struct Queueing {
    /// Only so many of each prompt's last tokens are used; -1 is as many as fit.
    #[schema(minimum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// Whether blocks of the KV cache may be shared with other requests.
    cache_prompt: Option<bool>,
    /// Only requests with the same one share.
    #[schema(min_length = 1, max_length = 256)]
    cache_salt: Option<String>,
    /// Whom the fair share counts the request for.
    #[schema(max_length = 256)]
    user: Option<String>,
    /// `auto`, `default`, `scale`; `flex` is a low priority, `priority` a high one.
    service_tier: Option<String>,
    priority: Option<PriorityValue>,
    /// The whole answer must be there so many milliseconds after the request.
    #[schema(minimum = 1, maximum = 86400000)]
    timeout_ms: Option<i64>,
    /// Another name of `timeout_ms`; of two, the shorter counts.
    #[schema(minimum = 1, maximum = 86400000)]
    deadline_ms: Option<i64>,
}

#[derive(ToSchema)]
pub struct EmbeddingList {
    /// `list`.
    object: String,
    data: Vec<EmbeddingObject>,
    model: String,
    usage: PromptUsage,
    /// With `x-forebay-trace`.
    forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(ToSchema)]
pub struct EmbeddingObject {
    /// `embedding`.
    object: String,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Vector {
    Numbers(Vec<f32>),
    Base64(String),
}

#[derive(ToSchema)]
pub struct PromptUsage {
    prompt_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

#[derive(Serialize, ToSchema)]
pub struct RerankRequest {
    model: Option<String>,
    query: String,
    /// At most 2,047.
    documents: Vec<Document>,
    /// So many results; absent is all.
    #[schema(minimum = 1)]
    top_n: Option<i64>,
    /// Whether results repeat their documents; absent is no.
    return_documents: Option<bool>,
    #[serde(flatten)]
    queueing: Queueing,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Document {
    Text(String),
    Object(DocumentText),
}

#[derive(Serialize, ToSchema)]
pub struct DocumentText {
    text: String,
}

#[derive(ToSchema)]
pub struct Ranking {
    id: String,
    model: String,
    results: Vec<RankedDocument>,
    usage: PromptUsage,
    /// With `x-forebay-trace`.
    forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(ToSchema)]
pub struct RankedDocument {
    index: usize,
    /// The cosine of the angle between the two embeddings, -1 to 1.
    relevance_score: f64,
    document: Option<DocumentText>,
}
