//! One product, as the kernels see it: rows against one or two panels at a time.

use super::format::Scheme;
use super::panels::Panels;
use super::row_codes::RowCodes;
#[cfg(target_arch = "x86_64")]
use super::rows::Layouts;
use super::rows::QuantisedRows;
use crate::isa::Isa;
use crate::parallel::Columns;
use crate::quant::superblock::pair;

/// Rows, weights, and where the outputs go.
pub(super) struct Job<'a> {
    pub rows: &'a RowCodes,
    /// The same rows in the layouts of AVX-512 and AMX.
    #[cfg(target_arch = "x86_64")]
    pub layouts: &'a Layouts,
    pub panels: &'a Panels,
    /// What a group's sum of codes adds to its dot product, computed once for all outputs. `Symmetric`, `[T, groups]`:
    /// minus the offset times the sum, to start the integer sum from. `Affine`, `[T, groups]`: the bits of the sum as `f32`.
    /// `Super`: pairs of sums of 16 bits each, of two groups, `[T, groups / 2]`, or, with an offset, of a group's halves,
    /// `[T, groups]`. Empty where rows were laid out with all that is needed.
    pub terms: &'a [i32],
    pub out: Columns<'a>,
}

impl<'a> Job<'a> {
    /// The product of `rows` and `panels` into `out`, `[T, outputs]`; `terms` is memory for the field of that name.
    pub fn new(
        isa: Isa,
        rows: &'a QuantisedRows,
        panels: &'a Panels,
        out: &'a mut [f32],
        terms: &'a mut Vec<i32>,
    ) -> Job<'a> {
        assert_eq!(rows.inputs(), panels.inputs(), "inputs of rows and weights");
        assert_eq!(out.len(), rows.count() * panels.outputs(), "length of the output");
        terms.clear();
        if !rows.layouts.are_read_on(isa) {
            add_terms(&rows.codes, panels.format.scheme, terms);
        }
        Job {
            rows: &rows.codes,
            #[cfg(target_arch = "x86_64")]
            layouts: &rows.layouts,
            panels,
            terms,
            out: Columns::new(out, panels.outputs()),
        }
    }
}

/// See [`Job::terms`].
fn add_terms(rows: &RowCodes, scheme: Scheme, terms: &mut Vec<i32>) {
    match scheme {
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
}
