//! Decode steps that are recorded and played back (`model.cuda_graphs`): one call in place of hundreds of launches. Never run
//! on a GPU by us, and off by default.
//!
//! A recording holds its arrays' addresses, so each shape has arrays of its own, which every step writes anew: sequences padded
//! to a power of two, block tables and ranges of positions likewise. A shape is computed as usual the first time, which
//! loads all kernels; recorded the second; played from then on. One that cannot be recorded is computed as usual for good.
//!
//! What candle keeps for recordings must live as long as they do: the small arrays that its ops upload are the recording
//! thread's, which is therefore one of ours; and its scratch memory of quantised products moves when a step has more rows
//! than any before, after which recordings are made anew.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::Tensor;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::on_device::OnDevice;
use super::packing::Packing;
use super::plan::{Plan, packed_angles, row_angles};
use super::sequences::{RowAngles, SPLIT, Sequences};
use crate::pass::backend::Result;
use crate::pass::rope::Angles;
use crate::types::batch::Step;
use crate::types::device::DeviceError;
use forebay_kernels::cuda::Recording;

/// Larger batches have enough to compute to hide their launches.
const MOST: usize = 64;
/// Stores nothing.
const NO_SLOT: u32 = u32::MAX;

pub(super) struct Graphs {
    /// One, on which everything here is computed. Steps come from threads that may end while their recordings live on.
    thread: ThreadPool,
    recordings: Mutex<Recordings>,
}

/// Recordings hold the addresses of what only steps write, one at a time: the lock is never waited for.
#[derive(Default)]
struct Recordings {
    stages: HashMap<Shape, Stage>,
    /// Rows of the largest step so far.
    most_rows: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    sequences: usize,
    /// Entries of a block table.
    blocks: usize,
    /// Ranges of positions.
    splits: usize,
}

enum Stage {
    Seen(Arrays),
    Recorded { arrays: Arrays, logits: Tensor, recording: Recording },
    Impossible,
}

/// What a recording reads.
struct Arrays {
    indices: Tensor,
    angles: Option<Tensor>,
    plan: Plan,
}

/// Of a step's plan.
pub(super) type Compute<'a> = dyn FnMut(&Plan) -> Result<Tensor> + Send + 'a;

impl Graphs {
    /// Fails where the system gives no thread.
    pub(super) fn new() -> Result<Graphs> {
        let thread = ThreadPoolBuilder::new().num_threads(1).thread_name(|_| "graphs".into()).build();
        let thread =
            thread.map_err(|error| DeviceError::Failed(format!("no thread for model.cuda_graphs: {error}")))?;
        Ok(Graphs { thread, recordings: Mutex::default() })
    }

    fn recordings(&self) -> MutexGuard<'_, Recordings> {
        self.recordings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Caches that recordings write to are gone.
    pub(super) fn forget(&self) {
        self.recordings().stages.clear();
    }

    /// A step of so many rows is about to be computed.
    pub(super) fn announce(&self, rows: usize) {
        self.recordings().announce(rows);
    }

    /// `None` where the step is to be computed as usual.
    pub(super) fn run(
        &self,
        on: &OnDevice,
        step: &Step,
        angles: &[Angles],
        compute: &mut Compute<'_>,
    ) -> Result<Option<Tensor>> {
        let Some(shape) = Shape::of(step) else { return Ok(None) };
        let rows = step.tokens.len();
        let arrays = (shape.indices(step), padded(angles, rows, shape.sequences));
        let logits = self.thread.install(|| self.recordings().run(on, shape, arrays, step.block_size, compute))?;
        Ok(match logits {
            Some(logits) => Some(logits.narrow(0, 0, rows)?),
            None => None,
        })
    }
}

impl Recordings {
    fn announce(&mut self, rows: usize) {
        if rows > self.most_rows {
            self.most_rows = rows;
            self.stages.clear();
        }
    }

    /// All rows of the shape.
    fn run(
        &mut self,
        on: &OnDevice,
        shape: Shape,
        (indices, angles): (Packing<u32>, Vec<Angles>),
        block_size: usize,
        compute: &mut Compute<'_>,
    ) -> Result<Option<Tensor>> {
        self.announce(shape.sequences);
        let device = on.device.as_cuda_device()?;
        // candle uploads strides of some ops; kept, they need no copy while recording.
        let _kept = device.enable_cuda_graph_htod_cache();
        // A shape that fails is forgotten: it begins anew.
        let (logits, stage) = match self.stages.remove(&shape) {
            None => {
                let arrays = Arrays::new(on, shape, &indices, &angles, block_size)?;
                (compute(&arrays.plan)?, Stage::Seen(arrays))
            }
            Some(Stage::Seen(arrays)) => {
                arrays.overwrite(on, &indices, &angles)?;
                let made = compute(&arrays.plan)?;
                // Its kernel, too, is loaded before anything is recorded: nothing can be loaded meanwhile.
                let logits = made.zeros_like()?;
                logits.slice_set(&made, 0, 0)?;
                let recorded = Recording::record(device, || {
                    let made = compute(&arrays.plan).map_err(candle_core::Error::wrap)?;
                    logits.slice_set(&made, 0, 0)
                });
                let stage = match recorded {
                    Ok(recording) => Stage::Recorded { arrays, logits: logits.clone(), recording },
                    Err(_) => Stage::Impossible,
                };
                (logits, stage)
            }
            Some(Stage::Recorded { arrays, logits, recording }) => {
                arrays.overwrite(on, &indices, &angles)?;
                recording.play()?;
                (logits.clone(), Stage::Recorded { arrays, logits, recording })
            }
            Some(Stage::Impossible) => {
                self.stages.insert(shape, Stage::Impossible);
                return Ok(None);
            }
        };
        self.stages.insert(shape, stage);
        Ok(Some(logits))
    }
}

impl Shape {
    fn of(step: &Step) -> Option<Shape> {
        let sequences = step.tokens.len().next_power_of_two();
        let longest = step.chunks.iter().map(|chunk| chunk.position + 1).max()?;
        let blocks = step.chunks.iter().map(|chunk| chunk.table.len()).max()?.next_power_of_two();
        (sequences <= MOST).then_some(Shape { sequences, blocks, splits: longest.div_ceil(SPLIT).next_power_of_two() })
    }

    /// All arrays of a step behind each other, those of sequences that are not there too: they see no position, and store
    /// nothing.
    fn indices(self, step: &Step) -> Packing<u32> {
        let pad = |numbers: &[u32], with: u32| {
            let mut padded = numbers.to_vec();
            padded.resize(self.sequences, with);
            padded
        };
        let contexts: Vec<u32> = step.chunks.iter().map(|chunk| chunk.position as u32 + 1).collect();
        let mut tables = vec![0; self.sequences * self.blocks];
        for (row, chunk) in tables.chunks_exact_mut(self.blocks).zip(&step.chunks) {
            row[..chunk.table.len()].copy_from_slice(&step.tables[chunk.table.clone()]);
        }
        let count = self.sequences as u32;
        let mut packing = Packing::default();
        packing.put(pad(&step.tokens, 0));
        packing.put(pad(&step.positions, 0));
        packing.put(pad(&step.slots, NO_SLOT));
        packing.put(pad(&contexts, 0));
        packing.put(0..=count);
        packing.put(0..count);
        packing.put(tables);
        packing
    }
}

/// Each rope's angles for as many rows as a recording has.
fn padded(angles: &[Angles], rows: usize, sequences: usize) -> Vec<Angles> {
    let pad = |numbers: &[f32]| {
        let mut padded = numbers.to_vec();
        padded.resize(numbers.len() / rows * sequences, 0.0);
        padded
    };
    angles.iter().map(|Angles { cos, sin, dims }| Angles { cos: pad(cos), sin: pad(sin), dims: *dims }).collect()
}

impl Arrays {
    fn new(
        on: &OnDevice,
        shape: Shape,
        indices: &Packing<u32>,
        angles: &[Angles],
        block_size: usize,
    ) -> Result<Arrays> {
        let all = on.upload(&indices.numbers)?;
        let (angles, ropes): (Option<Tensor>, Vec<RowAngles>) = row_angles(on, angles)?;
        let mut parts = indices.parts(&all);
        let mut next = || parts.next().unwrap_or_else(|| unreachable!("seven arrays"));
        let [tokens, positions, slots, contexts, starts, items] = [(); 6].map(|()| next());
        let (tables, items) = (next()?.reshape((shape.sequences, shape.blocks))?, items?);
        let sequences = Sequences {
            slots: slots?,
            tables,
            contexts: contexts?,
            starts: starts?,
            decodes: Some(items.clone()),
            tiles: None,
            tile_rows: on.tile_rows,
            block_size,
            longest: shape.splits * SPLIT,
            #[cfg(feature = "flash-attn")]
            flash: None,
        };
        drop(parts);
        let plan = Plan {
            tokens: tokens?,
            positions: positions?,
            sequences,
            angles: ropes,
            selected: Some(items),
            groups: Vec::new(),
            #[cfg(feature = "metal")]
            generic: Default::default(),
        };
        Ok(Arrays { indices: all, angles, plan })
    }

    fn overwrite(&self, on: &OnDevice, indices: &Packing<u32>, angles: &[Angles]) -> Result<()> {
        on.staging.overwrite(&self.indices, &indices.numbers)?;
        match &self.angles {
            Some(tensor) => on.staging.overwrite(tensor, &packed_angles(angles).numbers),
            None => Ok(()),
        }
    }
}
