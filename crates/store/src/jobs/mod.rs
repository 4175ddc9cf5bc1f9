//! The Batch API behind its routes: lines of a file become requests of the lowest class, and their answers lines of another.
//!
//! ```text
//! lines.rs    what a line must be; an upload, cut into lines as it comes
//! window.rs   "24h"
//! wording.rs  answers and errors as OpenAI writes them
//! runner.rs   the loop: validate, ask, write down, end     active.rs  a batch under way
//! ```
//! A line is asked for as a client would ask, through the routes of `api`, which `app` hands in as an [`Answerer`]; so it has
//! the same checks and the same answer. It counts when its answer is in the store. A process that is killed forgets only
//! lines that are not there yet, and asks them again.

mod active;
mod lines;
mod runner;
mod window;
mod wording;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use lines::{LineFault, LineReader, ROUTES};
pub use runner::{Runner, RunnerParts};
pub use window::window_ms;

/// One line's request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Whose it is, for the fair share.
    pub batch: String,
    /// The key that pays.
    pub owner: Option<String>,
    pub url: String,
    /// JSON.
    pub body: String,
}

/// What its route said.
#[derive(Clone, Debug)]
pub struct Answered {
    pub status: u16,
    pub request_id: String,
    pub retry_after_s: Option<u32>,
    /// JSON.
    pub body: String,
}

/// Asks a route inside the process, in the lowest class. Dropping the future ends the request.
pub type Answerer = Arc<dyn Fn(Ask) -> BoxFuture<'static, Answered> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Lines that are asked for at once, of all batches together.
    pub concurrency: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { concurrency: 32 }
    }
}

#[cfg(test)]
mod tests;
