//! A run: requests come and go to workers, steps end, workers fail and come back, in the order of time.

use std::collections::BTreeMap;

use super::arrival::Arrival;
use super::dice::Dice;
use super::measure::{Depth, End, Measured, Record};
use super::setup::{Outage, Setup};
use super::worker::Worker;
use forebay_core::report::StepReport;
use forebay_core::request::{Event, Limits, Origin, Parameters, Request, RequestError};
use forebay_core::units::{Micros, SeqId, TokenId};
use forebay_core::workers::board::{Board, Want};
use forebay_core::workers::breaker::{Phase, Ticket, Verdict};
use forebay_core::workers::prefix::Chain;

/// Depths that are kept of a run, at most: a chart shows no more.
const DEPTHS: usize = 512;
/// Times at which nothing happens after which a worker must have gone wrong.
const IDLE_TIMES: usize = 1_000_000;

pub(super) struct Run<'a> {
    setup: &'a Setup,
    seed: u64,
    arrivals: &'a [Arrival],
    board: Board,
    /// `None` while it is gone.
    workers: Vec<Option<Worker>>,
    /// Requests under way, by number.
    under_way: BTreeMap<usize, UnderWay>,
    /// Workers that leave and come back, by time.
    changes: Vec<(Micros, Change)>,
    next_check: Option<Micros>,
    /// For balancers that draw.
    dice: Dice,
    limits: Limits,
    now: Micros,
    /// The next of `arrivals` to be heard.
    next: usize,
    ended: usize,
    told: usize,
    depth_every: Micros,
    measured: Measured,
}

struct UnderWay {
    worker: usize,
    ticket: Ticket,
    /// It was sent to another worker before.
    again: bool,
}

#[derive(Clone, Copy)]
enum Change {
    Leaves(usize),
    ComesBack(usize),
}

impl<'a> Run<'a> {
    pub fn new(setup: &'a Setup, classes: &[String], arrivals: &'a [Arrival], seed: u64) -> Run<'a> {
        let fleet = &setup.workers;
        let mut measured = Measured::new(classes.to_vec());
        measured.records = arrivals.iter().map(Record::of).collect();
        measured.inside.by_worker = vec![0; fleet.count];
        let mut board = Board::new(fleet.count, fleet.balancer, fleet.breaker, Micros::ZERO);
        (0..fleet.count).for_each(|worker| board.set_up(worker, true));
        let both = |outage: &Outage| {
            [(outage.from, Change::Leaves(outage.worker)), (outage.to, Change::ComesBack(outage.worker))]
        };
        let mut changes: Vec<(Micros, Change)> = fleet.outages.iter().flat_map(both).collect();
        // The next one last.
        changes.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Run {
            setup,
            seed,
            arrivals,
            board,
            workers: (0..fleet.count).map(|index| Some(Worker::new(setup, seed, index))).collect(),
            under_way: BTreeMap::new(),
            next_check: (!changes.is_empty()).then_some(fleet.check_interval),
            changes,
            dice: Dice::stream(seed, 5),
            limits: Limits::new(setup.scheduler.max_model_len as u32, TokenId::MAX, 1),
            now: Micros::ZERO,
            next: 0,
            ended: 0,
            told: 0,
            depth_every: Micros(1_000),
            measured,
        }
    }

    /// To the end of the last request.
    pub fn finish(mut self, progress: &mut dyn FnMut(usize)) -> Measured {
        let mut idle = 0;
        while self.ended < self.arrivals.len() {
            self.now = self.now.max(self.next_time());
            let moved = self.happen();
            idle = if moved { 0 } else { idle + 1 };
            assert!(idle < IDLE_TIMES, "there is work and nobody does any at {:?}", self.now);
            if self.ended - self.told >= 64 {
                self.told = self.ended;
                progress(self.ended);
            }
        }
        progress(self.ended);
        self.measured.duration = self.now;
        let preemptions = self.workers.iter().flatten().map(Worker::preemptions);
        self.measured.inside.preemptions += preemptions.sum::<u64>();
        let openings = self.board.take_changes().into_iter().filter(|(_, phase)| *phase == Phase::Open);
        self.measured.inside.breaker_openings = openings.count();
        self.measured
    }

    fn next_time(&self) -> Micros {
        let arrival = self.arrivals.get(self.next).map(|arrival| arrival.at);
        let change = self.changes.last().map(|(at, _)| *at);
        let workers = self.workers.iter().flatten().filter_map(Worker::next);
        let next = arrival.into_iter().chain(change).chain(self.next_check).chain(workers).min();
        next.expect("nothing runs, nothing is due, and requests are open")
    }

    /// What happens now; what arrives while a step runs is heard before it ends, as by the live loop. Returns whether anybody heard or
    /// computed anything.
    fn happen(&mut self) -> bool {
        let mut moved = self.change_workers();
        while self.arrivals.get(self.next).is_some_and(|arrival| arrival.at <= self.now) {
            self.next += 1;
            self.send(self.next - 1, None);
            moved = true;
        }
        for index in 0..self.workers.len() {
            let report = self.workers[index].as_mut().and_then(|worker| worker.finish(self.now));
            if let Some((report, took)) = report {
                if let Some(limit) = report.steps.first().and_then(|facts| facts.limit) {
                    self.measured.limited_step(took, limit);
                }
                self.deliver(&report);
                moved = true;
            }
            let expired = self.workers[index].as_mut().map(|worker| worker.look(self.now));
            expired.into_iter().flatten().for_each(|seq| self.end(seq.0 as usize, End::Failed, Verdict::Uncounted));
        }
        self.note_depth();
        moved
    }

    fn change_workers(&mut self) -> bool {
        let mut changed = false;
        while let Some((_, change)) = self.changes.pop_if(|(at, _)| *at <= self.now) {
            changed = true;
            match change {
                Change::Leaves(worker) => self.lose(worker),
                Change::ComesBack(index) => self.workers[index] = Some(Worker::new(self.setup, self.seed, index)),
            }
        }
        if let Some(at) = self.next_check.filter(|at| *at <= self.now) {
            changed = true;
            self.next_check = Some(at + self.setup.workers.check_interval);
            for (index, worker) in self.workers.iter().enumerate() {
                match worker {
                    Some(_) => self.board.set_up(index, true),
                    None => self.board.check_failed(index, self.now),
                }
            }
        }
        changed
    }

    /// A worker is gone. Who has had no token yet is sent elsewhere, once; the others fail.
    fn lose(&mut self, index: usize) {
        let Some(lost) = self.workers[index].take() else { return };
        self.measured.inside.preemptions += lost.preemptions();
        let theirs = self.under_way.iter().filter(|(_, under_way)| under_way.worker == index);
        let theirs: Vec<usize> = theirs.map(|(id, _)| *id).collect();
        lost.die(&theirs);
        for id in theirs {
            let begun = self.measured.records[id].first_token.is_some();
            if begun || self.under_way[&id].again {
                self.end(id, End::Failed, Verdict::Failure);
            } else {
                self.settle(id, Verdict::Failure);
                self.send(id, Some(index));
            }
        }
    }

    /// To a worker that the board chooses, but not to the one that has failed it.
    fn send(&mut self, id: usize, failed: Option<usize>) {
        let request = match request(SeqId(id as u64), &self.arrivals[id], self.setup.timeout, &self.limits) {
            Ok(request) => request,
            Err(_) => return self.count(id, End::Refused),
        };
        // Where there is no choice there is nothing to look up.
        let several = self.workers.len() > 1;
        let chain = if several { Chain::of_tokens("", request.prompt()) } else { Chain::default() };
        let among = |worker| Some(worker) != failed;
        let want = Want { sequences: 1, chain: &chain, among: &among, dice: self.dice.next() };
        let Ok((index, ticket)) = self.board.take(&want, self.now) else { return self.count(id, End::Failed) };
        self.measured.inside.by_worker[index] += 1;
        self.measured.inside.retried += usize::from(failed.is_some());
        self.under_way.insert(id, UnderWay { worker: index, ticket, again: failed.is_some() });
        let sent = self.workers[index].as_mut().map(|worker| worker.submit(request, self.now));
        match (sent, failed) {
            (Some(Ok(predicted)), _) => self.measured.records[id].predicted = predicted,
            (Some(Err(_)), _) => self.end(id, End::Refused, Verdict::Uncounted),
            (None, None) => {
                self.settle(id, Verdict::Failure);
                self.send(id, Some(index));
            }
            (None, Some(_)) => self.end(id, End::Failed, Verdict::Failure),
        }
    }

    fn deliver(&mut self, report: &StepReport) {
        for (seq, event) in &report.events {
            let id = seq.0 as usize;
            match event {
                Event::Token(_) => self.measured.token(id, self.now),
                Event::Finished(_) => self.end(id, End::Completed, Verdict::Success),
                Event::Failed(_) => self.end(id, End::Failed, Verdict::Failure),
                Event::Admitted { cached_tokens } => self.measured.inside.cached_tokens += *cached_tokens as u64,
                Event::Embedded(_) => {}
            }
        }
    }

    /// It is no longer under way at its worker.
    fn settle(&mut self, id: usize, verdict: Verdict) {
        let UnderWay { worker, ticket, .. } = self.under_way.remove(&id).expect("it was sent");
        self.board.settle(worker, ticket, verdict, self.now);
        self.board.give_back(worker, 1, self.now);
    }

    fn end(&mut self, id: usize, how: End, verdict: Verdict) {
        self.settle(id, verdict);
        self.count(id, how);
    }

    fn count(&mut self, id: usize, how: End) {
        self.ended += 1;
        self.measured.end(id, how, self.now);
    }

    /// Every so often; twice as rarely whenever there are too many.
    fn note_depth(&mut self) {
        let depths = &mut self.measured.depths;
        if depths.last().is_some_and(|last| self.now < last.at + self.depth_every) {
            return;
        }
        if depths.len() == DEPTHS {
            let mut at = 0;
            depths.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.depth_every = Micros(self.depth_every.0 * 2);
        }
        let both = self.workers.iter().flatten().map(Worker::depth);
        let (queued, running) = both.fold((0, 0), |(queued, running), (q, r)| (queued + q, running + r));
        self.measured.depths.push(Depth { at: self.now, queued, running });
    }
}

/// The request that an arrival stands for.
fn request(seq: SeqId, arrival: &Arrival, timeout: Option<Micros>, limits: &Limits) -> Result<Request, RequestError> {
    let asked = Parameters {
        max_tokens: Some(arrival.output_tokens.into()),
        temperature: Some(0.0),
        ignore_eos: true,
        priority: arrival.priority,
        deadline_ms: timeout.map(|timeout| timeout.as_millis() as i64),
        origin: Origin { received: arrival.at, ..Origin::default() },
        ..Parameters::default()
    };
    let prompt = arrival.prompt(seq.0 as usize);
    let mut built = asked.check(limits, 0)?.into_requests(prompt, &[], limits, || seq)?;
    Ok(built.requests.remove(0))
}
