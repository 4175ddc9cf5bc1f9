//! What Forebay decides, without what it computes with: values in, values out. No clock, no async, no IO, no tensors, no
//! logs; time and randomness come in as arguments, and this crate's Cargo.toml has nothing that could bring them.
//!
//! ```text
//! request (what is asked)  ─▶ intake (the forebay: who is next, and when a group flows)
//!                          ─▶ scheduler (who computes what in the next step) ─▶ kv (blocks)
//! step (what crosses to the model and back)   sampling (logits → token)   report (what happened, for those who watch)
//! settings (what one row of a table of settings says)
//! ```
//! `intake` and `scheduler` do not know each other: the engine is where they meet. Read [`request::Request`],
//! [`intake::Intake`], [`scheduler::Scheduler`], [`kv::BlockPool`] and [`step::StepBatch`] first.

pub mod constraint;
pub mod intake;
pub mod kv;
pub mod report;
pub mod request;
pub mod sampling;
pub mod scheduler;
pub mod settings;
pub mod step;
pub mod units;
