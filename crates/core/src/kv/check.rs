//! A recount of the pool from outside, for tests.

use super::block_table::BlockTable;
use super::pool::BlockPool;

impl BlockPool {
    /// Recounts: `tables` must hold every handle that exists. Panics with what does not add up.
    pub fn check<'a>(&self, tables: impl IntoIterator<Item = &'a BlockTable>) {
        let mut held = vec![0u32; self.total()];
        for id in tables.into_iter().flat_map(BlockTable::ids) {
            held[id.0 as usize] += 1;
        }
        assert_eq!(held, self.references, "handles in tables against reference counts");
        let mut free = vec![false; self.total()];
        for id in self.empty.iter().chain(self.kept.values()) {
            assert!(!std::mem::replace(&mut free[id.0 as usize], true), "{id:?} is free twice");
        }
        for (id, (&held, free)) in held.iter().zip(free).enumerate() {
            assert_eq!(held == 0, free, "block {id} is held {held} times, free: {free}");
        }
        assert!(self.empty.iter().all(|&id| !self.prefixes.holds(id)), "an empty block is found");
        assert!(self.kept.values().all(|&id| self.prefixes.holds(id)), "a block is kept for nothing");
    }
}
