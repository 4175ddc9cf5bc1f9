//! Several arrays as one, so that they travel together.

use candle_core::Tensor;

use crate::pass::backend::Result;

/// Arrays begin at multiples of this many numbers, 16 bytes: what the kernels load at once.
pub(super) const ALIGNMENT: usize = 4;

/// Arrays on their way, one after another.
#[derive(Default)]
pub(super) struct Packing<T> {
    pub numbers: Vec<T>,
    places: Vec<Place>,
}

/// Where one of them begins, and how long it is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    start: usize,
    len: usize,
}

impl<T: Clone + Default> Packing<T> {
    pub(super) fn put(&mut self, numbers: impl IntoIterator<Item = T>) -> Place {
        self.numbers.resize(self.numbers.len().next_multiple_of(ALIGNMENT), T::default());
        let start = self.numbers.len();
        self.numbers.extend(numbers);
        let place = Place { start, len: self.numbers.len() - start };
        self.places.push(place);
        place
    }

    /// Each array in `all`, which is what they became on the device.
    pub(super) fn parts(&self, all: &Tensor) -> impl Iterator<Item = Result<Tensor>> {
        self.places.iter().map(|place| place.of(all))
    }
}

impl Place {
    pub(super) fn of(self, all: &Tensor) -> Result<Tensor> {
        Ok(all.narrow(0, self.start, self.len)?)
    }

    pub(super) fn some(self, all: &Tensor) -> Result<Option<Tensor>> {
        (self.len > 0).then(|| self.of(all)).transpose()
    }
}
