//! A step over a paged cache: what the kernels are given, and what they should make of it.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use super::device::{Argument, Array, Device};
use super::kind::Kind;

/// Of launches.h.
const DECODE_HEADS: usize = 16;
const PREFILL_ROWS: usize = 64;
const THREADS: usize = 128;

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kv_heads: usize,
    pub group: usize,
    pub head_dim: usize,
    pub block_size: usize,
    pub split_len: usize,
    pub cap: f32,
    pub window: usize,
    pub causal: bool,
    pub activations: Kind,
    pub caches: Kind,
}

impl Shape {
    pub fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    pub fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// The `D` of the kernels that take this head dimension.
    fn kernel_dim(&self) -> usize {
        [64, 128, 256].into_iter().find(|dim| *dim >= self.head_dim).expect("a kernel")
    }

    fn kernel(&self, name: &str) -> String {
        format!("{name}_{}_{}", self.activations.name(), self.caches.name())
    }

    fn attention_kernel(&self, name: &str) -> String {
        format!("{}_d{}", self.kernel(name), self.kernel_dim())
    }

    fn row(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// A sequence's share of a step.
#[derive(Clone)]
pub struct Chunk {
    pub context: usize,
    pub rows: usize,
    /// `[rows, heads, head_dim]`
    pub q: Vec<f32>,
    /// `[context, kv_heads, head_dim]`; the last `rows` are of the step, the others were stored before.
    pub keys: Vec<f32>,
    pub values: Vec<f32>,
}

impl Chunk {
    /// Random numbers that their types hold exactly: rows of the step are rounded as they are stored.
    pub fn random(shape: &Shape, context: usize, rows: usize, seed: u64) -> Chunk {
        let mut random = StdRng::seed_from_u64(seed);
        let mut numbers = |count: usize, size: f32, kind: Kind| -> Vec<f32> {
            (0..count).map(|_| kind.rounded(random.random_range(-size..size))).collect()
        };
        let old = (context - rows) * shape.row();
        let mut cache = |size| {
            let mut all = numbers(old, size, shape.caches);
            all.extend(numbers(rows * shape.row(), size, shape.activations));
            all
        };
        let (keys, values) = (cache(2.0), cache(1.0));
        Chunk { context, rows, q: numbers(rows * shape.heads() * shape.head_dim, 2.0, shape.activations), keys, values }
    }

    /// The rows of the step, of keys or values.
    fn new_rows<'a>(&self, all: &'a [f32], shape: &Shape) -> &'a [f32] {
        &all[(self.context - self.rows) * shape.row()..]
    }

    /// What attention should give, `[rows, heads, head_dim]`: each row alone, straight from the definition.
    pub fn expected(&self, shape: &Shape) -> Vec<f64> {
        let dim = shape.head_dim;
        let mut out = Vec::with_capacity(self.q.len());
        for row in 0..self.rows {
            let position = self.context - self.rows + row;
            let seen: Vec<usize> = (0..self.context)
                .filter(|&key| !shape.causal || key <= position)
                .filter(|&key| shape.window == 0 || key + shape.window > position)
                .collect();
            for head in 0..shape.heads() {
                let q = &self.q[(row * shape.heads() + head) * dim..][..dim];
                let at = |key: usize| (key * shape.kv_heads + head / shape.group) * dim;
                let cached = |all: &[f32], key: usize, d: usize| f64::from(shape.caches.rounded(all[at(key) + d]));
                let score = |key: usize| {
                    let product: f64 = (0..dim).map(|d| f64::from(q[d]) * cached(&self.keys, key, d)).sum();
                    let (score, cap) = (product * f64::from(shape.scale()), f64::from(shape.cap));
                    if cap == 0.0 { score } else { cap * (score / cap).tanh() }
                };
                let scores: Vec<f64> = seen.iter().map(|&key| score(key)).collect();
                let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mean = |d| seen.iter().zip(&weights).map(|(&key, w)| w * cached(&self.values, key, d)).sum::<f64>();
                out.extend((0..dim).map(|d| mean(d) / total));
            }
        }
        out
    }
}

/// Chunks of one row may go either way; others are prefilled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SingleRows {
    Decoded,
    Prefilled,
}

/// Arrays that all attention kernels take.
struct Uploaded {
    q: Array,
    keys: Array,
    values: Array,
    tables: Array,
    contexts: Array,
    starts: Array,
    out: Array,
    max_blocks: usize,
}

/// Runs a step: stores, then attends. Gives what each chunk gets, in bits.
pub fn run(device: &mut Device, shape: &Shape, chunks: &[Chunk], single_rows: SingleRows) -> Vec<Vec<f32>> {
    device.clear();
    let arrays = upload(device, shape, chunks);
    // No row at all is padding, as a captured graph has it.
    let decoded = |chunk: &Chunk| chunk.rows <= 1 && single_rows == SingleRows::Decoded;
    let sequences = |wanted: bool| (0..chunks.len()).filter(move |&index| decoded(&chunks[index]) == wanted);
    decode(device, shape, &arrays, chunks, &sequences(true).map(|index| index as u32).collect::<Vec<_>>());
    let tall = (PREFILL_ROWS / shape.group).max(1);
    let tiles = |sequence: usize| (0..chunks[sequence].rows).step_by(tall).flat_map(move |row| [sequence, row]);
    let tiles: Vec<u32> = sequences(false).flat_map(tiles).map(|number| number as u32).collect();
    prefill(device, shape, &arrays, &tiles);
    let mut out = shape.activations.numbers(&device.read(arrays.out)).into_iter();
    chunks.iter().map(|chunk| out.by_ref().take(chunk.q.len()).collect()).collect()
}

/// Blocks lie anywhere, and what nothing wrote is NaN.
fn upload(device: &mut Device, shape: &Shape, chunks: &[Chunk]) -> Uploaded {
    let blocks = |chunk: &Chunk| chunk.context.div_ceil(shape.block_size);
    let (total, max_blocks) = (chunks.iter().map(blocks).sum::<usize>() + 2, chunks.iter().map(blocks).max().unwrap());
    let mut order: Vec<u32> = (0..total as u32).collect();
    order.shuffle(&mut StdRng::seed_from_u64(total as u64));
    let mut free = order.into_iter();
    let (row, size) = (shape.row(), shape.block_size);
    let mut caches = [vec![f32::NAN; total * size * row], vec![f32::NAN; total * size * row]];
    let (mut tables, mut slots, mut starts) = (Vec::new(), Vec::new(), vec![0]);
    for chunk in chunks {
        let mut table: Vec<u32> = free.by_ref().take(blocks(chunk)).collect();
        let slot = |position: usize| table[position / size] as usize * size + position % size;
        for (cache, all) in caches.iter_mut().zip([&chunk.keys, &chunk.values]) {
            for position in 0..chunk.context - chunk.rows {
                cache[slot(position) * row..][..row].copy_from_slice(&all[position * row..][..row]);
            }
        }
        slots.extend((chunk.context - chunk.rows..chunk.context).map(|position| slot(position) as u32));
        starts.push(starts[starts.len() - 1] + chunk.rows as u32);
        // Entries behind a sequence's blocks lead nowhere.
        table.resize(max_blocks, u32::MAX);
        tables.extend(table);
    }
    let packed = |of: fn(&Chunk) -> &Vec<f32>| -> Vec<f32> {
        chunks.iter().flat_map(|chunk| chunk.new_rows(of(chunk), shape)).copied().collect()
    };
    let [keys, values] = caches.map(|cache| device.numbers(shape.caches, &cache));
    let q: Vec<f32> = chunks.iter().flat_map(|chunk| chunk.q.iter().copied()).collect();
    let arrays = Uploaded {
        q: device.numbers(shape.activations, &q),
        keys,
        values,
        tables: device.indices(&tables),
        contexts: device.indices(&chunks.iter().map(|chunk| chunk.context as u32).collect::<Vec<_>>()),
        starts: device.indices(&starts),
        out: device.numbers(shape.activations, &vec![f32::NAN; q.len()]),
        max_blocks,
    };
    store(device, shape, &arrays, [packed(|chunk| &chunk.keys), packed(|chunk| &chunk.values)], &slots);
    arrays
}

/// Stores the step's rows, and checks that they are there and nothing else changed.
fn store(device: &mut Device, shape: &Shape, arrays: &Uploaded, new: [Vec<f32>; 2], slots: &[u32]) {
    let before = [device.read(arrays.keys), device.read(arrays.values)];
    // A row of padding, too.
    let padding = vec![7.0; shape.row()];
    let given = [&new[0], &new[1]].map(|new| device.numbers(shape.activations, &[&new[..], &padding].concat()));
    let slot_array = device.indices(&[slots, &[u32::MAX]].concat());
    let arguments = [given[0], given[1], arrays.keys, arrays.values, slot_array].map(Argument::Array);
    let width = Argument::U32(shape.row() as u32);
    device.launch(&shape.kernel("paged_store"), [slots.len() + 1, 1, 1], THREADS, &[&arguments[..], &[width]].concat());
    for ((array, mut expected), new) in [arrays.keys, arrays.values].into_iter().zip(before).zip(new) {
        let bytes = shape.row() * shape.caches.width();
        for (row, &slot) in new.chunks(shape.row()).zip(slots) {
            expected[slot as usize * bytes..][..bytes].copy_from_slice(&shape.caches.bytes(row));
        }
        assert!(device.read(array) == expected, "{shape:?}: stored otherwise");
    }
}

fn common(arrays: &Uploaded) -> Vec<Argument> {
    let arrays = [arrays.q, arrays.keys, arrays.values, arrays.tables, arrays.contexts, arrays.starts];
    arrays.map(Argument::Array).to_vec()
}

fn decode(device: &mut Device, shape: &Shape, arrays: &Uploaded, chunks: &[Chunk], items: &[u32]) {
    let Some(longest) = items.iter().map(|&item| chunks[item as usize].context).max() else { return };
    let u32_of = |number: usize| Argument::U32(number as u32);
    // One more than is needed, as a captured graph may have.
    let splits = longest.div_ceil(shape.split_len) + 1;
    let results = items.len() * shape.heads() * splits;
    let item_array = device.indices(items);
    let partial = device.numbers(Kind::F32, &vec![f32::NAN; results * shape.head_dim]);
    let stats = device.numbers(Kind::F32, &vec![f32::NAN; results * 2]);
    let parts = shape.kv_heads * shape.group.div_ceil(DECODE_HEADS);
    let numbers = [shape.kv_heads, shape.group, shape.head_dim, shape.block_size, arrays.max_blocks, shape.split_len];
    let mut arguments = common(arrays);
    arguments.extend([item_array, partial, stats].map(Argument::Array));
    arguments.extend(numbers.map(u32_of));
    arguments.extend([Argument::F32(shape.scale()), Argument::F32(shape.cap), u32_of(shape.window)]);
    device.launch(&shape.attention_kernel("paged_decode"), [splits, parts, items.len()], THREADS, &arguments);
    let mut arguments =
        [partial, stats, arrays.contexts, arrays.starts, item_array, arrays.out].map(Argument::Array).to_vec();
    arguments.extend([shape.head_dim, splits, shape.split_len, shape.window].map(u32_of));
    let combine = format!("paged_combine_{}", shape.activations.name());
    device.launch(&combine, [shape.heads(), items.len(), 1], THREADS, &arguments);
}

fn prefill(device: &mut Device, shape: &Shape, arrays: &Uploaded, tiles: &[u32]) {
    if tiles.is_empty() {
        return;
    }
    let tile_array = device.indices(tiles);
    let parts = shape.kv_heads * shape.group.div_ceil(PREFILL_ROWS);
    let numbers = [shape.kv_heads, shape.group, shape.head_dim, shape.block_size, arrays.max_blocks];
    let mut arguments = common(arrays);
    arguments.extend([tile_array, arrays.out].map(Argument::Array));
    arguments.extend(numbers.map(|number| Argument::U32(number as u32)));
    arguments.extend([Argument::F32(shape.scale()), Argument::F32(shape.cap)]);
    arguments.extend([shape.window as u32, shape.causal.into()].map(Argument::U32));
    device.launch(&shape.attention_kernel("paged_prefill"), [tiles.len() / 2, parts, 1], THREADS, &arguments);
}
