//! Weights as panels of 16 outputs, in memory of their own.

use std::cell::RefCell;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use super::blocks;
use super::expand::{self, GroupScales};
use super::format::{Codes, Format, GROUP, GROUP_CODES, PANEL, Scheme};
use super::rounding::RoundingGroup;
use crate::memory::{Memory, OutOfMemory, SLAB_BYTES};
use crate::packed::Packing;

/// `[outputs, inputs]` of one packing, laid out for the kernels; as many bytes as in the file, give or take three in a
/// hundred.
pub struct Panels {
    pub(super) format: Format,
    rounding_group: RoundingGroup,
    outputs: usize,
    /// Groups of 32 inputs.
    groups: usize,
    bytes: Memory,
}

impl Panels {
    /// Whether rows of `inputs` numbers in `packing` can become panels; all others take [`crate::matmul`].
    pub fn exist(packing: Packing, inputs: usize) -> bool {
        Format::of(packing).is_some() && inputs > 0 && packing.row_bytes(inputs).is_some()
    }

    /// Takes rows out of `rows`, one after another, in the blocks of `packing`. After each slab of rows `done` is told how
    /// many bytes of `rows` will not be read again, so that its owner can let go of them: memory never holds the weights
    /// twice.
    ///
    /// # Panics
    /// Unless [`Panels::exist`] for `packing` and `inputs`, and `rows` are whole rows.
    pub fn repack(
        packing: Packing,
        rows: &[u8],
        inputs: usize,
        mut done: impl FnMut(usize),
    ) -> Result<Panels, OutOfMemory> {
        assert!(Panels::exist(packing, inputs), "no panels of {packing:?} for {inputs} inputs");
        let format = Format::of(packing).expect("a format");
        let row_bytes = packing.row_bytes(inputs).expect("whole blocks");
        assert!(rows.len().is_multiple_of(row_bytes), "ragged rows");
        let (outputs, groups) = (rows.len() / row_bytes, inputs / GROUP);
        let panel_bytes = format.panel_bytes(groups);
        let mut bytes = Memory::zeroed(outputs.div_ceil(PANEL) * panel_bytes)?;
        let slab = (SLAB_BYTES / panel_bytes).max(1);
        for (index, slab_bytes) in bytes.chunks_mut(slab * panel_bytes).enumerate() {
            let start = index * slab * PANEL * row_bytes;
            repack_slab(format, &rows[start..], row_bytes, slab_bytes, panel_bytes);
            done((start + slab * PANEL * row_bytes).min(rows.len()));
        }
        let rounding_group = if packing.block().0 == 256 { RoundingGroup::Of256 } else { RoundingGroup::Of32 };
        Ok(Panels { format, rounding_group, outputs, groups, bytes })
    }

    /// How the rows that these weights are multiplied with have to be rounded.
    pub fn rounding_group(&self) -> RoundingGroup {
        self.rounding_group
    }

    /// Whether weights are as fine as the rows they are multiplied with.
    pub fn are_eight_bits(&self) -> bool {
        self.format.codes == Codes::Eight
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    pub fn inputs(&self) -> usize {
        self.groups * GROUP
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    pub(super) fn count(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// All bytes of a panel.
    #[inline(always)]
    pub(super) fn panel(&self, index: usize) -> &[u8] {
        let bytes = self.format.panel_bytes(self.groups);
        &self.bytes[index * bytes..][..bytes]
    }

    /// Header and codes of a panel that has one header.
    #[inline(always)]
    pub(super) fn whole(&self, index: usize) -> (&[u8], &[u8]) {
        self.panel(index).split_at(self.format.header_bytes(self.groups))
    }

    /// Header and codes of a panel's groups that have a header together, one after another.
    pub(super) fn parts(&self, index: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        let together = self.format.groups_together(self.groups);
        let (bytes, header) = (self.format.bytes_together(together), self.format.header_bytes(together));
        self.panel(index).chunks_exact(bytes).map(move |part| part.split_at(header))
    }

    /// The numbers of row `output`: those of [`crate::packed::unpack`] to the bit.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not as long as one.
    pub fn unpack_row(&self, output: usize, out: &mut [f32]) {
        assert!(output < self.outputs && out.len() == self.inputs(), "row {output} of {}", self.outputs);
        let n = output % PANEL;
        thread_local! {
            static SCALES: RefCell<Vec<GroupScales>> = const { RefCell::new(Vec::new()) };
        }
        SCALES.with_borrow_mut(|scales| {
            let together = self.format.groups_together(self.groups);
            scales.resize(together, GroupScales { scale: [0.0; PANEL], second: [0.0; PANEL] });
            for ((header, codes), out) in self.parts(output / PANEL).zip(out.chunks_exact_mut(together * GROUP)) {
                expand::scales(self.format, header, scales);
                let groups = codes.chunks_exact(self.format.codes.bytes());
                for ((group, scales), out) in groups.zip(&*scales).zip(out.as_chunks_mut::<GROUP>().0) {
                    let mut wide = [0; GROUP_CODES];
                    expand::codes(self.format.codes, group, &mut wide);
                    let codes = std::array::from_fn(|k| wide[64 * (k / 4) + 4 * n + k % 4]);
                    weights(self.format, &codes, scales, n, out);
                }
            }
        });
    }
}

/// The weights of output `n` in one group.
fn weights(format: Format, codes: &[u8; GROUP], scales: &GroupScales, n: usize, out: &mut [f32; GROUP]) {
    let (scale, second) = (scales.scale[n], scales.second[n]);
    for (k, (out, &code)) in out.iter_mut().zip(codes).enumerate() {
        *out = match format.scheme {
            Scheme::Symmetric { offset } => scale * (i32::from(code) - offset) as f32,
            Scheme::Affine | Scheme::Super { offset: 0 } => scale * f32::from(code) + second,
            Scheme::Super { offset } => {
                (if k < GROUP / 2 { scale } else { second }) * (i32::from(code) - offset) as f32
            }
        };
    }
}

fn repack_slab(format: Format, rows: &[u8], row_bytes: usize, slab: &mut [u8], panel_bytes: usize) {
    let panels = slab.par_chunks_mut(panel_bytes).zip(rows.par_chunks(PANEL * row_bytes));
    panels.for_each(|(panel, rows)| repack_panel(format, rows, row_bytes, panel));
}

/// `rows` are those of up to 16 outputs; the others stay zero.
fn repack_panel(format: Format, rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
    let (numbers, block_bytes) = format.packing.block();
    let (per_block, blocks) = (numbers / GROUP, row_bytes / block_bytes);
    let together = format.groups_together(blocks * per_block);
    for (index, part) in panel.chunks_exact_mut(format.bytes_together(together)).enumerate() {
        let (header, planes) = part.split_at_mut(format.header_bytes(together));
        let entries = header.chunks_exact_mut(format.header.bytes());
        let planes = planes.chunks_exact_mut(per_block * format.codes.bytes());
        let first = index * together / per_block;
        for (block, (entry, planes)) in (first..).zip(entries.zip(planes)) {
            let of_row = |row: usize| &rows[row * row_bytes + block * block_bytes..][..block_bytes];
            let blocks = (0..rows.len() / row_bytes).map(of_row);
            for (index, group) in planes.chunks_exact_mut(format.codes.bytes()).enumerate() {
                repack_group(format, blocks.clone(), index, group);
            }
            for (n, block) in blocks.enumerate() {
                blocks::write_scales(format.packing, block, format.header, entry, n);
            }
        }
    }
}

/// Group `index` of each row's block.
fn repack_group<'a>(format: Format, blocks: impl Iterator<Item = &'a [u8]>, index: usize, group: &mut [u8]) {
    let mut wide = [0; GROUP_CODES];
    for (n, block) in blocks.enumerate() {
        let codes = blocks::codes(format.packing, block, index);
        for (quad, codes) in wide.as_chunks_mut::<64>().0.iter_mut().zip(codes.as_chunks::<4>().0) {
            quad[4 * n..4 * n + 4].copy_from_slice(codes);
        }
    }
    expand::narrow(format.codes, &wide, group);
}
