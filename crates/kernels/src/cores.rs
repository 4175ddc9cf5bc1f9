//! The threads that one engine computes with. Several engines in one process get a set each, so that none takes another's
//! in the middle of a step; a thread that belongs to no engine computes with the process's.
//!
//! A set is a number of threads, not a list of processors: where they run is the operating system's business, which knows
//! of containers, quotas and neighbours.

use std::cell::Cell;

use crate::pool::Pool;

/// A set of threads. Copies are the same set.
#[derive(Clone, Copy)]
pub struct Cores {
    pool: &'static Pool,
    threads: usize,
}

thread_local! {
    static OWN: Cell<Option<Cores>> = const { Cell::new(None) };
}

impl Cores {
    /// A set of `threads` threads that no other set has, the caller's own counted. They stay for the life of the process:
    /// to be called once for each engine, not once for each loop that takes another's place.
    pub fn new(threads: usize) -> Cores {
        Cores { pool: Box::leak(Box::new(Pool::new())), threads: threads.max(1) }
    }

    /// Makes this thread compute with the set from now on.
    pub fn enter(self) {
        OWN.set(Some(self));
    }

    /// As many threads as this thread may use: its set's, or those of rayon here (`RAYON_NUM_THREADS`, or the number of the
    /// pool that installed the caller).
    pub(super) fn threads() -> usize {
        OWN.get().map_or_else(rayon::current_num_threads, |cores| cores.threads)
    }

    /// Calls `compute` once with each index below `count`, on up to `threads` threads of this thread's set.
    pub(super) fn run(threads: usize, count: usize, compute: &(dyn Fn(usize) + Sync)) {
        let own = OWN.get();
        let pool = own.map_or_else(Pool::get, |cores| cores.pool);
        // What a helper computes may share work again, and must find this pool taken.
        pool.run(threads, count, move || OWN.set(own), compute);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::parallel::for_each_index;

    /// Which threads computed something worth sharing, until `wanted` did.
    fn computing(wanted: usize) -> HashSet<ThreadId> {
        let seen = Mutex::new(HashSet::new());
        while seen.lock().unwrap().len() < wanted {
            for_each_index(64, usize::MAX, |_| {
                seen.lock().unwrap().insert(id());
                thread::yield_now();
            });
        }
        seen.into_inner().unwrap()
    }

    fn id() -> ThreadId {
        thread::current().id()
    }

    #[test]
    fn engines_share_no_threads_and_use_no_more_than_theirs() {
        let engine = |threads: usize| {
            let cores = Cores::new(threads);
            thread::spawn(move || {
                cores.enter();
                assert_eq!(Cores::threads(), threads);
                computing(threads)
            })
        };
        let (first, second) = (engine(3), engine(2));
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_eq!((first.len(), second.len()), (3, 2));
        assert!(first.is_disjoint(&second));
    }

    #[test]
    fn jobs_within_jobs_stay_in_the_set() {
        let cores = Cores::new(2);
        let outside = thread::spawn(move || {
            cores.enter();
            for_each_index(64, usize::MAX, |_| assert_eq!(Cores::threads(), 2));
        });
        outside.join().unwrap();
    }
}
