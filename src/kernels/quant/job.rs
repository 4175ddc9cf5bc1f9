//! One product, as the kernels see it: rows against one or two panels at a time.
#![allow(unsafe_code)] // several threads write disjoint columns of one output

use std::marker::PhantomData;
use std::ops::Range;

use super::super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::amx::Blocks;
use super::expand::GroupScales;
use super::format::{GROUP_CODES, PANEL, Scheme};
use super::panels::Panels;
use super::rows::Rows;

pub(super) struct Job<'a> {
    pub rows: &'a Rows,
    pub panels: &'a Panels,
    /// What a group's sum of codes adds to its dot product, computed once for all outputs. `Symmetric`, `[T, groups]`:
    /// minus the offset times the sum, to start the integer sum from. `Halves`, `[T, groups, 2]`: the same for each half.
    /// `Affine`, `[T, groups]`: the bits of the sum as `f32`.
    pub terms: Vec<i32>,
    pub out: Columns<'a>,
    /// For AMX, which takes rows by 16; `None` elsewhere and for fewer.
    #[cfg(target_arch = "x86_64")]
    pub blocks: Option<Blocks>,
}

impl<'a> Job<'a> {
    /// `out` is `[T, outputs]`.
    pub fn new(isa: Isa, rows: &'a Rows, panels: &'a Panels, out: &'a mut [f32]) -> Job<'a> {
        assert_eq!(rows.inputs(), panels.inputs(), "inputs of rows and weights");
        assert_eq!(out.len(), rows.count() * panels.outputs(), "length of the output");
        let terms = match panels.format.scheme {
            Scheme::Symmetric { offset } => rows.sums.iter().map(|sums| -offset * (sums[0] + sums[1])).collect(),
            Scheme::Affine => rows.sums.iter().map(|sums| ((sums[0] + sums[1]) as f32).to_bits() as i32).collect(),
            Scheme::Halves { offset } => rows.sums.iter().flatten().map(|sum| -offset * sum).collect(),
        };
        Job {
            rows,
            panels,
            terms,
            out: Columns::new(out, panels.outputs()),
            #[cfg(target_arch = "x86_64")]
            blocks: if isa == Isa::Amx { Blocks::of(rows) } else { None },
        }
    }
}

/// An output `[T, outputs]` of which each panel fills its columns.
pub(super) struct Columns<'a> {
    start: *mut f32,
    rows: usize,
    outputs: usize,
    whole: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for a `&mut [f32]` that several threads write to, each the columns of panels that no other thread
// has: `quant::matmul` deals every panel once.
unsafe impl Send for Columns<'_> {}
// SAFETY: as above.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    fn new(out: &'a mut [f32], outputs: usize) -> Columns<'a> {
        let rows = out.len().checked_div(outputs).unwrap_or(0);
        Columns { start: out.as_mut_ptr(), rows, outputs, whole: PhantomData }
    }

    /// Where row `t` of panel `index` goes, and how many of its outputs there are.
    pub fn place(&self, t: usize, index: usize) -> (*mut f32, usize) {
        let column = index * PANEL;
        assert!(t < self.rows && column < self.outputs, "output {t},{column}");
        // SAFETY: within the slice that `new` took, by the assertion.
        let place = unsafe { self.start.add(t * self.outputs + column) };
        (place, PANEL.min(self.outputs - column))
    }

    /// Row `t` of panel `index`; outputs that only pad the panel are dropped.
    pub fn write(&self, t: usize, index: usize, y: &[f32; PANEL]) {
        let (place, count) = self.place(t, index);
        // SAFETY: `place` gave room for `count` numbers, which nobody else touches while this panel is computed.
        unsafe { std::ptr::copy_nonoverlapping(y.as_ptr(), place, count) }
    }
}

/// Room of one thread, kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    /// Of two panels, `[2, groups]`.
    pub scales: Vec<GroupScales>,
    /// Codes of two panels as bytes, `[2, groups]`.
    pub codes: Vec<GroupCodes>,
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

/// Row counts `1..=most` that cover `rows`, as evenly as possible.
pub(super) fn blocks(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(most);
    (0..count).map(move |index| rows * index / count..rows * (index + 1) / count)
}
