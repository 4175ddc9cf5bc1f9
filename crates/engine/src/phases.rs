//! A sequence's life as spans of time, from its trace: what a timeline shows. Pure.
//!
//! Decisions are noted when the step that carries them out has ended, so each tells what the time before it was spent on.

use forebay_core::report::Decision;
use forebay_core::units::Micros;

use super::trace::Trace;

/// What a span of a sequence's life was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// In the intake.
    Queue,
    /// It has a seat, and did not get further.
    Wait,
    /// Its prompt was computed, or computed again.
    Prefill,
    Decode,
    /// It had lost its blocks.
    Preempted,
}

impl Doing {
    pub const fn name(self) -> &'static str {
        match self {
            Doing::Queue => "queue",
            Doing::Wait => "wait",
            Doing::Prefill => "prefill",
            Doing::Decode => "decode",
            Doing::Preempted => "preempted",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub doing: Doing,
    /// Since the request was received.
    pub from: Micros,
    pub until: Micros,
    /// What it waited for, or who took its blocks.
    pub cause: Option<String>,
}

/// Without gaps and in order, from when the request was received until it ended, or until `now`. Spans without length are
/// left out.
pub fn phases(trace: &Trace, now: Micros) -> Vec<Phase> {
    let mut life = Life::default();
    let received = trace.origin.received;
    for entry in &trace.entries {
        let (at, until) = (entry.at.since(received), entry.until.since(received));
        life.tell(&entry.decision, at, until);
    }
    if !life.ended {
        life.close(now.since(received));
    }
    life.phases
}

struct Life {
    phases: Vec<Phase>,
    doing: Doing,
    from: Micros,
    cause: Option<String>,
    /// Its first token has come: what is prefilled from now on is so again.
    begun: bool,
    ended: bool,
}

impl Default for Life {
    fn default() -> Life {
        let doing = Doing::Queue;
        Life { phases: Vec::new(), doing, from: Micros::ZERO, cause: None, begun: false, ended: false }
    }
}

impl Life {
    fn tell(&mut self, decision: &Decision, at: Micros, until: Micros) {
        match decision {
            Decision::Queued { .. } => {}
            Decision::Released { seatless, .. } => {
                // The strategy's timer first, then until a seat was free.
                let flushed = Micros(at.0.saturating_sub(seatless.0));
                self.because(flushed, "flush_timer");
                self.because(at, "seats");
                self.become_(Doing::Prefill, at, None);
            }
            Decision::Waits(cause) => self.waited(cause.name(), at, until),
            Decision::Admitted { .. } => self.resume(at),
            Decision::Prefill { .. } => {
                self.resume(at);
                if self.begun {
                    self.become_(Doing::Decode, until, None);
                }
            }
            Decision::FirstToken => {
                self.begun = true;
                self.become_(Doing::Decode, at, None);
            }
            Decision::Preempted { by } => self.become_(Doing::Preempted, at, Some(by.to_string())),
            Decision::Ended { .. } => {
                self.close(at);
                self.ended = true;
            }
        }
    }

    fn waited(&mut self, cause: &str, at: Micros, until: Micros) {
        match self.doing {
            // It does not compute before it has its blocks again.
            Doing::Queue | Doing::Preempted => {}
            Doing::Decode => {
                self.close(at);
                self.because(until, cause);
            }
            Doing::Wait | Doing::Prefill => self.because(until, cause),
        }
    }

    /// It computes its known tokens.
    fn resume(&mut self, at: Micros) {
        match self.doing {
            Doing::Preempted => self.become_(Doing::Prefill, at, None),
            Doing::Queue | Doing::Wait => self.doing = Doing::Prefill,
            Doing::Prefill | Doing::Decode => {}
        }
    }

    /// The time up to `until` went to a wait; what it did goes on after.
    fn because(&mut self, until: Micros, cause: &str) {
        let doing = self.doing;
        if doing != Doing::Queue {
            self.doing = Doing::Wait;
        }
        self.cause = Some(cause.to_owned());
        self.close(until);
        self.doing = doing;
    }

    fn become_(&mut self, doing: Doing, at: Micros, cause: Option<String>) {
        self.close(at);
        self.doing = doing;
        self.cause = cause;
    }

    fn close(&mut self, until: Micros) {
        let cause = self.cause.take();
        if until <= self.from {
            return;
        }
        let from = std::mem::replace(&mut self.from, until);
        match self.phases.last_mut() {
            Some(last) if last.doing == self.doing && last.cause == cause => last.until = until,
            _ => self.phases.push(Phase { doing: self.doing, from, until, cause }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Traces;
    use forebay_core::report::Wait;
    use forebay_core::request::{Origin, Priority};
    use forebay_core::units::SeqId;

    /// Decisions by when they were noted; told at 1000, `name from-until (cause)`.
    fn check(decisions: &[(u64, Decision)], expected: &str) {
        let mut traces = Traces::default();
        let origin = Origin { id: "cmpl-1".into(), received: Micros(100), ..Origin::default() };
        traces.begin(SeqId(1), origin, Priority::Normal, 8);
        for (at, decision) in decisions {
            match decision {
                Decision::Ended { how } => drop(traces.end(SeqId(1), how, Micros(100 + at)).cloned()),
                other => traces.note(SeqId(1), other.clone(), Micros(100 + at)),
            }
        }
        let told = |phase: Phase| {
            let cause = phase.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            format!("{} {}-{}{cause}", phase.doing.name(), phase.from.0, phase.until.0)
        };
        let told: Vec<String> = phases(&traces.of("cmpl-1")[0], Micros(1_100)).into_iter().map(told).collect();
        assert_eq!(told.join(", "), expected);
    }

    fn released(gathered: u64, seatless: u64) -> Decision {
        Decision::Released {
            batch: 1,
            size: 1,
            strategy: "fixed",
            cause: "timer",
            gathered: Micros(gathered),
            seatless: Micros(seatless),
            passed_by_priority: 0,
            overtaken_by: Default::default(),
            passed_by_fairness: 0,
        }
    }

    const QUEUED: (u64, Decision) = (5, Decision::Queued { depth: 0, predicted_ttft: None });
    const ADMITTED: Decision = Decision::Admitted { cached_tokens: 0, miss: None };

    fn chunk(from: u32, to: u32) -> Decision {
        Decision::Prefill { from, to }
    }

    #[test]
    fn a_life_is_queue_prefill_decode() {
        check(&[QUEUED], "queue 0-1000");
        check(
            &[
                QUEUED,
                (50, released(30, 15)),
                (80, ADMITTED),
                (80, chunk(0, 4)),
                (120, chunk(4, 8)),
                (120, Decision::FirstToken),
                (400, Decision::Ended { how: "stop" }),
            ],
            "queue 0-35 (flush_timer), queue 35-50 (seats), prefill 50-120, decode 120-400",
        );
    }

    #[test]
    fn waits_and_preemptions_say_why() {
        check(
            &[
                QUEUED,
                (10, released(5, 0)),
                (20, Decision::Waits(Wait::Blocks)),
                (40, Decision::Waits(Wait::Blocks)),
                (60, ADMITTED),
                (60, chunk(0, 8)),
                (60, Decision::FirstToken),
                (100, Decision::Preempted { by: SeqId(7) }),
                (130, Decision::Waits(Wait::Blocks)),
                (150, ADMITTED),
                (150, chunk(0, 5)),
                (170, chunk(5, 12)),
            ],
            "queue 0-10 (flush_timer), wait 10-40 (blocks), prefill 40-60, decode 60-100, preempted 100-150 (seq-7), \
             prefill 150-170, decode 170-1000",
        );
    }

    #[test]
    fn what_never_got_a_seat_only_queued() {
        check(&[QUEUED, (70, Decision::Ended { how: "abort" })], "queue 0-70");
    }
}
