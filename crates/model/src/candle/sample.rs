//! Draws on the device: the definition is [`forebay_core::sampling`] itself, so that tokens are the same wherever they are drawn.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape};

use super::numbers;
use crate::types::forward::Draw;
use forebay_core::sampling::Sampler;
#[cfg(feature = "cuda")]
use forebay_kernels::cuda;

/// Stands for no token: the row was not finite.
pub(super) const NONE: u32 = u32::MAX;

/// Vocabularies that the kernel takes (`launches.h`); larger ones are drawn from on the CPU.
pub(super) const MOST_TOKENS: usize = 1 << 19;

/// From logits `[R, vocab]` in `f32`, the token of each draw, u32 `[N]`.
pub(super) struct Sample<'a> {
    /// With their rows.
    pub draws: &'a [(usize, Draw)],
}

impl CustomOp1 for Sample<'_> {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let vocab = layout.shape().dims2()?.1;
        let logits = &logits.as_slice::<f32>()?[numbers::range(layout)?];
        let mut sampler = Sampler::default();
        let draw =
            |(row, draw): &(usize, Draw)| draw.draw(&logits[row * vocab..][..vocab], &mut sampler).unwrap_or(NONE);
        let tokens: Vec<u32> = self.draws.iter().map(draw).collect();
        Ok((CpuStorage::U32(tokens), self.draws.len().into()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, logits: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let draw = |(row, draw): &(usize, Draw)| {
            let params = draw.params();
            cuda::Draw {
                row: *row as u32,
                temperature: params.temperature,
                min_p: params.min_p,
                top_k: params.top_k,
                top_p: params.top_p,
                uniform: draw.uniform(),
            }
        };
        let draws: Vec<cuda::Draw> = self.draws.iter().map(draw).collect();
        Ok((cuda::sample((logits, layout), &draws)?, self.draws.len().into()))
    }
}
