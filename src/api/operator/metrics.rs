//! `GET /metrics`: all series in Prometheus' text format.

use axum::extract::State as Extract;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::api::Front;

/// Prometheus' text format.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "probes", responses((status = 200, description = "All series", body = String, content_type = "text/plain")))]
pub async fn text(Extract(front): Extract<Front>) -> Response {
    front.workers.publish();
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        front.metrics.render(forebay_clock::unix_seconds()),
    )
        .into_response()
}
