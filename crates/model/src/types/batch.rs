//! A [`StepBatch`] checked against the model and its cache, as the flat index arrays that backends use.
//!
//! Everything is checked before anything is computed: an inconsistent batch is an error that changes nothing, and the
//! kernels behind may index without doubt.

use std::ops::Range;

use thiserror::Error;

use super::cache::Paging;
use super::forward::{Draw, Rows};
use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::TokenId;
use forebay_kernels::attention::Chunk;

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
    #[error("chunk {chunk}: there is no adapter {adapter} among {adapters}")]
    Adapter { chunk: usize, adapter: u32, adapters: usize },
    #[error("{given} chunks have adapters, there are {chunks}")]
    Adapters { given: usize, chunks: usize },
    #[error("chunk {chunk} begins at position {position}; an encoder computes prompts whole")]
    Cut { chunk: usize, position: usize },
    #[error("chunk {chunk} has {tokens} tokens, an encoder's prompt at most {most}")]
    Long { chunk: usize, tokens: usize, most: usize },
    #[error("an encoder has no logits, {rows} rows of them are asked for")]
    NoLogits { rows: usize },
    #[error("{given} draws for {rows} rows of logits")]
    Draws { given: usize, rows: usize },
    #[error("row {row} of {rows} has no hidden state")]
    State { row: usize, rows: usize },
    #[error("row {row}: slot {slot} is not where its table puts position {position}")]
    Slot { row: usize, slot: u32, position: u32 },
}

/// A consistent step. `T` rows; all indices are in range. Its memory is kept from one step to the next.
#[derive(Debug, Default)]
pub(crate) struct Step {
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
    /// The rows of each adapter; empty for those that nobody asked for.
    pub groups: Vec<Group>,
    /// Rows whose hidden states are wanted, ascending.
    pub states: Vec<usize>,
    /// Places in `selected` from which tokens are drawn on the device, ascending.
    pub draws: Vec<(usize, Draw)>,
    /// The other places: those whose logits are read.
    pub read: Vec<usize>,
    pub block_size: usize,
}

/// Rows that go through the same adapter, ascending.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub rows: Vec<u32>,
    /// A one for each of them.
    pub ones: Vec<f32>,
}

impl Step {
    /// Becomes `batch`, if that is consistent; `rows` are those whose logits are wanted. After an error it is as before.
    pub(crate) fn fill(
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

    /// Sorts the step's rows by the adapters of its chunks, of which there are `count`; none given, nobody has one.
    pub(crate) fn group(&mut self, adapters: &[Option<u32>], count: usize) -> Result<(), BatchError> {
        self.groups.resize_with(count, Group::default);
        for group in &mut self.groups {
            group.rows.clear();
            group.ones.clear();
        }
        if !adapters.is_empty() && adapters.len() != self.chunks.len() {
            return Err(BatchError::Adapters { given: adapters.len(), chunks: self.chunks.len() });
        }
        for (index, (chunk, adapter)) in self.chunks.iter().zip(adapters).enumerate() {
            let Some(adapter) = *adapter else { continue };
            let Some(group) = self.groups.get_mut(adapter as usize) else {
                return Err(BatchError::Adapter { chunk: index, adapter, adapters: count });
            };
            group.rows.extend(chunk.rows.clone().map(|row| row as u32));
            group.ones.resize(group.rows.len(), 1.0);
        }
        Ok(())
    }

    /// Whether an encoder can compute it: every chunk begins its prompt, none has more than `most` tokens, and no logits are
    /// wanted.
    pub(crate) fn check_whole(&self, most: usize) -> Result<(), BatchError> {
        for (chunk, Chunk { rows, position, .. }) in self.chunks.iter().enumerate() {
            if *position > 0 {
                return Err(BatchError::Cut { chunk, position: *position });
            }
            if rows.len() > most {
                return Err(BatchError::Long { chunk, tokens: rows.len(), most });
            }
        }
        if self.selected.is_empty() { Ok(()) } else { Err(BatchError::NoLogits { rows: self.selected.len() }) }
    }

    /// Asks for the hidden states of these rows, too.
    pub(crate) fn read_states(&mut self, rows: &[usize]) -> Result<(), BatchError> {
        let count = self.tokens.len();
        if let Some(&row) = rows.iter().find(|row| **row >= count) {
            return Err(BatchError::State { row, rows: count });
        }
        refill(&mut self.states, rows.iter().copied());
        Ok(())
    }

    /// Takes from the rows whose logits are wanted those that are drawn from: one entry each, or none at all.
    pub(crate) fn draw(&mut self, draws: &[Option<Draw>]) -> Result<(), BatchError> {
        let (given, rows) = (draws.len(), self.selected.len());
        if given > 0 && given != rows {
            return Err(BatchError::Draws { given, rows });
        }
        let drawn = |place: &usize| draws.get(*place).copied().flatten();
        refill(&mut self.draws, (0..rows).filter_map(|place| Some((place, drawn(&place)?))));
        refill(&mut self.read, (0..rows).filter(|place| drawn(place).is_none()));
        Ok(())
    }

    /// The slots that hold positions `0..tokens` of `chunk`.
    #[cfg(feature = "metal")]
    pub(crate) fn context_slots(&self, chunk: &Chunk, tokens: usize) -> Vec<u32> {
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
    use forebay_core::units::{BlockId, SeqId};

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
    fn rows_are_sorted_by_the_adapters_of_their_chunks() {
        let mut step = Step::default();
        step.fill(&batch(), Rows::Sampled, 10, Paging { num_blocks: 3, block_size: 4 }).unwrap();
        let rows = |step: &Step| step.groups.iter().map(|group| group.rows.clone()).collect::<Vec<_>>();
        step.group(&[Some(1), Some(0)], 2).unwrap();
        assert_eq!(rows(&step), [vec![3], vec![0, 1, 2]]);
        step.group(&[None, Some(1)], 2).unwrap();
        assert_eq!(rows(&step), [vec![], vec![3]]);
        step.group(&[], 2).unwrap();
        assert!(rows(&step).iter().all(Vec::is_empty));
        assert_eq!(step.group(&[Some(2), None], 2), Err(BatchError::Adapter { chunk: 0, adapter: 2, adapters: 2 }));
        assert_eq!(step.group(&[None], 2), Err(BatchError::Adapters { given: 1, chunks: 2 }));
    }

    #[test]
    fn an_encoder_takes_whole_prompts_and_has_no_logits() {
        let check = |rows: Rows<'_>, whole: bool, most: usize, expected| {
            let mut batch = batch();
            if whole {
                (batch.positions[3], batch.slots[3]) = (0, 0);
            }
            let mut step = Step::default();
            step.fill(&batch, rows, 10, Paging { num_blocks: 3, block_size: 4 }).unwrap();
            assert_eq!(step.check_whole(most), expected);
        };
        check(Rows::Picked(&[]), true, 3, Ok(()));
        check(Rows::Picked(&[]), true, 2, Err(BatchError::Long { chunk: 0, tokens: 3, most: 2 }));
        check(Rows::Picked(&[]), false, 3, Err(BatchError::Cut { chunk: 1, position: 4 }));
        check(Rows::Sampled, true, 3, Err(BatchError::NoLogits { rows: 2 }));
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
