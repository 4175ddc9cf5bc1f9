//! Threads that stay: a product of one row takes a tenth of a millisecond, and waking a thread half of that.
//!
//! The caller works too, and never waits for a thread that sleeps: helpers come in through a gate while it is open, take
//! indices until none is left, and leave. After its last index the caller shuts the gate and waits only for those inside.
//!
//! ```text
//! caller:  open gate → wake sleepers → take indices … none left → shut gate → wait until nobody is inside
//! helper:  spin, then sleep → gate open? enter → take indices … none left → leave → spin …
//! ```
#![allow(unsafe_code)] // a job on the caller's stack, seen by helpers only while it waits for them

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a helper looks out for the next job before it sleeps: longer than the gaps within a step, short beside what
/// waking it would cost other programs.
const SPIN: Duration = Duration::from_micros(100);
/// More helpers than this are never started.
const MOST_HELPERS: usize = 255;

pub(super) struct Pool {
    /// Helpers started so far. The lock guards against a second job, too: a caller that finds it taken works alone. Nothing
    /// under it waits for anything but helpers at work.
    helpers: Mutex<Vec<Thread>>,
    shared: Shared,
}

struct Shared {
    /// `OPEN` while helpers may enter, and how many are inside.
    gate: AtomicUsize,
    /// How many may be inside.
    room: AtomicUsize,
    /// Jobs so far; what helpers look at while they wait.
    jobs: AtomicU64,
    /// The current job; valid while the gate is open or a helper inside.
    job: AtomicPtr<Job<'static>>,
    asleep: AtomicUsize,
}

const OPEN: usize = 1 << 32;

struct Job<'a> {
    compute: &'a (dyn Fn(usize) + Sync),
    next: AtomicUsize,
    count: usize,
    panicked: AtomicBool,
}

impl Pool {
    /// The pool of the process; engines may have their own ([`crate::cores`]).
    pub fn get() -> &'static Pool {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(Pool::new)
    }

    /// A pool without helpers yet.
    pub fn new() -> Pool {
        Pool {
            helpers: Mutex::new(Vec::new()),
            shared: Shared {
                gate: AtomicUsize::new(0),
                room: AtomicUsize::new(0),
                jobs: AtomicU64::new(0),
                job: AtomicPtr::new(std::ptr::null_mut()),
                asleep: AtomicUsize::new(0),
            },
        }
    }

    /// Calls `compute` once with each index below `count`, on up to `threads` threads, of which the caller is one. A thread
    /// that is started for this calls `enter` before anything else.
    ///
    /// # Panics
    /// When `compute` does, after all others have finished.
    pub fn run(
        &'static self,
        threads: usize,
        count: usize,
        enter: impl FnOnce() + Copy + Send + 'static,
        compute: &(dyn Fn(usize) + Sync),
    ) {
        let wanted = threads.min(count).saturating_sub(1).min(MOST_HELPERS);
        let helpers = if wanted > 0 { self.helpers.try_lock() } else { return (0..count).for_each(compute) };
        let mut helpers = match helpers {
            Ok(helpers) => helpers,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A job within a job, or a second engine: as right, only slower.
            Err(std::sync::TryLockError::WouldBlock) => return (0..count).for_each(compute),
        };
        while helpers.len() < wanted {
            let shared = &self.shared;
            let name = format!("kernels-{}", helpers.len());
            let begin = move || {
                enter();
                help(shared)
            };
            let Ok(handle) = thread::Builder::new().name(name).spawn(begin) else { break };
            helpers.push(handle.thread().clone());
        }
        let job = Job { compute, next: AtomicUsize::new(0), count, panicked: AtomicBool::new(false) };
        let open = self.open(&job, wanted, &helpers);
        let own = panic::catch_unwind(AssertUnwindSafe(|| job.take()));
        drop(open);
        if let Err(payload) = own {
            panic::resume_unwind(payload);
        }
        assert!(!job.panicked.load(Ordering::Relaxed), "a helper thread of the kernels panicked");
    }

    fn open(&self, job: &Job, room: usize, helpers: &[Thread]) -> Opened<'_> {
        let shared = &self.shared;
        shared.job.store(std::ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        shared.room.store(room, Ordering::Relaxed);
        shared.gate.store(OPEN, Ordering::Release);
        // In one order with the helpers' `asleep`, then `jobs`: either they see this job, or we see them asleep.
        shared.jobs.fetch_add(1, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            helpers.iter().take(room).for_each(Thread::unpark);
        }
        Opened(shared)
    }
}

/// An open gate; dropping it shuts the gate and waits until no helper is inside.
struct Opened<'a>(&'a Shared);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while self.0.gate.load(Ordering::Acquire) != 0 {
            spins += 1;
            // A helper that has lost its processor needs ours.
            if spins.is_multiple_of(1024) { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

impl Job<'_> {
    fn take(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            (self.compute)(index);
        }
    }
}

/// What a helper does all its life, which is the process's.
fn help(shared: &'static Shared) {
    let mut seen = 0;
    loop {
        seen = wait(shared, seen);
        if !enter(shared) {
            continue;
        }
        // SAFETY: the job outlives every helper inside the gate: `run` leaves only when `Opened` has seen it empty.
        let job = unsafe { &*shared.job.load(Ordering::Relaxed) };
        if panic::catch_unwind(AssertUnwindSafe(|| job.take())).is_err() {
            job.panicked.store(true, Ordering::Relaxed);
        }
        shared.gate.fetch_sub(1, Ordering::Release);
    }
}

/// Until there is another job than the `seen`th.
fn wait(shared: &Shared, seen: u64) -> u64 {
    let start = Instant::now();
    loop {
        // Reading the clock costs more than a look at the counter.
        for _ in 0..64 {
            let jobs = shared.jobs.load(Ordering::Relaxed);
            if jobs != seen {
                return jobs;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > SPIN {
            break;
        }
    }
    shared.asleep.fetch_add(1, Ordering::SeqCst);
    let jobs = loop {
        let jobs = shared.jobs.load(Ordering::SeqCst);
        if jobs != seen {
            break jobs;
        }
        thread::park();
    };
    shared.asleep.fetch_sub(1, Ordering::SeqCst);
    jobs
}

/// Enters through the gate, if it is open and not all that may be inside are; says whether.
fn enter(shared: &Shared) -> bool {
    let room = |gate: usize| gate & OPEN != 0 && gate - OPEN < shared.room.load(Ordering::Relaxed);
    let enter = |gate: usize| room(gate).then_some(gate + 1);
    shared.gate.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(threads: usize, count: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        Pool::get().run(threads, count, || (), &|index| {
            counts[index].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_index_is_computed_once() {
        for round in 0..2000 {
            for (threads, count) in [(1, 5), (2, 1), (2, 2), (3, 100), (4, 7), (9, 50), (2, 0)] {
                assert!(counts(threads, count).iter().all(|&n| n == 1), "round {round}: {threads} threads, {count}");
            }
        }
    }

    #[test]
    fn several_callers_and_jobs_within_jobs() {
        let callers = (0..4).map(|_| {
            thread::spawn(|| {
                for _ in 0..500 {
                    Pool::get().run(3, 4, || (), &|_| assert!(counts(2, 10).iter().all(|&n| n == 1)));
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.join().unwrap();
        }
    }

    #[test]
    fn sleeping_helpers_are_woken() {
        for _ in 0..20 {
            thread::sleep(3 * SPIN);
            assert!(counts(3, 64).iter().all(|&n| n == 1));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_leaves_the_pool_usable() {
        for index in 0..20 {
            let run = || Pool::get().run(4, 20, || (), &|i| assert_ne!(i, index, "planned"));
            assert!(panic::catch_unwind(run).is_err());
            assert!(counts(4, 20).iter().all(|&n| n == 1));
        }
    }
}
