//! A request's body, bounded in size and time, as a JSON object. Rejections have the same shape as all errors.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, header};
use bytes::BytesMut;
use http_body_util::BodyExt;
use serde_json::{Map, Value};

use forebay_core::request::RequestError;

/// What a body may cost.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    pub max_bytes: usize,
    /// For the whole body.
    pub read_timeout: Duration,
}

impl Default for BodyLimits {
    fn default() -> BodyLimits {
        BodyLimits { max_bytes: 8 << 20, read_timeout: Duration::from_secs(30) }
    }
}

/// Reads a JSON object. A key that occurs twice has its last value.
pub async fn read_object(request: Request<Body>, limits: BodyLimits) -> Result<Map<String, Value>, RequestError> {
    read_whole(request, limits).await.map(|(_, object)| object)
}

/// The same, and the bytes that it was read from.
pub async fn read_whole(
    request: Request<Body>,
    limits: BodyLimits,
) -> Result<(Bytes, Map<String, Value>), RequestError> {
    if let Err(error) = check_headers(request.headers(), limits) {
        // Who waits to be asked for the body reads the answer first.
        if !request.headers().contains_key(header::EXPECT) {
            discard(&mut request.into_body()).await;
        }
        return Err(error);
    }
    let bytes = read(request.into_body(), limits).await?;
    // serde_json refuses nesting beyond 128 levels, lone surrogates and invalid UTF-8.
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok((bytes, object)),
        Ok(_) => Err(RequestError::InvalidJson { message: "it must be an object".into() }),
        Err(error) => Err(RequestError::InvalidJson { message: error.to_string() }),
    }
}

fn check_headers(headers: &HeaderMap, limits: BodyLimits) -> Result<(), RequestError> {
    let encoded = |value: &header::HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get(header::CONTENT_ENCODING).is_some_and(encoded) {
        return Err(RequestError::UnsupportedEncoding);
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_json(content_type) {
        return Err(RequestError::UnsupportedMediaType);
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.max_bytes as u64) {
        return Err(RequestError::BodyTooLarge { limit: limits.max_bytes });
    }
    Ok(())
}

/// `application/json` or `application/…+json`, in UTF-8. Others are refused, since browsers send them cross-site freely.
fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(|part| part.trim().to_ascii_lowercase());
    let kind = parts.next().unwrap_or_default();
    let json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    json && parts.all(|part| match part.strip_prefix("charset=") {
        Some(charset) => matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"),
        None => true,
    })
}

async fn read(mut body: Body, limits: BodyLimits) -> Result<Bytes, RequestError> {
    let whole = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let ended_early = |_| RequestError::InvalidJson { message: "it ended early".into() };
            let Ok(data) = frame.map_err(ended_early)?.into_data() else { continue };
            if bytes.len() + data.len() > limits.max_bytes {
                return Err(RequestError::BodyTooLarge { limit: limits.max_bytes });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    };
    let read = tokio::time::timeout(limits.read_timeout, whole).await;
    let seconds = limits.read_timeout.as_secs();
    let read = read.unwrap_or(Err(RequestError::BodyTimeout { seconds }));
    if matches!(read, Err(RequestError::BodyTooLarge { .. })) {
        discard(&mut body).await;
    }
    read
}

/// Reads on and forgets: many clients (Node's `fetch`, Python's `urllib`) see a connection that closes while they write as
/// a network error, and never read the answer. Bounded, so that nobody can keep us reading.
async fn discard(body: &mut Body) {
    let rest = async {
        let mut left = MOST_DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(size) else { break };
            left = rest;
        }
    };
    let _ = tokio::time::timeout(LONGEST_DISCARD, rest).await;
}

/// Of a body that is refused.
const MOST_DISCARDED: usize = 256 << 20;
const LONGEST_DISCARD: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_in_utf8_is_json() {
        for good in ["application/json", "Application/JSON; charset=UTF-8", "application/vnd.api+json;v=1"] {
            assert!(is_json(good), "{good}");
        }
        for bad in ["", "text/plain", "application/json; charset=utf-16", "application/jsonp", "text/json"] {
            assert!(!is_json(bad), "{bad}");
        }
    }
}
