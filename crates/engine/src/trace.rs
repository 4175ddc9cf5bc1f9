//! What was decided for each sequence and when, kept for as long as it lives and a while longer. Pure.
//!
//! Bounded: live sequences are bounded by the queue, ended ones by a ring, the entries of each by a cap. Repetitions cost
//! nothing: a wait for the same cause and the next chunk of the same prefill only lengthen the entry that is there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use forebay_core::report::Decision;
use forebay_core::request::{CLASSES, Origin, Priority};
use forebay_core::units::{Micros, SeqId};

/// One decision, and how long it has held.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub at: Micros,
    pub decision: Decision,
    /// When it was last made again, and how often it was made in all.
    pub until: Micros,
    pub times: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub seq: SeqId,
    pub origin: Origin,
    pub priority: Priority,
    pub prompt_tokens: u32,
    /// Oldest first.
    pub entries: Vec<Entry>,
    /// Entries that were left out, from the middle.
    pub dropped: u32,
    pub course: Course,
}

/// A sequence's life in numbers, whatever entries were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// When the first step that computed some of it began.
    pub begun: Option<Micros>,
    /// When its client could have its first token.
    pub first_token: Option<Micros>,
    pub prefill_steps: u32,
    /// Computed, again where a preemption made that necessary; what the cache had is not among them.
    pub prefill_tokens: u32,
    pub cached_tokens: u32,
    pub decode_steps: u32,
    /// Tokens that were drawn.
    pub tokens: u32,
    pub preemptions: u32,
}

/// One entry, ready to be read: when, since the request was received, and what.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceLine {
    pub at: Micros,
    /// Until when it held; equal to `at` for what happens at once.
    pub until: Micros,
    pub what: &'static str,
    /// Names and values, in a fixed order.
    pub facts: Vec<(&'static str, TraceFact)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TraceFact {
    Number(u64),
    Text(String),
}

/// Entries per sequence. The first half is kept for good, of the rest the newest.
const MAX_ENTRIES: usize = 128;
/// Ended sequences that can still be asked about.
const MAX_ENDED: usize = 1024;

#[derive(Debug, Default)]
pub struct Traces {
    live: BTreeMap<SeqId, Trace>,
    ended: VecDeque<Arc<Trace>>,
}

impl Traces {
    pub fn begin(&mut self, seq: SeqId, origin: Origin, priority: Priority, prompt_tokens: u32) {
        let (entries, course) = (Vec::new(), Course::default());
        self.live.insert(seq, Trace { seq, origin, priority, prompt_tokens, entries, dropped: 0, course });
    }

    pub fn note(&mut self, seq: SeqId, decision: Decision, now: Micros) {
        if let Some(trace) = self.live.get_mut(&seq) {
            trace.note(decision, now);
        }
    }

    /// What a step that began at `began` decided for it.
    pub fn step(&mut self, seq: SeqId, decision: &Decision, began: Micros) {
        let Some(Trace { course, .. }) = self.live.get_mut(&seq) else { return };
        match decision {
            Decision::Prefill { from, to } => {
                course.begun.get_or_insert(began);
                course.prefill_steps += 1;
                course.prefill_tokens += to.saturating_sub(*from);
            }
            // Only its first: what a preempted one finds again is its own.
            Decision::Admitted { cached_tokens, .. } if course.begun.is_none() => {
                course.cached_tokens = *cached_tokens as u32;
            }
            Decision::Preempted { .. } => course.preemptions += 1,
            _ => {}
        }
    }

    /// A step went on with its completion.
    pub fn decoded(&mut self, seq: SeqId) {
        if let Some(trace) = self.live.get_mut(&seq) {
            trace.course.decode_steps += 1;
        }
    }

    pub fn token(&mut self, seq: SeqId, now: Micros) {
        if let Some(Trace { course, .. }) = self.live.get_mut(&seq) {
            course.tokens += 1;
            course.first_token.get_or_insert(now);
        }
    }

    /// The sequence has ended; its trace moves to the ring, and is handed out where it was not there already.
    pub fn end(&mut self, seq: SeqId, how: &'static str, now: Micros) -> Option<&Arc<Trace>> {
        let mut trace = self.live.remove(&seq)?;
        trace.note(Decision::Ended { how }, now);
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(Arc::new(trace));
        self.ended.back()
    }

    /// What holds a live sequence up, if its last decision was to wait.
    pub fn last(&self, seq: SeqId) -> Option<&Decision> {
        Some(&self.live.get(&seq)?.entries.last()?.decision)
    }

    /// All sequences of a request, by the id that its client read, or of one sequence by its own (`seq-7`).
    pub fn of(&self, id: &str) -> Vec<Trace> {
        let wanted = |trace: &Trace| &*trace.origin.id == id || trace.seq.to_string() == id;
        let live = self.live.values().filter(|trace| wanted(trace)).cloned();
        let ended = self.ended.iter().filter(|trace| wanted(trace)).map(|trace| Trace::clone(trace));
        ended.chain(live).collect()
    }

    /// Of a live sequence.
    pub fn live(&self, seq: SeqId) -> Option<&Trace> {
        self.live.get(&seq)
    }

    /// Ended ones, the newest first.
    pub fn ended(&self) -> impl Iterator<Item = &Trace> {
        self.ended.iter().rev().map(Arc::as_ref)
    }

    /// Live sequences of a request.
    pub fn live_of(&self, id: &str) -> Vec<SeqId> {
        let wanted = |trace: &&Trace| &*trace.origin.id == id || trace.seq.to_string() == id;
        self.live.values().filter(wanted).map(|trace| trace.seq).collect()
    }
}

impl Trace {
    fn note(&mut self, decision: Decision, now: Micros) {
        if let Some(last) = self.entries.last_mut()
            && last.absorb(&decision, now)
        {
            return;
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.remove(MAX_ENTRIES / 2);
            self.dropped += 1;
        }
        self.entries.push(Entry { at: now, decision, until: now, times: 1 });
    }
}

impl Trace {
    /// How it ended and when, if it has.
    pub fn end(&self) -> Option<(&'static str, Micros)> {
        let last = self.entries.last()?;
        if let Decision::Ended { how } = last.decision { Some((how, last.at)) } else { None }
    }

    /// The entries as a client or an operator reads them; times count from when the request was received.
    pub fn lines(&self) -> Vec<TraceLine> {
        self.entries.iter().map(|entry| entry.line(self.origin.received)).collect()
    }
}

impl Entry {
    fn line(&self, received: Micros) -> TraceLine {
        let (what, mut facts) = spelled(&self.decision);
        if self.times > 1 {
            facts.push(("times", TraceFact::Number(self.times.into())));
        }
        TraceLine { at: self.at.since(received), until: self.until.since(received), what, facts }
    }

    /// Whether `next` only continues this entry.
    fn absorb(&mut self, next: &Decision, now: Micros) -> bool {
        match (&mut self.decision, next) {
            (Decision::Waits(cause), Decision::Waits(again)) if cause == again => {}
            (Decision::Prefill { to, .. }, Decision::Prefill { from, to: further }) if *to == *from => *to = *further,
            _ => return false,
        }
        self.until = now;
        self.times += 1;
        true
    }
}

/// `critical 2, high 1`; `None` where nobody overtook.
fn overtakers(by_class: &[usize; CLASSES]) -> Option<String> {
    let classes = Priority::ALL.into_iter().zip(by_class).filter(|(_, count)| **count > 0);
    let told: Vec<String> = classes.map(|(class, count)| format!("{} {count}", class.name())).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

fn spelled(decision: &Decision) -> (&'static str, Vec<(&'static str, TraceFact)>) {
    let number = |n: usize| TraceFact::Number(n as u64);
    let text = |text: &str| TraceFact::Text(text.to_owned());
    match decision {
        Decision::Queued { depth, predicted_ttft } => {
            let predicted = predicted_ttft.map(|at| ("predicted_ttft_us", TraceFact::Number(at.0)));
            ("queued", [("depth", number(*depth))].into_iter().chain(predicted).collect())
        }
        Decision::Released {
            batch,
            size,
            strategy,
            cause,
            gathered,
            seatless,
            passed_by_priority,
            passed_by_fairness,
            overtaken_by,
        } => (
            "released",
            [
                ("batch", TraceFact::Number(*batch)),
                ("batch_size", number(*size)),
                ("strategy", text(strategy)),
                ("cause", text(cause)),
                ("waited_flush_timer_us", TraceFact::Number(gathered.0)),
                ("waited_seats_us", TraceFact::Number(seatless.0)),
                ("waited_lower_priority", number(*passed_by_priority)),
                ("waited_fair_share", number(*passed_by_fairness)),
            ]
            .into_iter()
            .chain(overtakers(overtaken_by).map(|by| ("overtaken_by", TraceFact::Text(by))))
            .collect(),
        ),
        Decision::Waits(cause) => ("waits", vec![("cause", text(cause.name()))]),
        Decision::Admitted { cached_tokens, miss } => {
            let miss = miss.map(|miss| ("miss", TraceFact::Text(miss.name().into())));
            ("admitted", [("cached_tokens", number(*cached_tokens))].into_iter().chain(miss).collect())
        }
        Decision::Prefill { from, to } => {
            ("prefill", vec![("from", TraceFact::Number((*from).into())), ("to", TraceFact::Number((*to).into()))])
        }
        Decision::Preempted { by } => ("preempted", vec![("by", TraceFact::Text(by.to_string()))]),
        Decision::FirstToken => ("first_token", Vec::new()),
        Decision::Ended { how } => ("ended", vec![("how", text(how))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::report::Wait;

    fn traced(decisions: &[Decision]) -> Trace {
        let mut traces = Traces::default();
        traces.begin(SeqId(1), Origin { id: "cmpl-1".into(), ..Origin::default() }, Priority::Normal, 8);
        for (at, decision) in decisions.iter().enumerate() {
            traces.note(SeqId(1), decision.clone(), Micros(at as u64));
        }
        traces.end(SeqId(1), "stop", Micros(1_000_000));
        traces.of("cmpl-1").remove(0)
    }

    #[test]
    fn repetitions_lengthen_the_entry_that_is_there() {
        let wait = |cause| Decision::Waits(cause);
        let chunk = |from, to| Decision::Prefill { from, to };
        let trace = traced(&[
            wait(Wait::Seats),
            wait(Wait::Seats),
            wait(Wait::Blocks),
            chunk(0, 8),
            chunk(8, 16),
            Decision::Preempted { by: SeqId(9) },
            chunk(0, 8),
        ]);
        let entries: Vec<_> = trace.entries.iter().map(|e| (e.decision.clone(), e.at.0, e.until.0, e.times)).collect();
        assert_eq!(
            entries,
            [
                (wait(Wait::Seats), 0, 1, 2),
                (wait(Wait::Blocks), 2, 2, 1),
                (chunk(0, 16), 3, 4, 2),
                (Decision::Preempted { by: SeqId(9) }, 5, 5, 1),
                (chunk(0, 8), 6, 6, 1),
                (Decision::Ended { how: "stop" }, 1_000_000, 1_000_000, 1),
            ]
        );
    }

    #[test]
    fn a_trace_names_the_classes_that_overtook() {
        assert_eq!(overtakers(&[0; CLASSES]), None);
        assert_eq!(overtakers(&[2, 0, 1, 0, 0]).as_deref(), Some("critical 2, normal 1"));
    }

    #[test]
    fn the_course_counts_what_entries_may_leave_out() {
        let mut traces = Traces::default();
        traces.begin(SeqId(1), Origin::default(), Priority::Normal, 8);
        let mut step = |decision: Decision, began: u64| traces.step(SeqId(1), &decision, Micros(began));
        step(Decision::Admitted { cached_tokens: 4, miss: None }, 10);
        step(Decision::Prefill { from: 4, to: 8 }, 10);
        step(Decision::Prefill { from: 8, to: 10 }, 20);
        step(Decision::Preempted { by: SeqId(2) }, 30);
        step(Decision::Admitted { cached_tokens: 9, miss: None }, 40);
        step(Decision::Prefill { from: 9, to: 11 }, 40);
        traces.token(SeqId(1), Micros(25));
        traces.decoded(SeqId(1));
        traces.token(SeqId(1), Micros(50));
        let ended = traces.end(SeqId(1), "length", Micros(60)).cloned().unwrap();
        let expected = Course {
            begun: Some(Micros(10)),
            first_token: Some(Micros(25)),
            prefill_steps: 3,
            prefill_tokens: 8,
            cached_tokens: 4,
            decode_steps: 1,
            tokens: 2,
            preemptions: 1,
        };
        assert_eq!((ended.course, ended.end()), (expected, Some(("length", Micros(60)))));
        assert!(traces.end(SeqId(1), "length", Micros(61)).is_none(), "only once");
    }

    #[test]
    fn a_long_life_keeps_its_beginning_and_its_end() {
        let decisions: Vec<Decision> = (0..1000).map(|n| Decision::Preempted { by: SeqId(n) }).collect();
        let trace = traced(&decisions);
        assert_eq!((trace.entries.len(), trace.dropped), (MAX_ENTRIES, 1001 - MAX_ENTRIES as u32));
        assert_eq!(trace.entries[0].decision, decisions[0]);
        assert_eq!(trace.entries[MAX_ENTRIES - 2].decision, decisions[999]);
        assert_eq!(trace.entries[MAX_ENTRIES - 1].decision, Decision::Ended { how: "stop" });
    }

    #[test]
    fn a_request_is_found_by_its_id_live_or_ended_and_the_ring_is_bounded() {
        let mut traces = Traces::default();
        for n in 0..3_000 {
            let origin = Origin { id: format!("cmpl-{}", n / 2).into(), ..Origin::default() };
            traces.begin(SeqId(n), origin, Priority::High, 8);
        }
        assert_eq!(traces.live_of("cmpl-7"), [SeqId(14), SeqId(15)]);
        assert_eq!(traces.live_of("seq-14"), [SeqId(14)]);
        (0..2_999).for_each(|n| drop(traces.end(SeqId(n), "length", Micros(n)).cloned()));
        assert_eq!(traces.of("cmpl-1499").len(), 2, "one ended, one live");
        assert_eq!(traces.live_of("cmpl-1499"), [SeqId(2_999)]);
        assert!(traces.of("cmpl-7").is_empty(), "long forgotten");
        assert_eq!(traces.ended.len(), MAX_ENDED);
    }
}
