//! AVX-512 with VNNI: `vpdpbusd` adds four products of an unsigned and a signed byte to each of 16 sums, exactly.
//!
//! A block is up to `R` rows of `x` against `P` panels; its sums stay in registers over all groups. Weights are read in
//! one of two forms: as they lie in the panel, which costs the unpacking once per block and reads the fewest bytes (few
//! rows), or as bytes that were unpacked once for all blocks (many rows).
#![cfg(target_arch = "x86_64")]

mod block;
pub(super) mod load;

use std::ops::Range;

use super::format::{Codes, Scheme};
use super::job::{Job, Scratch};
use block::{Affine, Symmetric, Weights, rows};
use load::{Eight, Five, Four, Signed};

/// Up to this many rows the weights are unpacked inside the block.
const FEW_ROWS: usize = 32;

/// Computes the outputs of `panels`.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn panels(job: &Job, panels: Range<usize>, scratch: &mut Scratch) {
    if job.rows.count() <= FEW_ROWS {
        for index in panels {
            few_rows(job, index, scratch);
        }
    } else {
        let mut index = panels.start;
        while index + 2 <= panels.end {
            many_rows::<2>(job, index, scratch);
            index += 2;
        }
        if index < panels.end {
            many_rows::<1>(job, index, scratch);
        }
    }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn few_rows(job: &Job, index: usize, scratch: &mut Scratch) {
    let format = job.panels.format;
    let (header, codes) = job.panels.panel(index);
    let groups = job.panels.groups();
    load::scales(format, header, &mut scratch.scales[..groups]);
    let weights = Weights::<1> { index, codes: [codes], scales: [&scratch.scales[..groups]] };
    match (format.codes, format.scheme) {
        (Codes::Four, Scheme::Symmetric { .. }) => rows::<Four, Symmetric, 1>(job, &weights),
        (Codes::Four, _) => rows::<Four, Affine, 1>(job, &weights),
        (Codes::Five, Scheme::Symmetric { .. }) => rows::<Five, Symmetric, 1>(job, &weights),
        (Codes::Five, _) => rows::<Five, Affine, 1>(job, &weights),
        (Codes::Six | Codes::Eight, _) => rows::<Signed, Symmetric, 1>(job, &weights),
    }
}

/// `P` panels, unpacked first.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn many_rows<const P: usize>(job: &Job, index: usize, scratch: &mut Scratch) {
    let format = job.panels.format;
    let groups = job.panels.groups();
    for p in 0..P {
        let (header, codes) = job.panels.panel(index + p);
        load::scales(format, header, &mut scratch.scales[p * groups..][..groups]);
        load::codes(format.codes, 0, codes, &mut scratch.codes[p * groups..][..groups]);
    }
    let mut weights = Weights::<P> { index, codes: [&[]; P], scales: [&[]; P] };
    for p in 0..P {
        weights.codes[p] = bytemuck::cast_slice(&scratch.codes[p * groups..][..groups]);
        weights.scales[p] = &scratch.scales[p * groups..][..groups];
    }
    match format.scheme {
        Scheme::Symmetric { .. } => rows::<Eight, Symmetric, P>(job, &weights),
        Scheme::Affine | Scheme::Super { .. } => rows::<Eight, Affine, P>(job, &weights),
    }
}
