//! Which sequences compute how many tokens in the next step. Pure: no clock, no async, no tensors; the same calls drive the
//! live engine and the simulator.
//!
//! ```text
//! submit ─▶ waiting ─admit─▶ running ─commit─▶ finished
//!              ▲                │
//!              └──── preempt ───┘   (its blocks are freed; prompt and emitted tokens are computed again later)
//! ```
//! Being in a queue *is* the state: a `Waiting` has no block table, a
//! `Running` always has one. There is no prefill phase: a sequence has known tokens and computed
//! tokens, a step brings the second closer to the first, and who reaches the end draws.
//!
//! `state` is the scheduler; `planning` makes the plan: a [`policy`] says who goes first, [`StepCost`] how much prefill fits
//! beside decodes, `planner` and `admission` find the blocks, `preempt` says who yields when the pool runs dry; `background`
//! keeps batches out of everyone's way, and `speculate` fills what is left with guesses.
//!
//! A plan is made when its step can begin, from the state itself. Making it while the step before runs was tried: it needs a
//! copy of the state to guess on, and a comparison of everything with what came.

mod admission;
mod background;
mod budget;
mod chunk;
mod config;
mod cost;
mod lookup;
mod plan;
mod planner;
mod planning;
pub mod policy;
mod preempt;
mod queues;
mod sequence;
mod settings;
mod speculate;
mod state;
mod views;

pub use chunk::Chunk;
pub use config::Config;
pub use cost::{Coefficients, StepCost, StepLoad};
pub use lookup::Speculative;
pub use plan::{Found, StepPlan};
pub use policy::thermal;
pub use policy::{PolicyConfig, PolicyConfigError, PolicyExecutor, PolicyKind};
pub use preempt::{Preemption, may_take};
pub use settings::{settings, thermal_settings};
pub use state::Scheduler;
pub use views::Backlog;

#[cfg(test)]
mod background_tests;
#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod guided_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
