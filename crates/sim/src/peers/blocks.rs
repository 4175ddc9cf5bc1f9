//! KV blocks with a prefix cache, as vLLM v1 has them: a block that nobody uses keeps its content until it is taken anew, the one
//! unused for longest first (`vllm/v1/core/block_pool.py`).

use std::collections::{BTreeMap, HashMap};

/// Names what a block holds: its tokens and all before them.
pub type Key = u64;

/// The blocks of an engine.
#[derive(Debug)]
pub struct Blocks {
    /// Tokens per block.
    pub size: usize,
    most: usize,
    blocks: Vec<Block>,
    /// Blocks that nobody uses, by the time at which they were given back.
    free: BTreeMap<u64, usize>,
    by_key: HashMap<Key, usize>,
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    key: Option<Key>,
    uses: usize,
    freed: u64,
}

impl Blocks {
    pub fn new(size: usize, most: usize) -> Blocks {
        Blocks { size, most, blocks: Vec::new(), free: BTreeMap::new(), by_key: HashMap::new(), clock: 0 }
    }

    /// As many as anybody asks for: where KV moves to the host's memory.
    pub fn unbounded(size: usize) -> Blocks {
        Blocks::new(size, usize::MAX)
    }

    /// Blocks that could be taken.
    pub fn free(&self) -> usize {
        self.most - self.blocks.len() + self.free.len()
    }

    /// How many blocks from the beginning on are held.
    pub fn cached(&self, keys: &[Key]) -> usize {
        keys.iter().take_while(|key| self.by_key.contains_key(key)).count()
    }

    /// Those blocks, which are in use from now on.
    pub fn share(&mut self, keys: &[Key]) -> Vec<usize> {
        let held: Vec<usize> = keys.iter().map_while(|key| self.by_key.get(key).copied()).collect();
        for at in &held {
            let block = &mut self.blocks[*at];
            if block.uses == 0 {
                self.free.remove(&block.freed);
            }
            block.uses += 1;
        }
        held
    }

    /// `count` blocks with nothing in them, or none.
    pub fn take(&mut self, count: usize) -> Option<Vec<usize>> {
        (count <= self.free()).then(|| (0..count).map(|_| self.take_one()).collect())
    }

    fn take_one(&mut self) -> usize {
        let at = if self.blocks.len() < self.most {
            self.blocks.push(Block::default());
            self.blocks.len() - 1
        } else {
            let (_, at) = self.free.pop_first().expect("it was counted");
            at
        };
        let block = &mut self.blocks[at];
        if let Some(key) = block.key.take() {
            self.by_key.remove(&key);
        }
        block.uses = 1;
        at
    }

    /// Block `at` holds what `key` names; the first that does is the one that is shared.
    pub fn publish(&mut self, at: usize, key: Key) {
        if self.blocks[at].key.is_none() && !self.by_key.contains_key(&key) {
            self.blocks[at].key = Some(key);
            self.by_key.insert(key, at);
        }
    }

    /// Gives blocks back, the last first, so that beginnings stay longest.
    pub fn give_back(&mut self, blocks: Vec<usize>) {
        for at in blocks.into_iter().rev() {
            self.blocks[at].uses -= 1;
            if self.blocks[at].uses == 0 {
                self.clock += 1;
                self.blocks[at].freed = self.clock;
                self.free.insert(self.clock, at);
            }
        }
    }
}
