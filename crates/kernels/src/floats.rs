//! Numbers that begin with a cache line.
//!
//! The allocator's large pieces begin sixteen bytes behind one, so that each register of sixteen outputs would be written to two
//! lines: products of 32 rows took a fifth longer.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// As a `Vec<f32>` that does not grow by itself.
#[derive(Clone, Default)]
pub struct Floats {
    numbers: Numbers,
    len: usize,
}

#[derive(Clone)]
enum Numbers {
    Lines(Vec<Line>),
    /// Made elsewhere, wherever they begin.
    Plain(Vec<f32>),
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; Line::NUMBERS]);

impl Line {
    const NUMBERS: usize = 16;
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers::Lines(Vec::new())
    }
}

impl Floats {
    /// How many there is memory for.
    pub fn capacity(&self) -> usize {
        match &self.numbers {
            Numbers::Lines(lines) => lines.capacity() * Line::NUMBERS,
            Numbers::Plain(numbers) => numbers.capacity(),
        }
    }

    /// Changes the length to `len`; the numbers may be anything afterwards.
    pub fn fit(&mut self, len: usize) {
        self.len = len;
        if let Numbers::Plain(numbers) = &self.numbers
            && numbers.len() < len
        {
            self.numbers = Numbers::default();
        }
        if let Numbers::Lines(lines) = &mut self.numbers {
            let wanted = len.div_ceil(Line::NUMBERS);
            if lines.len() < wanted {
                // Not twice of what was there, as a list would grow: these never hold more than they are asked for.
                lines.reserve_exact(wanted - lines.len());
                lines.resize(wanted, bytemuck::Zeroable::zeroed());
            }
        }
    }
}

impl From<Vec<f32>> for Floats {
    fn from(numbers: Vec<f32>) -> Floats {
        Floats { len: numbers.len(), numbers: Numbers::Plain(numbers) }
    }
}

impl Deref for Floats {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match &self.numbers {
            Numbers::Lines(lines) => &bytemuck::cast_slice(lines)[..self.len],
            Numbers::Plain(numbers) => &numbers[..self.len],
        }
    }
}

impl DerefMut for Floats {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.numbers {
            Numbers::Lines(lines) => &mut bytemuck::cast_slice_mut(lines)[..self.len],
            Numbers::Plain(numbers) => &mut numbers[..self.len],
        }
    }
}

impl PartialEq for Floats {
    fn eq(&self, other: &Floats) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Floats {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_with_a_line_however_many() {
        let mut floats = Floats::default();
        for len in [1, 15, 16, 17, 100_000, 40_001, 200_000, 0] {
            floats.fit(len);
            assert!(floats.len() == len && floats.capacity() >= len);
            assert!(len == 0 || floats.as_ptr().addr().is_multiple_of(64), "{len} numbers");
            floats.fill(1.0);
        }
    }

    #[test]
    fn those_made_elsewhere_stay_where_they_are_until_they_are_too_few() {
        let numbers = vec![1.0, 2.0, 3.0];
        let place = numbers.as_ptr();
        let mut floats = Floats::from(numbers);
        assert!(*floats == [1.0, 2.0, 3.0] && floats.as_ptr() == place);
        assert_eq!(floats, floats.clone());
        floats.fit(2);
        assert!(*floats == [1.0, 2.0] && floats.as_ptr() == place);
        floats.fit(100);
        assert!(floats.len() == 100 && floats.as_ptr().addr().is_multiple_of(64));
    }
}
