//! The `x-request-id` of every answer: the client's own where it is harmless, else one of ours. It is a label for people
//! and logs, never a key or an address inside the server.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use uuid::Uuid;

const HEADER: &str = "x-request-id";
const MAX_LEN: usize = 64;

/// In the extensions of every request.
#[derive(Clone, Debug)]
pub struct RequestId(HeaderValue);

impl RequestId {
    pub fn text(&self) -> String {
        self.0.to_str().unwrap_or_default().to_owned()
    }
}

pub async fn layer(mut request: Request, next: Next) -> Response {
    let id = incoming(request.headers()).unwrap_or_else(fresh);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    response.headers_mut().insert(HEADER, id);
    response
}

fn incoming(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(HEADER)?;
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let valid = (1..=MAX_LEN).contains(&id.len()) && id.as_bytes().iter().all(harmless);
    valid.then(|| id.clone())
}

fn fresh() -> HeaderValue {
    let id = format!("req-{}", Uuid::new_v4().simple());
    HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("req-0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_ids_are_echoed() {
        let echoed = |id: &str| {
            let headers = HeaderMap::from_iter([(HEADER.parse().unwrap(), HeaderValue::from_str(id).unwrap())]);
            incoming(&headers).is_some()
        };
        assert!(echoed("a") && echoed("Trace_01-b") && echoed(&"x".repeat(64)));
        for bad in ["", "a b", "a/b", "a\tb", "x.y", &"x".repeat(65)] {
            assert!(!echoed(bad), "{bad:?}");
        }
        assert!(incoming(&HeaderMap::new()).is_none());
        assert_ne!(fresh(), fresh());
    }
}
