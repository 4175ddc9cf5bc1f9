//! `POST /v1/embeddings`.

use axum::extract::{Request, State as Extract};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::{Fields, wrong};
use crate::api::pipeline::prompts::prompts;
use crate::api::pipeline::rename::renamed;
use crate::api::pipeline::request::{PromptInput, Queueing};
use crate::api::pipeline::request_headers::{RequestHeaders, Strictness};
use crate::api::pipeline::sampling::check_model;
use crate::api::pipeline::traces::{SequenceTrace, traces};
use crate::api::pipeline::usage::PromptDetails;
use crate::api::pipeline::wire;
use crate::generate::Embedded;
use crate::generate::RawRequest;
use forebay_core::request::{Goal, Parameters, RequestError};

/// As OpenAI has it.
pub const MAX_INPUTS: usize = 2_048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Float,
    /// Little-endian `f32`, which openai-python asks for by itself.
    Base64,
}

struct Asked {
    raws: Vec<RawRequest>,
    encoding: Encoding,
    dimensions: usize,
    ignored: Vec<String>,
}

/// Makes vectors of texts.
#[utoipa::path(
    post,
    path = "/v1/embeddings",
    operation_id = "embeddings",
    tag = "openai",
    params(Strictness, RequestHeaders),
    request_body = EmbeddingRequest,
    responses((status = 200, description = "A vector for each input, of length 1 unless the model's makers want it as it is", body = EmbeddingList)),
)]
pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let mut head = Head::read(&state, &request, "embd-")?;
    head.refuse_conversation()?;
    let fields = Fields::new(read_object(request, state.body).await?);
    let asked = parse(&state, &head, fields).map_err(in_our_words)?;
    head.adapter = asked.raws.first().and_then(|raw| raw.parameters.adapter);
    let vectors = embed(&state, &head, asked.raws).await.map_err(in_our_words)?;
    let embeddings = state.generator.embeddings();
    let object = |(index, embedded): (usize, &Embedded)| EmbeddingObject {
        object: "embedding",
        index,
        embedding: Vector::of(embeddings.finished(&embedded.vector, asked.dimensions), asked.encoding),
    };
    let body = EmbeddingList {
        object: "list",
        data: vectors.iter().enumerate().map(object).collect(),
        model: state.generator.name(head.adapter).to_owned(),
        usage: PromptUsage::of(&vectors),
        forebay_trace: if head.traced { Some(traces(&state.workers, &head.id).await) } else { None },
    };
    Ok(wire::answer(body, asked.ignored))
}

/// The inputs of embeddings are called `input`.
fn in_our_words(error: RequestError) -> RequestError {
    renamed(error, |param| (param == "prompt").then(|| "input".to_owned()))
}

fn parse(state: &State, head: &Head, mut fields: Fields) -> Result<Asked, RequestError> {
    let adapter = check_model(state, &mut fields)?;
    let inputs = prompts("input", fields.take("input"), MAX_INPUTS)?;
    let encoding = match fields.string("encoding_format")?.as_deref() {
        None | Some("float") => Encoding::Float,
        Some("base64") => Encoding::Base64,
        Some(other) => return Err(wrong("encoding_format", "float or base64", &json!(other))),
    };
    let width = state.generator.embeddings().width;
    let dimensions = match fields.integer("dimensions")? {
        None => width,
        Some(count) => usize::try_from(count).ok().filter(|count| (1..=width).contains(count)).ok_or_else(|| {
            RequestError::invalid("dimensions", format!("must be between 1 and {width}, got {count}"))
        })?,
    };
    let raw = take_embedding(state, head, adapter, &mut fields)?;
    let raws = inputs.into_iter().map(|prompt| RawRequest { prompt, ..raw.clone() }).collect();
    Ok(Asked { raws, encoding, dimensions, ignored: fields.finish(head.strict)? })
}

/// A request for the vector of a prompt, all but the prompt.
pub fn take_embedding(
    state: &State,
    head: &Head,
    adapter: Option<u32>,
    fields: &mut Fields,
) -> Result<RawRequest, RequestError> {
    let parameters = Parameters {
        goal: Goal::Embedding(state.generator.embeddings().pooling),
        adapter,
        truncate_prompt_tokens: fields.integer("truncate_prompt_tokens")?,
        cache_prompt: fields.optional_flag("cache_prompt")?,
        cache_salt: fields.string("cache_salt")?,
        strict: head.strict,
        ..Parameters::default()
    };
    let mut raw = RawRequest { parameters, ..RawRequest::default() };
    head.complete(fields, &mut raw)?;
    Ok(raw)
}

/// Room for all before any is tokenised; then all wait in the queue together.
pub async fn embed(state: &State, head: &Head, raws: Vec<RawRequest>) -> Result<Vec<Embedded>, RequestError> {
    let admitted = raws.into_iter().map(|raw| state.generator.admit(raw)).collect::<Result<Vec<_>, _>>()?;
    let vectors = state.generator.embed(admitted).await?;
    if let Some(log) = &head.log {
        log.prompt_tokens(vectors.iter().map(|embedded| embedded.prompt_tokens).sum());
    }
    Ok(vectors)
}

impl Vector {
    fn of(vector: Vec<f32>, encoding: Encoding) -> Vector {
        match encoding {
            Encoding::Float => Vector::Numbers(vector.into_iter().map(f64::from).collect()),
            Encoding::Base64 => {
                Vector::Base64(STANDARD.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()))
            }
        }
    }
}

impl PromptUsage {
    pub fn of(vectors: &[Embedded]) -> PromptUsage {
        let sum = |of: fn(&Embedded) -> usize| vectors.iter().map(of).sum::<usize>();
        let prompt_tokens = sum(|embedded| embedded.prompt_tokens);
        PromptUsage {
            prompt_tokens,
            total_tokens: prompt_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: sum(|embedded| embedded.cached_tokens) },
        }
    }
}

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

#[derive(Serialize, ToSchema)]
pub struct EmbeddingList {
    /// `list`.
    object: &'static str,
    data: Vec<EmbeddingObject>,
    model: String,
    usage: PromptUsage,
    /// With `x-forebay-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(Serialize, ToSchema)]
pub struct EmbeddingObject {
    /// `embedding`.
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub enum Vector {
    Numbers(Vec<f64>),
    Base64(String),
}

#[derive(Serialize, ToSchema)]
pub struct PromptUsage {
    prompt_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
}
