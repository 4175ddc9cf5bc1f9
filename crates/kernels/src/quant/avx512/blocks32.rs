//! Weights in blocks of 32: `vpdpbusd` adds four products of an unsigned and a signed byte to each of 16 sums, exactly.
//!
//! A block is up to `R` rows of `x` against `P` panels; a group's sums stay in registers, those over all groups may leave
//! them. Weights are read in one of two forms: as they lie in the panel, which costs the unpacking once per block and reads
//! the fewest bytes (few rows), or as bytes that were unpacked once for all blocks (many rows).

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::ops::Range;

use super::blocks32_micro_kernel::{Affine, Symmetric, Weights, rows};
use super::load::{self, Five, Four, Signed, Wide};
use crate::isa::one_stream;
use crate::quant::expand::Scratch;
use crate::quant::format::{Codes, Scheme};
use crate::quant::job::Job;

/// Up to this many rows the weights are unpacked inside the block.
const FEW_ROWS: usize = 32;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Panels that share the rows' loads.
const PAIR: usize = 2;

/// Computes the outputs of `panels`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(crate) fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    let few = job.rows.count() <= FEW_ROWS;
    let pairs = job.rows.count() > 1 || !one_stream();
    let mut index = panels.start;
    while pairs && index + PAIR <= panels.end {
        if few {
            few_rows::<PAIR>(job, index, scratch)
        } else {
            many_rows::<PAIR>(job, index, scratch)
        }
        index += PAIR;
    }
    for index in index..panels.end {
        if few { few_rows::<1>(job, index, scratch) } else { many_rows::<1>(job, index, scratch) }
    }
}

/// `P` panels, unpacked for each block of rows.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn few_rows<const P: usize>(job: &Job, index: usize, scratch: &mut Scratch) {
    let (format, groups) = (job.panels.format, job.panels.groups());
    let mut weights = Weights::<P> { index, codes: [&[]; P], scales: [&[]; P], next: [std::ptr::null(); P] };
    let last = job.panels.count() - 1;
    for (p, scales) in scratch.scales[..P * groups].chunks_exact_mut(groups).enumerate() {
        let (header, codes) = job.panels.whole(index + p);
        load::scales(format, header, scales);
        weights.codes[p] = codes;
        let (header, codes) = job.panels.whole((index + P + p).min(last));
        weights.next[p] = codes.as_ptr();
        for line in header.chunks(LINE) {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    for p in 0..P {
        weights.scales[p] = &scratch.scales[p * groups..][..groups];
    }
    match (format.codes, format.scheme) {
        (Codes::Four, Scheme::Symmetric { .. }) => rows::<Four, Symmetric, P>(job, &weights),
        (Codes::Four, _) => rows::<Four, Affine, P>(job, &weights),
        (Codes::Five, Scheme::Symmetric { .. }) => rows::<Five, Symmetric, P>(job, &weights),
        (Codes::Five, _) => rows::<Five, Affine, P>(job, &weights),
        (Codes::Six | Codes::Eight, _) => rows::<Signed, Symmetric, P>(job, &weights),
    }
}

/// `P` panels, unpacked first.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn many_rows<const P: usize>(job: &Job, index: usize, scratch: &mut Scratch) {
    let format = job.panels.format;
    let groups = job.panels.groups();
    for p in 0..P {
        let (header, codes) = job.panels.whole(index + p);
        load::scales(format, header, &mut scratch.scales[p * groups..][..groups]);
        load::codes(format.codes, 0, codes, &mut scratch.codes[p * groups..][..groups]);
    }
    let mut weights = Weights::<P> { index, codes: [&[]; P], scales: [&[]; P], next: [std::ptr::null(); P] };
    for p in 0..P {
        weights.codes[p] = bytemuck::cast_slice(&scratch.codes[p * groups..][..groups]);
        weights.scales[p] = &scratch.scales[p * groups..][..groups];
    }
    match format.scheme {
        Scheme::Symmetric { .. } => rows::<Wide, Symmetric, P>(job, &weights),
        Scheme::Affine | Scheme::Super { .. } => rows::<Wide, Affine, P>(job, &weights),
    }
}
