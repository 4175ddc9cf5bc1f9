//! A stand-in for scheduler and kv: sequences, shuffled blocks, and packed batches of them.

use std::ops::Range;

use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};
use forebay_model::{Logits, Model, Rows};

/// Free blocks in an order that makes physical neighbours rare.
pub struct Cache {
    free: Vec<u32>,
}

impl Cache {
    pub const BLOCKS: usize = 128;
    pub const BLOCK_SIZE: usize = 4;

    pub fn shuffled(seed: u64) -> Cache {
        Cache::of(seed, Cache::BLOCKS)
    }

    pub fn of(seed: u64, blocks: usize) -> Cache {
        let mut free: Vec<u32> = (0..blocks as u32).collect();
        free.sort_by_key(|&block| (u64::from(block) + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Cache { free }
    }

    /// Takes a sequence's blocks back; they will be first in use again.
    pub fn free(&mut self, sequence: Sequence) {
        self.free.extend(sequence.table.into_iter().map(|block| block.0));
    }
}

pub struct Sequence {
    seq: SeqId,
    table: Vec<BlockId>,
    computed: u32,
}

impl Sequence {
    pub fn new(seq: u64) -> Sequence {
        Sequence { seq: SeqId(seq), table: Vec::new(), computed: 0 }
    }
}

/// One forward with all `parts`, each advancing by its tokens; the logits, and each part's rows.
pub fn forward(
    model: &mut Model,
    cache: &mut Cache,
    parts: &mut [(&mut Sequence, &[u32])],
    rows: Rows,
) -> (Logits, Vec<Range<usize>>) {
    forward_in(model, cache, parts, rows, Cache::BLOCK_SIZE)
}

/// The same over blocks of `size` tokens.
pub fn forward_in(
    model: &mut Model,
    cache: &mut Cache,
    parts: &mut [(&mut Sequence, &[u32])],
    rows: Rows,
    size: usize,
) -> (Logits, Vec<Range<usize>>) {
    let mut batch = StepBatch::default();
    for (sequence, tokens) in parts.iter_mut() {
        let start = batch.tokens.len();
        for &token in tokens.iter() {
            let position = sequence.computed as usize;
            if position == sequence.table.len() * size {
                sequence.table.push(BlockId(cache.free.pop().expect("enough blocks for the test")));
            }
            batch.tokens.push(token);
            batch.positions.push(position as u32);
            batch.slots.push(sequence.table[position / size].0 * size as u32 + (position % size) as u32);
            sequence.computed += 1;
        }
        let table = batch.tables.len();
        batch.tables.extend(&sequence.table);
        let (rows, table) = (start..batch.tokens.len(), table..batch.tables.len());
        batch.chunks.push(BatchChunk { seq: sequence.seq, rows, table, sample: true, proposed: 0 });
    }
    let logits = model.forward(&batch, rows).unwrap();
    (logits, batch.chunks.into_iter().map(|chunk| chunk.rows).collect())
}
