//! `throughput_first`: decode steps in bursts, prefills between them, so that the batch is as large and as even as it can
//! be.

use std::cmp::Reverse;

use super::{SessionView, decoding, prefilling, sorted_by};
use crate::units::SeqId;

#[derive(Clone, Debug, Default)]
pub(super) struct Burst {
    /// Ticks of this burst.
    ticks: usize,
    /// Tokens decoded in it.
    pub pending_out: usize,
}

pub(super) fn tick(
    burst: &mut Burst,
    sessions: &[SessionView],
    slots: usize,
    budget: usize,
) -> (Vec<SeqId>, Vec<SeqId>) {
    let mut decode_ids = sorted_by(decoding(sessions), |session| (Reverse(session.generated), session.arrival));
    decode_ids.truncate(slots);
    let mut prefill_ids =
        sorted_by(prefilling(sessions), |session| (Reverse(session.prefill_remaining), session.arrival));
    let goes_on = !decode_ids.is_empty() && burst.ticks < budget;
    if goes_on {
        burst.ticks += 1;
        burst.pending_out += decode_ids.len();
        // Nobody decodes for the sake of a burst that holds no one up.
        prefill_ids.clear();
    } else {
        *burst = Burst::default();
    }
    (decode_ids, prefill_ids)
}
