//! What is counted: the typed handles, and a call for each thing that happens. Recording is a few atomic additions and never a
//! look-up by name (the two exceptions, errors by code and requests by route, are per request, not per token).

use std::sync::{Arc, OnceLock};

use ::prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

use forebay_core::report::{POSITIONS, Snapshot, StepReport};
use forebay_core::request::{CLASSES, FinishReason, Priority};
use forebay_core::units::Micros;

use super::adapters::{Adapter, AdapterUse, Adapters};
use super::config::Config;
use super::part::{Live, Part};
use super::process::Process;
use super::recent::{Recent, Time};
use super::route::{Outcome, Route};
use super::selected::Selected;
use super::workers::{WorkerFamilies, WorkerMetrics};

/// One per process, shared by the HTTP face and the engine loops; where there are several loops each has a clone
/// ([`Metrics::of_another_loop`]), and gauges show the sum of what they say.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) registry: Registry,
    pub(super) requests: [[IntCounter; Outcome::ALL.len()]; Route::ALL.len()],
    pub(super) errors: IntCounterVec,
    pub(super) panics: IntCounter,
    pub(super) log_lines_lost: IntCounter,
    /// Applied, refused.
    pub(super) reloads: [IntCounter; 2],
    pub(super) admitted: IntCounter,
    pub(super) stopped: IntCounter,
    pub(super) length: IntCounter,
    pub(super) cancelled: IntCounter,
    pub(super) failed: IntCounter,
    pub(super) live: Live,
    pub(super) prompt_tokens: IntCounter,
    /// Computed, found in the cache.
    pub(super) prompt_by_source: [IntCounter; 2],
    pub(super) prompt_abandoned: IntCounter,
    pub(super) prompt_pending: Live,
    pub(super) recomputed: IntCounter,
    pub(super) generation_tokens: IntCounter,
    pub(super) time_to_first_token: Histogram,
    pub(super) inter_token_latency: Histogram,
    pub(super) e2e_latency: Histogram,
    pub(super) prefill_time: Histogram,
    pub(super) decode_time: Histogram,
    pub(super) inference_time: Histogram,
    pub(super) time_per_token: Histogram,
    pub(super) request_prompt_tokens: Histogram,
    pub(super) request_generation_tokens: Histogram,
    pub(super) request_max_tokens: Histogram,
    /// Tokens of the longest sequence; not shown among ours.
    pub(super) longest: IntGauge,
    pub(super) running: Part,
    pub(super) waiting: Part,
    /// Blocks in use, all blocks, and those with content that can be found.
    pub(super) kv_blocks: [Part; 3],
    /// Not shown itself.
    pub(super) block_size: IntGauge,
    pub(super) kv_usage: Gauge,
    pub(super) preemptions: IntCounter,
    pub(super) prefix_queries: IntCounter,
    pub(super) prefix_hits: IntCounter,
    pub(super) spec_proposed: IntCounter,
    pub(super) spec_accepted: IntCounter,
    pub(super) spec_drafts: IntCounter,
    /// By place in the guess, the last one standing for all after it.
    pub(super) spec_positions: [IntCounter; POSITIONS],
    /// With an alternative, without one.
    pub(super) grammar_tokens: [IntCounter; 2],
    pub(super) steps: IntCounter,
    pub(super) step_reruns: IntCounter,
    pub(super) batch_size: Histogram,
    pub(super) batch_tokens: Histogram,
    pub(super) step_duration: Histogram,
    pub(super) engine_gap: Histogram,
    pub(super) stalls: IntCounter,
    pub(super) stall_excess: Histogram,
    pub(super) batches: IntCounterVec,
    pub(super) flushed_requests: Histogram,
    pub(super) queue_time: Histogram,
    pub(super) queue_depth: [Part; CLASSES],
    pub(super) queue_total: Part,
    pub(super) released_size: Histogram,
    /// By outcome, of requests that ask the model.
    pub(super) asked: [IntCounter; Outcome::ALL.len()],
    pub(super) request_ms: Histogram,
    /// In millionths per second; not shown itself.
    pub(super) drained: Part,
    pub(super) drain_rate: Gauge,
    pub(super) running_by_priority: [Part; CLASSES],
    /// Sequences with a seat and no blocks; not shown itself.
    pub(super) seatless: Part,
    pub(super) selected: Selected,
    /// By class that something is promised to: kept, broken.
    pub(super) promises: [[IntCounter; 2]; CLASSES - 1],
    /// Early, late.
    pub(super) ttft_prediction_error: [Histogram; 2],
    pub(super) thermal_level: IntGauge,
    pub(super) workers: WorkerFamilies,
    pub(super) recent: Arc<Recent>,
    pub(super) model: Arc<OnceLock<String>>,
    pub(super) adapters: Adapters,
    pub(super) process: Process,
}

impl Metrics {
    /// Sequences that were queued, and the prompt tokens of all of them together.
    pub fn admitted(&self, sequences: usize, prompt_tokens: usize) {
        self.admitted.inc_by(sequences as u64);
        self.live.part.add(sequences as i64);
        self.prompt_tokens.inc_by(prompt_tokens as u64);
        self.prompt_pending.part.add(prompt_tokens as i64);
    }

    /// A sequence's first token, this long after it was queued.
    /// `predicted` is what the client was told.
    pub fn first_token(&self, since_queued: Micros, predicted: Option<Micros>, now: Micros) {
        self.generation_tokens.inc();
        self.recent.took(Time::FirstToken, since_queued, now);
        self.time_to_first_token.observe(since_queued.as_secs_f64());
        if let Some(predicted) = predicted {
            let late = since_queued.as_secs_f64() - predicted.as_secs_f64();
            let side = usize::from(late > 0.0);
            self.ttft_prediction_error[side].observe(late.abs());
        }
    }

    /// A batch left the queue; each of its requests had waited so long.
    pub fn released(&self, waits: impl ExactSizeIterator<Item = Micros>, cause: &str) {
        self.batches.with_label_values(&[cause]).inc();
        self.flushed_requests.observe(waits.len() as f64);
        self.released_size.observe(waits.len() as f64);
        waits.for_each(|wait| self.queue_time.observe(wait.as_secs_f64()));
    }

    /// Queued requests by priority, highest first, and how fast the queue drains.
    pub fn queue(&self, depths: [usize; CLASSES], drained_per_s: f64) {
        self.queue_depth.iter().zip(depths).for_each(|(gauge, depth)| gauge.set(depth as i64));
        self.queue_total.set(depths.iter().sum::<usize>() as i64);
        self.drained.set((drained_per_s * 1e6) as i64);
        self.drain_rate.set(self.drained.sum() as f64 / 1e6);
    }

    /// Running sequences by priority, highest first.
    pub fn running(&self, counts: [usize; CLASSES]) {
        self.running_by_priority.iter().zip(counts).for_each(|(gauge, count)| gauge.set(count as i64));
    }

    /// The strategy and the policy in force.
    pub fn selected(&self, strategy: &'static str, policy: &'static str) {
        self.selected.set([strategy, policy]);
    }

    /// The strategy and the policy in force; `None` where nothing is scheduled here.
    pub fn selection(&self) -> Option<[&'static str; 2]> {
        self.selected.get()
    }

    /// Tokens per block of the KV cache.
    pub fn block_size(&self) -> i64 {
        self.block_size.get()
    }

    /// 0 nominal to 4 emergency.
    pub fn thermal(&self, level: usize) {
        self.thermal_level.set(level as i64);
    }

    /// A step took so long; with a limit, for those that decode, it should not take longer than that.
    pub fn step_time(&self, elapsed: Micros, limit: Option<Micros>) {
        self.step_duration.observe(elapsed.as_secs_f64());
        if let Some(limit) = limit.filter(|limit| elapsed > *limit) {
            self.stalls.inc();
            self.stall_excess.observe(elapsed.since(limit).as_secs_f64());
        }
    }

    /// Between two passes of the model while there was work.
    pub fn engine_gap(&self, gap: Micros) {
        self.engine_gap.observe(gap.as_secs_f64());
    }

    /// A later token, this long after the one before it; time spent preempted counts.
    pub fn next_token(&self, since_last: Micros, now: Micros) {
        self.generation_tokens.inc();
        self.recent.took(Time::InterToken, since_last, now);
        self.inter_token_latency.observe(since_last.as_secs_f64());
    }

    pub fn finished(&self, reason: FinishReason, since_queued: Micros, now: Micros) {
        self.live.part.add(-1);
        match reason {
            FinishReason::Stop | FinishReason::ToolCalls => self.stopped.inc(),
            FinishReason::Length => self.length.inc(),
            // Its latency says when the client lost patience, not how fast the server is.
            FinishReason::Abort => return self.cancelled.inc(),
        }
        self.e2e_latency.observe(since_queued.as_secs_f64());
        self.recent.took(Time::Whole, since_queued, now);
    }

    /// A sequence ended that its class's promise can be held against.
    pub fn promised(&self, class: Priority, kept: bool) {
        if let Some(counters) = self.promises.get(class.index()) {
            counters[usize::from(!kept)].inc();
        }
    }

    pub fn failed(&self) {
        self.live.part.add(-1);
        self.failed.inc();
    }

    /// What one call of the core did.
    pub fn steps(&self, report: &StepReport) {
        for facts in &report.steps {
            self.steps.inc();
            self.step_reruns.inc_by(facts.rerun.is_some().into());
            self.preemptions.inc_by(facts.preempted as u64);
            self.prefix_queries.inc_by(facts.prefix_queries as u64);
            self.prefix_hits.inc_by(facts.prefix_hits as u64);
            self.spec_proposed.inc_by(facts.proposed as u64);
            self.spec_accepted.inc_by(facts.accepted as u64);
            self.spec_drafts.inc_by(facts.drafts as u64);
            self.spec_positions.iter().zip(facts.accepted_at).for_each(|(at, count)| at.inc_by(count.into()));
            self.grammar_tokens[0].inc_by(facts.choices as u64);
            self.grammar_tokens[1].inc_by(facts.constrained.saturating_sub(facts.choices) as u64);
            self.batch_size.observe(facts.sequences as f64);
            self.batch_tokens.observe((facts.prefill_tokens + facts.decode_tokens) as f64);
        }
    }

    /// The engine's state between two steps.
    pub fn state(&self, snapshot: &Snapshot, block_size: usize) {
        self.block_size.set(block_size as i64);
        self.running.set(snapshot.running as i64);
        self.waiting.set((snapshot.queued + snapshot.waiting) as i64);
        self.seatless.set(snapshot.waiting as i64);
        let blocks = [snapshot.blocks_used, snapshot.blocks_total, snapshot.blocks_cached];
        for (part, blocks) in self.kv_blocks.iter().zip(blocks) {
            part.set(blocks as i64);
        }
        let [used, total, _] = self.kv_blocks.each_ref().map(Part::sum);
        self.kv_usage.set(used as f64 / total.max(1) as f64);
    }

    /// An HTTP request has ended, its body included, so long after its head came.
    pub fn request(&self, route: Route, outcome: Outcome, took: Micros) {
        self.requests[route as usize][outcome as usize].inc();
        if route.asks_the_model() {
            self.asked[outcome as usize].inc();
            self.request_ms.observe(took.as_secs_f64() * 1e3);
        }
    }

    /// An error object was sent, whole or inside a stream. `code` comes from the table in `api/error.rs`.
    pub fn error(&self, code: &'static str, route: Route) {
        self.errors.with_label_values(&[code, route.label()]).inc();
    }

    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// So many since the process began; told by one task.
    pub fn log_lines_lost(&self, total: u64) {
        self.log_lines_lost.inc_by(total.saturating_sub(self.log_lines_lost.get()));
    }

    /// The configuration was read again, and put in force or refused.
    pub fn reloaded(&self, applied: bool) {
        self.reloads[usize::from(!applied)].inc();
    }

    /// The name of the model that is served; the first counts.
    pub fn serves(&self, model: &str) {
        let _ = self.model.set(model.to_owned());
    }

    /// The model's adapters, in their order; the first call counts.
    pub fn adapts(&self, names: &[String]) {
        if !names.is_empty() {
            let _ = self.adapters.set(names.iter().map(|name| Adapter::named(name)).collect());
        }
    }

    /// A sequence that waits is counted with its adapter, by its place among them, for as long as the result lives.
    pub fn adapter_use(&self, adapter: Option<u32>) -> Option<AdapterUse> {
        let adapter = self.adapters.get()?.get(adapter? as usize)?;
        Some(AdapterUse::waiting(adapter.clone()))
    }

    pub fn config(&self) -> &Config {
        self.recent.config()
    }

    /// The same series for one more loop.
    pub fn of_another_loop(&self) -> Arc<Metrics> {
        Arc::new(self.clone())
    }

    /// The series of a worker.
    pub fn worker(&self, id: &str) -> WorkerMetrics {
        self.workers.of(id)
    }
}
