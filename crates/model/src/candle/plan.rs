//! A step's indices and angles on the device, made once and read by every layer.
//!
//! All indices travel as one array and all angles as another, so a step costs two copies however many sequences it has.

use candle_core::Tensor;

#[cfg(feature = "metal")]
use super::generic;
use super::on_device::OnDevice;
use super::packing::{Packing, Place};
#[cfg(feature = "flash-attn")]
use super::sequences::Flash;
use super::sequences::{RowAngles, Sequences};
use crate::pass::backend::Result;
use crate::pass::rope::Angles;
use crate::types::batch::Step;

pub(crate) struct Plan {
    /// `[T]`
    pub tokens: Tensor,
    /// `[T]`
    pub positions: Tensor,
    pub(super) sequences: Sequences,
    /// Of each rope.
    pub(super) angles: Vec<RowAngles>,
    /// Rows whose logits are wanted; `None` where there are none, for no device likes empty tensors.
    pub selected: Option<Tensor>,
    /// The rows of each adapter that somebody asked for.
    pub groups: Vec<Option<Tensor>>,
    #[cfg(feature = "metal")]
    pub(super) generic: generic::Chunks,
}

impl Plan {
    pub(super) fn new(on: &OnDevice, step: &Step, angles: &[Angles]) -> Result<Plan> {
        let mut packing = Packing::default();
        let [tokens, positions, slots] =
            [&step.tokens, &step.positions, &step.slots].map(|all| packing.put(all.iter().copied()));
        let context = |index: usize| (step.chunks[index].position + step.chunks[index].rows.len()) as u32;
        let count = step.chunks.len();
        let contexts = packing.put((0..count).map(context));
        let starts =
            packing.put(step.chunks.iter().map(|chunk| chunk.rows.start as u32).chain([step.tokens.len() as u32]));
        let max_blocks = step.chunks.iter().map(|chunk| chunk.table.len()).max().unwrap_or(1).max(1);
        let row = |index: usize| {
            let table = &step.tables[step.chunks[index].table.clone()];
            table.iter().copied().chain(std::iter::repeat_n(0, max_blocks - table.len()))
        };
        let tables = packing.put((0..count).flat_map(row));
        let (single, several): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|&index| step.chunks[index].rows.len() == 1);
        let longest = single.iter().map(|&index| context(index) as usize).max().unwrap_or(0);
        let decodes = packing.put(single.into_iter().map(|index| index as u32));
        let rows = on.tile_rows;
        let tiles = |index: usize| {
            (0..step.chunks[index].rows.len()).step_by(rows).flat_map(move |row| [index as u32, row as u32])
        };
        let tiles = packing.put(several.into_iter().flat_map(tiles));
        let selected = packing.put(step.selected.iter().map(|&row| row as u32));
        let groups: Vec<Place> = step.groups.iter().map(|group| packing.put(group.rows.iter().copied())).collect();

        #[cfg(feature = "flash-attn")]
        let ends = packing.put((0..=count).map(|upto| (0..upto).map(context).sum()));

        let all = on.upload(&packing.numbers)?;
        let tiles = tiles.some(&all)?;
        Ok(Plan {
            tokens: tokens.of(&all)?,
            positions: positions.of(&all)?,
            sequences: Sequences {
                slots: slots.of(&all)?,
                tables: tables.of(&all)?.reshape((count, max_blocks))?,
                contexts: contexts.of(&all)?,
                starts: starts.of(&all)?,
                decodes: decodes.some(&all)?,
                tiles: tiles.map(|tiles| tiles.reshape(((), 2))).transpose()?,
                tile_rows: rows,
                block_size: step.block_size,
                longest,
                #[cfg(feature = "flash-attn")]
                flash: Some(Flash {
                    ends: ends.of(&all)?,
                    most_rows: step.chunks.iter().map(|chunk| chunk.rows.len()).max().unwrap_or(0),
                    most_context: (0..count).map(|index| context(index) as usize).max().unwrap_or(0),
                }),
            },
            angles: row_angles(on, angles)?.1,
            selected: selected.some(&all)?,
            groups: groups.into_iter().map(|group| group.some(&all)).collect::<Result<_>>()?,
            #[cfg(feature = "metal")]
            generic: generic::Chunks::new(step),
        })
    }
}

/// Each rope's cosines and sines, one after another.
pub(super) fn packed_angles(angles: &[Angles]) -> Packing<f32> {
    let mut packing = Packing::default();
    for Angles { cos, sin, .. } in angles {
        packing.put(cos.iter().copied());
        packing.put(sin.iter().copied());
    }
    packing
}

/// All of them, if there are any, and each rope's.
pub(super) fn row_angles(on: &OnDevice, angles: &[Angles]) -> Result<(Option<Tensor>, Vec<RowAngles>)> {
    let packing = packed_angles(angles);
    if packing.numbers.is_empty() {
        return Ok((None, Vec::new()));
    }
    let all = on.upload(&packing.numbers)?;
    let mut parts = packing.parts(&all);
    let mut each = Vec::with_capacity(angles.len());
    for Angles { dims, .. } in angles {
        let mut rows = || -> Result<Tensor> {
            let part = parts.next().unwrap_or_else(|| unreachable!("two for each rope"))?;
            Ok(part.reshape(((), dims / 2))?)
        };
        let (cos, sin) = (rows()?, rows()?);
        each.push(RowAngles { cos, sin, dims: *dims });
    }
    drop(parts);
    Ok((Some(all), each))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::candle::packing::ALIGNMENT;
    use crate::types::batch::Group;
    use crate::types::options::Dtype;
    use forebay_kernels::attention::Chunk;

    fn check(array: &Tensor, expected: &[u32]) {
        assert_eq!(array.flatten_all().unwrap().to_vec1::<u32>().unwrap(), expected);
    }

    #[test]
    fn every_row_is_a_decodes_or_a_tiles() {
        let chunk = |rows, position, table| Chunk { rows, position, table };
        let step = Step {
            tokens: (10..20).collect(),
            positions: vec![4, 0, 1, 2, 3, 4, 5, 6, 7, 9],
            slots: (0..10).collect(),
            tables: vec![3, 1, 7, 5, 2, 0, 6],
            chunks: vec![chunk(0..1, 4, 0..2), chunk(1..9, 0, 2..4), chunk(9..10, 9, 4..7)],
            selected: vec![0, 9],
            groups: vec![Default::default(), Group { rows: vec![9], ones: vec![1.0] }],
            block_size: 4,
            ..Step::default()
        };
        // Groups of sixteen heads leave four rows to a tile.
        let on = OnDevice::new(Device::Cpu, Dtype::F32, 16);
        let angles = Angles { cos: vec![0.5; 20], sin: vec![0.25; 20], dims: 4 };
        let plan = Plan::new(&on, &step, &[angles]).unwrap();
        let Sequences { tables, contexts, starts, decodes, tiles, longest, .. } = &plan.sequences;
        check(contexts, &[5, 8, 10]);
        check(starts, &[0, 1, 9, 10]);
        check(tables, &[3, 1, 0, 7, 5, 0, 2, 0, 6]);
        assert_eq!(tables.dims(), [3, 3]);
        check(decodes.as_ref().unwrap(), &[0, 2]);
        check(tiles.as_ref().unwrap(), &[1, 0, 1, 4]);
        assert_eq!(*longest, 10);
        check(plan.selected.as_ref().unwrap(), &[0, 9]);
        assert!(plan.groups[0].is_none());
        check(plan.groups[1].as_ref().unwrap(), &[9]);
        assert_eq!(
            (plan.angles[0].cos.dims(), plan.angles[0].sin.to_vec2::<f32>().unwrap()[9][1]),
            (&[10, 2][..], 0.25)
        );
        for array in [&plan.tokens, contexts, starts, decodes.as_ref().unwrap()] {
            assert!(array.layout().start_offset().is_multiple_of(ALIGNMENT), "kernels load four at once");
        }
    }
}
