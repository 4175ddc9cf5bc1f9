//! Threads on which grammars are followed, so that no grammar can hold up a step.
//!
//! ```text
//! step ─ ask ─▶ quick lane (most)             ─▶ the guide comes back with its answer,
//!            └▶ dear lane (one at a time)     ─▶ or is late: its sequence sits the step out
//! ```
//! A mask takes microseconds, as a rule, and seconds where a client's grammar is made for it. So a step waits for its masks
//! as long as an allowance lasts, which the time of the forward passes fills; guides that took long go to a lane of their
//! own, where they wait for each other; and what takes too long is interrupted and ends its own sequence. Time decides when
//! a sequence goes on and whether it fails, never which tokens it draws.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use forebay_clock::Clock;
use forebay_core::constraint::Stop;
use forebay_core::request::Guided;
use forebay_core::step::SequenceFault;
use forebay_core::units::Micros;

use super::guide::{Guide, Task};

const QUICK_THREADS: usize = 3;
/// The parser descends into expressions; what it descends is bounded when they are compiled.
const STACK_BYTES: usize = 16 << 20;
/// Steps wait for masks half as long as they compute, but never less than this each,
const LEAST_ALLOWANCE: Micros = Micros(2_000);
/// and what they did not need is kept up to this: the first masks of a grammar take longer than those after them.
const MOST_ALLOWANCE: Micros = Micros(500_000);
/// Where a step holds nobody but those who are late, nobody is held up; only commands wait.
const NOTHING_ELSE: Micros = Micros(100_000);
/// Whose last answer took so long is asked in the dear lane next time,
const DEAR: Micros = Micros(20_000);
/// and what takes so long in the quick one is begun again there.
const MOST_QUICK: Micros = Micros(100_000);
/// One answer.
const MOST_AT_ONCE: Micros = Micros(2_000_000);
/// All answers of one sequence: this, and more for each of its tokens.
const MOST_TOGETHER: Micros = Micros(5_000_000);
const MOST_PER_TOKEN: Micros = Micros(20_000);

/// The lanes, and how long steps may wait for them.
pub struct Masks {
    clock: Clock,
    quick: Lane,
    dear: Lane,
    allowance: Micros,
}

/// Where a sequence's guide is: here, or on a thread.
pub struct Seat {
    guide: Option<Box<Guide>>,
    away: Option<Away>,
    /// What interrupts the guide.
    stops: Receiver<Stop>,
    stop: Option<Stop>,
    /// It was interrupted, and is to be asked the same again.
    again: bool,
    /// Its next task is one for the dear lane; once interrupted, all are.
    dear: bool,
    interrupted: bool,
    spent: Micros,
    fault: Option<SequenceFault>,
}

struct Away {
    back: Receiver<(Box<Guide>, Micros)>,
    /// When a thread took it up, in microseconds after 1; 0 while it waits.
    began: Arc<AtomicU64>,
    dear: bool,
    stopped: bool,
}

struct Job {
    guide: Box<Guide>,
    task: Task,
    back: Sender<(Box<Guide>, Micros)>,
    began: Arc<AtomicU64>,
}

struct Lane {
    name: &'static str,
    count: usize,
    /// `None` once it closes. Holds at most one job for each live sequence.
    jobs: Option<Sender<Job>>,
    /// Locked by the threads among themselves, to take a job; no step takes it.
    queue: Arc<Mutex<Receiver<Job>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Masks {
    pub fn new() -> Masks {
        Masks {
            clock: Clock::system(),
            quick: Lane::new("masks", QUICK_THREADS),
            dear: Lane::new("dear masks", 1),
            allowance: MOST_ALLOWANCE,
        }
    }

    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Gives `seat`'s guide something to do, unless it is away, or knows the answer.
    pub fn ask(&mut self, seat: &mut Seat, task: Task) {
        self.wait(seat, Micros::ZERO);
        let Some(guide) = seat.guide.take_if(|guide| seat.fault.is_none() && (seat.again || !guide.knows(&task)))
        else {
            return;
        };
        seat.again = false;
        let (back, received) = mpsc::channel();
        let began = Arc::new(AtomicU64::new(0));
        let dear = seat.dear || seat.interrupted;
        seat.away = Some(Away { back: received, began: Arc::clone(&began), dear, stopped: false });
        let lane = if dear { &mut self.dear } else { &mut self.quick };
        lane.send(Job { guide, task, back, began }, &self.clock);
    }

    /// Waits for `seats`, after others have had `computed` of the step's time. `beside`: there is more in the step than
    /// them.
    pub fn collect(&mut self, seats: &mut [&mut Seat], computed: Micros, beside: bool) {
        let more = LEAST_ALLOWANCE.max(Micros(computed.0 / 2));
        self.allowance = MOST_ALLOWANCE.min(self.allowance + more);
        let began = self.clock.now();
        let until = began + self.allowance;
        for seat in seats.iter_mut() {
            let left = until.since(self.clock.now());
            self.wait(seat, left);
        }
        self.allowance = until.since(self.clock.now());
        if !beside && !seats.is_empty() && seats.iter().all(|seat| seat.away.is_some()) {
            self.wait(seats[0], NOTHING_ELSE);
        }
    }

    /// For what is away, at most so long.
    fn wait(&self, seat: &mut Seat, most: Micros) {
        let Some(away) = &mut seat.away else { return };
        match away.back.recv_timeout(Duration::from_micros(most.0)) {
            Ok((guide, busy)) => seat.welcome(guide, busy),
            Err(RecvTimeoutError::Disconnected) => seat.lose(),
            Err(RecvTimeoutError::Timeout) => seat.watch(self.clock.now()),
        }
    }
}

impl Default for Masks {
    fn default() -> Masks {
        Masks::new()
    }
}

impl Seat {
    pub fn new(guided: &Guided) -> Seat {
        let (watcher, stops) = mpsc::channel();
        Seat {
            guide: Some(Box::new(Guide::new(guided, watcher))),
            away: None,
            stops,
            stop: None,
            again: false,
            dear: false,
            interrupted: false,
            spent: Micros::ZERO,
            fault: None,
        }
    }

    /// The guide, where it has answered; `None` where it is late.
    pub fn guide(&self) -> Result<Option<&Guide>, SequenceFault> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None if self.again => Ok(None),
            None => Ok(self.guide.as_deref()),
        }
    }

    fn welcome(&mut self, guide: Box<Guide>, busy: Micros) {
        let Some(away) = self.away.take() else { return };
        self.spent = self.spent + busy;
        self.dear = busy > DEAR;
        let most = MOST_TOGETHER + Micros(MOST_PER_TOKEN.0 * guide.tokens() as u64);
        // It may have come to its end before it heard of it.
        let interrupted = away.stopped && guide.failed();
        if (interrupted && away.dear) || self.spent > most {
            self.fault = Some(SequenceFault::Grammar("following it takes too long".into()));
        }
        self.again = interrupted;
        self.interrupted |= interrupted;
        self.guide = Some(guide);
    }

    /// Its thread panicked, or there is none.
    fn lose(&mut self) {
        self.away = None;
        self.fault = Some(SequenceFault::Forward);
    }

    fn watch(&mut self, now: Micros) {
        let Some(away) = &mut self.away else { return };
        let began = away.began.load(Ordering::Relaxed);
        let most = if away.dear { MOST_AT_ONCE } else { MOST_QUICK };
        if began > 0 && now.since(Micros(began - 1)) > most {
            away.stopped = true;
            self.interrupt();
        }
    }

    fn interrupt(&mut self) {
        if let Some(newest) = self.stops.try_iter().last() {
            self.stop = Some(newest);
        }
        if let Some(stop) = &self.stop {
            stop.stop();
        }
    }
}

impl Drop for Seat {
    /// Nobody waits any more.
    fn drop(&mut self) {
        if self.away.is_some() {
            self.interrupt();
        }
    }
}

impl Lane {
    fn new(name: &'static str, count: usize) -> Lane {
        let (jobs, queue) = mpsc::channel();
        Lane { name, count, jobs: Some(jobs), queue: Arc::new(Mutex::new(queue)), threads: Vec::new() }
    }

    /// Without a thread the job is dropped, and whoever waits for it hears that.
    fn send(&mut self, job: Job, clock: &Clock) {
        while self.threads.len() < self.count {
            let (queue, clock) = (Arc::clone(&self.queue), clock.clone());
            let thread = Builder::new().name(self.name.into()).stack_size(STACK_BYTES);
            let Ok(thread) = thread.spawn(move || work(&queue, &clock)) else { break };
            self.threads.push(thread);
        }
        if let Some(jobs) = self.jobs.as_ref().filter(|_| !self.threads.is_empty()) {
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>, clock: &Clock) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut guide, task, back, began }) = job else { return };
        let start = clock.now();
        began.store(start.0 + 1, Ordering::Relaxed);
        if catch_unwind(AssertUnwindSafe(|| guide.run(task))).is_ok() {
            let _ = back.send((guide, clock.now().since(start)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_text::fixtures;
    use forebay_text::grammar::{GrammarSpec, Limits, Vocabulary};

    fn seat() -> Seat {
        let tokenizer = Arc::new(fixtures::byte_level());
        let vocabulary =
            Vocabulary::new(&tokenizer, fixtures::VOCAB as usize, &[fixtures::END], Limits::default()).unwrap();
        let grammar = vocabulary.compile(&GrammarSpec::Regex("[a-c]{2}".into())).unwrap();
        Seat::new(&Guided { grammar: Arc::new(grammar), thinking: None })
    }

    fn first() -> Task {
        Task::Masks { drawn: 0, guesses: Vec::new() }
    }

    fn known(seat: &Seat) -> Option<usize> {
        seat.guide().unwrap().map(|guide| guide.mask(0, &[]).unwrap().unwrap().len())
    }

    /// Asks until the answer is there; how often it was late.
    fn until_known(masks: &mut Masks, seat: &mut Seat) -> usize {
        (0..)
            .find(|_| {
                masks.ask(seat, first());
                masks.collect(&mut [seat], Micros::ZERO, false);
                !matches!(seat.guide(), Ok(None))
            })
            .unwrap()
    }

    #[test]
    fn a_step_waits_no_longer_than_its_allowance() {
        let mut masks = Masks::new();
        masks.allowance = Micros::ZERO;
        let mut seat = seat();
        let queue = Arc::clone(&masks.quick.queue);
        // Whoever holds this keeps the threads from their jobs.
        let held = queue.lock().unwrap();
        masks.ask(&mut seat, first());
        for _ in 0..3 {
            masks.collect(&mut [&mut seat], Micros::ZERO, true);
            assert_eq!((known(&seat), masks.allowance), (None, Micros::ZERO), "all was spent, and it sits out");
            masks.ask(&mut seat, first());
        }
        drop(held);
        until_known(&mut masks, &mut seat);
        assert!(known(&seat).is_some() && masks.allowance <= MOST_ALLOWANCE);
    }

    /// In the quick lane it is to be asked again in the other; interrupted there as well, it fails.
    #[test]
    fn what_is_interrupted_moves_to_the_dear_lane_and_fails_there() {
        let mut masks = Masks::new();
        let mut seat = seat();
        // Its matchers find nobody who listens, which interrupts them.
        seat.stops = mpsc::channel().1;
        for lane in [false, true] {
            masks.ask(&mut seat, first());
            let away = seat.away.as_mut().unwrap();
            assert_eq!(away.dear, lane);
            away.began = Arc::new(AtomicU64::new(1));
            seat.watch(MOST_AT_ONCE + MOST_AT_ONCE);
            assert!(seat.away.as_ref().unwrap().stopped);
            while seat.away.is_some() {
                masks.wait(&mut seat, NOTHING_ELSE);
            }
            assert_eq!((seat.again, seat.interrupted), (true, true));
            assert_eq!(matches!(seat.guide(), Err(SequenceFault::Grammar(_))), lane);
            assert!(lane || matches!(seat.guide(), Ok(None)), "late for now");
        }
    }

    #[test]
    fn what_takes_too_long_in_sum_fails() {
        let mut masks = Masks::new();
        let mut seat = seat();
        until_known(&mut masks, &mut seat);
        seat.spent = MOST_TOGETHER;
        masks.ask(&mut seat, Task::Masks { drawn: 0, guesses: Vec::new() });
        assert!(known(&seat).is_some(), "what is known costs nothing");
        masks.ask(&mut seat, Task::Take { place: 0, tokens: Vec::new() });
        let away = seat.away.take().unwrap();
        let (guide, _) = away.back.recv().unwrap();
        seat.away = Some(away);
        seat.welcome(guide, Micros(1));
        assert!(matches!(seat.guide(), Err(SequenceFault::Grammar(_))));
    }

    #[test]
    fn who_is_gone_leaves_the_threads_to_others() {
        let mut masks = Masks::new();
        let (mut gone, mut stays) = (seat(), seat());
        masks.ask(&mut gone, first());
        drop(gone);
        until_known(&mut masks, &mut stays);
        assert!(known(&stays).is_some());
    }
}
