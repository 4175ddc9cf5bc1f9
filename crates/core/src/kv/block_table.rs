//! One sequence's blocks, logical to physical.

use crate::units::BlockId;

use super::pool::{Block, BlockPool, OutOfBlocks};

/// Grows with its sequence and is emptied by [`BlockTable::release`]; dropping it with blocks inside is a leak and trips a
/// debug assertion.
#[derive(Debug, Default)]
pub struct BlockTable {
    blocks: Vec<Block>,
}

impl BlockTable {
    /// Grows the table until `tokens` fit, taking blocks from `pool`.
    ///
    /// All or nothing: when the pool runs dry the table is as before, so the caller may preempt and retry.
    pub fn grow(&mut self, tokens: usize, pool: &mut BlockPool) -> Result<(), OutOfBlocks> {
        let missing = pool.blocks_for(tokens).saturating_sub(self.blocks.len());
        if missing > pool.free() {
            return Err(OutOfBlocks);
        }
        for _ in 0..missing {
            self.blocks.push(pool.take()?);
        }
        Ok(())
    }

    /// Begins with blocks that hold what its sequence begins with.
    pub fn adopt(blocks: Vec<Block>) -> BlockTable {
        BlockTable { blocks }
    }

    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Gives every block back, the last first: what many may begin with is kept for longer than how one went on.
    pub fn release(mut self, pool: &mut BlockPool) {
        for block in self.blocks.drain(..).rev() {
            pool.give_back(block);
        }
    }

    pub fn ids(&self) -> impl ExactSizeIterator<Item = BlockId> + '_ {
        self.blocks.iter().map(Block::id)
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Where the K and V of `position` lie: `block * block_size + offset`. The position lies within the table.
    pub fn slot(&self, position: u32, block_size: usize) -> u32 {
        let (block, offset) = (position as usize / block_size, position as usize % block_size);
        self.blocks[block].id().0 * block_size as u32 + offset as u32
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        // Not while another panic unwinds: that one is the story.
        debug_assert!(
            self.blocks.is_empty() || std::thread::panicking(),
            "a block table was dropped with blocks inside"
        );
    }
}
