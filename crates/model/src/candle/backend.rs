//! Any device that candle knows: CUDA, Metal, and the CPU as the oracle of [`crate::cpu`].

use candle_core::{DType, Device, Tensor};
use candle_nn::ops;

use super::device;
#[cfg(feature = "flash-attn")]
use super::flash;
use super::fused::{self, capped};
#[cfg(feature = "metal")]
use super::generic;
#[cfg(feature = "cuda")]
use super::graphs;
use super::kv::{Kv, cached};
use super::matrix::{self, Matrix};
use super::on_device::OnDevice;
use super::paged;
use super::plan::Plan;
use super::sample;
use crate::files::numbers::Numbers;
use crate::pass::backend::{AttentionShape, Backend, Result};
use crate::pass::rope::Angles;
use crate::types::batch::Step;
use crate::types::cache::KvLayout;
use crate::types::device::{DeviceError, DeviceMemory};
use crate::types::forward::Draw;
use crate::types::options::Dtype;
use crate::types::spec::decoder::{Activation, Experts};
use forebay_core::units::TokenId;
use forebay_kernels::floats::Floats;
use forebay_kernels::packed::Packing;
use forebay_kernels::routing::Routes;

pub(crate) struct Candle {
    pub(super) on: OnDevice,
    /// Where `model.cuda_graphs` asks for them.
    #[cfg(feature = "cuda")]
    graphs: Option<graphs::Graphs>,
}

impl Candle {
    /// For models of which `group` heads share keys and values.
    pub(crate) fn new(device: Device, dtype: Dtype, group: usize) -> Candle {
        Candle {
            on: OnDevice::new(device, dtype, group),
            #[cfg(feature = "cuda")]
            graphs: None,
        }
    }

    /// Records decode steps and plays them back, on CUDA.
    #[cfg(feature = "cuda")]
    pub(crate) fn recording(mut self, wanted: bool) -> Result<Candle> {
        if wanted && self.on.device.is_cuda() {
            self.graphs = Some(graphs::Graphs::new()?);
        }
        Ok(self)
    }

    /// There is nothing to record.
    #[cfg(not(feature = "cuda"))]
    pub(crate) fn recording(self, _: bool) -> Result<Candle> {
        Ok(self)
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
            on: self.on.another(),
            // An engine for which there is no thread left computes its steps as usual.
            #[cfg(feature = "cuda")]
            graphs: self.graphs.as_ref().and_then(|_| graphs::Graphs::new().ok()),
        }
    }

    fn matrix(&self, numbers: Numbers, outputs: usize, inputs: usize) -> Result<Matrix> {
        Matrix::new(numbers, (outputs, inputs), &self.on.device, self.on.dtype)
    }

    fn vector(&self, numbers: Numbers) -> Result<Tensor> {
        let numbers = numbers.plain()?;
        let len = numbers.len();
        matrix::dense(Numbers::Plain(numbers), len, &self.on.device, self.on.dtype)
    }

    /// What candle's devices have kernels for. The reference on the CPU answers as the device that it stands for does,
    /// though it unpacks all weights.
    fn keeps_quantised(&self, packing: Packing) -> bool {
        matrix::stays_quantised(packing)
    }

    fn kv(&self, layout: &KvLayout) -> Result<Kv> {
        #[cfg(feature = "cuda")]
        if let Some(graphs) = &self.graphs {
            graphs.forget();
        }
        let size = layout.paging.block_size;
        if self.on.device.is_cuda() && !size.is_multiple_of(16) {
            return Err(DeviceError::Failed(format!(
                "blocks have a multiple of 16 tokens there, kv_cache.block_size is {size}"
            )));
        }
        let shape = (layout.paging.num_blocks * layout.paging.block_size, layout.width());
        let dtype = cached(layout.dtype)?;
        let zeros = || Tensor::zeros(shape, dtype, &self.on.device);
        Ok(Kv { keys: zeros()?, values: zeros()? })
    }

    fn plan(&self, step: &Step, angles: &[Angles]) -> Result<Plan> {
        #[cfg(feature = "cuda")]
        if let Some(graphs) = &self.graphs {
            graphs.announce(step.tokens.len());
        }
        Plan::new(&self.on, step, angles)
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
            && let Some(logits) = graphs.run(&self.on, step, angles, &mut compute)?
        {
            return Ok(logits);
        }
        compute(&self.plan(step, angles)?)
    }

    fn embed(&self, table: &Matrix, plan: &Plan) -> Result<Tensor> {
        table.rows(&plan.tokens, self.on.dtype)
    }

    fn embed_positions(&self, table: &Matrix, plan: &Plan) -> Result<Tensor> {
        table.rows(&plan.positions, self.on.dtype)
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
        Ok(capped(&x, cap)?)
    }

    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        Ok((x + y)?)
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        if self.on.has_kernels() {
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
        if !self.on.has_kernels() {
            return generic::rope(&x, angles, head_dim);
        }
        x.inplace_op1(&fused::Rope { angles, head_dim })?;
        Ok(x)
    }

    fn store(&self, kv: &mut Kv, plan: &Plan, k: &Tensor, v: &Tensor) -> Result<()> {
        #[cfg(feature = "metal")]
        if !self.on.has_kernels() {
            return generic::store(kv, &plan.sequences.slots, k, v);
        }
        Ok(paged::store(kv, &plan.sequences.slots, k, v)?)
    }

    fn attention(&self, q: &Tensor, kv: &Kv, plan: &Plan, shape: &AttentionShape) -> Result<Tensor> {
        #[cfg(feature = "metal")]
        if !self.on.has_kernels() {
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
        if !self.on.has_kernels() {
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
            let indices = self.on.upload(rows)?;
            let weights = self.on.upload(weights)?.to_dtype(self.on.dtype)?.unsqueeze(1)?;
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
        Ok(x.index_select(&self.on.upload(&rows)?, 0)?)
    }

    fn read(&self, x: Tensor) -> Result<Floats> {
        Ok(x.flatten_all()?.to_dtype(DType::F32)?.to_vec1()?.into())
    }

    const DRAWS: bool = true;

    fn sample(&self, logits: &Tensor, vocab: usize, draws: &[(usize, Draw)]) -> Result<Vec<Option<TokenId>>> {
        let drawn = if self.on.has_kernels() && vocab <= sample::MOST_TOKENS {
            logits.apply_op1_no_bwd(&sample::Sample { draws })?
        } else {
            logits.to_device(&Device::Cpu)?.apply_op1_no_bwd(&sample::Sample { draws })?
        };
        let ids = self.on.staging.read(&drawn)?;
        Ok(ids.into_iter().map(|id| (id != sample::NONE).then_some(id)).collect())
    }

    fn memory(&self) -> Result<Option<DeviceMemory>> {
        device::memory(&self.on.device)
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
