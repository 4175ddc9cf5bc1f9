//! What an operator relies on and changes while a server runs, over the real binary.

mod access_log; // a line for each request
mod bench; // the load generator, `simulate`, `calibrate`, recommendations and trials
mod changes; // what is changed while requests run
mod doctor; // `forebay doctor`
mod ending; // drains and exit codes
mod keys; // API keys, beside a running server
#[cfg(feature = "kv-events")]
pub mod kv_events; // what routers are told of the prefix cache
mod memory; // memory beside the weights
mod model_server_protocol; // what routers count on
#[cfg(unix)]
mod notify; // systemd
mod overload; // who is served when too much is asked for
mod reload; // new configurations
mod security; // attacks that once worked
mod spans; // OTLP
mod tls; // other servers over TLS
mod workers; // several loops, and routers over processes that die, hang and fail
