//! Any device that candle knows, through its generic ops only: CUDA, Metal, and the CPU as the oracle of [`super::cpu`].
//!
//! Right rather than fast: attention gathers each sequence's keys and values in turn.

use candle_core::{DType, Device, Tensor};
use candle_nn::ops;
use candle_nn::rotary_emb;

use super::backend::{AttentionShape, Backend, DeviceError, Result};
use super::batch::{Group, Step};
use super::kv_memory::KvLayout;
use super::rope::Angles;
use super::spec::{Activation, Experts};
use super::weights::Numbers;
use crate::kernels::routing::Routes;

impl From<candle_core::Error> for DeviceError {
    fn from(error: candle_core::Error) -> DeviceError {
        DeviceError(error.to_string())
    }
}

pub(super) struct Candle {
    pub device: Device,
}

/// Keys and values as `[num_blocks * block_size, kv_heads * head_dim]`: the common layout, flattened.
pub(super) struct Kv {
    pub keys: Tensor,
    pub values: Tensor,
}

pub(super) struct Plan {
    /// `[T]`
    tokens: Tensor,
    /// `[T]`
    positions: Tensor,
    /// `[T, 1]`
    slots: Tensor,
    /// Of each rope: cosines and sines, `[T, 1, dims / 2]`, and how many dimensions they rotate.
    angles: Vec<(Tensor, Tensor, usize)>,
    chunks: Vec<ChunkPlan>,
    /// Rows whose logits are wanted. Not a tensor, for it may be empty, and no device likes those.
    selected: Vec<u32>,
}

struct ChunkPlan {
    start: usize,
    rows: usize,
    /// `[context]` slots of positions `0..context`.
    slots: Tensor,
    /// For each window of the step's layers: `[rows, context]`, 0 where a row sees a position and -∞ where not.
    masks: Vec<(Option<usize>, Tensor)>,
}

impl Candle {
    fn tensor(&self, data: Vec<f32>, shape: impl Into<candle_core::Shape>) -> Result<Tensor> {
        Ok(Tensor::from_vec(data, shape.into(), &self.device)?)
    }

    fn indices(&self, data: &[u32]) -> Result<Tensor> {
        Ok(Tensor::new(data, &self.device)?)
    }

    /// `positions` are those of the rows; keys lie at `0..context`.
    fn mask(&self, positions: &[u32], context: usize, window: Option<usize>) -> Result<Tensor> {
        let sees = |row: usize, key: usize| key <= row && window.is_none_or(|window| key + window > row);
        let value = |row, key| if sees(row, key) { 0.0 } else { f32::NEG_INFINITY };
        let data = positions.iter().flat_map(|&row| (0..context).map(move |key| value(row as usize, key))).collect();
        self.tensor(data, (positions.len(), context))
    }

    fn chunk_attention(&self, q: &Tensor, kv: &Kv, chunk: &ChunkPlan, shape: &AttentionShape) -> Result<Tensor> {
        let (rows, heads, dim) = (chunk.rows, shape.kv_heads, shape.head_dim);
        let group = shape.heads / heads;
        let context = chunk.slots.elem_count();
        // [rows, heads, group, dim] → [heads, group * rows, dim]
        let q = q.reshape((rows, heads, group, dim))?.permute((1, 2, 0, 3))?.contiguous()?;
        let q = (q.reshape((heads, group * rows, dim))? * f64::from(shape.scale))?;
        // [context, heads, dim] → [heads, context, dim]
        let gather = |cache: &Tensor| {
            cache.index_select(&chunk.slots, 0)?.reshape((context, heads, dim))?.transpose(0, 1)?.contiguous()
        };
        let (k, v) = (gather(&kv.keys)?, gather(&kv.values)?);
        let mut scores = q.matmul(&k.t()?)?.reshape((heads, group, rows, context))?;
        if let Some(cap) = shape.cap {
            scores = capped(&scores, cap)?;
        }
        if let Some((_, mask)) = chunk.masks.iter().find(|(window, _)| *window == shape.window) {
            scores = scores.broadcast_add(mask)?;
        }
        let weights = ops::softmax_last_dim(&scores)?.reshape((heads, group * rows, context))?;
        // [heads, group * rows, dim] → [rows, heads * group * dim]
        let out = weights.matmul(&v)?.reshape((heads, group, rows, dim))?.permute((2, 0, 1, 3))?;
        Ok(out.contiguous()?.reshape((rows, shape.heads * dim))?)
    }
}

/// `cap * tanh(x / cap)`
fn capped(x: &Tensor, cap: f32) -> Result<Tensor> {
    let cap = f64::from(cap);
    Ok(((x / cap)?.tanh()? * cap)?)
}

impl Backend for Candle {
    type Tensor = Tensor;
    type Matrix = Tensor;
    type Vector = Tensor;
    type Kv = Kv;
    type Plan<'a> = Plan;

    fn another(&self) -> Candle {
        Candle { device: self.device.clone() }
    }

    /// Packed weights are unpacked to `f32`: this path is for being right, and costs their full width in memory.
    fn matrix(&self, numbers: Numbers, outputs: usize, inputs: usize) -> Result<Tensor> {
        self.tensor(numbers.plain()?, (outputs, inputs))
    }

    fn vector(&self, numbers: Numbers) -> Result<Tensor> {
        let data = numbers.plain()?;
        let len = data.len();
        self.tensor(data, len)
    }

    fn kv(&self, layout: &KvLayout) -> Result<Kv> {
        let shape = (layout.paging.num_blocks * layout.paging.block_size, layout.width());
        let zeros = || Tensor::zeros(shape, DType::F32, &self.device);
        Ok(Kv { keys: zeros()?, values: zeros()? })
    }

    fn plan(&self, step: &Step, angles: &[Angles], windows: &[Option<usize>]) -> Result<Plan> {
        let rows = step.tokens.len();
        let angles = angles.iter().map(|Angles { cos, sin, dims }| {
            let tensor = |numbers: &Vec<f32>| self.tensor(numbers.clone(), (rows, 1, dims / 2));
            Ok((tensor(cos)?, tensor(sin)?, *dims))
        });
        let angles = angles.collect::<Result<_>>()?;
        let mut chunks = Vec::with_capacity(step.chunks.len());
        for chunk in &step.chunks {
            let positions = &step.positions[chunk.rows.clone()];
            let context = positions[positions.len() - 1] as usize + 1;
            let masks = windows.iter().map(|&window| Ok((window, self.mask(positions, context, window)?)));
            chunks.push(ChunkPlan {
                start: chunk.rows.start,
                rows: chunk.rows.len(),
                slots: self.indices(&step.context_slots(chunk, context))?,
                masks: masks.collect::<Result<_>>()?,
            });
        }
        Ok(Plan {
            tokens: self.indices(&step.tokens)?,
            positions: self.indices(&step.positions)?,
            slots: self.indices(&step.slots)?.unsqueeze(1)?,
            angles,
            chunks,
            selected: step.selected.iter().map(|&row| row as u32).collect(),
        })
    }

    fn embed(&self, table: &Tensor, plan: &Plan) -> Result<Tensor> {
        Ok(table.index_select(&plan.tokens, 0)?)
    }

    fn embed_positions(&self, table: &Tensor, plan: &Plan) -> Result<Tensor> {
        Ok(table.index_select(&plan.positions, 0)?)
    }

    fn linear(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let y = x.matmul(&weight.t()?)?;
        Ok(match bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }

    fn linears<const N: usize>(&self, x: &Tensor, linears: [(&Tensor, Option<&Tensor>); N]) -> Result<[Tensor; N]> {
        let results = linears.map(|(weight, bias)| self.linear(x, weight, bias));
        let all = results.into_iter().collect::<Result<Vec<Tensor>>>()?;
        Ok(all.try_into().expect("as many as there were"))
    }

    fn scale(&self, x: Tensor, factor: f32) -> Result<Tensor> {
        Ok((x * f64::from(factor))?)
    }

    fn soft_cap(&self, x: Tensor, cap: f32) -> Result<Tensor> {
        capped(&x, cap)
    }

    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        Ok((x + y)?)
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        let groups = x.reshape(((), weight.elem_count()))?;
        Ok(ops::rms_norm(&groups, weight, eps)?.reshape(x.shape())?)
    }

    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> Result<Tensor> {
        Ok(ops::layer_norm(x, weight, bias, eps)?)
    }

    fn rope(&self, x: Tensor, plan: &Plan, head_dim: usize, rope: usize) -> Result<Tensor> {
        let (rows, width) = x.dims2()?;
        let (cos, sin, dims) = &plan.angles[rope];
        // Rows as candle's batch axis, so that each has its own angles.
        let heads = x.reshape((rows, width / head_dim, 1, head_dim))?;
        let turned = rotary_emb::rope(&heads.narrow(3, 0, *dims)?.contiguous()?, cos, sin)?;
        let rest = heads.narrow(3, *dims, head_dim - dims)?;
        let heads = if *dims == head_dim { turned } else { Tensor::cat(&[&turned, &rest], 3)? };
        Ok(heads.reshape((rows, width))?)
    }

    fn store(&self, kv: &mut Kv, plan: &Plan, k: &Tensor, v: &Tensor) -> Result<()> {
        let slots = plan.slots.broadcast_as(k.shape())?.contiguous()?;
        kv.keys.scatter_set(&slots, &k.contiguous()?, 0)?;
        kv.values.scatter_set(&slots, &v.contiguous()?, 0)?;
        Ok(())
    }

    fn attention(&self, q: &Tensor, kv: &Kv, plan: &Plan, shape: &AttentionShape) -> Result<Tensor> {
        let each = |chunk: &ChunkPlan| self.chunk_attention(&q.narrow(0, chunk.start, chunk.rows)?, kv, chunk, shape);
        let parts = plan.chunks.iter().map(each).collect::<Result<Vec<_>>>()?;
        Ok(Tensor::cat(&parts, 0)?)
    }

    fn activate(&self, x: Tensor, activation: Activation) -> Result<Tensor> {
        Ok(match activation {
            Activation::Silu => x.silu()?,
            Activation::Gelu => x.gelu_erf()?,
            // candle's plain one is the approximation.
            Activation::GeluTanh => x.gelu()?,
        })
    }

    fn gate(&self, gate: Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
        Ok((self.activate(gate, activation)? * up)?)
    }

    fn mix(
        &self,
        x: &Tensor,
        scores: &Tensor,
        choice: Experts,
        mut expert: impl FnMut(usize, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut routes = Routes::default();
        let scores: Vec<f32> = scores.flatten_all()?.to_vec1()?;
        routes.choose(&scores, choice.count, choice.per_token, choice.normalised);
        let mut out = x.zeros_like()?;
        for index in 0..choice.count {
            let (rows, weights) = routes.of(index);
            if rows.is_empty() {
                continue;
            }
            let (indices, weights) = (self.indices(rows)?, self.tensor(weights.to_vec(), (rows.len(), 1))?);
            let answer = expert(index, &x.index_select(&indices, 0)?)?.broadcast_mul(&weights)?;
            out = out.index_add(&indices, &answer, 0)?;
        }
        Ok(out)
    }

    fn gather(&self, x: &Tensor, _plan: &Plan, group: &Group) -> Result<Tensor> {
        Ok(x.index_select(&self.indices(&group.rows)?, 0)?)
    }

    fn add_rows(&self, y: Tensor, _plan: &Plan, group: &Group, part: &Tensor) -> Result<Tensor> {
        Ok(y.index_add(&self.indices(&group.rows)?, part, 0)?)
    }

    fn select(&self, x: Tensor, plan: &Plan) -> Result<Tensor> {
        Ok(x.index_select(&self.indices(&plan.selected)?, 0)?)
    }

    fn pick(&self, x: &Tensor, rows: &[usize], _width: usize) -> Result<Tensor> {
        let rows: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        Ok(x.index_select(&self.indices(&rows)?, 0)?)
    }

    fn read(&self, x: Tensor) -> Result<Vec<f32>> {
        Ok(x.flatten_all()?.to_vec1()?)
    }

    fn copy_block(&self, kv: &mut Kv, layout: &KvLayout, from: u32, to: u32) -> Result<()> {
        let size = layout.paging.block_size;
        for cache in [&kv.keys, &kv.values] {
            // A narrowed view shares its storage with the cache, which candle refuses to copy onto itself.
            let block = cache.narrow(0, from as usize * size, size)?.force_contiguous()?;
            cache.slice_set(&block, 0, to as usize * size)?;
        }
        Ok(())
    }
}
