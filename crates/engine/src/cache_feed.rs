//! What the prefix cache came to hold and lost, on its way to whoever tells routers. Never keeps the loop waiting.

use tokio::sync::mpsc;

use forebay_core::kv::Change;
use forebay_core::units::Micros;
use forebay_turn::core::Core;
use forebay_turn::executor::Executor;

/// How soon an idle loop looks again whether what it owes has room.
const RETRY: Micros = Micros::from_millis(50);

/// What happened in one loop's cache, in order.
#[derive(Debug)]
pub struct Told {
    pub loop_index: usize,
    pub changes: Vec<Change>,
}

/// One loop's end of the bounded channel that all loops share. When it is full, changes are dropped, and as soon as there is
/// room again all that the cache holds is told anew, beginning with [`Change::Cleared`]: late, but never with a gap.
pub struct CacheFeed {
    loop_index: usize,
    sender: mpsc::Sender<Told>,
    /// Changes were dropped.
    owes: bool,
}

impl CacheFeed {
    pub fn new(loop_index: usize, sender: mpsc::Sender<Told>) -> CacheFeed {
        CacheFeed { loop_index, sender, owes: false }
    }

    /// Hands on what the core has to tell.
    pub fn offer<E: Executor>(&mut self, core: &mut Core<E>) {
        // Taken in any case, so that it does not pile up where nobody listens any more.
        let changes = core.cache_changes();
        if changes.is_empty() && !self.owes {
            return;
        }
        let Ok(room) = self.sender.try_reserve() else {
            self.owes = !self.sender.is_closed();
            return;
        };
        let changes = if std::mem::take(&mut self.owes) { core.cache_contents() } else { changes };
        room.send(Told { loop_index: self.loop_index, changes });
    }

    /// How long an idle loop may rest before it offers again.
    pub fn until_retry(&self) -> Option<Micros> {
        self.owes.then_some(RETRY)
    }
}
