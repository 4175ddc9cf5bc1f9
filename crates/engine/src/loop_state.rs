//! What the engine loop keeps while the core is away, and what it does with commands and while the core is home. What it does
//! around a step is in [`super::overlap`], what it answers to questions in [`super::answers`].

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::metrics::Metrics;
use forebay_clock::Clock;
use forebay_core::report::{BlockUse, Decision, Stage};
use forebay_core::request::{CLASSES, Event, FinishReason, Origin, Priority, Request, RequestError};
use forebay_core::scheduler::StepPlan;
use forebay_core::scheduler::thermal::{Level, Reading, Thresholds};
use forebay_core::units::{Micros, SeqId};

use super::cache_feed::CacheFeed;
use super::command::{Accepted, EngineCommand, Submission};
use super::decision_log::DecisionLog;
use super::event_senders::{EventSenders, Opening};
use super::export::Export;
use super::heartbeat::Heartbeat;
use super::permit::{Closed, Gate};
use super::trace::Traces;
use forebay_turn::control::{ChangeSet, Changed, Group, Tuning};
use forebay_turn::core::Core;
use forebay_turn::decision_log::{Entry, Planned};
use forebay_turn::executor::Executor;
use forebay_turn::history::History;
use forebay_turn::turn::{Release, Turn};
use forebay_turn::window::{SAMPLES, Window};

/// The loop's side of a [`Turn`]: the turn decides, this sends, traces, measures and answers.
///
/// It is owned by [`super::run::run`], which calls, in this order and around: [`LoopState::on_command`] for what waits in the
/// channel, [`LoopState::settle`], [`LoopState::plan`], and then either [`LoopState::rest`] or, around a step,
/// `before_step`, `during_step` and `after_step`. Commands may come between any two of these calls; [`LoopState::end`] comes
/// last.
pub struct LoopState {
    /// The queue, the orders for the core, and what it last brought.
    pub(super) turn: Turn,
    /// Where the clients of open sequences listen.
    pub(super) senders: EventSenders,
    /// How live and newly ended sequences were scheduled.
    pub(super) traces: Traces,
    /// Permits for places in the queue, shared with the HTTP face.
    gate: Gate,
    /// Who waits for the end of a drain.
    drains: Vec<oneshot::Sender<()>>,
    /// Who wants to know what blocks are used for, when the core is home.
    block_readers: Vec<oneshot::Sender<Vec<BlockUse>>>,
    /// The loop is to return.
    ending: bool,
    /// Times and counts for statistics.
    pub(super) measured: Measured,
    /// The newest requests in numbers, for recommendations.
    pub(super) history: History,
    /// Records decisions, if asked to.
    pub(super) log: DecisionLog,
    /// Where ended traces go, if anywhere.
    pub(super) export: Option<Export>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    /// Tells health probes whether a step runs.
    pub(super) heartbeat: Arc<Heartbeat>,
    /// Who is told what the prefix cache holds.
    cache_feed: Option<CacheFeed>,
    /// Whether what can be done while a step runs is done then, or before the next one begins.
    pub(super) overlap: bool,
    /// Closed event channels were looked for since the core was last home.
    pub(super) looked_for_closed: bool,
}

/// What the loop has seen since the process began, and since the window was reset.
pub(super) struct Measured {
    pub tokens_total: u64,
    /// Tokens of the last call that were ready before it came back.
    pub pending_out: usize,
    pub window_began: Micros,
    pub window_tokens: u64,
    /// How long steps took.
    pub steps: Window,
    /// How long the model did not compute.
    pub gaps: Window,
    /// From the end of a step to the beginning of the next: what belongs to the duration of none.
    pub between: Window,
    /// When the last step ended, unless there was nothing to do since.
    pub returned_at: Option<Micros>,
}

/// What a [`LoopState`] is made of.
pub struct LoopParts {
    pub tuning: Tuning,
    pub thermal: Thresholds,
    pub gate: Gate,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub heartbeat: Arc<Heartbeat>,
}

/// A submitted sequence while its group waits for the queue's answer.
struct Submitted {
    seq: SeqId,
    origin: Origin,
    priority: Priority,
    /// The model's adapter that it asks for.
    adapter: Option<u32>,
    /// What its event channel is opened with; the prediction, the promise and the adapter's metrics are not in it yet.
    opening: Opening,
}

impl Submitted {
    /// What the loop keeps of a submission, and its request for the queue.
    fn of(submission: Submission) -> (Submitted, Request) {
        let Submission { request, events, permit } = submission;
        let opening = Opening {
            events,
            permit,
            predicted: None,
            prompt_tokens: request.prompt().len(),
            max_tokens: request.max_tokens() as usize,
            class: request.priority(),
            received: request.origin().received,
            promise: None,
            adapter: None,
        };
        let submitted = Submitted {
            seq: request.id(),
            origin: request.origin().clone(),
            priority: request.priority(),
            adapter: request.adapter(),
            opening,
        };
        (submitted, request)
    }
}

impl LoopState {
    pub fn new(parts: LoopParts) -> LoopState {
        let LoopParts { tuning, thermal, gate, clock, metrics, heartbeat } = parts;
        let measured = Measured {
            tokens_total: 0,
            pending_out: 0,
            window_began: clock.now(),
            window_tokens: 0,
            steps: Window::new(SAMPLES),
            gaps: Window::new(SAMPLES),
            between: Window::new(SAMPLES),
            returned_at: None,
        };
        let state = LoopState {
            turn: Turn::new(tuning, thermal),
            senders: EventSenders::default(),
            traces: Traces::default(),
            gate,
            drains: Vec::new(),
            block_readers: Vec::new(),
            ending: false,
            measured,
            history: History::default(),
            log: DecisionLog::default(),
            export: None,
            clock,
            metrics,
            heartbeat,
            cache_feed: None,
            overlap: true,
            looked_for_closed: false,
        };
        state.tell_selected();
        state
    }

    fn tell_selected(&self) {
        let (tuning, _) = self.turn.inbox().tuning();
        if let (Some(strategy), Some(policy)) = (tuning.selected(Group::Strategy), tuning.selected(Group::Policy)) {
            self.metrics.selected(strategy, policy);
        }
    }

    /// Records what is heard and decided from now on, up to `most` entries; when they are full, or nobody reads any more,
    /// recording ends.
    pub fn record(&mut self, most: usize) -> mpsc::Receiver<Entry> {
        let (log, entries) = DecisionLog::new(most);
        self.log = log;
        entries
    }

    /// Traces of sequences that end are offered there.
    pub fn exporting(self, export: Option<Export>) -> LoopState {
        LoopState { export, ..self }
    }

    /// Tells what the prefix cache holds from now on; the core must be [`Core::telling`].
    pub fn feeding(self, cache_feed: Option<CacheFeed>) -> LoopState {
        LoopState { cache_feed, ..self }
    }

    /// Whether the last step is delivered while the next one runs. Changes no answer.
    pub fn overlapping(self, overlap: bool) -> LoopState {
        LoopState { overlap, ..self }
    }

    /// Whether the loop is to return.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    pub fn end_soon(&mut self) {
        self.ending = true;
    }

    /// Carries out what concerns only the loop's side, and keeps for the core what concerns it. A reply that nobody waits for
    /// any more is dropped.
    pub fn on_command(&mut self, command: EngineCommand) {
        match command {
            // A client that gave up before the answer leaves closed channels behind, which `settle` finds.
            EngineCommand::Submit { group, reply } => drop(reply.send(self.submit(group))),
            EngineCommand::Abort { seq } => self.abort(seq),
            EngineCommand::Stats { reply } => drop(reply.send(self.stats())),
            EngineCommand::Pause => {
                self.log.note(|| Entry::Paused);
                self.turn.on_pause();
            }
            EngineCommand::Resume => {
                self.log.note(|| Entry::Resumed);
                self.turn.on_resume();
            }
            EngineCommand::Drain { reply } => self.drain(reply),
            EngineCommand::Shutdown => self.ending = true,
            EngineCommand::Change { set, reply } => drop(reply.send(self.change(set))),
            EngineCommand::Temperature(reading) => self.temperature(reading),
            EngineCommand::Thermal { force, reply } => {
                let before = self.turn.on_thermal_order(force, self.clock.now());
                self.note_thermal();
                let _ = reply.send(before);
            }
            EngineCommand::ResetStats => self.reset_stats(),
            EngineCommand::Requests { reply } => drop(reply.send(self.requests(usize::MAX))),
            EngineCommand::Recent { most, reply } => drop(reply.send(self.recent(most))),
            EngineCommand::Blocks { reply } => self.read_blocks_later(reply),
            EngineCommand::Trace { id, reply } => drop(reply.send(self.traces.of(&id))),
            EngineCommand::History { window, reply } => drop(reply.send(self.past(window))),
            EngineCommand::Cancel { id, reply } => drop(reply.send(self.cancel(&id))),
        }
    }

    /// All of the changes, or none.
    fn change(&mut self, set: ChangeSet) -> Result<Vec<Changed>, RequestError> {
        let changed = self.turn.on_change(&set)?;
        if !changed.is_empty() {
            self.history.changed(self.clock.now());
            self.log.note(|| Entry::Changed(set));
            self.tell_selected();
        }
        self.gate.set_capacity(self.turn.inbox().tuning().0.intake.capacity);
        Ok(changed)
    }

    fn submit(&mut self, group: Vec<Submission>) -> Result<Accepted, RequestError> {
        if let Closed::Thermal = self.gate.closed() {
            // A permit from before the heat.
            return Err(RequestError::ThermalLimit { retry_after_s: super::permit::THERMAL_RETRY_S });
        }
        let now = self.clock.now();
        let depth = self.turn.inbox().snapshot().queued;
        let (group, requests): (Vec<Submitted>, Vec<Request>) = group.into_iter().map(Submitted::of).unzip();
        let prompt_tokens = group.iter().map(|submitted| submitted.opening.prompt_tokens).sum();
        let copy = self.log.is_recording().then(|| requests.clone());
        let predicted = self.turn.on_submit(requests, now);
        if let Some(group) = copy {
            self.log.note(|| Entry::Submitted { now, group, accepted: predicted.is_ok() });
        }
        let predicted = predicted?;
        self.metrics.admitted(group.len(), prompt_tokens);
        let slo = self.turn.inbox().tuning().0.scheduler.slo;
        let mut accepted = Accepted::default();
        for Submitted { seq, origin, priority, adapter, mut opening } in group {
            let prompt_tokens = opening.prompt_tokens as u32;
            self.history.begin(seq, priority, prompt_tokens, now);
            accepted.predicted_ttft = predicted.map(|until| (now + until).since(origin.received));
            self.traces.begin(seq, origin, priority, prompt_tokens);
            self.traces.note(seq, Decision::Queued { depth, predicted_ttft: accepted.predicted_ttft }, now);
            opening.predicted = predicted.map(|until| now + until);
            opening.promise = slo.promise(priority);
            opening.adapter = self.metrics.adapter_use(adapter);
            self.senders.open(seq, opening, now);
        }
        Ok(accepted)
    }

    fn abort(&mut self, seq: SeqId) {
        self.log.note(|| Entry::Aborted { seq });
        self.turn.on_abort(seq);
        self.say(seq, Event::Finished(FinishReason::Abort), self.clock.now());
    }

    /// All sequences of a request, by order of the operator.
    fn cancel(&mut self, id: &str) -> usize {
        let now = self.clock.now();
        self.deliver_last();
        let live = self.traces.live_of(id);
        for &seq in &live {
            self.log.note(|| Entry::Aborted { seq });
            self.turn.on_abort(seq);
            self.say(seq, Event::Failed(RequestError::Aborted), now);
        }
        live.len()
    }

    fn drain(&mut self, reply: oneshot::Sender<()>) {
        let now = self.clock.now();
        self.gate.set_closed(Closed::Draining);
        for seq in self.turn.on_drain() {
            self.say(seq, Event::Failed(RequestError::ShuttingDown), now);
        }
        self.drains.push(reply);
    }

    fn temperature(&mut self, reading: Reading) {
        if let Some(change) = self.turn.on_temperature(reading, self.clock.now()) {
            tracing::warn!(
                event = "thermal_level",
                from = change.from.name(),
                to = change.to.name(),
                "the machine's temperature changed what may run"
            );
        }
        self.note_thermal();
    }

    fn note_thermal(&mut self) {
        let level = self.turn.inbox().thermal_level();
        self.metrics.thermal(level as usize);
        if !self.turn.inbox().is_draining() {
            self.gate.set_closed(if level >= Level::Critical { Closed::Thermal } else { Closed::Open });
        }
    }

    /// The core is home: it obeys, overdue requests end, and it takes as many others as it has seats.
    pub fn settle<E: Executor>(&mut self, core: &mut Core<E>) {
        if !std::mem::take(&mut self.looked_for_closed) {
            self.abort_disconnected();
        }
        if let Some(feed) = &mut self.cache_feed {
            feed.offer(core);
        }
        let now = self.clock.now();
        let settlement = self.turn.on_home(core, now);
        for reader in self.block_readers.drain(..) {
            let _ = reader.send(core.block_uses());
        }
        if let Some(report) = settlement.report {
            self.deliver(report, now);
        }
        for (seq, error) in settlement.ended {
            self.say(seq, Event::Failed(error), now);
        }
        self.log.note(|| {
            let ids = |release: &Release| release.sequences.iter().map(|released| released.seq).collect();
            Entry::Settled { now, batch: settlement.release.as_ref().map(|release| (release.batch, ids(release))) }
        });
        if let Some(release) = settlement.release {
            self.released(release, now);
        }
        if !self.overlap {
            self.publish();
        }
    }

    /// What others read of the queue and the core.
    pub(super) fn publish(&self) {
        let inbox = self.turn.inbox();
        let drained = inbox.drained_per_s(self.clock.now());
        self.gate.set_drain_rate(drained);
        self.metrics.queue(inbox.depths(), drained);
        let core = inbox.core();
        self.metrics.state(&inbox.snapshot(), core.block_size);
        let mut running = [0; CLASSES];
        for view in core.sequences.iter().filter(|view| view.stage != Stage::Waiting) {
            running[view.priority.index()] += 1;
        }
        self.metrics.running(running);
    }

    /// Aborts sequences whose client has gone. An `Abort` wakes a resting loop, but may not fit the channel; a closed event
    /// channel is the proof that the client left.
    pub(super) fn abort_disconnected(&mut self) {
        for seq in self.senders.disconnected() {
            self.abort(seq);
        }
    }

    /// A batch has left the queue: its places are free.
    fn released(&mut self, release: Release, now: Micros) {
        let waits = release.sequences.iter().map(|released| released.waited);
        self.metrics.released(waits, release.cause.name());
        for released in release.sequences {
            self.senders.seated(released.seq, now);
            self.traces.note(released.seq, released.decision, now);
        }
    }

    /// The next step, if there is one.
    pub fn plan<E: Executor>(&mut self, core: &mut Core<E>) -> Option<StepPlan> {
        if self.ending {
            return None;
        }
        let now = self.clock.now();
        let plan = self.turn.next_plan(core, now);
        self.log.note(|| Entry::Planned { now, plan: plan.as_ref().map(Planned::of) });
        plan
    }

    /// Nothing to compute: who waits for the end of a drain has an answer.
    pub fn rest<E: Executor>(&mut self, core: &Core<E>) {
        self.deliver_last();
        self.publish();
        self.heartbeat.rest();
        self.measured.returned_at = None;
        if self.turn.inbox().is_draining() && core.is_idle() {
            for reply in self.drains.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    /// How long until something is due without a command.
    pub fn until_due(&self) -> Option<Micros> {
        let now = self.clock.now();
        let timer = self.turn.next_wake(now).map(|at| at.since(now));
        timer.into_iter().chain(self.cache_feed.as_ref().and_then(CacheFeed::until_retry)).min()
    }

    /// The last turn: everyone who is still there hears why.
    pub fn end(&mut self) {
        self.deliver_last();
        let now = self.clock.now();
        for seq in self.senders.all() {
            self.say(seq, Event::Failed(RequestError::ShuttingDown), now);
        }
        self.heartbeat.end();
    }

    /// Readers that stopped waiting make room, so that a long step gathers none.
    fn read_blocks_later(&mut self, reader: oneshot::Sender<Vec<BlockUse>>) {
        self.block_readers.retain(|other| !other.is_closed());
        self.block_readers.push(reader);
    }
}
