//! Small ops that are one kernel each on CUDA, with arithmetic in `f32` whatever the activations are; here their
//! definitions. Elsewhere they are candle's.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::backend::BackendStorage;
use candle_core::cpu::erf::erf_f64;
use candle_core::{CpuStorage, CustomOp2, InplaceOp1, InplaceOp2, Layout, Result, Shape, Tensor};

use super::numbers::{self, Numbers};
use super::sequences::RowAngles;
use crate::types::spec::decoder::Activation;
#[cfg(feature = "cuda")]
use forebay_kernels::cuda;

/// Each consecutive group of `x` as wide as the weights on its own.
pub(super) struct RmsNorm {
    pub eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weights: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let dtype = x.dtype();
        let (mut x, weight) = (Numbers::of(x, layout)?.to_vec(), Numbers::of(weight, weights)?.to_vec());
        for group in x.chunks_exact_mut(weight.len()) {
            let mean = group.iter().map(|x| x * x).sum::<f32>() / weight.len() as f32;
            let scale = (mean + self.eps).sqrt().recip();
            group.iter_mut().zip(&weight).for_each(|(x, weight)| *x *= scale * weight);
        }
        Ok((numbers::rounded(x, dtype)?, layout.shape().clone()))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        layout: &Layout,
        weight: &CudaStorage,
        weights: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        Ok((cuda::rms_norm((x, layout), (weight, weights), self.eps)?, layout.shape().clone()))
    }
}

/// Rotates the first dimensions of each head of `[T, heads * head_dim]` in place: dimension `i` with `i + dims / 2`.
pub(super) struct Rope<'a> {
    pub angles: &'a RowAngles,
    pub head_dim: usize,
}

impl InplaceOp1 for Rope<'_> {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn cpu_fwd(&self, x: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let start = numbers::range(layout)?.start;
        let mut rows = Numbers::of(x, layout)?.to_vec();
        let [cos, sin] = [&self.angles.cos, &self.angles.sin].map(|angles| angles.flatten_all()?.to_vec1::<f32>());
        let (cos, sin) = (cos?, sin?);
        let half = self.angles.dims / 2;
        let width = rows.len() / layout.dims()[0];
        for ((row, cos), sin) in rows.chunks_exact_mut(width).zip(cos.chunks_exact(half)).zip(sin.chunks_exact(half)) {
            for head in row.chunks_exact_mut(self.head_dim) {
                for pair in 0..half {
                    let (a, b) = (head[pair], head[pair + half]);
                    head[pair] = a * cos[pair] - b * sin[pair];
                    head[pair + half] = b * cos[pair] + a * sin[pair];
                }
            }
        }
        numbers::write(x, start, &rows)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let RowAngles { cos, sin, dims } = self.angles;
        cuda::rope((&*x, layout), cos, sin, self.head_dim, *dims)
    }
}

/// `activation(gate) * up`, in place of the gate.
pub(super) struct Gate {
    pub activation: Activation,
}

impl Gate {
    fn activated(&self, x: f32) -> f32 {
        let wide = f64::from(x);
        match self.activation {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Gelu => (0.5 * wide * (1.0 + erf_f64(wide * FRAC_1_SQRT_2))) as f32,
            Activation::GeluTanh => {
                (0.5 * wide * (1.0 + (FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (wide + 0.044715 * wide.powi(3))).tanh())) as f32
            }
        }
    }
}

impl InplaceOp2 for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn cpu_fwd(&self, gate: &mut CpuStorage, layout: &Layout, up: &CpuStorage, up_layout: &Layout) -> Result<()> {
        let start = numbers::range(layout)?.start;
        let mut numbers = Numbers::of(gate, layout)?.to_vec();
        let up = Numbers::of(up, up_layout)?.to_vec();
        numbers.iter_mut().zip(&up).for_each(|(gate, up)| *gate = self.activated(*gate) * up);
        numbers::write(gate, start, &numbers)
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, gate: &mut CudaStorage, layout: &Layout, up: &CudaStorage, up_layout: &Layout) -> Result<()> {
        let activation = match self.activation {
            Activation::Silu => cuda::Activation::Silu,
            Activation::Gelu => cuda::Activation::Gelu,
            Activation::GeluTanh => cuda::Activation::GeluTanh,
        };
        cuda::gate((&*gate, layout), (up, up_layout), activation)
    }
}

/// `cap * tanh(x / cap)`, which candle computes on every device.
pub(super) fn capped(x: &Tensor, cap: f32) -> Result<Tensor> {
    let cap = f64::from(cap);
    (x / cap)?.tanh()? * cap
}
