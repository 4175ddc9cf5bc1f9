//! One product, as the kernels see it: rows against one or two panels at a time.

use super::super::isa::Isa;
use super::super::parallel::Columns;
use super::expand::GroupScales;
use super::format::{GROUP_CODES, Scheme};
use super::panels::Panels;
use super::rows::Rows;

pub(super) struct Job<'a> {
    pub rows: &'a Rows,
    pub panels: &'a Panels,
    /// What a group's sum of codes adds to its dot product, computed once for all outputs. `Symmetric`, `[T, groups]`:
    /// minus the offset times the sum, to start the integer sum from. `Affine`, `[T, groups]`: the bits of the sum as `f32`.
    /// `Super`: pairs of sums of 16 bits each, of two groups, `[T, groups / 2]`, or, with an offset, of a group's halves,
    /// `[T, groups]`. Empty where rows were laid out with all that is needed.
    pub terms: &'a [i32],
    pub out: Columns<'a>,
}

impl<'a> Job<'a> {
    /// `out` is `[T, outputs]`.
    pub fn new(isa: Isa, rows: &'a Rows, panels: &'a Panels, out: &'a mut [f32], terms: &'a mut Vec<i32>) -> Job<'a> {
        assert_eq!(rows.inputs(), panels.inputs(), "inputs of rows and weights");
        assert_eq!(out.len(), rows.count() * panels.outputs(), "length of the output");
        terms.clear();
        if rows.are_laid_out(isa) {
            return Job { rows, panels, terms, out: Columns::new(out, panels.outputs()) };
        }
        match panels.format.scheme {
            Scheme::Symmetric { offset } => terms.extend(rows.sums.iter().map(|sums| -offset * (sums[0] + sums[1]))),
            Scheme::Affine => {
                terms.extend(rows.sums.iter().map(|sums| ((sums[0] + sums[1]) as f32).to_bits() as i32));
            }
            Scheme::Super { offset: 0 } => {
                let whole = |sums: [i32; 2]| sums[0] + sums[1];
                terms.extend(rows.sums.as_chunks::<2>().0.iter().map(|two| pair(whole(two[0]), whole(two[1]))));
            }
            Scheme::Super { .. } => terms.extend(rows.sums.iter().map(|sums| pair(sums[0], sums[1]))),
        }
        Job { rows, panels, terms, out: Columns::new(out, panels.outputs()) }
    }
}

/// Two numbers of 16 bits, the first one low.
pub(super) fn pair(first: i32, second: i32) -> i32 {
    first & 0xffff | second << 16
}

/// Room of one thread, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    /// Of two panels, `[2, groups]`.
    pub scales: Vec<GroupScales>,
    /// Codes of two panels as bytes, `[2, groups]`.
    pub codes: Vec<GroupCodes>,
    #[cfg(target_arch = "x86_64")]
    pub superblock: super::superblock::amx::Room,
    #[cfg(target_arch = "x86_64")]
    pub words: super::superblock::avx512::Room,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct GroupCodes(pub [u8; GROUP_CODES]);

impl Scratch {
    pub fn fit(&mut self, groups: usize) {
        self.scales.resize(2 * groups, bytemuck::Zeroable::zeroed());
        self.codes.resize(2 * groups, bytemuck::Zeroable::zeroed());
    }
}
