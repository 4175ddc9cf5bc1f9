//! How cached numbers become lanes.
#![allow(unsafe_code)] // loads through pointers into the cache

use crate::lanes::Lanes;

/// How a cached number is stored.
pub(super) trait Element {
    const SIZE: usize;
    /// Whether every 32 dimensions have a scale before them.
    const SCALED: bool = false;
    /// How many strips ahead memory is asked for keys and values: some 4 KiB.
    const AHEAD: usize = 1;

    /// # Safety
    /// The processor has the instructions of `V`; `at` points at sixteen numbers.
    unsafe fn load<V: Lanes>(at: *const u8) -> V;
}

/// No number is asked for further ahead, in strips.
pub(super) const MOST_AHEAD: usize = 2;

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;
pub(super) struct Q8;

impl Element for F32 {
    const SIZE: usize = 4;

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load(at.cast()) }
    }
}

impl Element for F16 {
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_f16(at.cast()) }
    }
}

impl Element for Bf16 {
    const SIZE: usize = 2;

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_bf16(at.cast()) }
    }
}

impl Element for Q8 {
    const SIZE: usize = 1;
    const SCALED: bool = true;
    const AHEAD: usize = MOST_AHEAD;

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_i8(at.cast()) }
    }
}
