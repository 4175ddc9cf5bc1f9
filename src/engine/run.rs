//! The loop: hear commands, plan, send the core away to compute, keep hearing, deliver what it brings back.

use std::sync::Arc;

use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::clock::Clock;
use crate::intake;
use crate::metrics::Metrics;
use crate::report::StepReport;
use crate::request::{Request, RequestError};

use super::command::{EngineCommand, Submission};
use super::core::Core;
use super::executor::Executor;
use super::heartbeat::Heartbeat;
use super::inbox::Inbox;
use super::outlet::Outlets;

/// Commands heard at the top of a turn. Steps may be so short that the `select!` below never sees a command first; this
/// many are heard all the same, and not so many that a flood of them keeps a step from starting.
const COMMANDS_PER_TURN: usize = 64;

/// Runs until `Shutdown` comes or every sender of `commands` is gone, finishing the step under way. Whatever is still
/// live then is ended with [`RequestError::ShuttingDown`].
pub async fn run<E: Executor>(
    mut core: Core<E>,
    mut home: Home,
    mut commands: mpsc::Receiver<EngineCommand>,
) -> Core<E> {
    home.note(&core);
    while !home.ending {
        home.hear_waiting(&mut commands);
        home.settle(&mut core);
        let now = home.clock.now();
        let plan = if home.inbox.may_step() && !home.ending { core.plan(now) } else { None };
        home.note(&core);
        let Some(plan) = plan else {
            home.rest(&core);
            if !home.ending {
                home.hear_or_end(commands.recv().await);
            }
            continue;
        };
        home.heartbeat.begin(now);
        // By value: while the core is away nothing here can touch it.
        let mut away = spawn_blocking(move || core.execute(plan, now));
        let (back, report) = loop {
            select! { biased;
                done = &mut away => break done.expect("execute catches its own panics"),
                Some(command) = commands.recv() => home.hear(command),
            }
        };
        core = back;
        home.deliver(report);
    }
    home.outlets.fail_all(&RequestError::ShuttingDown, home.clock.now(), &home.metrics);
    home.heartbeat.end();
    core.abort_all();
    core
}

/// What stays while the core is away.
pub struct Home {
    inbox: Inbox,
    outlets: Outlets,
    drains: Vec<oneshot::Sender<()>>,
    ending: bool,
    clock: Clock,
    metrics: Arc<Metrics>,
    heartbeat: Arc<Heartbeat>,
}

impl Home {
    pub fn new(intake: intake::Config, clock: Clock, metrics: Arc<Metrics>, heartbeat: Arc<Heartbeat>) -> Home {
        Home {
            inbox: Inbox::new(intake),
            outlets: Outlets::default(),
            drains: Vec::new(),
            ending: false,
            clock,
            metrics,
            heartbeat,
        }
    }

    fn hear_waiting(&mut self, commands: &mut mpsc::Receiver<EngineCommand>) {
        for _ in 0..COMMANDS_PER_TURN {
            match commands.try_recv() {
                Ok(command) => self.hear(command),
                Err(mpsc::error::TryRecvError::Empty) => return,
                Err(mpsc::error::TryRecvError::Disconnected) => return self.ending = true,
            }
        }
    }

    fn hear_or_end(&mut self, command: Option<EngineCommand>) {
        match command {
            Some(command) => self.hear(command),
            None => self.ending = true,
        }
    }

    fn hear(&mut self, command: EngineCommand) {
        match command {
            // A client that gave up before the answer leaves closed channels behind, which `settle` finds.
            EngineCommand::Submit { group, reply } => drop(reply.send(self.submit(group))),
            EngineCommand::Abort { seq } => self.abort(seq),
            EngineCommand::Stats { reply } => drop(reply.send(self.inbox.snapshot())),
            EngineCommand::Pause => self.inbox.pause(),
            EngineCommand::Resume => self.inbox.resume(),
            EngineCommand::Drain { reply } => self.drain(reply),
            EngineCommand::Shutdown => self.ending = true,
        }
    }

    fn submit(&mut self, group: Vec<Submission>) -> Result<(), RequestError> {
        let (requests, outlets): (Vec<Request>, Vec<_>) =
            group.into_iter().map(|s| ((s.request.id(), s.events), s.request)).map(|(o, r)| (r, o)).unzip();
        let prompt_tokens: usize = requests.iter().map(|request| request.prompt().len()).sum();
        self.inbox.submit(requests)?;
        let now = self.clock.now();
        self.metrics.admitted(outlets.len(), prompt_tokens);
        for (seq, events) in outlets {
            self.outlets.open(seq, events, now);
        }
        Ok(())
    }

    fn abort(&mut self, seq: crate::units::SeqId) {
        self.inbox.abort(seq);
        self.outlets.abort(seq, self.clock.now(), &self.metrics);
    }

    fn drain(&mut self, reply: oneshot::Sender<()>) {
        let now = self.clock.now();
        for request in self.inbox.drain() {
            self.outlets.fail(request.id(), RequestError::ShuttingDown, now, &self.metrics);
        }
        self.drains.push(reply);
    }

    /// The core is home: it obeys, and takes as many requests as it has seats.
    fn settle<E: Executor>(&mut self, core: &mut Core<E>) {
        // An `Abort` wakes a resting loop, but may not fit the channel; a closed outlet is the proof that the client left.
        for seq in self.outlets.gone() {
            self.abort(seq);
        }
        for seq in self.inbox.take_aborts() {
            core.abort(seq);
        }
        core.admit(self.inbox.release(core.room()));
    }

    fn note<E: Executor>(&mut self, core: &Core<E>) {
        self.inbox.note(core.snapshot());
        self.metrics.state(&self.inbox.snapshot());
    }

    /// Nothing to compute: whoever waits for the drain has an answer.
    fn rest<E: Executor>(&mut self, core: &Core<E>) {
        self.heartbeat.rest();
        if self.inbox.is_draining() && core.is_idle() {
            self.drains.drain(..).for_each(|reply: oneshot::Sender<()>| {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            });
        }
    }

    fn deliver(&mut self, report: StepReport) {
        let now = self.clock.now();
        self.metrics.steps(&report);
        for facts in report.steps.iter().filter(|facts| facts.rerun) {
            tracing::error!(
                event = "step_failed",
                sequences = facts.sequences,
                "a step failed and was rerun one by one"
            );
        }
        self.outlets.deliver(report.events, now, &self.metrics);
    }
}
