//! Memory of activations that stays from one step to the next: taking fresh pages from the system for each op costs more
//! than many of the ops.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that nobody uses. The lock is held for a look at a short list, by one thread.
#[derive(Clone, Default)]
pub(in crate::model) struct Buffers(Arc<Mutex<Vec<Vec<f32>>>>);

/// A tensor's numbers; its memory goes back to where it came from when it is dropped.
pub(in crate::model) struct Buffer {
    /// As long as it ever was; only the first `len` numbers are this tensor's.
    memory: Vec<f32>,
    len: usize,
    home: Buffers,
}

impl Buffers {
    /// `len` numbers, whatever they are: the op that asked writes them all.
    pub fn take(&self, len: usize) -> Buffer {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest that is large enough, else the largest, which grows.
        let room = |(_, memory): &(usize, &Vec<f32>)| memory.capacity();
        let fits = spare.iter().enumerate().filter(|(_, memory)| memory.capacity() >= len).min_by_key(room);
        let index = fits.or_else(|| spare.iter().enumerate().max_by_key(room)).map(|(i, _)| i);
        let mut memory = index.map(|index| spare.swap_remove(index)).unwrap_or_default();
        drop(spare);
        if memory.len() < len {
            // Not twice of what was there, as a list would grow: this one never holds more than it is asked for.
            memory.reserve_exact(len - memory.len());
            memory.resize(len, 0.0);
        }
        Buffer { memory, len, home: self.clone() }
    }

    /// Gives memory to later tensors.
    pub fn give(&self, memory: Vec<f32>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

impl Buffer {
    /// Leaves the first `len` numbers.
    pub fn shorten(&mut self, len: usize) {
        self.len = len.min(self.len);
    }

    /// The numbers themselves; their memory does not come back by itself.
    pub fn into_vec(mut self) -> Vec<f32> {
        let mut memory = std::mem::take(&mut self.memory);
        memory.truncate(self.len);
        memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.memory.is_empty() {
            self.home.give(std::mem::take(&mut self.memory));
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.memory[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_the_best_fit_is_taken() {
        let buffers = Buffers::default();
        let (small, large) = (buffers.take(10), buffers.take(1000));
        let places = (small.as_ptr(), large.as_ptr());
        drop((small, large));
        let (large, small) = (buffers.take(11), buffers.take(3));
        assert_eq!((small.as_ptr(), large.as_ptr()), places);
        assert_eq!((small.len(), large.len()), (3, 11));
        let taken = large.into_vec();
        assert_eq!(taken.len(), 11);
        buffers.give(taken);
        assert_eq!(buffers.take(11).as_ptr(), places.1);
    }
}
