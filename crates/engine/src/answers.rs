//! What [`LoopState`] answers to commands that only ask.

use forebay_core::report::{Decision, Wait};
use forebay_core::units::Micros;

use super::loop_state::LoopState;
use crate::stats::{EngineStats, Recent, WindowStats};
use forebay_turn::history::Record;
use forebay_turn::stats::LiveSequence;

impl LoopState {
    /// What came lately, and what the engine is made of.
    pub(super) fn past(&self, window: Micros) -> Record {
        let now = self.clock.now();
        let core = self.turn.inbox().core();
        Record {
            now,
            since: self.history.since(now, window),
            past: self.history.newest(now, window),
            tuning: self.turn.inbox().tuning().0.clone(),
            cost: core.lasting_cost.clone(),
            gap: self.measured.between.mean().unwrap_or_default(),
            block_size: core.block_size,
            num_blocks: core.snapshot.blocks_total,
        }
    }

    pub(super) fn reset_stats(&mut self) {
        self.turn.on_reset_stats();
        self.measured.window_began = self.clock.now();
        self.measured.window_tokens = 0;
        self.measured.steps.clear();
        self.measured.gaps.clear();
    }

    pub(super) fn stats(&self) -> EngineStats {
        let (now, measured, ttft) = (self.clock.now(), &self.measured, self.turn.ttft());
        let (tuning, start) = self.turn.inbox().tuning();
        EngineStats {
            now,
            snapshot: self.turn.inbox().snapshot(),
            tuning: tuning.clone(),
            start: start.clone(),
            thermal: self.turn.inbox().thermal(),
            queue: self.turn.inbox().queue(now, ttft.recent_p99()),
            total_tokens_generated: measured.tokens_total,
            window: WindowStats {
                seconds: now.since(measured.window_began).as_secs_f64(),
                tokens: measured.window_tokens,
                step_last: measured.steps.last(),
                step_mean: measured.steps.mean(),
                step_p50: measured.steps.percentile(0.5),
                step_p99: measured.steps.percentile(0.99),
                gap_p50: measured.gaps.percentile(0.5),
                gap_p99: measured.gaps.percentile(0.99),
                ttft_p50: ttft.percentile(0.5),
                ttft_p99: ttft.percentile(0.99),
            },
            pending_out: measured.pending_out,
        }
    }

    pub(super) fn recent(&self, most: usize) -> Vec<Recent> {
        let now = self.clock.now();
        let live = self.requests(most).into_iter().filter_map(|live| {
            let trace = self.traces.live(live.view.seq)?.clone();
            Some(Recent { live: Some(live), trace, now })
        });
        let ended = self.traces.ended().take(most).map(|trace| Recent { live: None, trace: trace.clone(), now });
        live.chain(ended).collect()
    }

    pub(super) fn requests(&self, most: usize) -> Vec<LiveSequence> {
        let mut live = self.turn.inbox().sequences(self.clock.now(), most);
        for sequence in &mut live {
            if self.turn.inbox().is_paused() {
                sequence.wait = Some(Wait::Paused);
            } else if let Some(Decision::Waits(cause)) = self.traces.last(sequence.view.seq) {
                sequence.wait = Some(*cause);
            }
        }
        live
    }
}
