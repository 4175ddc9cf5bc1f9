//! The definition for weights in blocks of 32: what every other path must give to the bit.

use super::expand;
use super::format::{GROUP, GROUP_CODES, PANEL, Scheme};
use super::job::{Job, Scratch};

/// All rows against one panel.
///
/// Per group of 32 inputs, in ascending order: the integer dot of codes (exact), as `f32` times the weights' scale; plus,
/// for affine weights, the sum of the activations' codes times the shift; the whole times the activations' scale onto the
/// output. Products that are added are fused (`mul_add`): every path has that instruction, or computes the same.
pub(super) fn panel(job: &Job, index: usize, scratch: &mut Scratch) {
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
                    Scheme::Super { .. } => unreachable!("see `superblock`"),
                };
                y[n] = part.mul_add(job.rows.scales[at], y[n]);
            }
        }
        job.out.write(t, index * PANEL, &y);
    }
}

/// Of a group, for 16 outputs.
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
