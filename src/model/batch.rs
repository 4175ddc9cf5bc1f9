//! A [`StepBatch`] checked against the model and its cache, as the flat index arrays that backends use.
//!
//! Everything is checked before anything is computed: an inconsistent batch is an error that changes nothing, and the
//! kernels behind may index without doubt.

use std::ops::Range;

use thiserror::Error;

use super::Rows;
use crate::kernels::attention::Chunk;
use crate::step::{BatchChunk, StepBatch};
use crate::units::TokenId;

/// What an inconsistent batch got wrong. Row and chunk are indices into the batch.
#[derive(Debug, Error, PartialEq)]
pub enum BatchError {
    #[error("step without tokens")]
    Empty,
    #[error("{tokens} tokens, {positions} positions, {slots} slots")]
    Lengths { tokens: usize, positions: usize, slots: usize },
    #[error("chunks must cover the {rows} rows in order; chunk {chunk} does not continue at row {expected}")]
    Rows { chunk: usize, expected: usize, rows: usize },
    #[error("row {row}: token {token} is outside the vocabulary of {vocab}")]
    Token { row: usize, token: TokenId, vocab: usize },
    #[error("row {row}: position {position} does not follow the one before it")]
    Position { row: usize, position: u32 },
    #[error("chunk {chunk}: its table {range:?} is outside the {entries} entries or does not cover {tokens} tokens")]
    Table { chunk: usize, range: Range<usize>, entries: usize, tokens: usize },
    #[error("block {block} is outside the cache of {num_blocks}")]
    Block { block: u32, num_blocks: usize },
    #[error("row {row} of {rows} has no hidden state")]
    State { row: usize, rows: usize },
    #[error("row {row}: slot {slot} is not where its table puts position {position}")]
    Slot { row: usize, slot: u32, position: u32 },
}

/// How the cache is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paging {
    pub num_blocks: usize,
    pub block_size: usize,
}

/// A consistent step. `T` rows; all indices are in range. Its memory is kept from one step to the next.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// `[T]`
    pub tokens: Vec<u32>,
    /// `[T]`
    pub positions: Vec<u32>,
    /// `[T]` slots to write, each in the block that the row's table names.
    pub slots: Vec<u32>,
    /// Physical blocks of all chunks, one after another.
    pub tables: Vec<u32>,
    /// Each one's table is its part of `tables`.
    pub chunks: Vec<Chunk>,
    /// Rows whose logits are wanted, ascending.
    pub selected: Vec<usize>,
    /// Rows whose hidden states are wanted, ascending.
    pub states: Vec<usize>,
    pub block_size: usize,
}

impl Step {
    /// Becomes `batch`, if that is consistent; `rows` are those whose logits are wanted. After an error it is as before.
    pub(super) fn fill(
        &mut self,
        batch: &StepBatch,
        rows: Rows<'_>,
        vocab: usize,
        paging: Paging,
    ) -> Result<(), BatchError> {
        check_rows(batch, vocab)?;
        let Paging { num_blocks, block_size } = paging;
        let copied = batch.copies.iter().flat_map(|&(from, to)| [from, to]);
        if let Some(block) = batch.tables.iter().copied().chain(copied).find(|b| b.0 as usize >= num_blocks) {
            return Err(BatchError::Block { block: block.0, num_blocks });
        }
        for (index, chunk) in batch.chunks.iter().enumerate() {
            let tokens = batch.positions[chunk.rows.end - 1] as usize + 1;
            let table = batch.tables.get(chunk.table.clone()).filter(|table| table.len() * block_size >= tokens);
            let entries = batch.tables.len();
            let Some(table) = table else {
                return Err(BatchError::Table { chunk: index, range: chunk.table.clone(), entries, tokens });
            };
            for row in chunk.rows.clone() {
                let (slot, position) = (batch.slots[row], batch.positions[row]);
                let at = position as usize;
                if slot as usize != table[at / block_size].0 as usize * block_size + at % block_size {
                    return Err(BatchError::Slot { row, slot, position });
                }
            }
        }
        self.block_size = block_size;
        self.tokens.clone_from(&batch.tokens);
        self.positions.clone_from(&batch.positions);
        self.slots.clone_from(&batch.slots);
        refill(&mut self.tables, batch.tables.iter().map(|block| block.0));
        let chunk = |chunk: &BatchChunk| Chunk {
            rows: chunk.rows.clone(),
            position: batch.positions[chunk.rows.start] as usize,
            table: chunk.table.clone(),
        };
        refill(&mut self.chunks, batch.chunks.iter().map(chunk));
        match rows {
            Rows::Picked(rows) => refill(&mut self.selected, rows.iter().copied()),
            Rows::All => refill(&mut self.selected, 0..batch.tokens.len()),
            Rows::Sampled => {
                let sampled = batch.chunks.iter().filter(|chunk| chunk.sample);
                refill(&mut self.selected, sampled.map(|chunk| chunk.rows.end - 1));
            }
        }
        Ok(())
    }

    /// Asks for the hidden states of these rows, too.
    pub(super) fn read_states(&mut self, rows: &[usize]) -> Result<(), BatchError> {
        let count = self.tokens.len();
        if let Some(&row) = rows.iter().find(|row| **row >= count) {
            return Err(BatchError::State { row, rows: count });
        }
        refill(&mut self.states, rows.iter().copied());
        Ok(())
    }

    /// The slots that hold positions `0..tokens` of `chunk`.
    pub(super) fn context_slots(&self, chunk: &Chunk, tokens: usize) -> Vec<u32> {
        let table = &self.tables[chunk.table.clone()];
        let block_size = self.block_size;
        (0..tokens).map(|at| table[at / block_size] * block_size as u32 + (at % block_size) as u32).collect()
    }
}

fn refill<T>(list: &mut Vec<T>, items: impl Iterator<Item = T>) {
    list.clear();
    list.extend(items);
}

/// The flat axis: equal lengths, chunks covering it in order, consecutive positions, tokens of the vocabulary.
fn check_rows(batch: &StepBatch, vocab: usize) -> Result<(), BatchError> {
    let rows = batch.tokens.len();
    if rows == 0 {
        return Err(BatchError::Empty);
    }
    if batch.positions.len() != rows || batch.slots.len() != rows {
        let (positions, slots) = (batch.positions.len(), batch.slots.len());
        return Err(BatchError::Lengths { tokens: rows, positions, slots });
    }
    if let Some((row, &token)) = batch.tokens.iter().enumerate().find(|(_, token)| **token as usize >= vocab) {
        return Err(BatchError::Token { row, token, vocab });
    }
    let mut expected = 0;
    for (chunk, Range { start, end }) in batch.chunks.iter().map(|chunk| chunk.rows.clone()).enumerate() {
        if start != expected || end <= start || end > rows {
            return Err(BatchError::Rows { chunk, expected, rows });
        }
        for row in start + 1..end {
            let position = batch.positions[row];
            if batch.positions[row - 1].checked_add(1) != Some(position) {
                return Err(BatchError::Position { row, position });
            }
        }
        expected = end;
    }
    if expected != rows {
        return Err(BatchError::Rows { chunk: batch.chunks.len(), expected, rows });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BlockId, SeqId};

    /// Two sequences over blocks of 4: positions 0..3 in block 2, position 4 in block 1 after block 0.
    fn batch() -> StepBatch {
        let chunk = |seq, rows, table| BatchChunk { seq: SeqId(seq), rows, table, sample: true, proposed: 0 };
        StepBatch {
            tokens: vec![1, 2, 3, 4],
            positions: vec![0, 1, 2, 4],
            slots: vec![8, 9, 10, 4],
            tables: vec![BlockId(2), BlockId(0), BlockId(1)],
            chunks: vec![chunk(1, 0..3, 0..1), chunk(2, 3..4, 1..3)],
            copies: vec![],
        }
    }

    fn check(change: impl FnOnce(&mut StepBatch), expected: Option<BatchError>) {
        let mut batch = batch();
        change(&mut batch);
        let got = Step::default().fill(&batch, Rows::Sampled, 10, Paging { num_blocks: 3, block_size: 4 });
        assert_eq!(got.err(), expected);
    }

    #[test]
    fn consistent_batches_pass_and_each_lie_is_named() {
        check(|_| {}, None);
        check(|b| *b = StepBatch::default(), Some(BatchError::Empty));
        check(|b| b.slots.truncate(2), Some(BatchError::Lengths { tokens: 4, positions: 4, slots: 2 }));
        check(|b| b.tokens[1] = 10, Some(BatchError::Token { row: 1, token: 10, vocab: 10 }));
        check(|b| b.positions[2] = 3, Some(BatchError::Position { row: 2, position: 3 }));
        check(|b| b.chunks[1].rows = 2..4, Some(BatchError::Rows { chunk: 1, expected: 3, rows: 4 }));
        check(|b| b.chunks[0].rows = 0..0, Some(BatchError::Rows { chunk: 0, expected: 0, rows: 4 }));
        check(|b| b.chunks[1].rows = 3..9, Some(BatchError::Rows { chunk: 1, expected: 3, rows: 4 }));
        check(|b| b.chunks.truncate(1), Some(BatchError::Rows { chunk: 1, expected: 3, rows: 4 }));
        let table = |range| Some(BatchError::Table { chunk: 1, range, entries: 3, tokens: 5 });
        check(|b| b.chunks[1].table = 1..4, table(1..4));
        check(|b| b.chunks[1].table = 1..2, table(1..2));
        check(|b| b.tables[0] = BlockId(3), Some(BatchError::Block { block: 3, num_blocks: 3 }));
        check(|b| b.copies.push((BlockId(0), BlockId(7))), Some(BatchError::Block { block: 7, num_blocks: 3 }));
        check(|b| b.slots[3] = 5, Some(BatchError::Slot { row: 3, slot: 5, position: 4 }));
    }
}
