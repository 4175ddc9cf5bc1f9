//! The free blocks, the reference counts, and what blocks still hold when nobody does.

use std::collections::BTreeMap;

use crate::units::{BlockId, TokenId};

use super::change::{Change, Edit};
use super::node::Node;
use super::prefix::Prefixes;

/// A reference to a physical block. Neither `Copy` nor `Clone`: every handle came from [`BlockPool::take`] or
/// [`BlockPool::reuse`] and goes back through [`BlockPool::give_back`], the one way to free.
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

impl Reused {
    /// Tokens that need not be computed.
    pub fn tokens(&self, block_size: usize) -> usize {
        self.blocks.len() * block_size + self.partial.as_ref().map_or(0, |(_, tokens)| *tokens)
    }
}

/// What of a sequence's tokens is in the cache already.
#[derive(Debug)]
pub struct Reused {
    /// Full blocks, held for the caller.
    pub blocks: Vec<Block>,
    /// The next block's beginning: a block to copy it from, held for the caller, and how many of its tokens fit.
    pub partial: Option<(Block, usize)>,
    /// Below which the first block that is not reused hangs.
    pub node: Node,
}

/// A fixed number of physical blocks. Free ones whose content can still be found are taken last, the longest
/// unused first.
#[derive(Debug)]
pub struct BlockPool {
    /// Free and empty. Used as a stack: the block freed last is the one most likely still in a cache.
    pub(super) empty: Vec<BlockId>,
    /// Free, but with content; by when they were freed.
    pub(super) kept: BTreeMap<u64, BlockId>,
    /// Of each block its key in `kept`, while it is there.
    freed_at: Vec<u64>,
    frees: u64,
    pub(super) prefixes: Prefixes,
    /// Handles that exist of each block.
    pub(super) references: Vec<u32>,
    block_size: usize,
}

impl BlockPool {
    /// `block_size` is in tokens and at least 1.
    pub fn new(num_blocks: usize, block_size: usize) -> BlockPool {
        assert!(block_size > 0, "blocks hold tokens");
        let last = u32::try_from(num_blocks).expect("fewer than 2^32 blocks");
        BlockPool {
            empty: (0..last).rev().map(BlockId).collect(),
            kept: BTreeMap::new(),
            freed_at: vec![0; num_blocks],
            frees: 0,
            prefixes: Prefixes::mirrored(block_size),
            references: vec![0; num_blocks],
            block_size,
        }
    }

    /// A block that nobody else holds. Its content, if any was kept, is found no more.
    pub fn take(&mut self) -> Result<Block, OutOfBlocks> {
        let id = match self.empty.pop() {
            Some(id) => id,
            None => {
                let (_, id) = self.kept.pop_first().ok_or(OutOfBlocks)?;
                self.prefixes.evict(id);
                id
            }
        };
        self.references[id.0 as usize] = 1;
        Ok(Block(id))
    }

    pub fn give_back(&mut self, block: Block) {
        let index = block.0.0 as usize;
        self.references[index] -= 1;
        if self.references[index] > 0 {
            return;
        }
        if self.prefixes.holds(block.0) {
            self.frees += 1;
            self.freed_at[index] = self.frees;
            self.kept.insert(self.frees, block.0);
        } else {
            self.empty.push(block.0);
        }
    }

    /// Holds what the cache has of the beginning of `tokens`, all but the last of them at most: whoever draws the next token
    /// must compute one.
    pub fn reuse(&mut self, root: Node, tokens: &[TokenId]) -> Reused {
        let mut reused = Reused { blocks: Vec::new(), partial: None, node: root };
        let reusable = &tokens[..tokens.len().saturating_sub(1)];
        let mut rest = reusable;
        while let Some((full, after)) = rest.split_at_checked(self.block_size) {
            let Some((block, node)) = self.prefixes.find(&reused.node, full) else { break };
            reused.blocks.push(self.hold(block));
            (reused.node, rest) = (node, after);
        }
        if let Some((block, shared)) = self.prefixes.longest(&reused.node, rest) {
            reused.partial = Some((self.hold(block), shared));
        }
        reused
    }

    /// How many of the beginning of `tokens` [`BlockPool::reuse`] would find now.
    pub fn cached_tokens(&self, root: Node, tokens: &[TokenId]) -> usize {
        self.prefixes.cached_tokens(root, tokens, self.block_size)
    }

    /// One more handle of a block that holds content, free or not.
    fn hold(&mut self, id: BlockId) -> Block {
        let index = id.0 as usize;
        if self.references[index] == 0 {
            self.kept.remove(&self.freed_at[index]);
        }
        self.references[index] += 1;
        Block(id)
    }

    /// `block` holds `tokens`, a full block of them, after what `parent` stands for; others may reuse it from now on. Where
    /// another block holds the same, that one stays the one that is found. Returns the place of the sequence's next block.
    pub fn publish(&mut self, parent: &Node, tokens: &[TokenId], block: &Block) -> Node {
        assert_eq!(tokens.len(), self.block_size, "a full block");
        self.prefixes.publish(parent, tokens, block.0)
    }

    /// `block` holds only `tokens`, fewer than a block, and nobody will write to it again: others may copy what they share.
    /// Without effect where another block's content begins with the same.
    pub fn publish_rest(&mut self, parent: &Node, tokens: &[TokenId], block: &Block) {
        assert!(tokens.len() < self.block_size, "less than a block");
        let longest = self.prefixes.longest(parent, tokens).map_or(0, |(_, shared)| shared);
        if longest < tokens.len() {
            self.prefixes.publish(parent, tokens, block.0);
        }
    }

    /// What was done to the tree of prefixes since this was last called, for a [`Mirror`](super::Mirror). Whoever drives the
    /// pool takes them after each step, so that they do not gather.
    pub fn edits(&mut self) -> Vec<Edit> {
        self.prefixes.edits()
    }

    /// Remembers what its full blocks come to hold and lose, for [`BlockPool::changes`]; whoever asks for it must go on asking.
    pub fn record(&mut self) {
        self.prefixes.record(self.block_size);
    }

    /// What can be found since this was last asked, and what no longer can, in order. Nothing where nothing is recorded.
    pub fn changes(&mut self) -> Vec<Change> {
        self.prefixes.changes()
    }

    /// All that can be found, for whoever missed changes; they are settled with it.
    pub fn contents(&mut self) -> Vec<Change> {
        self.prefixes.contents()
    }

    /// Blocks that can be taken.
    pub fn free(&self) -> usize {
        self.empty.len() + self.kept.len()
    }

    /// Blocks with content that can be found, held by anyone or not.
    pub fn findable(&self) -> usize {
        self.prefixes.len()
    }

    /// Handles that exist of each block.
    pub(super) fn references(&self) -> &[u32] {
        &self.references
    }

    /// Whether what a block holds can be found, of a block that nobody holds.
    pub(super) fn is_kept(&self, id: usize) -> bool {
        self.prefixes.holds(BlockId(id as u32))
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
}
