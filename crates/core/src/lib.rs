//! What Forebay decides, without what it computes with: values in, values out.
//!
//! ```text
//! request (what is asked)  ─▶ intake (the forebay: who is next, and when a group flows)
//!                          ─▶ scheduler (who computes what in the next step) ─▶ kv (blocks)
//! step (what crosses to the model and back)      sampling (logits → token)
//! constraint (what a grammar allows)             report (what happened, for those who watch)
//! settings (what one row of a table of settings says)      workers (which of several engines takes a request)
//! ```
//! This crate knows no clock, no async, no IO, no tensors and no logs; time and randomness come in as arguments. Its
//! Cargo.toml has nothing that could bring them. `intake` and `scheduler` do not know each other: `forebay-turn` is where
//! they meet. Texts, JSON and models are unknown here; a compiled grammar is a [`constraint::Constraint`].
//!
//! Read [`request::Request`], [`intake::Intake`], [`scheduler::Scheduler`], [`kv::BlockPool`] and [`step::StepBatch`] first.
//!
//! A request is made of what a client asks in one place, [`request::Checked::into_requests`]:
//!
//! ```
//! use forebay_core::request::{Limits, Parameters};
//! use forebay_core::units::SeqId;
//!
//! let limits = Limits::new(1_024, 32_000, 16);
//! let asked = Parameters { max_tokens: Some(8), temperature: Some(0.0), ..Parameters::default() };
//! let entropy = 7;
//! let built = asked.check(&limits, entropy)?.into_requests(vec![3, 1, 4], &[2], &limits, || SeqId(1))?;
//! assert_eq!(built.requests[0].prompt(), [3, 1, 4]);
//! assert_eq!(built.requests[0].max_tokens(), 8);
//! assert!(Parameters { temperature: Some(3.0), ..Parameters::default() }.check(&limits, entropy).is_err());
//! # Ok::<(), forebay_core::request::RequestError>(())
//! ```

pub mod constraint;
pub mod intake;
pub mod kv;
pub mod report;
pub mod request;
pub mod sampling;
pub mod scheduler;
pub mod settings;
pub mod slo;
pub mod step;
pub mod units;
pub mod workers;
