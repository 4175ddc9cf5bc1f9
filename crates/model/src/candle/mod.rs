//! Any device that candle knows: CUDA, Metal, and the CPU as the oracle of [`super::cpu`].
//!
//! A step is one packed forward: every sequence's rows lie one after another, [`plan`] says once per step whose they are,
//! and each op runs over all of them. What candle has no op for is ours: [`paged`], [`fused`] and [`sample`] are custom
//! ops with two bodies, a plain definition that runs on the CPU and the launch of a kernel. So all but the launches is
//! tested without a GPU. Metal has no kernels of ours and takes [`generic`] instead.
//!
//! ```text
//! plan ── arrays of the step ──► paged (store, attention)  fused (norm, rope, gate)  sample (ids)
//! matrix (dense or quantised)          └── cpu_fwd: the definition    └── cuda_fwd: kernels/cuda
//! ```

pub(super) mod device;
#[cfg(feature = "flash-attn")]
mod flash;
mod fused;
#[cfg(feature = "metal")]
mod generic;
#[cfg(all(test, feature = "cuda"))]
mod gpu_tests;
#[cfg(feature = "cuda")]
mod graphs;
mod matrix;
mod numbers;
mod paged;
mod plan;
mod sample;
mod staging;

use candle_core::{DType, Device, Tensor};
use candle_nn::ops;

use super::backend::{AttentionShape, Backend, DeviceError, DeviceMemory, Draw, Result};
use super::batch::Step;
use super::kv_memory::KvLayout;
use super::options::Dtype;
use super::rope::Angles;
use super::spec::{Activation, Experts};
use super::weights::Numbers;
use forebay_core::units::TokenId;
use forebay_kernels::attention::KvDtype;
use forebay_kernels::floats::Floats;
use forebay_kernels::routing::Routes;
use matrix::Matrix;
pub(super) use matrix::stays_quantised;
use plan::Plan;
use staging::{Number, Staging};

impl From<candle_core::Error> for DeviceError {
    fn from(error: candle_core::Error) -> DeviceError {
        let message = error.to_string();
        if device::is_out_of_memory(&error) { DeviceError::OutOfMemory(message) } else { DeviceError::Failed(message) }
    }
}

/// Rows of a prefill tile, times the heads of a group: what the kernel holds at once.
const TILE: usize = 64;

pub(super) struct Candle {
    device: Device,
    /// Of activations, and of weights that are not quantised.
    dtype: DType,
    /// Rows of a prefill tile.
    tile_rows: usize,
    staging: Staging,
    /// Where `model.cuda_graphs` asks for them.
    #[cfg(feature = "cuda")]
    graphs: Option<graphs::Graphs>,
}

/// Keys and values as `[num_blocks * block_size, kv_heads * head_dim]`: the common layout, flattened.
pub(super) struct Kv {
    pub keys: Tensor,
    pub values: Tensor,
}

impl Candle {
    /// For models of which `group` heads share keys and values.
    pub(super) fn new(device: Device, dtype: Dtype, group: usize) -> Candle {
        let dtype = match dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::Bf16 => DType::BF16,
        };
        let staging = Staging::new(&device);
        Candle {
            device,
            dtype,
            tile_rows: (TILE / group).max(1),
            staging,
            #[cfg(feature = "cuda")]
            graphs: None,
        }
    }

    /// Records decode steps and plays them back, on CUDA.
    #[cfg(feature = "cuda")]
    pub(super) fn recording(mut self, wanted: bool) -> Result<Candle> {
        if wanted && self.device.is_cuda() {
            self.graphs = Some(graphs::Graphs::new()?);
        }
        Ok(self)
    }

    /// There is nothing to record.
    #[cfg(not(feature = "cuda"))]
    pub(super) fn recording(self, _: bool) -> Result<Candle> {
        Ok(self)
    }

    fn upload<T: Number>(&self, numbers: &[T]) -> Result<Tensor> {
        self.staging.upload(&self.device, numbers)
    }

    /// Whether our kernels, or their definitions, run there.
    fn has_kernels(&self) -> bool {
        !self.device.is_metal()
    }
}

/// `cap * tanh(x / cap)`
fn capped(x: &Tensor, cap: f32) -> Result<Tensor> {
    let cap = f64::from(cap);
    Ok(((x / cap)?.tanh()? * cap)?)
}

/// The type of a cache.
fn cached(dtype: KvDtype) -> Result<DType> {
    match dtype {
        KvDtype::F32 => Ok(DType::F32),
        KvDtype::F16 => Ok(DType::F16),
        KvDtype::Bf16 => Ok(DType::BF16),
        KvDtype::Q8_0 => Err(DeviceError::Failed("a cache in q8_0 is for the CPU".into())),
    }
}

impl Backend for Candle {
    type Tensor = Tensor;
    type Matrix = Matrix;
    type Vector = Tensor;
    type Kv = Kv;
    type Plan<'a> = Plan;

    fn another(&self) -> Candle {
        Candle {
            device: self.device.clone(),
            dtype: self.dtype,
            tile_rows: self.tile_rows,
            staging: Staging::new(&self.device),
            // An engine for which there is no thread left computes its steps as usual.
            #[cfg(feature = "cuda")]
            graphs: self.graphs.as_ref().and_then(|_| graphs::Graphs::new().ok()),
        }
    }

    fn matrix(&self, numbers: Numbers, outputs: usize, inputs: usize) -> Result<Matrix> {
        Matrix::new(numbers, (outputs, inputs), &self.device, self.dtype)
    }

    fn vector(&self, numbers: Numbers) -> Result<Tensor> {
        let numbers = numbers.plain()?;
        let len = numbers.len();
        matrix::dense(Numbers::Plain(numbers), len, &self.device, self.dtype)
    }

    fn kv(&self, layout: &KvLayout) -> Result<Kv> {
        #[cfg(feature = "cuda")]
        if let Some(graphs) = &self.graphs {
            graphs.forget();
        }
        let size = layout.paging.block_size;
        if self.device.is_cuda() && !size.is_multiple_of(16) {
            return Err(DeviceError::Failed(format!(
                "blocks have a multiple of 16 tokens there, kv_cache.block_size is {size}"
            )));
        }
        let shape = (layout.paging.num_blocks * layout.paging.block_size, layout.width());
        let dtype = cached(layout.dtype)?;
        let zeros = || Tensor::zeros(shape, dtype, &self.device);
        Ok(Kv { keys: zeros()?, values: zeros()? })
    }

    fn plan(&self, step: &Step, angles: &[Angles]) -> Result<Plan> {
        #[cfg(feature = "cuda")]
        if let Some(graphs) = &self.graphs {
            graphs.announce(step.tokens.len());
        }
        Plan::new(self, step, angles)
    }

    #[cfg(feature = "cuda")]
    fn run(
        &self,
        step: &Step,
        angles: &[Angles],
        repeats: bool,
        mut compute: impl FnMut(&Plan) -> Result<Tensor> + Send,
    ) -> Result<Tensor> {
        if let Some(graphs) = self.graphs.as_ref().filter(|_| repeats)
            && let Some(logits) = graphs.run(self, step, angles, &mut compute)?
        {
            return Ok(logits);
        }
        compute(&self.plan(step, angles)?)
    }

    fn embed(&self, table: &Matrix, plan: &Plan) -> Result<Tensor> {
        table.rows(&plan.tokens, self.dtype)
    }

    fn embed_positions(&self, table: &Matrix, plan: &Plan) -> Result<Tensor> {
        table.rows(&plan.positions, self.dtype)
    }

    fn linear(&self, x: &Tensor, weight: &Matrix, bias: Option<&Tensor>) -> Result<Tensor> {
        fail::fail_point!("model::device_allocation", |_| Err(DeviceError::OutOfMemory("failpoint".into())));
        let y = weight.product(x)?;
        Ok(match bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }

    fn linears<const N: usize>(&self, x: &Tensor, linears: [(&Matrix, Option<&Tensor>); N]) -> Result<[Tensor; N]> {
        let results = linears.map(|(weight, bias)| self.linear(x, weight, bias));
        let all = results.into_iter().collect::<Result<Vec<Tensor>>>()?;
        Ok(all.try_into().expect("as many as there were"))
    }

    /// In `f32` from here on: what is drawn from should not be rounded again.
    fn logits(&self, x: &Tensor, head: &Matrix) -> Result<Tensor> {
        Ok(self.linear(x, head, None)?.to_dtype(DType::F32)?)
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
        if self.has_kernels() {
            return Ok(x.apply_op2_no_bwd(weight, &fused::RmsNorm { eps })?);
        }
        let groups = x.reshape(((), weight.elem_count()))?;
        Ok(ops::rms_norm(&groups, weight, eps)?.reshape(x.shape())?)
    }

    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> Result<Tensor> {
        Ok(ops::layer_norm(x, weight, bias, eps)?)
    }

    fn rope(&self, x: Tensor, plan: &Plan, head_dim: usize, rope: usize) -> Result<Tensor> {
        let angles = &plan.angles[rope];
        #[cfg(feature = "metal")]
        if !self.has_kernels() {
            return generic::rope(&x, angles, head_dim);
        }
        x.inplace_op1(&fused::Rope { angles, head_dim })?;
        Ok(x)
    }

    fn store(&self, kv: &mut Kv, plan: &Plan, k: &Tensor, v: &Tensor) -> Result<()> {
        #[cfg(feature = "metal")]
        if !self.has_kernels() {
            return generic::store(kv, &plan.sequences.slots, k, v);
        }
        Ok(paged::store(kv, &plan.sequences.slots, k, v)?)
    }

    fn attention(&self, q: &Tensor, kv: &Kv, plan: &Plan, shape: &AttentionShape) -> Result<Tensor> {
        #[cfg(feature = "metal")]
        if !self.has_kernels() {
            return plan.generic.attention(q, kv, shape);
        }
        #[cfg(feature = "flash-attn")]
        if let Some(out) = flash::attention(q, kv, &plan.sequences, shape)? {
            return Ok(out);
        }
        Ok(q.apply_op1_no_bwd(&paged::Attention { kv, sequences: &plan.sequences, shape })?)
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
        if !self.has_kernels() {
            return Ok((self.activate(gate, activation)? * up)?);
        }
        gate.inplace_op2(up, &fused::Gate { activation })?;
        Ok(gate)
    }

    /// The scores travel to the CPU: the one wait inside a step, for models with experts only.
    fn mix(
        &self,
        x: &Tensor,
        scores: &Tensor,
        choice: Experts,
        mut expert: impl FnMut(usize, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut routes = Routes::default();
        let scores: Vec<f32> = scores.flatten_all()?.to_dtype(DType::F32)?.to_vec1()?;
        routes.choose(&scores, choice.count, choice.per_token, choice.normalised);
        let mut out = x.zeros_like()?;
        for index in 0..choice.count {
            let (rows, weights) = routes.of(index);
            if rows.is_empty() {
                continue;
            }
            let indices = self.upload(rows)?;
            let weights = self.upload(weights)?.to_dtype(self.dtype)?.unsqueeze(1)?;
            let answer = expert(index, &x.index_select(&indices, 0)?)?.broadcast_mul(&weights)?;
            out = out.index_add(&indices, &answer, 0)?;
        }
        Ok(out)
    }

    fn gather(&self, x: &Tensor, plan: &Plan, group: usize) -> Result<Tensor> {
        match &plan.groups[group] {
            Some(rows) => Ok(x.index_select(rows, 0)?),
            None => Ok(x.narrow(0, 0, 0)?),
        }
    }

    fn add_rows(&self, y: Tensor, plan: &Plan, group: usize, part: &Tensor) -> Result<Tensor> {
        match &plan.groups[group] {
            Some(rows) => Ok(y.index_add(rows, part, 0)?),
            None => Ok(y),
        }
    }

    fn select(&self, x: Tensor, plan: &Plan) -> Result<Tensor> {
        match &plan.selected {
            Some(rows) => Ok(x.index_select(rows, 0)?),
            None => Ok(x.narrow(0, 0, 0)?),
        }
    }

    fn pick(&self, x: &Tensor, rows: &[usize], _width: usize) -> Result<Tensor> {
        let rows: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        Ok(x.index_select(&self.upload(&rows)?, 0)?)
    }

    fn read(&self, x: Tensor) -> Result<Floats> {
        Ok(x.flatten_all()?.to_dtype(DType::F32)?.to_vec1()?.into())
    }

    const DRAWS: bool = true;

    fn sample(&self, logits: &Tensor, vocab: usize, draws: &[(usize, Draw)]) -> Result<Vec<Option<TokenId>>> {
        let drawn = if self.has_kernels() && vocab <= sample::MOST_TOKENS {
            logits.apply_op1_no_bwd(&sample::Sample { draws })?
        } else {
            logits.to_device(&Device::Cpu)?.apply_op1_no_bwd(&sample::Sample { draws })?
        };
        let ids = self.staging.read(&drawn)?;
        Ok(ids.into_iter().map(|id| (id != sample::NONE).then_some(id)).collect())
    }

    fn memory(&self) -> Result<Option<DeviceMemory>> {
        device::memory(&self.device)
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
