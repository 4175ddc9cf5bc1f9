//! The dozen ops that the decoder needs, and nothing else: the seam between the model and what computes it.
//!
//! Shapes are row-major: `T` rows (tokens of the step), then a width. Activations are `f32` everywhere. Ops that take a
//! tensor by value may work in place. Implementations: [`super::cpu`] over our kernels, [`super::candle`] for CUDA, Metal
//! and as the oracle of the former.

use thiserror::Error;

use super::batch::Step;
use super::error::TensorRule;
use super::kv_memory::KvLayout;
use super::rope::Angles;
use super::spec::{Activation, Experts};
use super::weights::Numbers;
use forebay_core::request::SamplingParams;
#[cfg(feature = "cuda")]
use forebay_core::sampling;
use forebay_core::sampling::Sampler;
use forebay_core::units::TokenId;
use forebay_kernels::floats::Floats;

/// A device refused. The messages are the library's own.
#[derive(Debug, Error)]
pub enum DeviceError {
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A failed launch, a shape that no kernel takes.
    #[error("{0}")]
    Failed(String),
}

/// What a device other than the processor has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    pub free: usize,
    pub total: usize,
}

/// A token to be drawn where the logits are, for which nothing but the row itself is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    params: SamplingParams,
    position: u32,
}

impl Draw {
    /// The token at `position` of its sequence. `None` where devices have no such filter.
    pub fn new(params: SamplingParams, position: u32) -> Option<Draw> {
        (params.typical_p >= 1.0).then_some(Draw { params, position })
    }

    #[cfg(feature = "cuda")]
    pub(super) fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The number that decides, in `[0, 1)`.
    #[cfg(feature = "cuda")]
    pub(super) fn uniform(&self) -> f64 {
        sampling::uniform(self.params.seed, self.position)
    }

    /// From a row of logits; `None` where it is not finite.
    pub(super) fn draw(&self, logits: &[f32], sampler: &mut Sampler) -> Option<TokenId> {
        sampler.sample(logits, &self.params, self.position, None).ok().map(|sampled| sampled.token)
    }
}

/// Numbers that could not be unpacked on their way to the device.
impl From<TensorRule> for DeviceError {
    fn from(rule: TensorRule) -> DeviceError {
        DeviceError::Failed(rule.to_string())
    }
}

pub(super) type Result<T> = std::result::Result<T, DeviceError>;

/// How a layer's queries meet its cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AttentionShape {
    /// A multiple of `kv_heads`; head `h` reads the keys and values of head `h / (heads / kv_heads)`.
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// What scores are multiplied by before the softmax.
    pub scale: f32,
    /// Scores `s` then become `cap * tanh(s / cap)`.
    pub cap: Option<f32>,
    /// A token sees itself and the `window - 1` positions before it; `None` sees all.
    pub window: Option<usize>,
    /// A token sees no position after its own. Otherwise it sees all that its chunk ends with, too.
    pub causal: bool,
}

/// A device may compute a step on a thread of its own.
pub(super) trait Backend: Sync {
    /// Activations `[T, width]`.
    type Tensor: Send;
    /// A linear layer's weights or an embedding table, `[outputs, inputs]`.
    type Matrix: Sync;
    /// A norm's weights or a bias.
    type Vector: Sync;
    /// One layer's keys and values, in blocks.
    type Kv: Send;
    /// A step's indices and angles, where the ops want them.
    type Plan<'a>;

    /// For another replica on the same device.
    fn another(&self) -> Self;
    fn matrix(&self, numbers: Numbers, outputs: usize, inputs: usize) -> Result<Self::Matrix>;
    fn vector(&self, numbers: Numbers) -> Result<Self::Vector>;
    /// Filled with zeros.
    fn kv(&self, layout: &KvLayout) -> Result<Self::Kv>;
    /// Each row's angles, in `angles` for each rope, are those of its position.
    fn plan<'a>(&self, step: &'a Step, angles: &'a [Angles]) -> Result<Self::Plan<'a>>;

    /// What `compute` makes of the step's plan. Where `repeats` says that it depends on nothing but the plan's arrays and the
    /// number of sequences, a device may play back an earlier call.
    fn run(
        &self,
        step: &Step,
        angles: &[Angles],
        _repeats: bool,
        mut compute: impl FnMut(&Self::Plan<'_>) -> Result<Self::Tensor> + Send,
    ) -> Result<Self::Tensor> {
        compute(&self.plan(step, angles)?)
    }

    /// Rows of `table` by token id.
    fn embed(&self, table: &Self::Matrix, plan: &Self::Plan<'_>) -> Result<Self::Tensor>;
    /// Rows of `table` by position.
    fn embed_positions(&self, table: &Self::Matrix, plan: &Self::Plan<'_>) -> Result<Self::Tensor>;
    /// `x · weightᵀ + bias`.
    fn linear(&self, x: &Self::Tensor, weight: &Self::Matrix, bias: Option<&Self::Vector>) -> Result<Self::Tensor>;

    /// Several layers on the same rows.
    fn linears<const N: usize>(
        &self,
        x: &Self::Tensor,
        linears: [(&Self::Matrix, Option<&Self::Vector>); N],
    ) -> Result<[Self::Tensor; N]>;

    /// The same for the last product of all, `[R, hidden]` to `[R, vocab]`.
    fn logits(&self, x: &Self::Tensor, head: &Self::Matrix) -> Result<Self::Tensor> {
        self.linear(x, head, None)
    }

    fn scale(&self, x: Self::Tensor, factor: f32) -> Result<Self::Tensor>;
    /// `cap * tanh(x / cap)`
    fn soft_cap(&self, x: Self::Tensor, cap: f32) -> Result<Self::Tensor>;
    fn add(&self, x: Self::Tensor, y: &Self::Tensor) -> Result<Self::Tensor>;
    /// Each consecutive group as wide as `weight` on its own: a row, or a head of a row.
    fn rms_norm(&self, x: &Self::Tensor, weight: &Self::Vector, eps: f32) -> Result<Self::Tensor>;
    /// `x + y`, and its [`Backend::rms_norm`].
    fn add_norm(
        &self,
        x: Self::Tensor,
        y: &Self::Tensor,
        weight: &Self::Vector,
        eps: f32,
    ) -> Result<(Self::Tensor, Self::Tensor)> {
        let sum = self.add(x, y)?;
        let normed = self.rms_norm(&sum, weight, eps)?;
        Ok((sum, normed))
    }
    /// Each row on its own: less its mean, over its standard deviation, times `weight`, plus `bias`.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        weight: &Self::Vector,
        bias: &Self::Vector,
        eps: f32,
    ) -> Result<Self::Tensor>;
    /// Rotates each head of `x` by its row's angles of that rope.
    fn rope(&self, x: Self::Tensor, plan: &Self::Plan<'_>, head_dim: usize, rope: usize) -> Result<Self::Tensor>;
    /// Writes the step's keys and values to their slots.
    fn store(&self, kv: &mut Self::Kv, plan: &Self::Plan<'_>, k: &Self::Tensor, v: &Self::Tensor) -> Result<()>;
    /// The same with keys that [`Backend::rope`] rotates.
    fn store_rotated(
        &self,
        kv: &mut Self::Kv,
        plan: &Self::Plan<'_>,
        k: Self::Tensor,
        v: &Self::Tensor,
        (head_dim, rope): (usize, usize),
    ) -> Result<()> {
        let k = self.rope(k, plan, head_dim, rope)?;
        self.store(kv, plan, &k, v)
    }
    /// Each row against the cached positions that it sees.
    fn attention(
        &self,
        q: &Self::Tensor,
        kv: &Self::Kv,
        plan: &Self::Plan<'_>,
        shape: &AttentionShape,
    ) -> Result<Self::Tensor>;
    fn activate(&self, x: Self::Tensor, activation: Activation) -> Result<Self::Tensor>;
    /// `activation(gate) * up`.
    fn gate(&self, gate: Self::Tensor, up: &Self::Tensor, activation: Activation) -> Result<Self::Tensor>;
    /// Sends each row of `x` to the experts that its `scores`, `[T, experts]`, choose, and adds up what they make of it, in
    /// ascending order, weighted as [`forebay_kernels::routing`] says. `expert` gets all its rows at once, and is not called
    /// without any.
    fn mix(
        &self,
        x: &Self::Tensor,
        scores: &Self::Tensor,
        choice: Experts,
        expert: impl FnMut(usize, &Self::Tensor) -> Result<Self::Tensor>,
    ) -> Result<Self::Tensor>;
    /// The rows of the step's `group`-th group.
    fn gather(&self, x: &Self::Tensor, plan: &Self::Plan<'_>, group: usize) -> Result<Self::Tensor>;
    /// `y` with `part`, a row for each of the group, added to its rows.
    fn add_rows(
        &self,
        y: Self::Tensor,
        plan: &Self::Plan<'_>,
        group: usize,
        part: &Self::Tensor,
    ) -> Result<Self::Tensor>;
    /// The rows whose logits are wanted.
    fn select(&self, x: Self::Tensor, plan: &Self::Plan<'_>) -> Result<Self::Tensor>;
    /// These rows, each of `width`.
    fn pick(&self, x: &Self::Tensor, rows: &[usize], width: usize) -> Result<Self::Tensor>;
    fn read(&self, x: Self::Tensor) -> Result<Floats>;

    /// Whether drawing here spares a copy of the logits.
    const DRAWS: bool = false;

    /// A token for each of `draws`, with its row of `logits`, `[R, vocab]`; `None` where that is not finite.
    fn sample(&self, logits: &Self::Tensor, vocab: usize, draws: &[(usize, Draw)]) -> Result<Vec<Option<TokenId>>> {
        let rows: Vec<usize> = draws.iter().map(|(row, _)| *row).collect();
        let picked = self.read(self.pick(logits, &rows, vocab)?)?;
        let mut sampler = Sampler::default();
        let drawn =
            picked.chunks_exact(vocab).zip(draws).map(|(row, (_, draw))| draw.draw(row, &mut sampler)).collect();
        self.recycle(picked);
        Ok(drawn)
    }

    /// What the device has; `None` where that is the processor's memory.
    fn memory(&self) -> Result<Option<DeviceMemory>> {
        Ok(None)
    }

    /// Takes back what [`Backend::read`] gave, for later steps.
    fn recycle(&self, data: Floats) {
        drop(data);
    }
    /// Copies a whole block of one layer.
    fn copy_block(&self, kv: &mut Self::Kv, layout: &KvLayout, from: u32, to: u32) -> Result<()>;
}
