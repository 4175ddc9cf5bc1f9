//! `GET /dashboard`: a page that shows what `/admin/live` tells, and its parts. All of it is in the binary.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::error::{ApiError, ErrorAnswer};
use forebay_core::request::RequestError;

/// It loads nothing but its parts, asks nobody but this server, and is shown in no other page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct Part {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! part {
    ($name:literal, $kind:expr) => {
        Part { name: $name, kind: $kind, text: include_str!(concat!("../../../dashboard/", $name)) }
    };
    (vendor $name:literal, $kind:expr) => {
        Part { name: $name, kind: $kind, text: include_str!(concat!("../../../dashboard/vendor/", $name)) }
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

const PAGE: Part = part!("index.html", HTML);
/// The page under an address that ends with a slash, from where a browser finds its parts without the folder.
static PAGE_BELOW: LazyLock<String> = LazyLock::new(|| PAGE.text.replace("\"dashboard/", "\""));
const PARTS: &[Part] = &[
    part!("style.css", CSS),
    part!("icon.svg", "image/svg+xml"),
    part!("app.js", SCRIPT),
    part!("server.js", SCRIPT),
    part!("dom.js", SCRIPT),
    part!("theme.js", SCRIPT),
    part!("tiles.js", SCRIPT),
    part!("charts.js", SCRIPT),
    part!("blocks.js", SCRIPT),
    part!("workers.js", SCRIPT),
    part!("classes.js", SCRIPT),
    part!("requests.js", SCRIPT),
    part!("tuning.js", SCRIPT),
    part!("advice.js", SCRIPT),
    part!("expected.js", SCRIPT),
    part!("chat.js", SCRIPT),
    part!(vendor "uPlot.esm.js", SCRIPT),
    part!(vendor "uPlot.min.css", CSS),
    part!(vendor "uPlot.LICENSE", TEXT),
];

/// The page.
#[utoipa::path(get, path = "/dashboard", operation_id = "dashboard", tag = "probes", responses((status = 200, description = "A page", body = String, content_type = "text/html"), (status = 304, description = "It is as the browser has it")))]
pub async fn page(headers: HeaderMap) -> Response {
    served(PAGE.kind, PAGE.text, &headers)
}

/// The page, for who ends the address with a slash.
#[utoipa::path(get, path = "/dashboard/", operation_id = "dashboard_below", tag = "probes", responses((status = 200, description = "A page", body = String, content_type = "text/html"), (status = 304, description = "It is as the browser has it")))]
pub async fn page_below(headers: HeaderMap) -> Response {
    served(HTML, &PAGE_BELOW, &headers)
}

/// A part of the page: script, style, picture.
#[utoipa::path(get, path = "/dashboard/{file}", operation_id = "dashboard_file", tag = "probes", params(("file" = String, Path)), responses((status = 200, description = "A file of the page", body = String), (status = 304, description = "It is as the browser has it"), (status = 404, description = "No such file", body = ErrorAnswer)))]
pub async fn file(name: Result<Path<String>, PathRejection>, headers: HeaderMap) -> Result<Response, ApiError> {
    const SHOWN: usize = 60;
    let name = name.map(|Path(name)| name).unwrap_or_default();
    match PARTS.iter().find(|part| part.name == name) {
        Some(part) => Ok(served(part.kind, part.text, &headers)),
        None => {
            let shown: String = name.chars().take(SHOWN).collect();
            Err(RequestError::RouteNotFound { path: format!("/dashboard/{shown}") }.into())
        }
    }
}

fn served(kind: &'static str, text: &'static str, asked: &HeaderMap) -> Response {
    let tag = tag(text);
    let known = asked.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let fresh = known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag);
    let mut response = match fresh {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => text.into_response(),
    };
    let mut set = |name: HeaderName, value: &'static str| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, kind);
    // Asked about each time, so that the page is never a mixture of two versions.
    set(header::CACHE_CONTROL, "no-cache");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// The same for the same text, in every process.
fn tag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    format!("\"{:016x}\"", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_the_browser_has_is_not_sent_again() {
        let first = served(PAGE.kind, PAGE.text, &HeaderMap::new());
        let tag = first.headers()[header::ETAG].clone();
        assert_eq!(
            (first.status(), &first.headers()[header::CONTENT_TYPE]),
            (StatusCode::OK, &HeaderValue::from_static(HTML))
        );
        let ask = |known: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::try_from(known).unwrap());
            served(PAGE.kind, PAGE.text, &headers)
        };
        let again = ask(&format!("\"0\", W/{}", tag.to_str().unwrap()));
        assert_eq!((again.status(), &again.headers()[header::ETAG]), (StatusCode::NOT_MODIFIED, &tag));
        assert_eq!(ask("\"0\"").status(), StatusCode::OK);
        assert_ne!(tag.to_str().unwrap(), super::tag(PARTS[0].text));
    }

    /// Its policy forbids what stands in the page itself, and whatever is elsewhere.
    #[test]
    fn the_page_names_its_parts_and_nothing_else() {
        for source in PAGE.text.split(['"', '\'']).filter(|text| text.starts_with("dashboard/")) {
            let name = source.trim_start_matches("dashboard/");
            assert!(PARTS.iter().any(|part| part.name == name), "{name}");
        }
        for source in PAGE_BELOW.split("href=").chain(PAGE_BELOW.split("src=")).skip(1) {
            let name = source.trim_start_matches('"').split('"').next().unwrap();
            let known = name.starts_with('#') || PARTS.iter().any(|part| part.name == name);
            assert!(known || !source.starts_with('"'), "{name}");
        }
        assert!(!PAGE.text.contains("style=") && !PAGE.text.contains("<style") && !PAGE.text.contains("onclick"));
        for part in PARTS.iter().filter(|part| part.kind == SCRIPT) {
            for (_, after) in part.text.match_indices("from \"./").map(|(at, mark)| part.text.split_at(at + mark.len()))
            {
                let name = after.split('"').next().unwrap();
                assert!(PARTS.iter().any(|part| part.name == name), "{} imports {name}", part.name);
            }
        }
    }
}
