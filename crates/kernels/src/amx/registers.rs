//! The tile registers, which std has no stable intrinsics for.
#![allow(unsafe_code)] // instructions that load through pointers

use std::arch::asm;
use std::marker::PhantomData;

/// What `ldtilecfg` reads: palette 1, bytes per row from byte 16 on, rows from byte 48 on.
#[repr(C, align(64))]
struct Config([u8; 64]);

/// A value of this type says that the tile registers of this thread are configured; dropping it releases them.
pub(crate) struct Configured {
    /// Tile registers belong to a thread.
    here: PhantomData<*const ()>,
}

impl Configured {
    /// Configures each register of the list with its rows and the bytes of a row.
    ///
    /// # Safety
    /// The system has granted AMX; registers are below 8, rows at most 16, bytes at most 64.
    pub unsafe fn new(registers: &[(usize, u8, u8)]) -> Configured {
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for &(register, rows, bytes) in registers {
            config.0[16 + 2 * register] = bytes;
            config.0[48 + register] = rows;
        }
        // SAFETY: AMX is there, as the caller promises; 64 bytes are read.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, preserves_flags)) }
        Configured { here: PhantomData }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: AMX is there. Empty tile registers need not be saved when the thread is interrupted.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
    }
}
