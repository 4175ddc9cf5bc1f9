//! `GET /docs`: the document for people. One page with everything in it, so that it works without a network.

use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

const PAGE: &str = include_str!("docs.html");
/// It loads nothing but the document, from here.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The document, to be read.
#[utoipa::path(get, path = "/docs", operation_id = "docs", tag = "probes", responses((status = 200, description = "A page", body = String, content_type = "text/html")))]
pub async fn page() -> Response {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE)).into_response()
}
