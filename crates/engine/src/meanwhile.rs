//! What the loop does while the core is away: it delivers what the step before brought, looks for clients that have gone, and
//! plans the step after.
//!
//! ```text
//! core  ── step N ────────────────────┐ ┌── step N+1 ─────────────────────
//! home    deliver N-1 · plan N+1 ···· │▲│ deliver N · plan N+2 ···········
//!                                     gap: orders, newcomers, is the plan still right?
//! ```
//! Only what the next plan depends on is left for the gap: who has ended, and what has been served to whom.

use forebay_core::report::{Decision, StepReport};
use forebay_core::request::Event;
use forebay_core::scheduler::StepPlan;
use forebay_core::units::{Micros, SeqId};

use super::home::Home;
use super::outlet::Heard;
use forebay_turn::core::Core;
use forebay_turn::executor::Executor;
use forebay_turn::tape::{self, Entry};

impl Home {
    /// The core is about to leave for a step; returns when.
    pub fn leaves<E: Executor>(&mut self, core: &Core<E>, plan: &StepPlan) -> Micros {
        if self.overlap {
            self.outlook = core.outlook_after(plan);
        }
        let now = self.clock.now();
        self.inbox.leaves(now, plan.predicted);
        self.heartbeat.begin(now);
        now
    }

    /// The core has left.
    pub fn meanwhile(&mut self) {
        if !self.overlap {
            return;
        }
        // Clients first: what comes after may take as long as it likes, within the step.
        self.catch_up();
        self.let_go();
        self.looked_for_gone = true;
        self.publish();
        self.ahead = self.outlook.take().and_then(|outlook| outlook.plan_ahead());
    }

    /// The core is back from the step that began at `began`; returns how long it took.
    pub fn returned(&mut self, began: Micros, report: StepReport) -> Micros {
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
        self.note(|| Entry::Stepped { elapsed, outcomes: tape::outcomes(&report) });
        self.account(&report);
        self.undelivered = Some(report);
        if !self.overlap {
            self.catch_up();
        }
        elapsed
    }

    /// What the next batch depends on: seats that are free, and tokens that their owners have had.
    fn account(&mut self, report: &StepReport) {
        for (seq, event) in &report.events {
            match event {
                Event::Token(_) => self.inbox.generated(*seq),
                Event::Finished(_) | Event::Failed(_) => self.inbox.ended(*seq),
                Event::Admitted { .. } | Event::Embedded(_) => {}
            }
        }
    }

    /// Delivers what has not been, if anything.
    pub(super) fn catch_up(&mut self) {
        if let Some(report) = self.undelivered.take() {
            self.deliver(report);
        }
    }

    fn deliver(&mut self, report: StepReport) {
        let now = self.clock.now();
        self.note(|| Entry::Delivered { now });
        self.metrics.steps(&report);
        let decoding = report.steps.iter().any(|facts| facts.decode_tokens > 0);
        let max_stall = self.inbox.tuning().0.scheduler.max_stall.filter(|_| decoding && report.steps.len() == 1);
        self.metrics.step_time(self.measured.steps.last().unwrap_or_default(), max_stall);
        self.measured.pending_out = report.pending_out;
        for facts in &report.steps {
            let (Some(reason), sequences) = (&facts.rerun, facts.sequences) else { continue };
            tracing::error!(event = "step_failed", sequences, reason, "a step failed and was rerun one by one");
        }
        for (seq, decision) in report.decisions {
            self.outlets.decided(seq, &decision, &self.metrics);
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

    /// An end that no step brought.
    pub(super) fn cut_short(&mut self, seq: SeqId, end: Event, now: Micros) {
        self.inbox.ended(seq);
        self.say(seq, end, now);
    }

    /// Tells the client, and everyone who keeps count.
    fn say(&mut self, seq: SeqId, event: Event, now: Micros) {
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
        match self.outlets.send(seq, event, now, &self.metrics) {
            Some(Heard::FirstToken(ttft)) => {
                self.measured.ttft.push(ttft);
                self.traces.note(seq, Decision::FirstToken, now);
            }
            Some(Heard::Admitted | Heard::NextToken | Heard::Ended) | None => {}
        }
    }
}
