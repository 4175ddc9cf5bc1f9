//! Rounds keys and values and writes them to their places in the cache.
#![allow(unsafe_code)] // through pointers, so that several threads can write, each to slots of its own

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::layout::{GROUP, Geometry, KvDtype, key_at, key_scale_at, strip_of};
use crate::isa::Isa;
use crate::lanes::{self, LANES, Lanes};

/// A cache, while rows are written to it.
pub(super) struct Writer {
    pub dtype: KvDtype,
    pub geometry: Geometry,
    pub keys: *mut u8,
    pub values: *mut u8,
}

// SAFETY: it stands for a `&mut Cache`; threads write different slots.
unsafe impl Sync for Writer {}

/// Rows `[slots, kv_heads, head_dim]` and where each goes.
struct Rows<'a> {
    writer: &'a Writer,
    slots: &'a [u32],
    keys: &'a [f32],
    values: &'a [f32],
}

lanes::on_lanes!(fn write_on(rows: &Rows) = write);

/// # Safety
/// The processor has the instructions of `V`; for the rest see [`Writer::write`].
#[inline(always)]
unsafe fn write<V: Lanes>(rows: &Rows) {
    let Geometry { kv_heads, head_dim, .. } = rows.writer.geometry;
    let width = kv_heads * head_dim;
    let numbers = rows.keys.chunks_exact(width).zip(rows.values.chunks_exact(width));
    for (&slot, (key, value)) in rows.slots.iter().zip(numbers) {
        // SAFETY: as the caller promises.
        unsafe { rows.writer.row::<V>(slot as usize, key, value) }
    }
}

impl Writer {
    /// # Safety
    /// The processor has the instructions of `isa`. The slots are in the cache and nobody else writes them; `keys` and
    /// `values` are as wide as all heads for each.
    pub unsafe fn write(&self, isa: Isa, slots: &[u32], keys: &[f32], values: &[f32]) {
        write_on(isa, &Rows { writer: self, slots, keys, values });
    }

    /// # Safety
    /// As for [`Writer::write`], for one slot.
    #[inline(always)]
    unsafe fn row<V: Lanes>(&self, slot: usize, key: &[f32], value: &[f32]) {
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
                self.column::<V>(keys, width, column, &key[part.clone()]);
                let values = self.values.add((first + offset) * self.dtype.value_bytes(head_dim));
                self.column::<V>(values, 1, 0, &value[part]);
            }
        }
    }

    /// A row of a head into column `column` of a strip of `width`; a value is a strip of one column.
    ///
    /// # Safety
    /// `strip` points at a strip that nobody else reads, of which nobody else writes this column.
    #[inline(always)]
    unsafe fn column<V: Lanes>(&self, strip: *mut u8, width: usize, column: usize, row: &[f32]) {
        for (group, numbers) in row.chunks(GROUP).enumerate() {
            // SAFETY: all offsets are inside the strip, whose size they are computed from.
            unsafe {
                let first = strip.add(key_at(self.dtype, width, column, group * GROUP));
                match self.dtype {
                    KvDtype::F32 => scatter(first.cast::<f32>(), width, numbers),
                    KvDtype::F16 => scatter(first.cast::<u16>(), width, &f16_bits::<V>(numbers)[..numbers.len()]),
                    KvDtype::Bf16 => scatter(first.cast::<u16>(), width, &bf16_bits(numbers)[..numbers.len()]),
                    KvDtype::Q8_0 => {
                        let (scale, codes) = eight_bits(numbers);
                        let scale_at = strip.add(key_scale_at(width, column, group));
                        scale_at.cast::<u16>().write_unaligned(scale.to_bits());
                        scatter(first.cast::<i8>(), width, &codes[..numbers.len()]);
                    }
                }
            }
        }
    }
}

/// Writes numbers `width` places apart.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn scatter<T: Copy>(first: *mut T, width: usize, numbers: &[T]) {
    // SAFETY: as the caller promises.
    unsafe {
        if width == 1 {
            return first.cast::<u8>().copy_from_nonoverlapping(numbers.as_ptr().cast(), size_of_val(numbers));
        }
        for (d, number) in numbers.iter().enumerate() {
            first.add(d * width).write_unaligned(*number);
        }
    }
}

/// The nearest halves, numbers beyond their range at its ends; zeros behind them.
///
/// # Safety
/// The processor has the instructions of `V`.
#[inline(always)]
unsafe fn f16_bits<V: Lanes>(numbers: &[f32]) -> [u16; GROUP] {
    let mut padded = [0.0; GROUP];
    let numbers = if numbers.len() == GROUP {
        numbers
    } else {
        padded[..numbers.len()].copy_from_slice(numbers);
        &padded
    };
    let mut bits = [0; GROUP];
    for at in (0..GROUP).step_by(LANES) {
        // SAFETY: as the caller promises; a group is two values.
        unsafe {
            // NaN stays what it is: it is the other of both.
            let bounded = V::splat(f16::MIN.to_f32_const()).max(V::load(numbers.as_ptr().add(at)));
            V::splat(f16::MAX.to_f32_const()).min(bounded).store_f16(bits.as_mut_ptr().add(at));
        }
    }
    bits
}

fn bf16_bits(numbers: &[f32]) -> [u16; GROUP] {
    let mut bits = [0u16; GROUP];
    let halves: &mut [bf16] = half::slice::HalfBitsSliceExt::reinterpret_cast_mut(&mut bits[..numbers.len()]);
    halves.convert_from_f32_slice(numbers);
    bits
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
