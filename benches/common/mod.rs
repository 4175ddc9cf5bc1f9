//! What the benches share.

use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};

pub const BLOCK_SIZE: usize = 32;

/// A step in which every sequence computes `count` tokens from position `start`; each has `blocks` blocks of its own.
pub fn batch(
    sequences: usize,
    blocks: usize,
    start: usize,
    count: usize,
    token: impl Fn(usize, usize) -> u32,
) -> StepBatch {
    let mut batch = StepBatch::default();
    for seq in 0..sequences {
        let (row, entry) = (batch.tokens.len(), batch.tables.len());
        for position in start..start + count {
            let block = seq * blocks + position / BLOCK_SIZE;
            batch.tokens.push(token(seq, position));
            batch.positions.push(position as u32);
            batch.slots.push((block * BLOCK_SIZE + position % BLOCK_SIZE) as u32);
        }
        batch.tables.extend((0..blocks).map(|i| BlockId((seq * blocks + i) as u32)));
        let rows = row..batch.tokens.len();
        batch.chunks.push(BatchChunk {
            seq: SeqId(seq as u64),
            rows,
            table: entry..batch.tables.len(),
            sample: true,
            proposed: 0,
        });
    }
    batch
}
