//! What is queued and what computes, in numbers.

use forebay_core::report::{SequenceView, Wait};
use forebay_core::request::{CLASSES, Priority};
use forebay_core::units::Micros;

#[derive(Clone, Debug, Default)]
pub struct ThermalStats {
    pub level: &'static str,
    /// An operator holds it there.
    pub forced: bool,
    pub celsius: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub struct QueueStats {
    /// By priority, highest first.
    pub depths: [usize; CLASSES],
    /// Of those, how many gather, the others wait for a seat.
    pub gathering: usize,
    pub prompt_tokens: usize,
    /// What the strategy lets a group wait now.
    pub timeout: Micros,
    pub batches_formed: u64,
    pub requests_batched: u64,
    pub avg_batch_size: f64,
    /// Oldest first.
    pub last_batches: Vec<Batch>,
    pub drained_per_s: f64,
}

/// A batch that left the queue.
#[derive(Clone, Debug)]
pub struct Batch {
    pub id: u64,
    pub at: Micros,
    pub size: usize,
    /// Prompt tokens of all its requests.
    pub tokens: usize,
    pub max_priority: Priority,
    pub strategy: &'static str,
    pub cause: &'static str,
}

/// A live sequence, and what holds it up.
#[derive(Clone, Debug)]
pub struct LiveSequence {
    pub view: SequenceView,
    pub age: Micros,
    pub wait: Option<Wait>,
}
