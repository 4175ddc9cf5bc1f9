//! Where a request may be sent on to: the routes that a server with a model has, and nothing else. What a client writes as a path is
//! looked up here and never sent: another server would resolve `/v1/../admin/pause`, which to us is a route that nobody has.

use axum::http::Uri;

/// Routes that answer a POST with a model's work, without `/v1`; other servers have some of them with it and some without.
pub const RELAYED: [&str; 13] = [
    "/completions",
    "/completions/render",
    "/chat/completions",
    "/chat/completions/render",
    "/chat/completions/input_tokens",
    "/responses",
    "/responses/input_tokens",
    "/messages",
    "/messages/count_tokens",
    "/embeddings",
    "/rerank",
    "/tokenize",
    "/detokenize",
];

/// The path at the other server, made of our own words, and the client's query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub path: String,
    pub query: Option<String>,
}

/// `None` for what is not sent on.
pub fn target(asked: &Uri) -> Option<Target> {
    let (prefix, rest) = asked.path().strip_prefix("/v1").map_or(("", asked.path()), |rest| ("/v1", rest));
    let route = RELAYED.into_iter().find(|route| *route == rest)?;
    Some(Target { path: format!("{prefix}{route}"), query: asked.query().map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes::openai_routes;

    #[test]
    fn only_routes_that_we_know_are_sent_on() {
        let sent = |path: &str| target(&path.parse().expect("a path")).map(|target| target.path);
        for route in RELAYED {
            assert_eq!(sent(route).as_deref(), Some(route));
            assert_eq!(sent(&format!("/v1{route}?x=1")), Some(format!("/v1{route}")));
        }
        for path in [
            "/v1/../admin/pause",
            "/v1/%2e%2e/admin/pause",
            "/v1/.%2e/admin/pause",
            "/v1/..%5cadmin/pause",
            "/v1/completions/../../admin/pause",
            "/v1/completions/",
            "/v1//completions",
            "/v1/completions%2f..%2f..%2fadmin",
            "/v1/v1/completions",
            "/admin/pause",
            "/v1/load_lora_adapter",
            "/v1",
            "/",
        ] {
            assert_eq!(sent(path), None, "{path}");
        }
    }

    #[test]
    fn every_route_of_a_model_is_in_the_list() {
        let mut known: Vec<&str> = openai_routes().into_iter().map(|(path, _)| path).collect();
        known.retain(|path| !path.starts_with("/models") && !path.starts_with("/stream"));
        let mut relayed = RELAYED.to_vec();
        known.sort_unstable();
        relayed.sort_unstable();
        assert_eq!(known, relayed);
    }
}
