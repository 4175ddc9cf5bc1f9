//! Weights in the order in which a unit reads them, in memory of their own.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use super::unit::{GROUP, TILE, Unit};
use crate::memory::{Memory, OutOfMemory, SLAB_BYTES};
use crate::packed::Packing;

/// Bytes of a group of one output.
const GROUP_BYTES: usize = 2 * GROUP;

/// As many bytes as in the file, the outputs rounded up.
pub struct Weights {
    outputs: usize,
    inputs: usize,
    pub(super) unit: Unit,
    bytes: Memory,
}

impl Weights {
    /// Whether rows of `inputs` numbers in `packing` are multiplied here in this process.
    pub fn exist(packing: Packing, inputs: usize) -> bool {
        packing == Packing::Bf16 && inputs > 0 && inputs.is_multiple_of(GROUP) && Unit::current().is_some()
    }

    /// Takes `[outputs, inputs]` BF16 out of `rows`. After each slab of rows `done` is told how many bytes of `rows` will not
    /// be read again, so that its owner can let go of them: memory never holds the weights twice.
    ///
    /// # Panics
    /// When `inputs` is not a positive multiple of 32, `rows` not of whole rows, or nothing here multiplies them.
    pub fn repack(rows: &[u8], inputs: usize, done: impl FnMut(usize)) -> Result<Weights, OutOfMemory> {
        Weights::repack_for(Unit::current().expect("a unit for BF16"), rows, inputs, done)
    }

    /// [`Weights::repack`] for a unit that need not be here.
    pub(super) fn repack_for(
        unit: Unit,
        rows: &[u8],
        inputs: usize,
        mut done: impl FnMut(usize),
    ) -> Result<Weights, OutOfMemory> {
        assert!(inputs > 0 && inputs.is_multiple_of(GROUP), "no tiles for {inputs} inputs");
        let row_bytes = 2 * inputs;
        assert!(rows.len().is_multiple_of(row_bytes), "ragged rows");
        let outputs = rows.len() / row_bytes;
        let panel_bytes = TILE * row_bytes;
        let mut bytes = Memory::zeroed(outputs.div_ceil(TILE) * panel_bytes)?;
        let slab = (SLAB_BYTES / panel_bytes).max(1) * panel_bytes;
        for (to, from) in bytes.chunks_mut(slab).zip(rows.chunks(slab)) {
            let panels = to.par_chunks_mut(panel_bytes).zip(from.par_chunks(panel_bytes));
            panels.for_each(|(panel, rows)| {
                for (n, row) in rows.chunks_exact(row_bytes).enumerate() {
                    for (to, group) in panel.chunks_exact_mut(TILE * GROUP_BYTES).zip(row.chunks_exact(GROUP_BYTES)) {
                        match unit {
                            Unit::Tiles => to[unit.place(n, 0) * 2..][..GROUP_BYTES].copy_from_slice(group),
                            Unit::Pairs => {
                                for (p, pair) in group.as_chunks::<4>().0.iter().enumerate() {
                                    to[unit.place(n, 2 * p) * 2..][..4].copy_from_slice(pair);
                                }
                            }
                        }
                    }
                }
            });
            done(from.as_ptr().addr() - rows.as_ptr().addr() + from.len());
        }
        Ok(Weights { outputs, inputs, unit, bytes })
    }

    pub fn outputs(&self) -> usize {
        self.outputs
    }

    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The 16 outputs from `16 · index` on.
    pub(super) fn panel(&self, index: usize) -> &[u8] {
        let bytes = TILE * 2 * self.inputs;
        &self.bytes[index * bytes..][..bytes]
    }

    /// The numbers of row `output`, exactly.
    ///
    /// # Panics
    /// When there is no such row, or `out` is not as long as one.
    pub fn unpack_row(&self, output: usize, out: &mut [f32]) {
        assert!(output < self.outputs && out.len() == self.inputs, "row {output} of {}", self.outputs);
        let groups = self.panel(output / TILE).chunks_exact(TILE * GROUP_BYTES);
        for (group, out) in groups.zip(out.as_chunks_mut::<GROUP>().0) {
            for (k, out) in out.iter_mut().enumerate() {
                let two = &group.as_chunks::<2>().0[self.unit.place(output % TILE, k)];
                *out = f32::from_bits(u32::from(u16::from_le_bytes(*two)) << 16);
            }
        }
    }
}
