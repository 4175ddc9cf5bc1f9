//! One layer's keys and values, in blocks, as the kernels read them (see [`super::layout`]).
#![allow(unsafe_code)] // rows of one step are written by several threads, each to slots of its own

use std::ops::Range;

use super::layout::{Geometry, KvDtype, strip_of};
use super::write::Writer;
use crate::isa::Isa;
use crate::memory::{Memory, OutOfMemory};
use crate::parallel::{Shared, for_each_range};
use crate::rope;

/// Bytes of each layer's keys, and of its values, that are there from the beginning: the first few hundred tokens.
const TOUCHED: usize = 1 << 20;

/// One layer's cache.
pub struct Cache {
    pub(super) dtype: KvDtype,
    pub(super) geometry: Geometry,
    keys: Memory,
    values: Memory,
    /// The slots of a step in ascending order; memory that is kept between steps.
    sorted: Vec<u32>,
}

impl Cache {
    /// Zeros, which the system hands out as they are touched, the first at once.
    ///
    /// # Panics
    /// When the dtype does not fit the heads.
    pub fn zeroed(dtype: KvDtype, geometry: Geometry) -> Result<Cache, OutOfMemory> {
        let Geometry { num_blocks, block_size, kv_heads, head_dim } = geometry;
        assert!(dtype.fits(head_dim), "heads of {head_dim} dimensions in {}", dtype.name());
        let rows = num_blocks * block_size * kv_heads;
        let mut keys = Memory::zeroed(rows * dtype.key_bytes(head_dim))?;
        let mut values = Memory::zeroed(rows * dtype.value_bytes(head_dim))?;
        // Else a process's first prompt would be a sixth slower than the second.
        keys.touch(TOUCHED);
        values.touch(TOUCHED);
        Ok(Cache { dtype, geometry, keys, values, sorted: Vec::new() })
    }

    /// Fills the whole cache with NaN, so that a test sees whether anything unwritten is read.
    #[cfg(any(test, feature = "testing"))]
    pub fn poison(&mut self) {
        // All ones are NaN in every format, and in the scales of `Q8_0`.
        self.keys.fill(0xff);
        self.values.fill(0xff);
    }

    /// Copies a whole block.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        for (memory, bytes) in [
            (&mut self.keys, self.geometry.block_size * self.dtype.key_bytes(self.geometry.head_dim)),
            (&mut self.values, self.geometry.block_size * self.dtype.value_bytes(self.geometry.head_dim)),
        ] {
            let bytes = bytes * self.geometry.kv_heads;
            memory.copy_within(from as usize * bytes..(from as usize + 1) * bytes, to as usize * bytes);
        }
    }

    /// Rounds and writes row `t` of `keys` and `values` (`[T, kv_heads, head_dim]`) to `slots[t]`.
    ///
    /// # Panics
    /// When lengths differ, a slot is outside the cache, or two rows have the same one.
    pub fn write(&mut self, slots: &[u32], keys: &[f32], values: &[f32]) {
        self.write_on(Isa::current(), slots, keys, values);
    }

    /// [`Cache::write`] with instructions of one's choice: the same bits, another speed.
    ///
    /// # Panics
    /// Also when this machine does not have them.
    pub fn write_on(&mut self, isa: Isa, slots: &[u32], keys: &[f32], values: &[f32]) {
        let width = self.check(isa, slots, keys.len(), values.len());
        let writer = self.writer();
        for_each_range(slots.len(), 1, slots.len() * width * 16, |rows: Range<usize>| {
            let part = rows.start * width..rows.end * width;
            // SAFETY: the slots are inside and no other row has one of them, as was just checked.
            unsafe { writer.write(isa, &slots[rows], &keys[part.clone()], &values[part]) }
        });
    }

    /// [`Cache::write`] of keys that [`rope::rotate`] rotates, each thread its rows before it writes them.
    ///
    /// # Panics
    /// As [`Cache::write`], or when `cos` and `sin` are not `[T, dims / 2]`.
    pub fn write_rotated(&mut self, slots: &[u32], keys: &mut [f32], values: &[f32], angles: (&[f32], &[f32], usize)) {
        let (isa, head_dim, (cos, sin, dims)) = (Isa::current(), self.geometry.head_dim, angles);
        let width = self.check(isa, slots, keys.len(), values.len());
        let half = dims / 2;
        assert!(half > 0 && dims.is_multiple_of(2) && dims <= head_dim, "odd head");
        assert!(cos.len() == slots.len() * half && sin.len() == cos.len(), "angles of each row");
        let (writer, keys) = (self.writer(), Shared::new(keys));
        for_each_range(slots.len(), 1, slots.len() * width * 24, |rows: Range<usize>| {
            let (part, angles) = (rows.start * width..rows.end * width, rows.start * half..rows.end * half);
            // SAFETY: ranges of rows do not overlap; the slots are inside and no other row has one of them, as was just checked.
            unsafe {
                let keys = keys.part(part.clone());
                rope::rotate_here(isa, keys, (&cos[angles.clone()], &sin[angles]), dims, head_dim);
                writer.write(isa, &slots[rows], keys, &values[part]);
            }
        });
    }

    /// Whether so many numbers can be written there; says how many go to a slot.
    fn check(&mut self, isa: Isa, slots: &[u32], keys: usize, values: usize) -> usize {
        assert!(isa.is_here(), "{} on a machine without it", isa.name());
        let Geometry { num_blocks, block_size, kv_heads, head_dim } = self.geometry;
        let width = kv_heads * head_dim;
        assert!(keys == slots.len() * width && values == keys, "keys and values of the slots");
        self.sorted.clear();
        self.sorted.extend_from_slice(slots);
        self.sorted.sort_unstable();
        assert!(self.sorted.windows(2).all(|two| two[0] < two[1]), "two rows for one slot");
        assert!(
            self.sorted.last().is_none_or(|&last| (last as usize) < num_blocks * block_size),
            "slots outside the cache"
        );
        width
    }

    fn writer(&mut self) -> Writer {
        let (keys, values) = (self.keys.as_mut_ptr(), self.values.as_mut_ptr());
        Writer { dtype: self.dtype, geometry: self.geometry, keys, values }
    }

    /// Positions of a strip.
    pub(super) fn strip(&self) -> usize {
        strip_of(self.geometry.block_size)
    }

    /// The strip that holds `offset` of a block: keys, and rows of values.
    pub(super) fn strips(&self, block: u32, kv_head: usize, offset: usize) -> (&[u8], &[u8]) {
        let Geometry { block_size, kv_heads, head_dim, .. } = self.geometry;
        let strip = self.strip();
        let start = (block as usize * kv_heads + kv_head) * block_size + offset / strip * strip;
        let (key, value) = (self.dtype.key_bytes(head_dim), self.dtype.value_bytes(head_dim));
        (&self.keys[start * key..][..strip * key], &self.values[start * value..][..strip * value])
    }

    /// The values at `offset` of a block.
    pub(super) fn value_row(&self, block: u32, kv_head: usize, offset: usize) -> &[u8] {
        let bytes = self.dtype.value_bytes(self.geometry.head_dim);
        &self.strips(block, kv_head, offset).1[offset % self.strip() * bytes..][..bytes]
    }
}
