//! What a policy proposes.

use crate::units::SeqId;

use super::detector::BatchGroup;

/// A policy's proposal for one tick; each list in the order in which its entries should be served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulingPlan {
    pub decode_ids: Vec<SeqId>,
    /// Whose prompts may go on. Empty although there are some: they are deferred.
    pub prefill_ids: Vec<SeqId>,
    /// `decode_ids` in groups, where the policy wants groups.
    pub batch_groups: Vec<BatchGroup>,
}
