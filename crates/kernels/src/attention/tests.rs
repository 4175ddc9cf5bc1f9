//! Paged attention against a naive one over contiguous keys and values in double precision, and against itself.

use super::*;

const BLOCKS: usize = 90;

/// Heads, key/value heads, dimensions, block size.
const SHAPES: [(usize, usize, usize, usize); 8] = [
    (4, 2, 20, 4),
    (2, 2, 16, 16),
    (6, 1, 48, 32),
    (12, 1, 32, 8),
    (16, 8, 128, 32),
    (4, 4, 64, 48),
    (20, 2, 80, 5),
    (1, 1, 8, 64),
];

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Contiguous `[len, heads or kv_heads, head_dim]`.
struct Given {
    shape: Shape,
    geometry: Geometry,
    len: usize,
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Given {
    fn new((heads, kv_heads, head_dim, block_size): (usize, usize, usize, usize), len: usize) -> Given {
        let row = |heads: usize, seed| numbers(len * heads * head_dim, seed);
        Given {
            shape: Shape { heads, scale: 1.7 / (head_dim as f32).sqrt(), cap: None, window: None, causal: true },
            geometry: Geometry { num_blocks: BLOCKS, block_size, kv_heads, head_dim },
            len,
            q: row(heads, 3),
            keys: row(kv_heads, 1),
            values: row(kv_heads, 2),
        }
    }

    fn table(&self, step: usize) -> Vec<u32> {
        (0..self.len.div_ceil(self.geometry.block_size)).map(|i| ((i * step + 3) % BLOCKS) as u32).collect()
    }

    /// A cache full of NaN, but for what the table puts there.
    fn cache(&self, dtype: KvDtype, table: &[u32]) -> Cache {
        let Geometry { num_blocks, block_size, kv_heads, head_dim } = self.geometry;
        let mut cache = Cache::zeroed(dtype, self.geometry).unwrap();
        let all: Vec<u32> = (0..(num_blocks * block_size) as u32).collect();
        let nothing = vec![f32::NAN; all.len() * kv_heads * head_dim];
        cache.write(&all, &nothing, &nothing);
        let slot = |position: usize| table[position / block_size] * block_size as u32 + (position % block_size) as u32;
        let slots: Vec<u32> = (0..self.len).map(slot).collect();
        cache.write(&slots, &self.keys, &self.values);
        cache
    }

    fn run(&self, isa: Isa, cache: &Cache, table: &[u32], positions: Range<usize>) -> Vec<f32> {
        let row = self.shape.heads * self.geometry.head_dim;
        let chunk = Chunk { rows: 0..positions.len(), position: positions.start, table: 0..table.len() };
        let mut out = vec![f32::NAN; positions.len() * row];
        let q = &self.q[positions.start * row..positions.end * row];
        attention_on(isa, &Queries { q, chunks: &[chunk], tables: table }, cache, &self.shape, &mut out);
        out
    }

    fn naive(&self, position: usize) -> Vec<f64> {
        let (dim, kv_heads) = (self.geometry.head_dim, self.geometry.kv_heads);
        let (heads, group) = (self.shape.heads, self.shape.heads / kv_heads);
        let start = self.shape.window.map_or(0, |w| (position + 1).saturating_sub(w));
        let mut out = Vec::new();
        for head in 0..heads {
            let at = |position: usize, i: usize| (position * kv_heads + head / group) * dim + i;
            let q = &self.q[(position * heads + head) * dim..][..dim];
            let weight = |p: usize| {
                let score: f64 = (0..dim).map(|i| f64::from(q[i]) * f64::from(self.keys[at(p, i)])).sum();
                let score = score * f64::from(self.shape.scale);
                self.shape.cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh()).exp()
            };
            let end = if self.shape.causal { position + 1 } else { self.len };
            let weights: Vec<f64> = (start..end).map(weight).collect();
            let total: f64 = weights.iter().sum();
            let value = |i: usize| -> f64 {
                weights.iter().zip(start..).map(|(w, p)| w * f64::from(self.values[at(p, i)])).sum()
            };
            out.extend((0..dim).map(|i| value(i) / total));
        }
        out
    }
}

#[test]
fn agrees_with_the_naive_one_with_and_without_a_window() {
    for (index, shape) in SHAPES.into_iter().enumerate() {
        let mut given = Given::new(shape, 133.min(BLOCKS * shape.3));
        let table = given.table(7);
        for (dtype, tolerance) in
            [(KvDtype::F32, 2e-6), (KvDtype::F16, 1e-3), (KvDtype::Bf16, 1e-2), (KvDtype::Q8_0, 1e-2)]
        {
            if !dtype.fits(shape.2) {
                continue;
            }
            let cache = given.cache(dtype, &table);
            for (window, cap, causal) in [
                (None, None, true),
                (Some(1), None, true),
                (Some(5), Some(0.7), true),
                (Some(40), None, true),
                (Some(100), None, true),
                (None, Some(1.5), true),
                (None, None, false),
            ] {
                given.shape = Shape { window, cap, causal, ..given.shape };
                let out = given.run(Isa::current(), &cache, &table, 0..given.len);
                let row = shape.0 * shape.2;
                for position in 0..given.len {
                    for (got, exact) in out[position * row..][..row].iter().zip(given.naive(position)) {
                        let error = (f64::from(*got) - exact).abs();
                        assert!(error < tolerance, "shape {index} {dtype:?} {window:?} at {position}: off by {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_path_gives_the_same_bits() {
    for shape in SHAPES {
        let mut given = Given::new(shape, 150);
        let table = given.table(1);
        for dtype in KvDtype::ALL.into_iter().filter(|dtype| dtype.fits(shape.2)) {
            let cache = given.cache(dtype, &table);
            for window in [None, Some(33)] {
                given.shape.window = window;
                let expected = given.run(Isa::Scalar, &cache, &table, 0..given.len);
                for isa in Isa::available() {
                    let same = given.run(isa, &cache, &table, 0..given.len) == expected;
                    assert!(same, "{isa:?} {dtype:?} {shape:?} {window:?}");
                }
            }
        }
    }
}

/// Long enough for several ranges, so that single tokens share them out and whole chunks do not.
#[test]
fn neighbours_blocks_chunks_and_threads_leave_no_trace() {
    for (shape, window) in [((4, 2, 32, 16), None), ((4, 1, 32, 32), Some(700)), ((20, 2, 32, 48), None)] {
        let mut given = Given::new(shape, 1300);
        given.shape.window = window;
        let (straight, shuffled) = (given.table(1), given.table(7));
        let (first, second) = (given.cache(KvDtype::F16, &straight), given.cache(KvDtype::F16, &shuffled));
        let isa = Isa::current();
        let whole = given.run(isa, &first, &straight, 0..given.len);
        assert!(whole.iter().all(|v| v.is_finite()));
        let row = shape.0 * shape.2;
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for positions in [0..1, 511..512, 512..513, 600..640, 1023..1030, 1299..1300, 100..1300] {
                let part = pool.install(|| given.run(isa, &second, &shuffled, positions.clone()));
                assert!(part == whole[positions.start * row..positions.end * row], "{shape:?} {threads} {positions:?}");
            }
        }
    }
}

#[test]
fn chunks_of_several_sequences_share_a_call() {
    let given = Given::new((4, 2, 32, 16), 90);
    let table = given.table(7);
    let cache = given.cache(KvDtype::Bf16, &table);
    let row = given.shape.heads * given.geometry.head_dim;
    let (tables, middle) = ([table.as_slice(), &table].concat(), table.len());
    let chunks = [
        Chunk { rows: 0..1, position: 89, table: 0..middle },
        Chunk { rows: 1..12, position: 40, table: middle..2 * middle },
    ];
    let q = [&given.q[89 * row..90 * row], &given.q[40 * row..51 * row]].concat();
    let mut out = vec![f32::NAN; q.len()];
    attention(&Queries { q: &q, chunks: &chunks, tables: &tables }, &cache, &given.shape, &mut out);
    let alone = |positions| given.run(Isa::current(), &cache, &table, positions);
    assert!(out == [alone(89..90), alone(40..51)].concat());
}

#[test]
fn blocks_are_copied_whole() {
    for dtype in KvDtype::ALL {
        let given = Given::new((4, 2, 32, 16), 40);
        let mut cache = given.cache(dtype, &[5, 9, 2]);
        for (from, to) in [(5, 70), (9, 71), (2, 72)] {
            cache.copy_block(from, to);
        }
        let run = |table: &[u32]| given.run(Isa::current(), &cache, table, 0..40);
        assert!(run(&[5, 9, 2]) == run(&[70, 71, 72]), "{dtype:?}");
    }
}

#[test]
fn numbers_too_large_for_a_half_are_kept_at_its_limit() {
    let geometry = Geometry { num_blocks: 1, block_size: 16, kv_heads: 1, head_dim: 16 };
    let mut cache = Cache::zeroed(KvDtype::F16, geometry).unwrap();
    cache.write(&[0], &[1e30; 16], &[-1e30; 16]);
    let shape = Shape { heads: 1, scale: 1.0, cap: None, window: None, causal: true };
    let mut out = [0.0; 16];
    let chunk = Chunk { rows: 0..1, position: 0, table: 0..1 };
    attention(&Queries { q: &[1e-6; 16], chunks: &[chunk], tables: &[0] }, &cache, &shape, &mut out);
    assert_eq!(out, [-65504.0; 16]);
}

#[test]
fn what_is_written_is_the_same_everywhere() {
    let special = [f32::NAN, f32::INFINITY, -f32::INFINITY, 65_520.0, -70_000.0, 1e-8, -3e-5, 0.1, 2049.0, 2051.0];
    for (head_dim, block_size) in [(64, 32), (20, 16), (48, 5)] {
        let geometry = Geometry { num_blocks: 2, block_size, kv_heads: 2, head_dim };
        let mut row = numbers(2 * head_dim, 5);
        row[..special.len()].copy_from_slice(&special);
        for dtype in KvDtype::ALL.into_iter().filter(|dtype| dtype.fits(head_dim)) {
            let written = |isa: Isa| {
                let mut cache = Cache::zeroed(dtype, geometry).unwrap();
                cache.write_on(isa, &[3], &row, &row);
                (cache.strips(0, 0, 3).0.to_vec(), cache.value_row(0, 0, 3).to_vec())
            };
            let expected = written(Isa::Scalar);
            for isa in Isa::available() {
                assert!(written(isa) == expected, "{dtype:?} on {isa:?}");
            }
        }
    }
}

#[test]
fn keys_rotated_while_they_are_written_are_those_rotated_before() {
    use crate::rope;
    // Enough rows to be shared by threads, and heads that are rotated in part.
    for (rows, dims) in [(3usize, 32usize), (96, 64)] {
        let geometry = Geometry { num_blocks: 7, block_size: 16, kv_heads: 4, head_dim: 64 };
        let width = geometry.kv_heads * geometry.head_dim;
        let (keys, values) = (numbers(rows * width, 1), numbers(rows * width, 2));
        let (cos, sin) = (numbers(rows * dims / 2, 3), numbers(rows * dims / 2, 4));
        let slots: Vec<u32> = (0..rows as u32).map(|t| (t * 5 + 2) % 112).collect();
        for dtype in KvDtype::ALL {
            let [mut one, mut other] = [(); 2].map(|()| Cache::zeroed(dtype, geometry).unwrap());
            let mut rotated = keys.clone();
            rope::rotate(&mut rotated, &cos, &sin, dims, geometry.head_dim);
            one.write(&slots, &rotated, &values);
            let mut given = keys.clone();
            other.write_rotated(&slots, &mut given, &values, (&cos, &sin, dims));
            assert!(given == rotated && given != keys, "{rows} rows");
            for (block, head) in (0..7).flat_map(|block| (0..4).map(move |head| (block, head))) {
                assert!(one.strips(block, head, 0) == other.strips(block, head, 0), "{}", dtype.name());
            }
        }
    }
}

#[test]
#[should_panic(expected = "two rows for one slot")]
fn no_slot_is_written_twice() {
    let geometry = Geometry { num_blocks: 1, block_size: 16, kv_heads: 1, head_dim: 16 };
    let mut cache = Cache::zeroed(KvDtype::F32, geometry).unwrap();
    cache.write(&[3, 1, 3], &[0.0; 48], &[0.0; 48]);
}
