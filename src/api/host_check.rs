//! The layer that turns requests for other hosts away; [`Hosts`](crate::api::Hosts) says why.

use axum::extract::{Request, State as Extract};
use axum::http::header;
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::Response;

use crate::api::Front;
use crate::api::access::{Class, class};
use crate::api::peer::Peer;
use crate::api::refused::refused;
use forebay_core::request::RequestError;

pub async fn layer(Extract(front): Extract<Front>, request: Request, next: Next) -> Response {
    match stranger(&front, &request) {
        Some(host) => refused(request.uri().path(), RequestError::Misdirected { host }),
        None => next.run(request).await,
    }
}

/// The name that a request says it is for, where that is nobody's here.
fn stranger(front: &Front, request: &Request) -> Option<String> {
    // Who comes through the file system has no name to resolve, and who comes from inside no host to speak of.
    let through_a_file = matches!(request.extensions().get::<Peer>(), Some(Peer::Socket));
    let is_open = front.keys.is_none() || class(request.uri().path()) == Class::Admin;
    if through_a_file || !is_open {
        return None;
    }
    const SHOWN: usize = 200;
    let said = request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let asked = request.uri().authority().map(Authority::as_str);
    let strange = said.chain(asked).find(|name| !front.hosts.know(name))?;
    Some(strange.chars().take(SHOWN).collect())
}
