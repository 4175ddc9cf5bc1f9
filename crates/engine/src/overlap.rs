//! What the loop does around a step. While the core is away it delivers what the step before brought, and looks for clients
//! that have gone.
//!
//! ```text
//! core   ── step N ────────────────────┐        ┌── step N+1 ─────────────────
//! loop     deliver N-1 · commands ···· │  gap   │ deliver N · commands ·······
//!                                       orders, newcomers, plan
//! ```
//! For the gap is left what needs the core at home, and what the next plan depends on: who has ended, and what has been
//! served to whom.

use forebay_core::report::{Decision, StepReport};
use forebay_core::request::Event;
use forebay_core::scheduler::StepPlan;
use forebay_core::units::{Micros, SeqId};

use super::event_senders::Sent;
use super::loop_state::LoopState;
use forebay_turn::core::Core;
use forebay_turn::decision_log::{self, Entry};
use forebay_turn::executor::Executor;

impl LoopState {
    /// The core is about to leave for a step; returns when.
    pub fn before_step(&mut self, plan: &StepPlan) -> Micros {
        let now = self.clock.now();
        self.turn.on_step(plan, now);
        self.heartbeat.begin(now);
        now
    }

    /// The core has left.
    pub fn during_step(&mut self) {
        if !self.overlap {
            return;
        }
        // Clients first: what comes after may take as long as it likes, within the step.
        self.deliver_last();
        self.abort_disconnected();
        self.looked_for_closed = true;
        self.publish();
    }

    /// The core is back from the step that began at `began`.
    pub fn after_step<E: Executor>(&mut self, core: &mut Core<E>, report: StepReport, began: Micros) {
        let report = StepReport { began, ..report };
        let now = self.clock.now();
        let elapsed = now.since(began);
        self.measured.steps.push(elapsed);
        if let Some(before) = self.measured.returned_at.replace(now) {
            let gap = Micros(now.since(before).0.saturating_sub(report.computed.unwrap_or(elapsed).0));
            self.measured.gaps.push(gap);
            self.measured.between.push(began.since(before));
            self.metrics.engine_gap(gap);
        }
        self.log.note(|| Entry::Stepped { elapsed, outcomes: decision_log::outcomes(&report) });
        self.turn.on_report(core, report, elapsed);
        if !self.overlap {
            self.deliver_last();
        }
    }

    /// Delivers what the last step brought, if it was not.
    pub(super) fn deliver_last(&mut self) {
        let now = self.clock.now();
        if let Some(report) = self.turn.take_report(now) {
            self.log.note(|| Entry::Delivered { now });
            self.deliver(report, now);
        }
    }

    /// Tells clients, traces and metrics what a step brought.
    pub(super) fn deliver(&mut self, report: StepReport, now: Micros) {
        self.metrics.steps(&report);
        let limit = match &report.steps[..] {
            [facts] => facts.limit,
            _ => None,
        };
        self.metrics.step_time(self.measured.steps.last().unwrap_or_default(), limit);
        self.measured.pending_out = report.pending_out;
        for facts in &report.steps {
            let (Some(reason), sequences) = (&facts.rerun, facts.sequences) else { continue };
            tracing::error!(event = "step_failed", sequences, reason, "a step failed and was rerun one by one");
        }
        for (seq, decision) in report.decisions {
            self.senders.decided(seq, &decision, &self.metrics);
            self.traces.step(seq, &decision, report.began);
            self.traces.note(seq, decision, now);
        }
        for seq in report.decoded {
            self.traces.decoded(seq);
        }
        for (seq, event) in report.events {
            self.say(seq, event, now);
        }
    }

    /// Tells the client, and everyone who keeps count.
    pub(super) fn say(&mut self, seq: SeqId, event: Event, now: Micros) {
        let how = match &event {
            Event::Finished(reason) => {
                self.history.end(seq, true, now);
                Some(reason.name())
            }
            Event::Failed(_) => {
                self.history.end(seq, false, now);
                Some("failed")
            }
            Event::Admitted { .. } | Event::Embedded(_) => None,
            Event::Token(_) => {
                self.history.token(seq, now);
                self.traces.token(seq, now);
                self.measured.tokens_total += 1;
                self.measured.window_tokens += 1;
                None
            }
        };
        if let (Some(ended), Some(export)) = (how.and_then(|how| self.traces.end(seq, how, now)), &self.export) {
            export.offer(ended);
        }
        match self.senders.send(seq, event, now, &self.metrics) {
            Some(Sent::FirstToken) => self.traces.note(seq, Decision::FirstToken, now),
            Some(Sent::Admitted | Sent::NextToken | Sent::End) | None => {}
        }
    }
}
