//! One engine between its steps: what is queued, what computes, what may be changed.
//!
//! ```text
//! commands ─▶ turn (inbox: queue, tuning, orders) ◀── lent between steps ──▶ core (scheduler, block pool, executor)
//!                │                                                             │ moved by value into each step
//!                └─▶ effects: events, ends, releases, changes, for the driver to send, trace and count
//! ```
//! This crate knows no clock, no threads, no async and no models: a driver says what time it is, and an
//! [`executor::Executor`] computes.
//!
//! Read [`turn::Turn`] first: it says which calls a driver makes, in which order. Then [`core::Core`],
//! [`executor::Executor`], [`control::Tuning`] and [`inbox::Inbox`].
//!
//! The smallest driver, over a model that says 7:
//!
//! ```
//! use forebay_core::request::{Limits, Parameters, Request};
//! use forebay_core::scheduler::thermal::Thresholds;
//! use forebay_core::step::{Outcome, Sampled, StepBatch, StepOutput};
//! use forebay_core::units::{Micros, SeqId};
//! use forebay_core::{intake, scheduler};
//! use forebay_turn::control::Tuning;
//! use forebay_turn::core::{Config, Core};
//! use forebay_turn::executor::{ExecuteError, Executor};
//! use forebay_turn::turn::Turn;
//!
//! struct Seven;
//!
//! impl Executor for Seven {
//!     fn admit(&mut self, _: &Request) {}
//!     fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
//!         let sampled = batch.chunks.iter().filter(|chunk| chunk.sample);
//!         let outcomes = sampled.map(|chunk| (chunk.seq, Outcome::Token(Sampled { token: 7, logprobs: None })));
//!         Ok(StepOutput { outcomes: outcomes.collect(), ..StepOutput::default() })
//!     }
//!     fn forget(&mut self, _: SeqId) {}
//! }
//!
//! let scheduler = scheduler::Config { max_model_len: 64, ..scheduler::Config::default() };
//! let mut turn = Turn::new(Tuning { intake: intake::Config::default(), scheduler }, Thresholds::default());
//! let mut core = Core::new(Config { scheduler, num_blocks: 8, block_size: 16, multi_step_count: 1 }, Seven);
//!
//! let limits = Limits::new(64, 100, 8);
//! let asked = Parameters { max_tokens: Some(3), ..Parameters::default() }.check(&limits, 0)?;
//! turn.on_submit(asked.into_requests(vec![1, 2], &[], &limits, || SeqId(1))?.requests, Micros::ZERO)?;
//!
//! let (mut now, mut events) = (Micros::ZERO, 0);
//! loop {
//!     turn.on_home(&mut core, now);
//!     let Some(plan) = turn.next_plan(&mut core, now) else { break };
//!     turn.on_step(&plan, now);
//!     let (home, report) = core.execute(plan, now);
//!     core = home;
//!     now = now + Micros::from_millis(5);
//!     turn.on_report(&mut core, report, Micros::from_millis(5));
//!     events += turn.take_report(now).map_or(0, |report| report.events.len());
//! }
//! assert!(events > 3, "three tokens and an end");
//! # Ok::<(), forebay_core::request::RequestError>(())
//! ```

pub mod control;
pub mod core;
pub mod decision_log;
pub mod executor;
mod forecast;
pub mod history;
pub mod inbox;
mod lengths;
mod predict;
pub mod stats;
pub mod turn;
pub mod window;
