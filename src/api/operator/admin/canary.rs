//! A strategy on trial, as the operator sees it.

use std::sync::Arc;

use tokio::sync::Mutex;

use forebay_sim::canary::Trial;

/// The last trial, or the one under way. The lock guards these few words; nobody awaits while holding it but for itself.
pub type Canaries = Arc<Mutex<Option<Canary>>>;

/// A trial as the operator sees it.
#[derive(Clone, Debug)]
pub struct Canary {
    pub strategy: String,
    pub instead_of: String,
    pub share: f64,
    pub seconds: f64,
    pub trial: Trial,
    /// `None` while it runs.
    pub outcome: Option<Outcome>,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub kept: bool,
    pub why: String,
}
