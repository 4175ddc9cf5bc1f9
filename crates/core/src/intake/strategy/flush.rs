//! What a strategy is asked, and what it is told.

use crate::units::Micros;

/// Decides when a gathered group is flushed. Pure: the same arguments, the same answer.
pub trait FlushStrategy {
    /// How long the oldest request may gather, with `queue_depth` requests queued in all.
    fn calculate_timeout(&self, queue_depth: usize, metrics: &FlushMetrics) -> Micros;

    /// Whether the group goes now.
    fn should_flush(&self, batch: &Gathering, queue_depth: usize) -> bool;

    /// Whether what waits may interrupt the sequences that decode now. Asked while some decode and no prompt is computed; once a
    /// group is let in, its prompts are computed one step after the other.
    fn interrupts(&self, _pause: &Pause) -> bool {
        true
    }

    /// Whether requests that come while a group is computed wait for the next one, instead of joining it.
    fn closes_groups(&self) -> bool {
        false
    }

    /// Whether a flushed request for which there is a seat joins the next step, or stays for a later one.
    fn admits(&self, _joining: &Joining) -> bool {
        true
    }
}

/// Costs of the next step as it stands, in microseconds, with who is in it and what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// A step with every sequence that decodes and no prompt.
    pub step_us: f64,
    /// Time that each token of a prompt adds, and time that a prompt adds beside its tokens.
    pub token_us: f64,
    pub prompt_us: f64,
    /// Prompt tokens that a step takes, by its bounds of tokens and of time.
    pub step_tokens: usize,
    /// Sequences with a seat that wait for their first token, and the prompt tokens that are not computed yet.
    pub prompts: usize,
    pub tokens: usize,
    /// Requests that come, lately.
    pub arrivals_per_us: f64,
}

impl Prices {
    /// How long the next step takes if prompts fill it.
    pub fn full_step(&self) -> Micros {
        Micros((self.step_us + self.prompt_us + self.token_us * self.step_tokens as f64).max(0.0) as u64)
    }
}

/// The request that would be released next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joining {
    /// Tokens of its prompt.
    pub tokens: usize,
    /// Requests that are queued behind it, and their prompt tokens.
    pub behind: usize,
    pub tokens_behind: usize,
    /// With those that were released before it in the same turn.
    pub prices: Prices,
}

/// Undisturbed decoding, and what waits meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Since the last prompt was computed.
    pub quiet: Micros,
    /// Answer of [`FlushStrategy::calculate_timeout`].
    pub timeout: Micros,
    /// Requests that wait, and their prompt tokens.
    pub queued: usize,
    pub tokens: usize,
    /// Prompt tokens that the next step has room for.
    pub step_tokens: usize,
}

/// Measurements for strategies that look at more than the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushMetrics {
    /// 99th percentile of the time to the first token; `None` as long as there are no samples.
    pub p99_ttft: Option<Micros>,
}

/// The group that gathers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathering {
    pub size: usize,
    /// Prompt tokens.
    pub tokens: usize,
    /// How long its oldest request has waited.
    pub waited: Micros,
    /// Answer of [`FlushStrategy::calculate_timeout`].
    pub timeout: Micros,
}

/// Decodes have had their time, or what waits fills a step, which cannot be used better by waiting.
pub(super) fn rested_or_full(pause: &Pause) -> bool {
    pause.quiet >= pause.timeout || pause.tokens >= pause.step_tokens
}

/// The classical condition: the group is as large as a batch may be, or its timer has run out.
pub(super) fn full_or_due(batch: &Gathering, max_batch_size: usize) -> bool {
    batch.size > 0 && (batch.size >= max_batch_size || batch.waited >= batch.timeout)
}
