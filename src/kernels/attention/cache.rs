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
use std::slice::ChunksExact;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::super::lanes::LANES;
use super::super::memory::{Memory, OutOfMemory};
use super::super::parallel::for_each_range;

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

    /// Fills it with NaN.
    #[cfg(test)]
    pub(crate) fn poison(&mut self) {
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
        let Geometry { num_blocks, block_size, kv_heads, head_dim } = self.geometry;
        let width = kv_heads * head_dim;
        assert!(keys.len() == slots.len() * width && values.len() == keys.len(), "keys and values of the slots");
        self.sorted.clear();
        self.sorted.extend_from_slice(slots);
        self.sorted.sort_unstable();
        assert!(self.sorted.windows(2).all(|two| two[0] < two[1]), "two rows for one slot");
        assert!(
            self.sorted.last().is_none_or(|&last| (last as usize) < num_blocks * block_size),
            "slots outside the cache"
        );
        let writer = Writer {
            dtype: self.dtype,
            geometry: self.geometry,
            keys: self.keys.as_mut_ptr(),
            values: self.values.as_mut_ptr(),
        };
        for_each_range(slots.len(), 1, slots.len() * width * 4, |rows: Range<usize>| {
            for row in rows {
                let part = row * width..(row + 1) * width;
                // SAFETY: the slot is inside and no other row has it, as was just checked.
                unsafe { writer.row(slots[row] as usize, &keys[part.clone()], &values[part]) }
            }
        });
    }

    /// Positions of a strip.
    pub(super) fn strip(&self) -> usize {
        strip_of(self.geometry.block_size)
    }

    /// The strip that holds `offset` of a block.
    pub(super) fn key_strip(&self, block: u32, kv_head: usize, offset: usize) -> &[u8] {
        let Geometry { block_size, kv_heads, head_dim, .. } = self.geometry;
        let strip = self.strip();
        let bytes = self.dtype.key_bytes(head_dim);
        let start = (block as usize * kv_heads + kv_head) * block_size + offset / strip * strip;
        &self.keys[start * bytes..][..strip * bytes]
    }

    /// The values at `offsets` of a block.
    pub(super) fn value_rows(&self, block: u32, kv_head: usize, offsets: Range<usize>) -> ChunksExact<'_, u8> {
        let Geometry { block_size, kv_heads, head_dim, .. } = self.geometry;
        let bytes = self.dtype.value_bytes(head_dim);
        let first = (block as usize * kv_heads + kv_head) * block_size;
        self.values[(first + offsets.start) * bytes..(first + offsets.end) * bytes].chunks_exact(bytes)
    }
}

fn strip_of(block_size: usize) -> usize {
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

/// Writes rows through pointers, so that several threads can.
struct Writer {
    dtype: KvDtype,
    geometry: Geometry,
    keys: *mut u8,
    values: *mut u8,
}

// SAFETY: it stands for a `&mut Cache`; threads write different slots.
unsafe impl Sync for Writer {}

impl Writer {
    /// # Safety
    /// `slot` is in the cache and nobody else writes it; `key` and `value` are as wide as all heads.
    unsafe fn row(&self, slot: usize, key: &[f32], value: &[f32]) {
        let Geometry { block_size, kv_heads, head_dim, .. } = self.geometry;
        let (block, offset) = (slot / block_size, slot % block_size);
        let width = strip_of(block_size);
        let (strip, column) = (offset / width * width, offset % width);
        for head in 0..kv_heads {
            let first = (block * kv_heads + head) * block_size;
            let part = head * head_dim..(head + 1) * head_dim;
            // SAFETY: the head's part of the block is inside, as the slot is.
            unsafe {
                let keys = self.keys.add((first + strip) * self.dtype.key_bytes(head_dim));
                self.key(keys, width, column, &key[part.clone()]);
                let values = self.values.add((first + offset) * self.dtype.value_bytes(head_dim));
                self.key(values, 1, 0, &value[part]);
            }
        }
    }

    /// A row of a head into column `column` of a strip of `width`; a value is a strip of one column.
    ///
    /// # Safety
    /// `strip` points at a strip that nobody else reads, of which nobody else writes this column.
    unsafe fn key(&self, strip: *mut u8, width: usize, column: usize, row: &[f32]) {
        for (group, numbers) in row.chunks(GROUP).enumerate() {
            let mut two = [0u16; GROUP];
            let two = &mut two[..numbers.len()];
            let at = |d: usize| key_at(self.dtype, width, column, group * GROUP + d);
            // SAFETY: all offsets are inside the strip, whose size they are computed from.
            unsafe {
                match self.dtype {
                    KvDtype::F32 => {
                        for (d, number) in numbers.iter().enumerate() {
                            strip.add(at(d)).cast::<f32>().write_unaligned(*number);
                        }
                        continue;
                    }
                    KvDtype::F16 => {
                        let mut bounded = [0.0f32; GROUP];
                        for (bounded, number) in bounded.iter_mut().zip(numbers) {
                            *bounded = number.clamp(f16::MIN.to_f32_const(), f16::MAX.to_f32_const());
                        }
                        let halves: &mut [f16] = half::slice::HalfBitsSliceExt::reinterpret_cast_mut(&mut *two);
                        halves.convert_from_f32_slice(&bounded[..numbers.len()]);
                    }
                    KvDtype::Bf16 => {
                        let halves: &mut [bf16] = half::slice::HalfBitsSliceExt::reinterpret_cast_mut(&mut *two);
                        halves.convert_from_f32_slice(numbers);
                    }
                    KvDtype::Q8_0 => {
                        let (scale, codes) = eight_bits(numbers);
                        let scale_at = key_scale_at(width, column, group);
                        strip.add(scale_at).cast::<u16>().write_unaligned(scale.to_bits());
                        for (d, code) in codes[..numbers.len()].iter().enumerate() {
                            strip.add(at(d)).cast::<i8>().write(*code);
                        }
                        continue;
                    }
                }
                for (d, bits) in two.iter().enumerate() {
                    strip.add(at(d)).cast::<u16>().write_unaligned(*bits);
                }
            }
        }
    }
}

/// The nearest of 255 steps between minus and plus the largest magnitude. Numbers that are not finite make the scale NaN.
fn eight_bits(numbers: &[f32]) -> (f16, [i8; GROUP]) {
    let largest = numbers.iter().fold(0, |largest, x: &f32| largest.max(x.to_bits() & 0x7fff_ffff));
    let largest = f32::from_bits(largest);
    let mut codes = [0; GROUP];
    if !largest.is_finite() {
        return (f16::NAN, codes);
    }
    let scale = f16::from_f32((largest / 127.0).min(f16::MAX.to_f32_const()));
    if scale == f16::ZERO {
        return (scale, codes);
    }
    let inverse = 1.0 / scale.to_f32();
    for (code, number) in codes.iter_mut().zip(numbers) {
        *code = (number * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
    }
    (scale, codes)
}
