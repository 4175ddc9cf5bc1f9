//! The pool: all workers, and what everybody may know of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::local::{Local, lock};
use super::standing_orders::Orders;
use super::upstream::Upstream;
use crate::EngineHandle;
use crate::heartbeat::{Heartbeat, Pulse};
use crate::metrics::{Metrics, WorkerMetrics};
use crate::permit::{Connection, Gate, Permit};
use forebay_clock::Clock;
use forebay_core::request::{Priority, RequestError};
use forebay_core::units::Micros;
use forebay_core::workers::balance::Balancer;
use forebay_core::workers::board::{Board, Glance};
use forebay_core::workers::breaker::{BreakerConfig, Ticket, Verdict};

/// All workers. Cheap to clone.
#[derive(Clone)]
pub struct Pool(pub(super) Arc<Shared>);

pub(super) struct Shared {
    workers: Vec<Worker>,
    pub config: PoolConfig,
    gate: Gate,
    pub clock: Clock,
    /// What is known of the workers. Held for a choice or a count; no await happens under it.
    board: Mutex<Board>,
    /// What a loop that takes another's place has to be told.
    pub orders: Mutex<Orders>,
    draining: AtomicBool,
    ending: AtomicBool,
    /// Told when nothing is under way, and when the end has come.
    pub settled: Notify,
}

#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// At the start; [`Pool::balance`] chooses another.
    pub balancer: Balancer,
    pub breaker: BreakerConfig,
    /// A loop whose step runs for longer counts as hung.
    pub stall_after: Micros,
    /// Between two looks at a worker: when to come back where none is there.
    pub check_interval: Micros,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            balancer: Balancer::default(),
            breaker: BreakerConfig::default(),
            stall_after: Micros::from_millis(60_000),
            check_interval: Micros::from_millis(5_000),
        }
    }
}

pub struct PoolParts {
    /// With their ids.
    pub locals: Vec<(String, Local)>,
    pub upstreams: Vec<(String, Upstream)>,
    pub config: PoolConfig,
    /// The one that all loops' gates are made of.
    pub gate: Gate,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
}

pub(super) struct Worker {
    id: String,
    kind: Kind,
    metrics: WorkerMetrics,
}

enum Kind {
    Local(Local),
    Upstream(Upstream),
}

/// Why no request can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Every loop computes a step that takes longer than any step should.
    Stalled(Micros),
    Stopped,
}

/// A worker, as operators see it.
#[derive(Clone, Debug)]
pub struct WorkerView {
    pub id: String,
    pub kind: &'static str,
    /// Of an upstream.
    pub url: Option<String>,
    pub models: Vec<String>,
    pub glance: Glance,
}

impl Worker {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn local(&self) -> Option<&Local> {
        if let Kind::Local(local) = &self.kind { Some(local) } else { None }
    }

    pub fn upstream(&self) -> Option<&Upstream> {
        if let Kind::Upstream(upstream) = &self.kind { Some(upstream) } else { None }
    }

    pub fn metrics(&self) -> &WorkerMetrics {
        &self.metrics
    }
}

impl Pool {
    pub fn new(parts: PoolParts) -> Pool {
        let PoolParts { locals, upstreams, config, gate, clock, metrics } = parts;
        let locals = locals.into_iter().map(|(id, local)| (id, Kind::Local(local)));
        let upstreams = upstreams.into_iter().map(|(id, upstream)| (id, Kind::Upstream(upstream)));
        let worker = |(id, kind): (String, Kind)| Worker { metrics: metrics.worker(&id), id, kind };
        let workers: Vec<Worker> = locals.chain(upstreams).map(worker).collect();
        let board = Board::new(workers.len(), config.balancer, config.breaker, clock.now());
        let pool = Pool(Arc::new(Shared {
            workers,
            config,
            gate,
            clock,
            board: Mutex::new(board),
            orders: Mutex::default(),
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            settled: Notify::new(),
        }));
        pool.publish();
        pool
    }

    /// One loop that somebody else runs.
    pub fn single(handle: EngineHandle, heartbeat: Arc<Heartbeat>, clock: Clock, metrics: Arc<Metrics>) -> Pool {
        let gate = handle.gate().clone();
        let locals = vec![("engine-0".to_owned(), Local::of(heartbeat, handle))];
        Pool::new(PoolParts { locals, upstreams: Vec::new(), config: PoolConfig::default(), gate, clock, metrics })
    }

    pub(super) fn worker(&self, worker: usize) -> &Worker {
        &self.0.workers[worker]
    }

    pub(super) fn workers(&self) -> &[Worker] {
        &self.0.workers
    }

    pub fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        self.0.workers.iter().filter_map(Worker::upstream)
    }

    pub fn upstream(&self, worker: usize) -> Option<&Upstream> {
        self.worker(worker).upstream()
    }

    /// The number of workers.
    pub fn size(&self) -> usize {
        self.0.workers.len()
    }

    /// A request that failed at this worker is begun again elsewhere.
    pub fn retried(&self, worker: usize) {
        self.worker(worker).metrics().retried();
    }

    /// Whether any worker is a loop of this process.
    pub fn has_engines(&self) -> bool {
        self.locals().next().is_some()
    }

    pub fn has_upstreams(&self) -> bool {
        self.upstreams().next().is_some()
    }

    pub fn is_local(&self, worker: usize) -> bool {
        self.worker(worker).local().is_some()
    }

    pub(super) fn locals(&self) -> impl Iterator<Item = (usize, &Local)> {
        self.0.workers.iter().enumerate().filter_map(|(index, worker)| Some((index, worker.local()?)))
    }

    /// Places in the queue for `sequences` of a class, of at most `tokens` prompt tokens together; see [`EngineHandle::permit`].
    pub fn permit(
        &self,
        class: Priority,
        sequences: usize,
        tokens: usize,
        jitter: f64,
    ) -> Result<Permit, RequestError> {
        self.0.gate.enter(class, sequences, tokens, jitter)
    }

    /// A client's request has come; see [`Gate::connect`].
    pub fn connect(&self) -> Connection {
        self.0.gate.connect()
    }

    pub(super) fn settle(&self, worker: usize, ticket: Ticket, verdict: Verdict) {
        let now = self.0.clock.now();
        self.worker(worker).metrics().verdict(verdict as usize);
        self.board(|board| board.settle(worker, ticket, verdict, now));
    }

    pub(super) fn withdraw(&self, worker: usize, ticket: Ticket) {
        let now = self.0.clock.now();
        self.board(|board| board.withdraw(worker, ticket, now));
    }

    pub(super) fn give_back(&self, worker: usize, sequences: usize) {
        let now = self.0.clock.now();
        let pending = self.board(|board| {
            board.give_back(worker, sequences, now);
            board.pending()
        });
        if pending == 0 {
            self.0.settled.notify_waiters();
        }
    }

    /// The only way to the board: who is there is looked up before, and what changed is told after.
    pub(super) fn board<T>(&self, act: impl FnOnce(&mut Board) -> T) -> T {
        let now = self.0.clock.now();
        let mut board: MutexGuard<Board> = lock(&self.0.board);
        for (worker, local) in self.locals() {
            board.set_up(worker, local.handle().is_some() && self.pulse(local, now).is_ok());
        }
        let done = act(&mut board);
        for (worker, phase) in board.take_changes() {
            let id = self.worker(worker).id();
            tracing::warn!(
                event = "breaker",
                worker = id,
                to = phase.name(),
                "the breaker of {id} is {}",
                phase.name()
            );
            self.worker(worker).metrics().breaker_became(phase.name());
        }
        done
    }

    fn pulse(&self, local: &Local, now: Micros) -> Result<(), Unready> {
        match local.heartbeat.pulse(now) {
            Pulse::Resting => Ok(()),
            Pulse::Computing(age) if age <= self.0.config.stall_after => Ok(()),
            Pulse::Computing(age) => Err(Unready::Stalled(age)),
            Pulse::Ended => Err(Unready::Stopped),
        }
    }

    /// How a worker is chosen for the next request.
    pub fn balancer(&self) -> Balancer {
        lock(&self.0.board).balancer()
    }

    /// Whether anybody could take a request.
    pub fn ready(&self) -> Result<(), Unready> {
        let now = self.0.clock.now();
        if self.board(|board| board.is_ready(now)) {
            return Ok(());
        }
        let pulses = self.locals().filter_map(|(_, local)| self.pulse(local, now).err());
        let stalled = |why: &Unready| matches!(why, Unready::Stalled(_));
        Err(pulses.into_iter().find(stalled).unwrap_or(Unready::Stopped))
    }

    pub fn views(&self) -> Vec<WorkerView> {
        let now = self.0.clock.now();
        let glances = self.board(|board| board.glances(now));
        let view = |(worker, glance): (&Worker, Glance)| WorkerView {
            id: worker.id.clone(),
            kind: if worker.local().is_some() { "engine" } else { "upstream" },
            url: worker.upstream().map(|upstream| upstream.shown_url().to_owned()),
            models: worker.upstream().map(Upstream::models).unwrap_or_default(),
            glance,
        };
        self.workers().iter().zip(glances).map(view).collect()
    }

    /// Brings the gauges of all workers up to date.
    pub fn publish(&self) {
        let now = self.0.clock.now();
        let glances = self.board(|board| board.glances(now));
        for (worker, glance) in self.workers().iter().zip(glances) {
            worker.metrics.state(glance.status.name(), glance.phase as i64, glance.pending, glance.utilisation);
        }
    }

    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }

    pub(super) fn set_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// What is under way is to be ended now.
    pub fn is_ending(&self) -> bool {
        self.0.ending.load(Ordering::Acquire)
    }

    pub(super) fn set_ending(&self) {
        self.0.ending.store(true, Ordering::Release);
        self.0.settled.notify_waiters();
    }

    /// Resolves when what is under way is to be ended.
    pub async fn ended(&self) {
        self.until(|pool| pool.is_ending()).await;
    }

    pub(super) async fn until(&self, holds: impl Fn(&Pool) -> bool) {
        loop {
            let mut told = std::pin::pin!(self.0.settled.notified());
            // From here on nothing is missed.
            told.as_mut().enable();
            if holds(self) {
                return;
            }
            told.await;
        }
    }
}
