//! Weights in blocks of 256 (K-quants): groups have small integers for scales, so that a block's products are added as
//! integers, scales and all, and floating point begins once per block.
//!
//! ```text
//! Affine (Q4_K, Q5_K), 8 groups of 32:   y += x_scale · (d · Σ scale·dot(w, x) − dmin · Σ min·sum(x))
//! Halves (Q6_K), 16 groups of 16:        y += x_scale · (d · Σ scale·dot(w − 32, x))
//! ```
//! Both sums are exact (below 2²⁷), so it does not matter in which order or in how many parts a path adds them; blocks are
//! added in ascending order. It is also how ggml does it, but for the order of blocks.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use super::expand;
use super::format::{GROUP, GROUP_CODES, Header, PANEL};
use super::job::Job;

/// Groups of 32 inputs in a block.
pub(super) const GROUPS: usize = 8;
/// What is taken off the codes of `Halves`.
const OFFSET: i32 = 32;

/// Bytes of a block's header, which its codes follow: [`super::format::Format::header_bytes`], known when kernels are compiled.
#[cfg(target_arch = "x86_64")]
const fn header_bytes(affine: bool) -> usize {
    let header = if affine { Header::SuperAffine } else { Header::SuperHalves };
    header.bytes().next_multiple_of(64)
}

/// All rows against one panel: the definition.
pub(super) fn panel(job: &Job, index: usize) {
    let format = job.panels.format;
    let group_bytes = format.codes.bytes();
    for t in 0..job.rows.count() {
        let mut y = [0.0f32; PANEL];
        for (b, (entry, codes)) in job.panels.parts(index).enumerate() {
            let mut block = Integers::default();
            for (g, codes) in codes.chunks_exact(group_bytes).enumerate() {
                let at = t * job.rows.groups() + b * GROUPS + g;
                let mut wide = [0; GROUP_CODES];
                expand::codes(format.codes, codes, &mut wide);
                let dots = dots(&wide, &job.rows.codes[at * GROUP..][..GROUP]);
                block.add(format.header, entry, g, dots, job.rows.sums[at]);
            }
            let d = expand::halves(entry, 0);
            let dmin = if format.header == Header::SuperAffine { expand::halves(entry, 1) } else { [0.0; PANEL] };
            for n in 0..PANEL {
                let mut part = block.products[n] as f32 * d[n];
                if format.header == Header::SuperAffine {
                    part = (block.mins[n] as f32).mul_add(-dmin[n], part);
                }
                y[n] = part.mul_add(job.rows.scales[t * job.rows.groups() + b * GROUPS], y[n]);
            }
        }
        job.out.write(t, index * PANEL, &y);
    }
}

/// A block's sums for 16 outputs.
#[derive(Default)]
struct Integers {
    products: [i32; PANEL],
    mins: [i32; PANEL],
}

impl Integers {
    fn add(&mut self, header: Header, entry: &[u8], g: usize, dots: [[i32; PANEL]; 2], sums: [i32; 2]) {
        for n in 0..PANEL {
            let byte = |row: usize| entry[row * PANEL + n];
            if header == Header::SuperAffine {
                self.products[n] += i32::from(byte(4 + 2 * g)) * (dots[0][n] + dots[1][n]);
                self.mins[n] += i32::from(byte(5 + 2 * g)) * (sums[0] + sums[1]);
            } else {
                for (h, dots) in dots.iter().enumerate() {
                    self.products[n] += i32::from(byte(2 + 2 * g + h) as i8) * (dots[n] - OFFSET * sums[h]);
                }
            }
        }
    }
}

/// Of the first and the second 16 inputs of a group, for 16 outputs.
fn dots(wide: &[u8; GROUP_CODES], x: &[i8]) -> [[i32; PANEL]; 2] {
    let mut sums = [[0; PANEL]; 2];
    for (j, (quad, x)) in wide.as_chunks::<64>().0.iter().zip(x.as_chunks::<4>().0).enumerate() {
        for (sum, w) in sums[j / 4].iter_mut().zip(quad.as_chunks::<4>().0) {
            for i in 0..4 {
                *sum += i32::from(w[i]) * i32::from(x[i]);
            }
        }
    }
    sums
}
