//! `fair`: everyone in turn.

use std::collections::{HashSet, VecDeque};

use super::{SessionView, decoding, prefilling, sorted_by};
use crate::units::SeqId;

/// Who is next. Newcomers stand at the end, those who had their turn go there.
#[derive(Clone, Debug, Default)]
pub(super) struct Rotation(VecDeque<SeqId>);

pub(super) fn tick(rotation: &mut Rotation, sessions: &[SessionView], slots: usize) -> (Vec<SeqId>, Vec<SeqId>) {
    let here: HashSet<SeqId> = decoding(sessions).map(|session| session.id).collect();
    rotation.0.retain(|id| here.contains(id));
    let known: HashSet<SeqId> = rotation.0.iter().copied().collect();
    let newcomers = decoding(sessions).filter(|session| !known.contains(&session.id));
    rotation.0.extend(sorted_by(newcomers, |session| session.arrival));
    let turn = slots.min(rotation.0.len());
    let chosen: Vec<SeqId> = rotation.0.iter().take(turn).copied().collect();
    rotation.0.rotate_left(turn);
    (chosen, sorted_by(prefilling(sessions), |session| session.arrival))
}
