//! The dozen ops that the decoder needs, and nothing else: the seam between the model and what computes it.
//!
//! Shapes are row-major: `T` rows (tokens of the step), then a width. Activations are `f32` everywhere. Ops that take a
//! tensor by value may work in place. Implementations: [`crate::cpu`] over our kernels, [`crate::candle`] for CUDA,
//! Metal and as the oracle of the former.

use super::rope::Angles;
use crate::files::numbers::Numbers;
use crate::types::batch::Step;
use crate::types::cache::KvLayout;
use crate::types::device::{DeviceError, DeviceMemory};
use crate::types::forward::Draw;
use crate::types::spec::decoder::{Activation, Experts};
use forebay_core::sampling::Sampler;
use forebay_core::units::TokenId;
use forebay_kernels::floats::Floats;
use forebay_kernels::packed::Packing;

pub(crate) type Result<T> = std::result::Result<T, DeviceError>;

/// How a layer's queries meet its cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionShape {
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
pub(crate) trait Backend: Sync {
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
    /// Whether it has kernels for matrices in blocks of this type, which then stay in memory as they are in their file.
    /// Others are unpacked, and take more.
    fn keeps_quantised(&self, packing: Packing) -> bool;
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
