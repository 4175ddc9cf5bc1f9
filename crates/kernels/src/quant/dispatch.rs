//! The same products on several instruction sets.
#![allow(unsafe_code)] // calls into code compiled for instructions that `Isa` has found

use std::ops::Range;

use super::super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::amx;
#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::format::Scheme;
use super::job::{Job, Scratch};
use super::rows::{self, Part, Span};
use super::{scalar, superblock};

/// Panels that a kernel likes to take together.
pub(super) const TOGETHER: usize = 2;

pub(super) fn quantise(isa: Isa, x: &[f32], rows: Part, span: Span) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: values above `Scalar` come from `Isa`, which saw the instructions on this processor.
        Isa::Avx512 | Isa::Amx => unsafe { quantise_avx512(x, rows, span) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 | Isa::AvxVnni => unsafe { quantise_avx2(x, rows, span) },
        _ => rows::quantise(x, rows, span),
    }
}

/// Computes the outputs of `panels`.
pub(super) fn panels(isa: Isa, job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    scratch.fit(job.panels.groups());
    if let Scheme::Super { .. } = job.panels.format.scheme {
        return super_panels(isa, job, panels, scratch);
    }
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: values above `Scalar` come from `Isa`, which saw the instructions on this processor.
        Isa::Avx512 => unsafe { avx512::panels(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Amx => unsafe { amx::panels(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::AvxVnni => unsafe { avx2::panels::<true>(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2::panels::<false>(job, panels, scratch) },
        _ => panels.for_each(|index| scalar::panel(job, index, scratch)),
    }
}

/// [`panels`] of weights in blocks of 256.
fn super_panels(isa: Isa, job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `panels`.
        Isa::Avx512 => unsafe { superblock::avx512::panels(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Amx => unsafe { superblock::amx::panels(job, panels, scratch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::AvxVnni => unsafe { superblock::avx2::panels::<true>(job, panels) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { superblock::avx2::panels::<false>(job, panels) },
        _ => panels.for_each(|index| superblock::panel(job, index)),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantise_avx2(x: &[f32], rows: Part, span: Span) {
    rows::quantise(x, rows, span);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn quantise_avx512(x: &[f32], rows: Part, span: Span) {
    rows::quantise(x, rows, span);
}
