//! What the prefix cache holds, for whoever must know it while the blocks are away. Pure.

use super::change::Edit;
use super::node::Node;
use super::prefix::Prefixes;
use crate::units::TokenId;

/// A copy of a pool's prefix tree, which follows it by its [`Edit`]s: as exact as the last of them, and of as many entries
/// as the pool has blocks. The tokens themselves are shared with the pool's tree.
#[derive(Debug, Default)]
pub struct Mirror {
    prefixes: Prefixes,
    block_size: usize,
}

impl Mirror {
    /// Does again what was done to the tree, in the same order.
    pub fn follow(&mut self, edits: Vec<Edit>) {
        for edit in edits {
            match edit {
                Edit::Cleared { block_size } => *self = Mirror { prefixes: Prefixes::default(), block_size },
                // Places are numbered in the order of publishing, so a parent has the same number here.
                Edit::Published { parent, tokens, block } => drop(self.prefixes.publish(&parent, tokens, block)),
                Edit::Evicted { block } => self.prefixes.evict(block),
            }
        }
    }

    /// What [`BlockPool::cached_tokens`](super::BlockPool::cached_tokens) said after the last edit; 0 before the first.
    pub fn cached_tokens(&self, root: Node, tokens: &[TokenId]) -> usize {
        match self.block_size {
            0 => 0,
            size => self.prefixes.cached_tokens(root, tokens, size),
        }
    }
}
