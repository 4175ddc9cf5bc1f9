//! Requests from inside the process, through the same routes and layers as everybody's: the lines of batches.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, header};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::api::access::Inside;
use forebay_core::request::Priority;
use forebay_store::jobs::{Answered, Answerer, Ask};

/// Asks `router`, in the lowest class.
pub fn answerer(router: Router) -> Answerer {
    Arc::new(move |ask| answer(router.clone(), ask).boxed())
}

async fn answer(router: Router, ask: Ask) -> Answered {
    let request = Request::post(&ask.url)
        .header(header::CONTENT_TYPE, "application/json")
        .header("x-priority", Priority::Batch.name())
        // A batch's lines share among themselves, and take nothing from the share of whoever sent it.
        .header("x-gateway-inference-fairness-id", &ask.batch)
        .extension(Inside { owner: ask.owner })
        .body(Body::from(ask.body));
    let Ok(request) = request else { return failed() };
    let Ok(response) = router.oneshot(request).await;
    read(response).await
}

async fn read(response: Response<Body>) -> Answered {
    let (parts, body) = response.into_parts();
    // Made by our own handlers, so it is as long as they make it.
    let Ok(body) = body.collect().await else { return failed() };
    Answered {
        status: parts.status.as_u16(),
        request_id: text(&parts.headers, "x-request-id").unwrap_or_default(),
        retry_after_s: text(&parts.headers, "retry-after").and_then(|seconds| seconds.parse().ok()),
        body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn failed() -> Answered {
    let internal = super::error::object(&forebay_core::request::RequestError::Internal);
    let body = serde_json::to_string(&internal).unwrap_or_default();
    Answered { status: 500, request_id: String::new(), retry_after_s: None, body }
}
