//! The free list and the reference counts.

use crate::units::BlockId;

use super::BlockTable;

/// A reference to a physical block. Neither `Copy` nor `Clone`: every handle came from [`BlockPool::take`] or
/// [`BlockPool::share`] and goes back through [`BlockPool::give_back`], the one way to free.
#[derive(Debug, PartialEq, Eq)]
pub struct Block(BlockId);

impl Block {
    pub fn id(&self) -> BlockId {
        self.0
    }
}

/// No free block is left. A value, not an error: the caller preempts and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBlocks;

/// A fixed number of physical blocks. Taking and giving back are O(1).
#[derive(Debug)]
pub struct BlockPool {
    /// Used as a stack: the block freed last is the one most likely still in a cache.
    free: Vec<BlockId>,
    /// Handles that exist of each block.
    references: Vec<u32>,
    block_size: usize,
}

impl BlockPool {
    /// `block_size` is in tokens and at least 1.
    pub fn new(num_blocks: usize, block_size: usize) -> BlockPool {
        assert!(block_size > 0, "blocks hold tokens");
        let last = u32::try_from(num_blocks).expect("fewer than 2^32 blocks");
        BlockPool { free: (0..last).rev().map(BlockId).collect(), references: vec![0; num_blocks], block_size }
    }

    /// A block that nobody else holds.
    pub fn take(&mut self) -> Result<Block, OutOfBlocks> {
        let id = self.free.pop().ok_or(OutOfBlocks)?;
        self.references[id.0 as usize] = 1;
        Ok(Block(id))
    }

    /// A second handle of the same block; the block is free when all are back.
    pub fn share(&mut self, block: &Block) -> Block {
        self.references[block.0.0 as usize] += 1;
        Block(block.0)
    }

    pub fn give_back(&mut self, block: Block) {
        let count = &mut self.references[block.0.0 as usize];
        *count -= 1;
        if *count == 0 {
            self.free.push(block.0);
        }
    }

    /// Whether other handles of this block exist: it must not be written.
    pub fn is_shared(&self, block: &Block) -> bool {
        self.references[block.0.0 as usize] > 1
    }

    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn used(&self) -> usize {
        self.total() - self.free()
    }

    pub fn total(&self) -> usize {
        self.references.len()
    }

    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Blocks that hold `tokens` tokens.
    pub fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_size)
    }

    /// Recounts: `tables` must hold every handle that exists. Panics with what does not add up.
    pub fn check<'a>(&self, tables: impl IntoIterator<Item = &'a BlockTable>) {
        let mut held = vec![0u32; self.total()];
        for id in tables.into_iter().flat_map(BlockTable::ids) {
            held[id.0 as usize] += 1;
        }
        assert_eq!(held, self.references, "handles in tables against reference counts");
        let mut free = vec![false; self.total()];
        for id in &self.free {
            assert!(!std::mem::replace(&mut free[id.0 as usize], true), "{id:?} is free twice");
        }
        for (id, (&held, free)) in held.iter().zip(free).enumerate() {
            assert_eq!(held == 0, free, "block {id} is held {held} times, free: {free}");
        }
    }
}
