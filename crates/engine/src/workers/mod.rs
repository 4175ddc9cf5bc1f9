//! Who does the work: engine loops in this process and other servers, one pool of them.
//!
//! ```text
//! generate ─ submit ─▶ dispatch.rs ─ core's board: who may, who does ─▶ Lease ─▶ engine loop  (local.rs)
//! api/relay ─ lease ─▶    │                                             Lease ─▶ other server (upstream.rs)
//!                      pool.rs all of them    watch.rs: loops that died are begun again, other servers are asked how they are
//! ```
//! A [`Lease`] is a request under way at one worker: it counts in the worker's load until it is dropped, and its verdict is
//! what the worker's breaker hears. Knows nothing of JSON.

mod dispatch;
mod lease;
mod local;
mod merge;
mod orders;
mod pool;
mod settings;
mod standing_orders;
mod upstream;
mod watch;

pub use dispatch::Dispatched;
pub use lease::{Lease, Underway};
pub use local::{Local, Run, Start};
pub use pool::{Pool, PoolConfig, PoolParts, Unready, WorkerView};
pub use settings::{breaker_settings, upstream_settings};
pub use upstream::{Answer, Fault, Upstream, UpstreamConfig, base};
pub use watch::watch;
