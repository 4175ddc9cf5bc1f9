//! Memory of activations that stays from one step to the next: taking fresh pages from the system for each op costs more
//! than many of the ops.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_kernels::floats::Floats;

/// Buffers that nobody uses. The lock is held for a look at a short list, by one thread.
#[derive(Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Floats>>>);

/// A tensor's numbers; its memory goes back to where it came from when it is dropped.
pub(crate) struct Buffer {
    memory: Floats,
    home: Buffers,
}

impl Buffers {
    /// `len` numbers, whatever they are: the op that asked writes them all.
    pub fn take(&self, len: usize) -> Buffer {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest that is large enough, else the largest, which grows.
        let room = |(_, memory): &(usize, &Floats)| memory.capacity();
        let fits = spare.iter().enumerate().filter(|(_, memory)| memory.capacity() >= len).min_by_key(room);
        let index = fits.or_else(|| spare.iter().enumerate().max_by_key(room)).map(|(i, _)| i);
        let mut memory = index.map(|index| spare.swap_remove(index)).unwrap_or_default();
        drop(spare);
        memory.fit(len);
        Buffer { memory, home: self.clone() }
    }

    /// Gives memory to later tensors.
    pub fn give(&self, memory: Floats) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }
}

impl Buffer {
    /// Leaves the first `len` numbers.
    pub fn shorten(&mut self, len: usize) {
        self.memory.fit(len.min(self.memory.len()));
    }

    /// The numbers themselves; their memory does not come back by itself.
    pub fn into_floats(mut self) -> Floats {
        std::mem::take(&mut self.memory)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.memory.capacity() > 0 {
            self.home.give(std::mem::take(&mut self.memory));
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.memory
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory
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
        let (large, small) = (buffers.take(17), buffers.take(3));
        assert_eq!((small.as_ptr(), large.as_ptr()), places);
        assert_eq!((small.len(), large.len()), (3, 17));
        let taken = large.into_floats();
        assert_eq!(taken.len(), 17);
        buffers.give(taken);
        assert_eq!(buffers.take(17).as_ptr(), places.1);
    }
}
