//! From where `/admin` may be used: by the machine's own users unless the operator says otherwise, and never by web pages
//! that a browser on the machine happens to show. Where there are API keys, `access.rs` has asked for one before.

use axum::extract::{Request, State as Extract};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::audience::Access;
use crate::api::Front;
use crate::api::access::Identity;
use crate::api::error::ApiError;
use crate::api::peer::Peer;
use forebay_core::request::RequestError;

/// Who asked, for the log: an address, and the name that a tool may give itself.
#[derive(Clone, Debug)]
pub struct Actor(pub String);

pub async fn layer(Extract(state): Extract<Front>, mut request: Request, next: Next) -> Response {
    match admit(state.admin, &request) {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(error) => ApiError(error).into_response(),
    }
}

fn admit(access: Access, request: &Request) -> Result<Actor, RequestError> {
    let refused = |message: &str| Err(RequestError::Forbidden { message: message.to_owned() });
    let peer = request.extensions().get::<Peer>().copied();
    match access {
        Access::Off => return refused("the admin routes are switched off (server.admin)"),
        Access::Loopback if !peer.is_some_and(Peer::is_local) => {
            return refused("the admin routes answer this machine only (server.admin)");
        }
        Access::Loopback | Access::Any => {}
    }
    if is_cross_site(request.headers()) {
        return refused("the admin routes do not answer other sites' pages");
    }
    let name = request.headers().get("x-admin-actor").and_then(|name| name.to_str().ok()).unwrap_or_default();
    let address = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
    const SHOWN: usize = 64;
    let name: String = name.chars().take(SHOWN).collect();
    let key = request.extensions().get::<Identity>().map(|identity| identity.holder.key.id.as_str());
    let name = if name.is_empty() { key.unwrap_or_default().to_owned() } else { name };
    Ok(Actor(if name.is_empty() { address } else { format!("{name} at {address}") }))
}

/// A browser says where the page came from; other clients say nothing.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return true;
    }
    let Some(origin) = text(header::ORIGIN) else { return false };
    let from = origin.parse::<Uri>().ok().and_then(|uri| uri.authority().map(|a| a.as_str().to_owned()));
    from.is_none() || from.as_deref() != text(header::HOST)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(peer: Option<&str>, headers: &[(&str, &str)]) -> Request {
        let mut builder = Request::post("/admin/pause");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let mut request = builder.body(Body::empty()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(Peer::Address(peer.parse().unwrap()));
        }
        request
    }

    #[test]
    fn only_the_machine_itself_unless_told_otherwise() {
        let allowed = |access, peer| admit(access, &request(peer, &[])).is_ok();
        for local in ["127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5", "127.9.9.9:5"] {
            assert!(allowed(Access::Loopback, Some(local)), "{local}");
            assert!(!allowed(Access::Off, Some(local)));
        }
        for remote in [Some("10.0.0.1:5"), Some("[2001:db8::1]:5"), None] {
            assert!(!allowed(Access::Loopback, remote), "{remote:?}");
            assert!(allowed(Access::Any, remote));
        }
    }

    #[test]
    fn other_sites_pages_are_refused() {
        let allowed = |headers: &[(&str, &str)]| admit(Access::Any, &request(None, headers)).is_ok();
        assert!(allowed(&[("sec-fetch-site", "same-origin")]) && allowed(&[("sec-fetch-site", "none")]));
        assert!(!allowed(&[("sec-fetch-site", "cross-site")]) && !allowed(&[("sec-fetch-site", "same-site")]));
        assert!(allowed(&[("origin", "http://127.0.0.1:8080"), ("host", "127.0.0.1:8080")]));
        assert!(!allowed(&[("origin", "http://evil.example"), ("host", "127.0.0.1:8080")]));
        assert!(!allowed(&[("origin", "null"), ("host", "127.0.0.1:8080")]));
    }

    #[test]
    fn an_actor_is_an_address_and_a_bounded_name() {
        let long = "x".repeat(500);
        let Actor(actor) = admit(Access::Any, &request(Some("127.0.0.1:5"), &[("x-admin-actor", &long)])).unwrap();
        assert_eq!(actor, format!("{} at 127.0.0.1:5", "x".repeat(64)));
    }
}
