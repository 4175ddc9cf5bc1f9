//! The definitions, for weights in blocks of 32 and in blocks of 256: what every other path must give to the bit.

use super::expand::{self, Scratch};
use super::format::{GROUP, GROUP_CODES, Header, PANEL, Scheme};
use super::job::Job;
use crate::quant::superblock::{GROUPS, OFFSET};

/// All rows against one panel of weights in blocks of 32.
///
/// Per group of 32 inputs, in ascending order: the integer dot of codes (exact), as `f32` times the weights' scale; plus,
/// for affine weights, the sum of the activations' codes times the shift; the whole times the activations' scale onto the
/// output. Products that are added are fused (`mul_add`): every path has that instruction, or computes the same.
pub(super) fn blocks32_panel(job: &Job, index: usize, scratch: &mut Scratch) {
    let format = job.panels.format;
    let (header, codes) = job.panels.whole(index);
    let scales = &mut scratch.scales[..job.panels.groups()];
    expand::scales(format, header, scales);
    let mut wide = [0; GROUP_CODES];
    for t in 0..job.rows.count() {
        let mut y = [0.0f32; PANEL];
        for (g, scales) in scales.iter().enumerate() {
            expand::codes(format.codes, &codes[g * format.codes.bytes()..][..format.codes.bytes()], &mut wide);
            let at = t * job.rows.groups() + g;
            let x = &job.rows.codes[at * GROUP..][..GROUP];
            let sums = job.rows.sums[at];
            let dots = dots(&wide, x);
            for n in 0..PANEL {
                let part = match format.scheme {
                    Scheme::Symmetric { offset } => (dots[n] - offset * (sums[0] + sums[1])) as f32 * scales.scale[n],
                    Scheme::Affine => {
                        ((sums[0] + sums[1]) as f32).mul_add(scales.second[n], dots[n] as f32 * scales.scale[n])
                    }
                    Scheme::Super { .. } => unreachable!("see `superblock_panel`"),
                };
                y[n] = part.mul_add(job.rows.scales[at], y[n]);
            }
        }
        job.out.write(t, index * PANEL, &y);
    }
}

/// The dot products of a group with one row, for 16 outputs.
fn dots(wide: &[u8; GROUP_CODES], x: &[i8]) -> [i32; PANEL] {
    let mut sums = [0; PANEL];
    for (quad, x) in wide.as_chunks::<64>().0.iter().zip(x.as_chunks::<4>().0) {
        for (sum, w) in sums.iter_mut().zip(quad.as_chunks::<4>().0) {
            for i in 0..4 {
                *sum += i32::from(w[i]) * i32::from(x[i]);
            }
        }
    }
    sums
}

/// All rows against one panel of weights in blocks of 256: the formula of [`crate::quant::superblock`].
pub(super) fn superblock_panel(job: &Job, index: usize) {
    let format = job.panels.format;
    let group_bytes = format.codes.bytes();
    for t in 0..job.rows.count() {
        let mut y = [0.0f32; PANEL];
        for (b, (entry, codes)) in job.panels.parts(index).enumerate() {
            let mut block = BlockSums::default();
            for (g, codes) in codes.chunks_exact(group_bytes).enumerate() {
                let at = t * job.rows.groups() + b * GROUPS + g;
                let mut wide = [0; GROUP_CODES];
                expand::codes(format.codes, codes, &mut wide);
                let dots = half_dots(&wide, &job.rows.codes[at * GROUP..][..GROUP]);
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

/// The integer sums of one block of 256, for 16 outputs.
#[derive(Default)]
struct BlockSums {
    products: [i32; PANEL],
    mins: [i32; PANEL],
}

impl BlockSums {
    /// Adds group `g`, whose dot products and sums of codes are those of its first and its second 16 inputs.
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

/// The dot products of the first and of the second 16 inputs of a group, for 16 outputs.
fn half_dots(wide: &[u8; GROUP_CODES], x: &[i8]) -> [[i32; PANEL]; 2] {
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
