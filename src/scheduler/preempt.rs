//! Who gives its blocks back when the pool runs dry.

use crate::units::SeqId;

use super::sequence::Running;

/// The choice of victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// Newest first: it has computed least, so recomputing it costs least.
    #[default]
    MostRecent,
    /// The one with the most known tokens: frees most at once.
    Longest,
    /// The least urgent, among equals the newest.
    LowestPriority,
}

impl Preemption {
    /// One of `candidates`, never the oldest of `running`: whoever is oldest keeps its blocks until it ends, so something
    /// always does. `None` when only that one is left.
    pub(super) fn victim<'a>(
        self,
        candidates: impl Iterator<Item = &'a Running>,
        running: &[Running],
    ) -> Option<SeqId> {
        let oldest = running.iter().map(|r| r.arrival).min()?;
        let candidates = candidates.filter(|r| r.arrival != oldest);
        let victim = match self {
            Preemption::MostRecent => candidates.max_by_key(|r| r.arrival),
            Preemption::Longest => candidates.max_by_key(|r| (r.tokens().len(), r.arrival)),
            Preemption::LowestPriority => candidates.max_by_key(|r| (r.request().priority(), r.arrival)),
        };
        victim.map(Running::id)
    }
}
