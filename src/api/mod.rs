//! The HTTP face: knows JSON, knows nothing of batches.
//!
//! ```text
//! listener.rs  addresses, sockets, TLS ─▶ serve.rs  accept loop: header timeout, write stalls, connection cap, drain
//! routes.rs    every route, and its layers: request id ▸ count ▸ catch panics ▸ host ▸ access ▸ route
//! state.rs     what handlers share
//!
//! pipeline/    what the protocols share: head, parameters, sampling, messages, tools, running generations, frames
//! openai/      OpenAI's routes and those that other servers added to them, a file per endpoint
//! anthropic/   /v1/messages
//! operator/    /admin, the dashboard, metrics
//! relay/       requests that another server answers, where there are such
//! openapi/     what all of it looks like
//!
//! hosts.rs, host_check.rs  by which names they may ask  cors.rs  pages of other origins      peer.rs   the other end of a connection
//! access.rs    who may ask for what
//! proxies.rs, gateway_headers.rs           what a gateway may say of a request, and for whom it counts
//! extract.rs   a body, bounded in bytes and time, as a JSON object              sse.rs    frames of a stream
//! replay.rs    streams that can be read again                                   health.rs probes
//! request_id.rs, request_log.rs, request_metrics.rs                             what is told of each request
//! guarded_body.rs  a response body with a guard that runs when it is sent or dropped
//! inside.rs    the lines of batches, which ask the same routes
//! error.rs     every error's status, object and headers; refused.rs in the shape that the path's clients know
//! ```
//! A dropped client drops the handler or its body, which drops the `Generation`, which aborts.
//!
//! Runs on a runtime of its own, apart from the engine's: steps occupy neither its threads nor its blocking pool, and no
//! handler computes for long (long prompts are tokenised in its `spawn_blocking`). Probes and `/metrics` read atomics
//! only, so a saturated engine does not delay them.

mod access;
mod anthropic;
mod cors;
pub mod error;
mod extract;
mod gateway_headers;
mod guarded_body;
pub mod health;
mod host_check;
mod hosts;
mod inside;
mod listener;
mod openai;
mod openapi;
mod operator;
mod peer;
mod pipeline;
mod proxies;
mod refused;
mod relay;
mod replay;
mod request_id;
mod request_log;
mod request_metrics;
mod routes;
mod serve;
mod sse;
mod state;

pub use access::Door;
pub use cors::Origins;
pub use extract::BodyLimits;
pub use health::Health;
pub use hosts::Hosts;
pub use inside::answerer;
pub use listener::Listener;
pub use operator::admin::audience::Access;
pub use operator::admin::canary::Canaries;
pub use operator::admin::feed::Feed;
pub use operator::admin::reloading::{Refused, Reload, Reloaded, Waits};
pub use operator::measures::snapshot;
pub use proxies::Proxies;
pub use replay::Replays;
pub use routes::{relay_router, router};
pub use serve::{ServeConfig, serve};
pub use state::{Front, ServerInfo, State};

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod error_docs;
#[cfg(test)]
mod listener_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tokenize_tests;
#[cfg(test)]
mod tool_tests;
