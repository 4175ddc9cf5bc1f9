//! The same products on several instruction sets.
#![allow(unsafe_code)] // calls into code compiled for instructions that `Isa` has found

use std::ops::Range;

use super::expand;
use super::format::Scheme;
use super::job::Job;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512};
use crate::isa::Isa;

/// Panels that kernels take together where there are as many.
pub(super) const TOGETHER: usize = 2;

/// Scratch memory of one thread, kept between calls.
#[derive(Default)]
pub(super) struct ThreadScratch {
    blocks32: expand::Scratch,
    #[cfg(target_arch = "x86_64")]
    avx512_superblock: avx512::superblock_many::Scratch,
    #[cfg(target_arch = "x86_64")]
    amx_superblock: amx::superblock::Scratch,
}

/// Computes the outputs of `panels`.
pub(super) fn panels(isa: Isa, job: &Job, panels: Range<usize>, scratch: &mut ThreadScratch) {
    match job.panels.format.scheme {
        Scheme::Super { .. } => superblock_panels(isa, job, panels, scratch),
        Scheme::Symmetric { .. } | Scheme::Affine => blocks32_panels(isa, job, panels, &mut scratch.blocks32),
    }
}

/// [`panels`] of weights in blocks of 32.
fn blocks32_panels(isa: Isa, job: &Job, panels: Range<usize>, scratch: &mut expand::Scratch) {
    scratch.fit(job.panels.groups());
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: values above `Scalar` come from `Isa`, which saw the instructions on this processor.
        Isa::Amx if !job.layouts.tiles.is_empty() => unsafe { amx::blocks32::panels(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above; what has AMX has AVX-512.
        Isa::Amx | Isa::Avx512 => unsafe { avx512::blocks32::panels(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::AvxVnni => unsafe { avx2::blocks32::panels::<true>(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2::blocks32::panels::<false>(job, panels, scratch) },
        _ => panels.for_each(|index| scalar::blocks32_panel(job, index, scratch)),
    }
}

/// [`panels`] of weights in blocks of 256.
fn superblock_panels(isa: Isa, job: &Job, panels: Range<usize>, scratch: &mut ThreadScratch) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `blocks32_panels`.
        Isa::Amx if !job.layouts.pairs.is_empty() => unsafe {
            amx::superblock::panels(job, panels, &mut scratch.amx_superblock)
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above; what has AMX has AVX-512.
        Isa::Amx | Isa::Avx512 => unsafe { avx512::superblock::panels(job, panels, &mut scratch.avx512_superblock) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::AvxVnni => unsafe { avx2::superblock::panels::<true>(job, panels) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2::superblock::panels::<false>(job, panels) },
        _ => panels.for_each(|index| scalar::superblock_panel(job, index)),
    }
}
