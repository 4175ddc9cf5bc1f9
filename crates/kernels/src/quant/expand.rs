//! A panel's scales as `f32` and its codes as bytes: what the kernels for many rows read.
//!
//! Plain loops, inlined into functions compiled for wider registers.

use super::format::{Codes, Format, GROUP_CODES, Header, PANEL, SIGN};
use crate::packed::halves::f16;

/// Scales of one group of a panel.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct GroupScales {
    pub scale: [f32; PANEL],
    /// `Affine`: the shift; of a group with two scales, that of its second half; else unused.
    pub second: [f32; PANEL],
}

/// Codes of one group of a panel, as bytes.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct GroupCodes(pub [u8; GROUP_CODES]);

/// Scratch memory of one thread for expanded panels, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    /// The scales of two panels, `[2, groups]`.
    pub scales: Vec<GroupScales>,
    /// The codes of two panels as bytes, `[2, groups]`.
    pub codes: Vec<GroupCodes>,
}

impl Scratch {
    pub fn fit(&mut self, groups: usize) {
        self.scales.resize(2 * groups, bytemuck::Zeroable::zeroed());
        self.codes.resize(2 * groups, bytemuck::Zeroable::zeroed());
    }
}

/// The operations of ggml's `dequantize_row_*`, so that the numbers are the same to the bit.
#[inline(always)]
pub(super) fn scales(format: Format, header: &[u8], out: &mut [GroupScales]) {
    match format.header {
        Header::D => {
            for (entry, out) in header.as_chunks::<{ Header::D.bytes() }>().0.iter().zip(out) {
                out.scale = halves(entry, 0);
            }
        }
        Header::DAndM => {
            for (entry, out) in header.as_chunks::<{ Header::DAndM.bytes() }>().0.iter().zip(out) {
                out.scale = halves(entry, 0);
                out.second = halves(entry, 1);
            }
        }
        Header::SuperAffine => {
            let entries = header.as_chunks::<{ Header::SuperAffine.bytes() }>().0;
            for (entry, out) in entries.iter().zip(out.as_chunks_mut::<8>().0) {
                let (d, dmin) = (halves(entry, 0), halves(entry, 1));
                for (out, bytes) in out.iter_mut().zip(entry[4 * PANEL..].as_chunks::<{ 2 * PANEL }>().0) {
                    for n in 0..PANEL {
                        out.scale[n] = d[n] * f32::from(bytes[n]);
                        // Adding the negative is subtracting, to the bit.
                        out.second[n] = -(dmin[n] * f32::from(bytes[PANEL + n]));
                    }
                }
            }
        }
        Header::SuperHalves => {
            let entries = header.as_chunks::<{ Header::SuperHalves.bytes() }>().0;
            for (entry, out) in entries.iter().zip(out.as_chunks_mut::<8>().0) {
                let d = halves(entry, 0);
                for (out, bytes) in out.iter_mut().zip(entry[2 * PANEL..].as_chunks::<{ 2 * PANEL }>().0) {
                    for n in 0..PANEL {
                        out.scale[n] = d[n] * f32::from(bytes[n] as i8);
                        out.second[n] = d[n] * f32::from(bytes[PANEL + n] as i8);
                    }
                }
            }
        }
    }
}

/// Row `row` of 16 `f16`.
#[inline(always)]
pub(super) fn halves(entry: &[u8], row: usize) -> [f32; PANEL] {
    let mut out = [0.0; PANEL];
    for (out, two) in out.iter_mut().zip(entry[2 * PANEL * row..].as_chunks::<2>().0) {
        *out = f16(*two);
    }
    out
}

/// One group's codes, a byte each, in the order of the eight-bit layout.
#[inline(always)]
pub(super) fn codes(codes: Codes, group: &[u8], out: &mut [u8; GROUP_CODES]) {
    if codes == Codes::Eight {
        out.iter_mut().zip(group).for_each(|(out, code)| *out = code ^ SIGN);
        return;
    }
    let (four, high) = group.split_at(GROUP_CODES / 2);
    let (lower, upper) = out.split_at_mut(GROUP_CODES / 2);
    for ((lower, upper), &four) in lower.iter_mut().zip(upper).zip(four) {
        *lower = four & 15;
        *upper = four >> 4;
    }
    let (quads, _) = out.as_chunks_mut::<64>();
    match codes {
        Codes::Five => {
            for (j, quad) in quads.iter_mut().enumerate() {
                for (out, &bits) in quad.iter_mut().zip(high) {
                    *out |= (bits >> j & 1) << 4;
                }
            }
        }
        Codes::Six => {
            for (j, quad) in quads.iter_mut().enumerate() {
                for (out, &bits) in quad.iter_mut().zip(&high[64 * (j / 4)..]) {
                    *out |= (bits >> (2 * (j % 4)) & 3) << 4;
                }
            }
        }
        Codes::Four | Codes::Eight => {}
    }
}

/// The inverse of [`codes`], for repacking.
pub(super) fn narrow(codes: Codes, wide: &[u8; GROUP_CODES], group: &mut [u8]) {
    if codes == Codes::Eight {
        group.iter_mut().zip(wide).for_each(|(code, wide)| *code = wide ^ SIGN);
        return;
    }
    let (four, high) = group.split_at_mut(GROUP_CODES / 2);
    let (lower, upper) = wide.split_at(GROUP_CODES / 2);
    for ((four, lower), upper) in four.iter_mut().zip(lower).zip(upper) {
        *four = (lower & 15) | upper << 4;
    }
    high.fill(0);
    for (j, quad) in wide.as_chunks::<64>().0.iter().enumerate() {
        for (b, code) in quad.iter().enumerate() {
            match codes {
                Codes::Five => high[b] |= (code >> 4) << j,
                Codes::Six => high[64 * (j / 4) + b] |= (code >> 4) << (2 * (j % 4)),
                Codes::Four | Codes::Eight => {}
            }
        }
    }
}
