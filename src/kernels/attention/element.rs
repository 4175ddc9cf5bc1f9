//! How cached numbers become lanes.
#![allow(unsafe_code)] // loads through pointers into the cache

use super::super::lanes::Lanes;

/// How a cached number is stored.
pub(super) trait Element {
    const SIZE: usize;
    /// Whether every 32 dimensions have a scale before them.
    const SCALED: bool = false;

    /// # Safety
    /// The processor has the instructions of `V`; `at` points at sixteen numbers.
    unsafe fn load<V: Lanes>(at: *const u8) -> V;
}

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

    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_i8(at.cast()) }
    }
}
