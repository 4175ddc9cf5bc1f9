//! What the operator sees and changes: `/admin`, the dashboard, and the server in numbers, as JSON and for Prometheus.

pub mod admin;
pub mod dashboard;
mod measured;
pub mod measures;
pub mod metrics;

#[cfg(test)]
mod answer_tests;
