//! The instruction of AVX-VNNI.
#![allow(unsafe_code)] // an instruction that not every processor with AVX2 has

use std::arch::asm;
use std::arch::x86_64::__m256i;

/// `vpdpbusd` in its VEX encoding, as processors without AVX-512 have it. Written out so that the functions around it
/// need not be compiled twice.
///
/// # Safety
/// AVX-VNNI is there.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn dpbusd(mut sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    // SAFETY: one instruction on registers, which the caller promises to exist.
    unsafe {
        asm!("{{vex}} vpdpbusd {}, {}, {}", inout(ymm_reg) sums, in(ymm_reg) codes, in(ymm_reg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}
