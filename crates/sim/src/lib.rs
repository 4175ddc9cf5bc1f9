//! The simulator: the live engine's own queue, strategies, scheduler and block pool under a virtual clock, with a cost model
//! in the model's place. Pure: a scenario, a cost model and a seed in, measurements out, bit for bit the same each time.
//!
//! ```text
//! scenario.rs (YAML) ─ seed ─▶ arrivals ─▶ simulate.rs, run.rs: virtual time ─▶ measure.rs: records ─▶ summary
//! trace.rs (recorded) ────────┘              │                                 ▲
//!                                            │  peers/: other servers' schedulers, the same arrivals and cost
//!                                            │  worker.rs: forebay_turn's Turn and Core, the calls that the live loop makes;
//!                                            │  core's board chooses among several
//!                                            └─ executor.rs: cost.rs instead of a forward pass
//! replay.rs: the same calls, times and tokens from a live loop's decision log
//! report.rs, json.rs, html.rs: for people and programs
//! ```
//! This crate knows no models, no sockets and no system clock. Its only files are scenarios, cost models and reports, as text.
//!
//! Read [`simulate()`], [`Setup`], [`Scenario`], [`CostModel`] and [`Summary`] first.
//!
//! ```
//! use forebay_core::{intake, scheduler};
//! use forebay_sim::{CostModel, Scenario, Setup, Slo, Workers, simulate};
//!
//! let scenario = Scenario::built_in("steady_state").expect("a built-in scenario").at_rate(2.0, 3.0);
//! let setup = Setup {
//!     intake: intake::Config::default(),
//!     scheduler: scheduler::Config::default(),
//!     block_size: 32,
//!     num_blocks: None,
//!     cost: CostModel::simulated_worker(),
//!     timeout: None,
//!     workers: Workers::default(),
//! };
//! let classes: Vec<String> = scenario.classes.iter().map(|class| class.name.clone()).collect();
//! let run = |seed| {
//!     let setup = setup.for_lengths(scenario.longest());
//!     simulate(&setup, &classes, &scenario.arrivals(seed), seed, &mut |_| ()).summary(&Slo::default())
//! };
//! assert_eq!(run(1).ttft.p99, run(1).ttft.p99, "the same seed gives the same run");
//! ```

pub mod arrival;
pub mod canary;
mod chart;
pub mod cost;
mod dice;
pub mod executor;
pub mod html;
pub mod json;
pub mod measure;
pub mod peers;
pub mod recommend;
pub mod replay;
pub mod report;
mod run;
pub mod scenario;
mod setup;
pub mod simulate;
pub mod trace;
mod worker;
pub mod workload;

pub use arrival::Arrival;
pub use cost::CostModel;
pub use measure::{Measured, Slo, Summary};
pub use peers::Peer;
pub use report::{Load, Row};
pub use scenario::Scenario;
pub use setup::{Outage, Setup, Workers};
pub use simulate::{simulate, simulate_all};
pub use trace::Trace;
pub use workload::Workload;

#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod overload_tests;
#[cfg(test)]
mod predict_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod worker_tests;
