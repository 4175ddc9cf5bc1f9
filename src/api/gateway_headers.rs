//! The layer that takes a gateway's headers from whoever may not set them, and names them as ignored.

use axum::extract::{Request, State as Extract};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;

use crate::api::Front;
use crate::api::peer::Peer;
use crate::api::pipeline::head::strict;
use crate::api::proxies::{FAIRNESS_IDS, OBJECTIVES, SLO_TPOT, SLO_TTFT};
use crate::api::refused::refused;
use forebay_core::request::RequestError;

const IGNORED: &str = "x-ignored-params";

pub async fn layer(Extract(front): Extract<Front>, mut request: Request, next: Next) -> Response {
    // Without a peer it comes from inside this process, by the socket from a process of this machine that may open it.
    let trusted = match request.extensions().get::<Peer>() {
        None | Some(Peer::Socket) => true,
        Some(Peer::Address(peer)) => front.proxies.trust(peer.ip()),
    };
    if trusted {
        return next.run(request).await;
    }
    let names = FAIRNESS_IDS.into_iter().chain(OBJECTIVES).chain([SLO_TTFT, SLO_TPOT]);
    let taken: Vec<&str> = names.filter(|name| request.headers_mut().remove(*name).is_some()).collect();
    let Some(first) = taken.first() else { return next.run(request).await };
    // What is wrong with the wish for strictness is said by whoever reads the rest of the head.
    if strict(request.uri(), request.headers()).unwrap_or(false) {
        let message = "it counts only from server.trusted_proxies, and strict was asked for".to_owned();
        return refused(request.uri().path(), RequestError::Unsupported { param: (*first).to_owned(), message });
    }
    let mut response = next.run(request).await;
    name(&mut response, &taken);
    response
}

/// Adds to what the handler named.
fn name(response: &mut Response, taken: &[&str]) {
    let before = response.headers().get(IGNORED).and_then(|value| value.to_str().ok());
    let all: Vec<&str> = before.into_iter().chain(taken.iter().copied()).collect();
    if let Ok(value) = HeaderValue::try_from(all.join(",")) {
        response.headers_mut().insert(IGNORED, value);
    }
}
