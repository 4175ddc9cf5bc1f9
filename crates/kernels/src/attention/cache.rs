//! One layer's keys and values, in blocks, as the kernels want to read them.
//!
//! ```text
//! keys   [block][kv head][strip][head_dim][W]   W positions side by side: a score per lane, nothing to add across lanes
//! values [block][kv head][position][head_dim]   rows padded to sixteen numbers
//! ```
//! A strip is 16 positions where blocks hold a multiple of 16, else the whole block. `Q8_0` puts a scale (`f16`) before
//! every 32 dimensions: `[head_dim / 32][scales: W][32][W]` for keys, `[head_dim / 32][scale][32]` for values.
#![allow(unsafe_code)] // rows of one step are written by several threads, each to slots of its own

use std::ops::Range;

use super::super::isa::Isa;
use super::super::lanes::LANES;
use super::super::memory::{Memory, OutOfMemory};
use super::super::parallel::{Shared, for_each_range};
use super::super::rope;
use super::write::Writer;

/// How cached keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvDtype {
    F32,
    /// Numbers beyond ±65,504 become that.
    F16,
    Bf16,
    /// Eight bits and a scale per 32 dimensions of a head.
    Q8_0,
}

/// Dimensions that share a scale.
pub(super) const GROUP: usize = 32;
/// Bytes of each layer's keys, and of its values, that are there from the beginning: the first few hundred tokens.
const TOUCHED: usize = 1 << 20;
/// Bytes of a scale.
pub(super) const SCALE: usize = 2;

impl KvDtype {
    pub const ALL: [KvDtype; 4] = [KvDtype::F32, KvDtype::F16, KvDtype::Bf16, KvDtype::Q8_0];

    /// As `kv_cache.dtype` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            KvDtype::F32 => "f32",
            KvDtype::F16 => "f16",
            KvDtype::Bf16 => "bf16",
            KvDtype::Q8_0 => "q8_0",
        }
    }

    /// Whether heads of this many dimensions can be stored so.
    pub const fn fits(self, head_dim: usize) -> bool {
        !matches!(self, KvDtype::Q8_0) || head_dim.is_multiple_of(GROUP)
    }

    /// Bytes of one number.
    pub(super) const fn size(self) -> usize {
        match self {
            KvDtype::F32 => 4,
            KvDtype::F16 | KvDtype::Bf16 => 2,
            KvDtype::Q8_0 => 1,
        }
    }

    /// Bytes of one position's key in one head.
    pub const fn key_bytes(self, head_dim: usize) -> usize {
        match self {
            KvDtype::Q8_0 => head_dim + head_dim / GROUP * SCALE,
            _ => head_dim * self.size(),
        }
    }

    /// Bytes of one position's value in one head.
    pub const fn value_bytes(self, head_dim: usize) -> usize {
        self.key_bytes(padded(head_dim))
    }
}

/// Dimensions of a value's row with its padding.
pub(super) const fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}

/// The sizes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub num_blocks: usize,
    pub block_size: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

/// One layer's cache.
pub struct Cache {
    pub(super) dtype: KvDtype,
    pub(super) geometry: Geometry,
    keys: Memory,
    values: Memory,
    /// Room for the slots of a step, in order.
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

/// Positions of a strip.
pub(super) fn strip_of(block_size: usize) -> usize {
    if block_size.is_multiple_of(LANES) { LANES } else { block_size }
}

/// Where dimension `d` of column `column` lies in a strip of `width` positions.
pub(super) fn key_at(dtype: KvDtype, width: usize, column: usize, d: usize) -> usize {
    match dtype {
        KvDtype::Q8_0 => d / GROUP * width * (SCALE + GROUP) + width * SCALE + d % GROUP * width + column,
        _ => (d * width + column) * dtype.size(),
    }
}

/// Where the scale of group `group` lies.
pub(super) fn key_scale_at(width: usize, column: usize, group: usize) -> usize {
    group * width * (SCALE + GROUP) + column * SCALE
}
