//! The simulator: the live engine's own queue, strategies, scheduler and block pool under a virtual clock, with a cost model
//! in the model's place. Pure: a scenario, a cost model and a seed in, measurements out, bit for bit the same each time.
//!
//! ```text
//! scenario.rs (YAML) ─ seed ─▶ arrivals ─▶ simulate.rs: virtual time ─▶ measure.rs: records ─▶ summary
//!                                            │  forebay_turn's Turn and Core, the calls that the live loop makes
//!                                            └─ executor.rs: cost.rs instead of a forward pass
//! replay.rs: the same calls, times and tokens from a live loop's decision log
//! report.rs, json.rs, html.rs: for people and programs
//! ```
//! What it must not know: models, sockets, the system's clock.

pub mod canary;
mod chart;
pub mod cost;
mod dice;
pub mod executor;
pub mod html;
pub mod json;
pub mod measure;
pub mod recommend;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod simulate;

pub use cost::CostModel;
pub use measure::{Measured, Slo, Summary};
pub use report::{Load, Row};
pub use scenario::{Arrival, Scenario};
pub use simulate::{Setup, simulate};

#[cfg(test)]
mod claim_tests;
