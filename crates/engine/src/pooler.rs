//! The hidden states of one prompt become its vector, chunk by chunk. The result does not depend on how it was cut.

use std::ops::Range;

use forebay_core::request::Pooling;
use forebay_core::step::SequenceFault;

pub struct Pooler {
    pooling: Pooling,
    /// Of the prompt.
    tokens: usize,
    /// States taken so far. Survives preemption, whose recomputation would only repeat them.
    taken: usize,
    /// In the order of their positions, so that every way to cut a prompt adds in the same order.
    sum: Vec<f64>,
}

impl Pooler {
    pub fn new(pooling: Pooling, tokens: usize) -> Pooler {
        Pooler { pooling, tokens, taken: 0, sum: Vec::new() }
    }

    /// The positions whose states are read.
    fn positions(&self) -> Range<usize> {
        match self.pooling {
            Pooling::Last => self.tokens - 1..self.tokens,
            Pooling::Mean => 0..self.tokens,
            Pooling::Cls => 0..1,
        }
    }

    /// Of `rows`, the first of which has the position `first`, those whose states come next.
    pub fn wants(&self, rows: &Range<usize>, first: usize) -> Range<usize> {
        let Range { start, end } = self.positions();
        let row_of = |position: usize| (rows.start + position.saturating_sub(first)).min(rows.end);
        row_of(start + self.taken)..row_of(end)
    }

    /// The next state.
    pub fn take(&mut self, state: &[f32]) {
        self.sum.resize(state.len(), 0.0);
        self.sum.iter_mut().zip(state).for_each(|(sum, &x)| *sum += f64::from(x));
        self.taken += 1;
    }

    /// The vector, once all of its prompt was computed.
    pub fn result(&self) -> Result<Vec<f32>, SequenceFault> {
        if self.taken != self.positions().len() {
            // A state that was never computed, as after a hit in a cache, cannot be made up.
            return Err(SequenceFault::Forward);
        }
        let vector: Vec<f32> = self.sum.iter().map(|sum| (sum / self.taken as f64) as f32).collect();
        if vector.iter().all(|x| x.is_finite()) { Ok(vector) } else { Err(SequenceFault::NonFiniteLogits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pools a prompt whose state at position `p` is `[p, 1]`, computed in these chunks from `from` on.
    fn pooled(pooling: Pooling, from: usize, chunks: &[usize]) -> Result<Vec<f32>, SequenceFault> {
        let mut pooler = Pooler::new(pooling, from + chunks.iter().sum::<usize>());
        let mut first = from;
        for &length in chunks {
            let rows = 7..7 + length;
            for row in pooler.wants(&rows, first) {
                pooler.take(&[(first + row - 7) as f32, 1.0]);
            }
            first += length;
        }
        pooler.result()
    }

    #[test]
    fn however_a_prompt_is_cut() {
        for chunks in [&[5][..], &[1, 4], &[2, 2, 1], &[1, 1, 1, 1, 1]] {
            assert_eq!(pooled(Pooling::Last, 0, chunks), Ok(vec![4.0, 1.0]));
            assert_eq!(pooled(Pooling::Mean, 0, chunks), Ok(vec![2.0, 1.0]));
            assert_eq!(pooled(Pooling::Cls, 0, chunks), Ok(vec![0.0, 1.0]));
        }
    }

    #[test]
    fn states_that_were_skipped_are_missed_where_they_count() {
        assert_eq!(pooled(Pooling::Last, 3, &[2]), Ok(vec![4.0, 1.0]));
        for pooling in [Pooling::Mean, Pooling::Cls] {
            assert_eq!(pooled(pooling, 3, &[2]), Err(SequenceFault::Forward), "{pooling:?}");
        }
    }

    #[test]
    fn a_preempted_prompt_takes_up_where_it_was() {
        let mut pooler = Pooler::new(Pooling::Mean, 4);
        pooler.wants(&(0..3), 0).for_each(|row| pooler.take(&[row as f32]));
        assert_eq!(pooler.wants(&(0..4), 0), 3..4, "computed again from the beginning");
        pooler.take(&[3.0]);
        assert_eq!(pooler.result(), Ok(vec![1.5]));
    }

    #[test]
    fn what_is_not_finite_is_no_vector() {
        let mut pooler = Pooler::new(Pooling::Last, 1);
        pooler.take(&[f32::NAN]);
        assert_eq!(pooler.result(), Err(SequenceFault::NonFiniteLogits));
    }
}
