//! What the prefix caches of this process hold, told to routers over ZMQ in vLLM's format: they send requests to whom they cost
//! least. Cargo feature `kv-events`.
//!
//! ```text
//! loop 0 ─ Told ─┐ (bounded; full: a loop drops, and later tells all anew)
//! loop 1 ─ Told ─┴▶ ledger (by content, across loops) ─▶ wire (MessagePack) ─▶ PUB  topic · sequence · batch
//!                                                     the newest batches ─▶ ROUTER  for who missed some
//! ```
//! A batch's sequence number is one more than the last one's, from 0, with no gap. Blocks under a client's `cache_salt` are not
//! told: routers know no salts.

mod ledger;
mod publisher;
mod wire;

pub use publisher::{BindError, Parts, Publisher};
