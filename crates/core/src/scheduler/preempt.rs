//! Who gives its blocks back when the pool runs dry.

use crate::request::Priority;
use crate::units::SeqId;

use super::policy::PolicyKind;
use super::sequence::Running;

/// The choice of victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// Newest first: it has computed least, so recomputing it costs least. No two are equally new.
    #[default]
    MostRecent,
    /// The one with the most known tokens: frees most at once.
    Longest,
    /// The same as the first: the least urgent goes before anything else under every choice. The name stays for those who have
    /// configured it.
    LowestPriority,
}

/// Whether a sequence of the class `taker` may take the seat and the blocks of one of the class `holder`: anyone takes a
/// batch's, and the classes above normal those of every class below their own.
pub fn may_take(taker: Priority, holder: Priority) -> bool {
    taker < holder && (taker <= Priority::High || holder == Priority::Batch)
}

impl Preemption {
    pub const ALL: [Preemption; 3] = [Preemption::MostRecent, Preemption::Longest, Preemption::LowestPriority];

    /// As `engine.preemption` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Preemption::MostRecent => "most_recent",
            Preemption::Longest => "longest",
            Preemption::LowestPriority => "lowest_priority",
        }
    }

    /// One of the lowest class among `candidates`, never the oldest of the most urgent class that runs: that one keeps its blocks
    /// until it ends, so something always does. `None` when only that one is left. Among equals the policy chooses.
    pub(super) fn victim<'a>(
        self,
        candidates: impl Iterator<Item = &'a Running>,
        running: &[Running],
        policy: PolicyKind,
    ) -> Option<SeqId> {
        let oldest = running.iter().min_by_key(|r| (r.request().priority(), r.arrival)).map(|r| r.arrival)?;
        let candidates: Vec<&Running> = candidates.filter(|r| r.arrival != oldest).collect();
        let lowest = candidates.iter().map(|r| r.request().priority()).max()?;
        let candidates = candidates.into_iter().filter(|r| r.request().priority() == lowest);
        let victim = match self {
            Preemption::MostRecent => candidates.max_by_key(|r| r.arrival),
            Preemption::Longest => candidates.max_by_key(|r| (r.known(), yields(policy, r))),
            Preemption::LowestPriority => candidates.max_by_key(|r| yields(policy, r)),
        };
        victim.map(Running::id)
    }
}

/// Among equals the largest yields first; with the arrival in it no two are equal.
fn yields(policy: PolicyKind, running: &Running) -> (usize, u64) {
    let rank = match policy {
        PolicyKind::Fair | PolicyKind::Slo => 0,
        // The youngest are who it favours.
        PolicyKind::LatencyFirst => running.generated(),
        // The shortest costs least to compute again.
        PolicyKind::ThroughputFirst => usize::MAX - running.known(),
    };
    (rank, running.arrival)
}
