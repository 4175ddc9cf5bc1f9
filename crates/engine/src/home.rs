//! What stays while the core is away, and what the loop does with it while the core is home: the inbox, the clients' outlets,
//! traces, measurements. What it does in between is in [`super::meanwhile`],
//! what it answers to questions in [`super::answers`].

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::metrics::Metrics;
use forebay_clock::Clock;
use forebay_core::intake::Batch;
use forebay_core::report::{BlockUse, Decision, Stage, StepReport};
use forebay_core::request::{CLASSES, Event, FinishReason, Request, RequestError};
use forebay_core::scheduler::thermal::{Level, Thresholds};
use forebay_core::scheduler::{Outlook, PlannedAhead, StepPlan};
use forebay_core::units::{Micros, SeqId};

use super::cache_feed::CacheFeed;
use super::command::{Accepted, EngineCommand, Submission};
use super::export::Export;
use super::heartbeat::Heartbeat;
use super::outlet::{Opening, Outlets};
use super::permit::{Closed, Gate};
use super::trace::Traces;
use forebay_turn::control::{Change, Changed, Group, Retuning, Tuning};
use forebay_turn::core::Core;
use forebay_turn::executor::Executor;
use forebay_turn::history::History;
use forebay_turn::inbox::Inbox;
use forebay_turn::tape::{Entry, Planned};
use forebay_turn::window::{SAMPLES, Window};

pub struct Home {
    pub(super) inbox: Inbox,
    pub(super) outlets: Outlets,
    pub(super) traces: Traces,
    gate: Gate,
    drains: Vec<oneshot::Sender<()>>,
    /// Who wants to know what blocks are used for, when the core is home.
    onlookers: Vec<oneshot::Sender<Vec<BlockUse>>>,
    ending: bool,
    pub(super) measured: Measured,
    pub(super) history: History,
    /// Where decisions are recorded, while somebody listens and there is room.
    tape: Option<mpsc::Sender<Entry>>,
    /// Where ended traces go, if anywhere.
    pub(super) export: Option<Export>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) heartbeat: Arc<Heartbeat>,
    /// Who hears what the prefix cache holds.
    cache_feed: Option<CacheFeed>,
    /// Whether what can be done while a step runs is done then, or before the next one leaves.
    pub(super) overlap: bool,
    /// What the last call brought, until the clients have heard it.
    pub(super) undelivered: Option<StepReport>,
    /// What the next plan will most likely look at, and then that plan.
    pub(super) outlook: Option<Outlook>,
    pub(super) ahead: Option<PlannedAhead>,
    /// Since the core was last home.
    pub(super) looked_for_gone: bool,
}

/// What the loop has seen since the process began, and since the window was reset.
pub(super) struct Measured {
    pub tokens_total: u64,
    pub pending_out: usize,
    pub window_began: Micros,
    pub window_tokens: u64,
    pub steps: Window,
    /// How long the model did not compute.
    pub gaps: Window,
    /// From the end of a step to the beginning of the next: what belongs to the duration of none.
    pub between: Window,
    pub ttft: Window,
    /// When the last step ended, unless there was nothing to do since.
    pub returned_at: Option<Micros>,
}

/// What a [`Home`] is made of.
pub struct HomeParts {
    pub tuning: Tuning,
    pub thermal: Thresholds,
    pub gate: Gate,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub heartbeat: Arc<Heartbeat>,
}

impl Home {
    pub fn new(parts: HomeParts) -> Home {
        let HomeParts { tuning, thermal, gate, clock, metrics, heartbeat } = parts;
        let measured = Measured {
            tokens_total: 0,
            pending_out: 0,
            window_began: clock.now(),
            window_tokens: 0,
            steps: Window::new(SAMPLES),
            gaps: Window::new(SAMPLES),
            between: Window::new(SAMPLES),
            ttft: Window::new(SAMPLES),
            returned_at: None,
        };
        let home = Home {
            inbox: Inbox::new(tuning, thermal),
            outlets: Outlets::default(),
            traces: Traces::default(),
            gate,
            drains: Vec::new(),
            onlookers: Vec::new(),
            ending: false,
            measured,
            history: History::default(),
            tape: None,
            export: None,
            clock,
            metrics,
            heartbeat,
            cache_feed: None,
            overlap: true,
            undelivered: None,
            outlook: None,
            ahead: None,
            looked_for_gone: false,
        };
        home.tell_selected();
        home
    }

    fn tell_selected(&self) {
        let (tuning, _) = self.inbox.tuning();
        if let (Some(strategy), Some(policy)) = (tuning.selected(Group::Strategy), tuning.selected(Group::Policy)) {
            self.metrics.selected(strategy, policy);
        }
    }

    /// Records what is heard and decided from now on, up to `most` entries; when they are full, or nobody listens any more,
    /// recording ends.
    pub fn record(&mut self, most: usize) -> mpsc::Receiver<Entry> {
        let (tape, entries) = mpsc::channel(most.max(1));
        self.tape = Some(tape);
        entries
    }

    pub(super) fn note(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(tape) = &self.tape
            && tape.try_send(entry()).is_err()
        {
            self.tape = None;
        }
    }

    /// Traces of sequences that end are offered there.
    pub fn exporting(self, export: Option<Export>) -> Home {
        Home { export, ..self }
    }

    /// Tells what the prefix cache holds from now on; the core must be [`Core::telling`].
    pub fn feeding(self, cache_feed: Option<CacheFeed>) -> Home {
        Home { cache_feed, ..self }
    }

    /// Whether the next step is planned, and the last one delivered, while one runs. Changes no answer.
    pub fn overlapping(self, overlap: bool) -> Home {
        Home { overlap, ..self }
    }

    pub fn is_ending(&self) -> bool {
        self.ending
    }

    pub fn end_soon(&mut self) {
        self.ending = true;
    }

    pub fn hear(&mut self, command: EngineCommand) {
        // Whoever asked may have stopped waiting for the answer.
        match command {
            // A client that gave up before the answer leaves closed channels behind, which `settle` finds.
            EngineCommand::Submit { group, reply } => drop(reply.send(self.submit(group))),
            EngineCommand::Abort { seq } => self.abort(seq),
            EngineCommand::Stats { reply } => drop(reply.send(self.stats())),
            EngineCommand::Pause => {
                self.note(|| Entry::Paused);
                self.inbox.pause();
            }
            EngineCommand::Resume => {
                self.note(|| Entry::Resumed);
                self.inbox.resume();
            }
            EngineCommand::Drain { reply } => self.drain(reply),
            EngineCommand::Shutdown => self.ending = true,
            EngineCommand::Change { change, reply } => drop(reply.send(self.retune(vec![change], None))),
            EngineCommand::Retune { retuning: Retuning { changes, thermal }, reply } => {
                drop(reply.send(self.retune(changes, thermal)));
            }
            EngineCommand::Temperature(reading) => {
                let change = self.inbox.temperature(reading, self.clock.now());
                if let Some(change) = change {
                    tracing::warn!(
                        event = "thermal_level",
                        from = change.from.name(),
                        to = change.to.name(),
                        "the machine's temperature changed what may run"
                    );
                }
                self.note_thermal();
            }
            EngineCommand::Thermal { force, reply } => {
                let before = self.inbox.force_thermal(force, self.clock.now());
                self.note_thermal();
                let _ = reply.send(before);
            }
            EngineCommand::ResetStats => self.reset_stats(),
            EngineCommand::Requests { reply } => drop(reply.send(self.requests(usize::MAX))),
            EngineCommand::Recent { most, reply } => drop(reply.send(self.recent(most))),
            EngineCommand::Blocks { reply } => self.look_later(reply),
            EngineCommand::Trace { id, reply } => drop(reply.send(self.traces.of(&id))),
            EngineCommand::History { window, reply } => drop(reply.send(self.past(window))),
            EngineCommand::Cancel { id, reply } => drop(reply.send(self.cancel(&id))),
        }
    }

    /// All of the changes, or none.
    fn retune(&mut self, changes: Vec<Change>, thermal: Option<Thresholds>) -> Result<Vec<Changed>, RequestError> {
        let changed = self.inbox.retune(&changes)?;
        if !changed.is_empty() {
            self.history.changed(self.clock.now());
            self.note(|| Entry::Changed(changes));
            self.tell_selected();
        }
        self.gate.set_capacity(self.inbox.tuning().0.intake.capacity);
        if let Some(thresholds) = thermal {
            self.inbox.set_thresholds(thresholds);
        }
        Ok(changed)
    }

    fn submit(&mut self, group: Vec<Submission>) -> Result<Accepted, RequestError> {
        if let Closed::Thermal = self.gate.closed() {
            // A permit from before the heat.
            return Err(RequestError::ThermalLimit { retry_after_s: super::permit::THERMAL_RETRY_S });
        }
        let now = self.clock.now();
        let depth = self.inbox.snapshot().queued;
        let mut requests = Vec::with_capacity(group.len());
        let mut waiting = Vec::with_capacity(group.len());
        for Submission { request, events, permit } in group {
            let lengths = (request.prompt().len(), request.max_tokens() as usize, request.adapter());
            waiting.push((request.id(), events, permit, request.origin().clone(), request.priority(), lengths));
            requests.push(request);
        }
        let prompt_tokens = requests.iter().map(|request| request.prompt().len()).sum();
        let copy = self.tape.is_some().then(|| requests.clone());
        let predicted = self.inbox.submit(requests, now);
        if let Some(group) = copy {
            self.note(|| Entry::Submitted { now, group, accepted: predicted.is_ok() });
        }
        let predicted = predicted?;
        self.metrics.admitted(waiting.len(), prompt_tokens);
        let mut accepted = Accepted::default();
        for (seq, events, permit, origin, priority, (prompt_tokens, max_tokens, adapter)) in waiting {
            self.history.begin(seq, priority, prompt_tokens as u32, now);
            accepted.predicted_ttft = predicted.map(|until| (now + until).since(origin.received));
            self.traces.begin(seq, origin, priority, prompt_tokens as u32);
            self.traces.note(seq, Decision::Queued { depth, predicted_ttft: accepted.predicted_ttft }, now);
            let predicted = predicted.map(|until| now + until);
            let adapter = self.metrics.adapter_use(adapter);
            self.outlets.open(seq, Opening { events, permit, predicted, prompt_tokens, max_tokens, adapter }, now);
        }
        Ok(accepted)
    }

    fn abort(&mut self, seq: SeqId) {
        self.note(|| Entry::Aborted { seq });
        self.inbox.abort(seq);
        self.cut_short(seq, Event::Finished(FinishReason::Abort), self.clock.now());
    }

    /// All sequences of a request, by order of the operator.
    fn cancel(&mut self, id: &str) -> usize {
        let now = self.clock.now();
        self.catch_up();
        let live = self.traces.live_of(id);
        for &seq in &live {
            self.note(|| Entry::Aborted { seq });
            self.inbox.abort(seq);
            self.cut_short(seq, Event::Failed(RequestError::Aborted), now);
        }
        live.len()
    }

    fn drain(&mut self, reply: oneshot::Sender<()>) {
        let now = self.clock.now();
        self.gate.set_closed(Closed::Draining);
        for request in self.inbox.drain() {
            self.cut_short(request.id(), Event::Failed(RequestError::ShuttingDown), now);
        }
        self.drains.push(reply);
    }

    fn note_thermal(&mut self) {
        let level = self.inbox.thermal_level();
        self.metrics.thermal(level as usize);
        if !self.inbox.is_draining() {
            self.gate.set_closed(if level >= Level::Critical { Closed::Thermal } else { Closed::Open });
        }
    }

    /// The core is home: it obeys, overdue requests end, and it takes as many others as it has seats.
    pub fn settle<E: Executor>(&mut self, core: &mut Core<E>) {
        if !std::mem::take(&mut self.looked_for_gone) {
            self.let_go();
        }
        if let Some(feed) = &mut self.cache_feed {
            feed.offer(core);
        }
        let orders = self.inbox.take_orders();
        for seq in orders.aborts {
            core.abort(seq);
        }
        if let Some(config) = orders.scheduler {
            core.configure(config);
        }
        if let Some(level) = orders.thermal {
            core.set_thermal(level);
        }
        for onlooker in self.onlookers.drain(..) {
            let _ = onlooker.send(core.block_uses());
        }
        let now = self.clock.now();
        let overdue = core.expire(now);
        if !overdue.is_empty() {
            // What they had in time comes before the end.
            self.catch_up();
        }
        for (seq, error) in overdue {
            self.cut_short(seq, Event::Failed(error), now);
        }
        for (request, error) in self.inbox.expire(now) {
            self.cut_short(request.id(), Event::Failed(error), now);
        }
        self.inbox.note(core.view());
        let batch = self.inbox.release(now, self.measured.ttft.recent_p99());
        self.note(|| {
            let ids = |batch: &Batch| batch.released.iter().map(|released| released.request.id()).collect();
            Entry::Settled { now, batch: batch.as_ref().map(|batch| (batch.id, ids(batch))) }
        });
        if let Some(batch) = batch {
            core.admit(self.released(batch, now));
            self.inbox.note(core.view());
        }
        if !self.overlap {
            self.publish();
        }
    }

    /// What others read of the queue and the core.
    pub(super) fn publish(&self) {
        let drained = self.inbox.drained_per_s(self.clock.now());
        self.gate.set_drain_rate(drained);
        self.metrics.queue(self.inbox.depths(), drained);
        let core = self.inbox.core();
        self.metrics.state(&self.inbox.snapshot(), core.block_size);
        let mut running = [0; CLASSES];
        for view in core.sequences.iter().filter(|view| view.stage != Stage::Waiting) {
            running[view.priority.index()] += 1;
        }
        self.metrics.running(running);
    }

    /// Aborts those whose client has gone. An `Abort` wakes a resting loop, but may not fit the channel; a closed outlet is
    /// the proof that the client left.
    pub(super) fn let_go(&mut self) {
        for seq in self.outlets.gone() {
            self.abort(seq);
        }
    }

    /// A batch leaves the queue: its places are free.
    fn released(&mut self, batch: Batch, now: Micros) -> Vec<Request> {
        let waits = batch.released.iter().map(|released| now.since(released.arrived));
        self.metrics.released(waits, batch.cause.name());
        let size = batch.released.len();
        let mut requests = Vec::with_capacity(size);
        for released in batch.released {
            let decision = Decision::Released {
                batch: batch.id,
                size,
                strategy: batch.strategy.name(),
                cause: batch.cause.name(),
                gathered: released.flushed.since(released.arrived),
                seatless: now.since(released.flushed),
                passed_by_priority: released.passed_by_priority,
                passed_by_fairness: released.passed_by_fairness,
            };
            self.outlets.seated(released.request.id(), now);
            self.traces.note(released.request.id(), decision, now);
            requests.push(released.request);
        }
        requests
    }

    pub fn plan<E: Executor>(&mut self, core: &mut Core<E>) -> Option<StepPlan> {
        let ahead = self.ahead.take();
        let now = self.clock.now();
        let plan = match ahead {
            _ if self.ending || !self.inbox.may_step() => None,
            None => core.plan(now),
            Some(ahead) => {
                let (plan, fate) = core.plan_with(ahead, now);
                self.metrics.planned_ahead(fate);
                plan
            }
        };
        self.note(|| Entry::Planned { now, plan: plan.as_ref().map(Planned::of) });
        plan
    }

    /// Nothing to compute: whoever waits for the drain has an answer.
    pub fn rest<E: Executor>(&mut self, core: &Core<E>) {
        self.catch_up();
        self.publish();
        self.heartbeat.rest();
        self.measured.returned_at = None;
        if self.inbox.is_draining() && core.is_idle() {
            for reply in self.drains.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    /// How long until something is due without a command.
    pub fn until_due(&self) -> Option<Micros> {
        let now = self.clock.now();
        let timer = self.inbox.wake_at(now, self.measured.ttft.recent_p99()).map(|at| at.since(now));
        timer.into_iter().chain(self.cache_feed.as_ref().and_then(CacheFeed::until_retry)).min()
    }

    /// The last turn: everyone who is still there hears why.
    pub fn end(&mut self) {
        self.catch_up();
        let now = self.clock.now();
        for seq in self.outlets.all() {
            self.cut_short(seq, Event::Failed(RequestError::ShuttingDown), now);
        }
        self.heartbeat.end();
    }

    /// Whoever stopped waiting makes room, so that a long step gathers nobody.
    fn look_later(&mut self, onlooker: oneshot::Sender<Vec<BlockUse>>) {
        self.onlookers.retain(|other| !other.is_closed());
        self.onlookers.push(onlooker);
    }
}
