//! An engine loop in this process, and how another one takes its place when it has died.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::EngineHandle;
use crate::heartbeat::Heartbeat;

/// A loop that runs on a thread of its own.
pub struct Run {
    pub handle: EngineHandle,
    pub thread: JoinHandle<()>,
    /// Resolves when the loop has returned or died.
    pub ended: oneshot::Receiver<()>,
}

/// Makes a loop over the same weights, with an empty cache. May take long; the error is for the log.
pub type Start = Arc<dyn Fn() -> Result<Run, String> + Send + Sync>;

/// A place for one loop after another.
pub struct Local {
    /// Beats for whichever loop is in this place.
    pub heartbeat: Arc<Heartbeat>,
    pub(super) start: Start,
    /// The loop that lives; `None` between two. Guards only this; no await happens under it.
    live: Mutex<Option<EngineHandle>>,
    /// Handed to who watches over it.
    first: Mutex<Option<(JoinHandle<()>, oneshot::Receiver<()>)>>,
}

impl Local {
    /// Starts the first loop.
    pub fn start(heartbeat: Arc<Heartbeat>, start: Start) -> Result<Local, String> {
        let Run { handle, thread, ended } = start()?;
        let first = Mutex::new(Some((thread, ended)));
        Ok(Local { heartbeat, start, live: Mutex::new(Some(handle)), first })
    }

    /// A loop that somebody else runs and that is not begun again.
    pub fn of(heartbeat: Arc<Heartbeat>, handle: EngineHandle) -> Local {
        let start: Start = Arc::new(|| Err("this loop is run by somebody else".into()));
        Local { heartbeat, start, live: Mutex::new(Some(handle)), first: Mutex::new(None) }
    }

    pub fn handle(&self) -> Option<EngineHandle> {
        lock(&self.live).clone()
    }

    pub(super) fn replace(&self, handle: Option<EngineHandle>) {
        *lock(&self.live) = handle;
    }

    pub(super) fn take_first(&self) -> Option<(JoinHandle<()>, oneshot::Receiver<()>)> {
        lock(&self.first).take()
    }
}

/// Nothing panics under these locks; if it did, what they guard is whole at every step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
