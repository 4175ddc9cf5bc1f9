//! `POST /v1/rerank`, as Jina and Cohere have it: documents by how alike their embeddings are to the query's.

use std::cmp::Reverse;

use axum::extract::{Request, State as Extract};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::embeddings::{PromptUsage, embed, take_embedding};
use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::{Fields, wrong};
use crate::api::pipeline::rename::renamed;
use crate::api::pipeline::request::Queueing;
use crate::api::pipeline::request_headers::{RequestHeaders, Strictness};
use crate::api::pipeline::sampling::check_model;
use crate::api::pipeline::traces::{SequenceTrace, traces};
use crate::api::pipeline::wire;
use crate::generate::{Prompt, RawRequest};
use crate::generate::{normalised, similarity};
use forebay_core::request::RequestError;

const MAX_DOCUMENTS: usize = 2_047;

struct Asked {
    /// The query's first.
    raws: Vec<RawRequest>,
    documents: Vec<String>,
    top: usize,
    shown: bool,
    ignored: Vec<String>,
}

/// Orders documents by how alike they are to a query.
#[utoipa::path(
    post,
    path = "/v1/rerank",
    operation_id = "rerank",
    tag = "openai",
    params(Strictness, RequestHeaders),
    request_body = RerankRequest,
    responses((status = 200, description = "The documents, the most alike first", body = Ranking)),
)]
pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let mut head = Head::read(&state, &request, "rerank-")?;
    head.refuse_conversation()?;
    let fields = Fields::new(read_object(request, state.body).await?);
    let asked = parse(&state, &head, fields)?;
    head.adapter = asked.raws.first().and_then(|raw| raw.parameters.adapter);
    let vectors = embed(&state, &head, asked.raws)
        .await
        .map_err(|error| renamed(error, |param| (param == "prompt").then(|| "documents".to_owned())))?;
    let unit: Vec<Vec<f32>> = vectors.iter().map(|one| normalised(&one.vector, one.vector.len())).collect();
    let Some((query, others)) = unit.split_first() else { return Err(RequestError::Internal.into()) };
    let scores: Vec<f64> = others.iter().map(|other| similarity(query, other)).collect();
    let result = |index: usize| RankedDocument {
        index,
        relevance_score: scores[index],
        document: asked.shown.then(|| DocumentText { text: asked.documents[index].clone() }),
    };
    let body = Ranking {
        model: state.generator.name(head.adapter).to_owned(),
        results: ranked(&scores).into_iter().take(asked.top).map(result).collect(),
        usage: PromptUsage::of(&vectors),
        forebay_trace: if head.traced { Some(traces(&state.workers, &head.id).await) } else { None },
        id: head.id,
    };
    Ok(wire::answer(body, asked.ignored))
}

/// Indices, the highest score first; of equals the earlier one.
fn ranked(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(Reverse(b).cmp(&Reverse(a))));
    order
}

fn parse(state: &State, head: &Head, mut fields: Fields) -> Result<Asked, RequestError> {
    let adapter = check_model(state, &mut fields)?;
    let query = match fields.string("query")? {
        Some(query) if !query.is_empty() => query,
        Some(_) => return Err(RequestError::invalid("query", "must not be empty")),
        None => return Err(RequestError::invalid("query", "is required")),
    };
    let documents = documents(fields.take("documents"))?;
    let top = match fields.integer("top_n")? {
        None => documents.len(),
        Some(count) if count >= 1 => usize::try_from(count).unwrap_or(usize::MAX),
        Some(count) => return Err(RequestError::invalid("top_n", format!("must be at least 1, got {count}"))),
    };
    let shown = fields.flag("return_documents")?;
    let raw = take_embedding(state, head, adapter, &mut fields)?;
    let texts = std::iter::once(query).chain(documents.iter().cloned());
    let raws = texts.map(|text| RawRequest { prompt: Prompt::Text(text), ..raw.clone() }).collect();
    Ok(Asked { raws, documents, top, shown, ignored: fields.finish(head.strict)? })
}

/// Each a string, or an object with a `text`.
fn documents(value: Option<Value>) -> Result<Vec<String>, RequestError> {
    const NAME: &str = "documents";
    let list = match value {
        None => return Err(RequestError::invalid(NAME, "is required")),
        Some(Value::Array(list)) if list.is_empty() => {
            return Err(RequestError::invalid(NAME, "must have at least one entry"));
        }
        Some(Value::Array(list)) if list.len() > MAX_DOCUMENTS => {
            let message = format!("has {} entries, at most {MAX_DOCUMENTS} are allowed", list.len());
            return Err(RequestError::invalid(NAME, message));
        }
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong(NAME, "a list of strings", &other)),
    };
    let one = |(index, value): (usize, Value)| {
        let at = || format!("{NAME}[{index}]");
        let text = match value {
            Value::String(text) => text,
            Value::Object(object) if object.len() == 1 && object.get("text").is_some_and(Value::is_string) => {
                object["text"].as_str().unwrap_or_default().to_owned()
            }
            other => return Err(wrong(&at(), "a string, or an object with nothing but a text", &other)),
        };
        if text.is_empty() { Err(RequestError::invalid(at(), "must not be empty")) } else { Ok(text) }
    };
    list.into_iter().enumerate().map(one).collect()
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
#[expect(dead_code, reason = "it describes what a parser takes, and is never made")]
pub enum Document {
    Text(String),
    Object(DocumentText),
}

#[derive(Serialize, ToSchema)]
pub struct DocumentText {
    text: String,
}

#[derive(Serialize, ToSchema)]
pub struct Ranking {
    id: String,
    model: String,
    results: Vec<RankedDocument>,
    usage: PromptUsage,
    /// With `x-forebay-trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    forebay_trace: Option<Vec<SequenceTrace>>,
}

#[derive(Serialize, ToSchema)]
pub struct RankedDocument {
    index: usize,
    /// The cosine of the angle between the two embeddings, -1 to 1.
    relevance_score: f64,
    /// With `return_documents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentText>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_highest_comes_first_and_of_equals_the_earlier() {
        assert_eq!(ranked(&[0.1, 0.9, 0.1, 0.5]), [1, 3, 0, 2]);
    }

    #[test]
    fn documents_are_texts() {
        assert_eq!(documents(Some(json!(["a", {"text": "b"}]))), Ok(vec!["a".to_owned(), "b".to_owned()]));
        for (bad, param) in [
            (json!([]), "documents"),
            (json!("a"), "documents"),
            (json!(["a", ""]), "documents[1]"),
            (json!([5]), "documents[0]"),
            (json!([{"text": "a", "title": "b"}]), "documents[0]"),
            (json!(vec!["a"; 2048]), "documents"),
        ] {
            let refused = documents(Some(bad.clone()));
            assert!(matches!(refused, Err(RequestError::InvalidValue { param: ref got, .. }) if got == param), "{bad}");
        }
    }
}
