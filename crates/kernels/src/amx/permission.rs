//! Whether AMX may be used: the processor, the system's support, and its permission, which a process must ask for.
#![allow(unsafe_code)] // cpuid, xgetbv, one system call

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// Bits of leaf 7, EDX.
const TILE: u32 = 1 << 24;
const INT8: u32 = 1 << 25;
const BF16: u32 = 1 << 22;
/// A bit of leaf 1, ECX: the system saves extended state and `xgetbv` tells which.
const OSXSAVE: u32 = 1 << 27;
/// Tile configuration and tile data among the extended states.
const STATES: u64 = 1 << 17 | 1 << 18;

/// Asks the system once; its answer holds for all threads, present and future.
pub(crate) fn granted() -> bool {
    static GRANTED: OnceLock<bool> = OnceLock::new();
    *GRANTED.get_or_init(|| supported() && permitted())
}

fn supported() -> bool {
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: OSXSAVE says that `xgetbv` exists, and register 0 always does.
    let states = unsafe { xgetbv() };
    __cpuid_count(7, 0).edx & (TILE | INT8) == TILE | INT8 && states & STATES == STATES
}

/// Whether the unit multiplies BF16, too.
pub(crate) fn has_bf16() -> bool {
    granted() && __cpuid_count(7, 0).edx & BF16 != 0
}

#[target_feature(enable = "xsave")]
fn xgetbv() -> u64 {
    // SAFETY: the caller has seen OSXSAVE.
    unsafe { _xgetbv(0) }
}

/// Asks Linux for memory for tile data (8 KiB a thread), which it gives only to processes that ask.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: u64 = 158;
    const REQUEST: u64 = 0x1023; // ARCH_REQ_XCOMP_PERM
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: a system call that takes two numbers and touches no memory of ours; rcx and r11 are what it overwrites.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") REQUEST, in("rsi") TILE_DATA,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}
