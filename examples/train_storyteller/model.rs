//! The Llama: grouped-query attention, RMSNorm, SwiGLU, rotary positions, tied embeddings.
//!
//! Only plain tensor forms: candle-nn's fused `rms_norm`, `softmax_last_dim` and `rope` have no backward, and a
//! parameter behind them would silently never move.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use candle_core::{D, DType, Device, Tensor, Var};

use crate::rng::Rng;

#[derive(Clone, Debug)]
pub struct Shape {
    pub vocab: usize,
    pub hidden: usize,
    pub inner: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub context: usize,
    pub norm_eps: f64,
    pub rope_theta: f64,
}

/// The shape that ships: matrix inner sizes are multiples of 256, so every kernel of the server is reached.
pub const STORYTELLER: Shape = Shape {
    vocab: 2048,
    hidden: 256,
    inner: 512,
    layers: 4,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    context: 1024,
    norm_eps: 1e-5,
    rope_theta: 10_000.0,
};

/// Weights under their Hugging Face names, and the tables that depend only on positions.
pub struct Llama {
    pub shape: Shape,
    /// Sorted by name, so that "the n-th parameter" means the same in every run.
    pub weights: BTreeMap<String, Var>,
    cos: Tensor,
    sin: Tensor,
    /// `[head_dim, head_dim]`: `x · rotate` is `(-x2, x1)`. A small matrix product has a cheaper backward than narrow and cat.
    rotate: Tensor,
    /// `[context, context]`, 0 where attention may look and a large negative number where not.
    mask: Tensor,
}

/// Keys and values of the positions so far, per layer; `[batch, kv_heads, positions, head_dim]`.
#[derive(Default)]
pub struct Cache {
    layers: Vec<(Tensor, Tensor)>,
}

impl Cache {
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |(keys, _)| keys.dims()[2])
    }
}

impl Llama {
    /// Normal initial weights; projections back into the residual stream start smaller, as in GPT-2.
    pub fn new(shape: Shape, seed: u64) -> Result<Self> {
        let mut rng = Rng::keyed(&[seed, 0x0DE1]);
        let device = Device::Cpu;
        let mut weights = BTreeMap::new();
        for (name, dims) in parameters(&shape) {
            let count: usize = dims.iter().product();
            let values: Vec<f32> = if name.ends_with("norm.weight") {
                vec![1.0; count]
            } else {
                let into_residual = name.contains("o_proj") || name.contains("down_proj");
                let spread = 0.04 / if into_residual { (2.0 * shape.layers as f64).sqrt() } else { 1.0 };
                (0..count).map(|_| (gauss(&mut rng) * spread) as f32).collect()
            };
            weights.insert(name, Var::from_tensor(&Tensor::from_vec(values, dims, &device)?)?);
        }
        Self::with(shape, weights)
    }

    /// Weights from a safetensors file, in any float type.
    pub fn load(shape: Shape, file: &Path) -> Result<Self> {
        let mut tensors = candle_core::safetensors::load(file, &Device::Cpu)
            .with_context(|| format!("reading {}", file.display()))?;
        let mut weights = BTreeMap::new();
        for (name, dims) in parameters(&shape) {
            let tensor = tensors.remove(&name).with_context(|| format!("{} lacks {name}", file.display()))?;
            anyhow::ensure!(tensor.dims() == dims, "{name} is {:?}, not {dims:?}", tensor.dims());
            weights.insert(name, Var::from_tensor(&tensor.to_dtype(DType::F32)?)?);
        }
        Self::with(shape, weights)
    }

    fn with(shape: Shape, weights: BTreeMap<String, Var>) -> Result<Self> {
        let (device, half) = (Device::Cpu, shape.head_dim / 2);
        let angle = |t: usize, i: usize| t as f64 / shape.rope_theta.powf(2.0 * i as f64 / shape.head_dim as f64);
        let table = |f: fn(f64) -> f64| -> Result<Tensor> {
            let values: Vec<f32> = (0..shape.context)
                .flat_map(|t| (0..shape.head_dim).map(move |d| (t, d % half)))
                .map(|(t, i)| f(angle(t, i)) as f32)
                .collect();
            Ok(Tensor::from_vec(values, (shape.context, shape.head_dim), &device)?)
        };
        let mut rotate = vec![0f32; shape.head_dim * shape.head_dim];
        for i in 0..half {
            rotate[(i + half) * shape.head_dim + i] = -1.0;
            rotate[i * shape.head_dim + i + half] = 1.0;
        }
        let mask: Vec<f32> =
            (0..shape.context).flat_map(|q| (0..shape.context).map(move |k| if k <= q { 0.0 } else { -1e9 })).collect();
        Ok(Llama {
            cos: table(f64::cos)?,
            sin: table(f64::sin)?,
            rotate: Tensor::from_vec(rotate, (shape.head_dim, shape.head_dim), &device)?,
            mask: Tensor::from_vec(mask, (shape.context, shape.context), &device)?,
            shape,
            weights,
        })
    }

    pub fn parameters(&self) -> usize {
        self.weights.values().map(|var| var.elem_count()).sum()
    }

    /// Logits `[batch * positions, vocab]` for `ids` `[batch, positions]`; with a cache, positions continue after it.
    pub fn forward(&self, ids: &Tensor, mut cache: Option<&mut Cache>) -> Result<Tensor> {
        let (batch, length) = ids.dims2()?;
        let start = cache.as_ref().map_or(0, |cache| cache.len());
        let mut x = self.weight("model.embed_tokens.weight").index_select(&ids.flatten_all()?, 0)?;
        for layer in 0..self.shape.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            let normed = self.norm(&x, &name("input_layernorm"))?;
            x = (x + self.attention(&normed, layer, (batch, length, start), cache.as_deref_mut())?)?;
            let normed = self.norm(&x, &name("post_attention_layernorm"))?;
            let gate = self.linear(&normed, &name("mlp.gate_proj"))?.silu()?;
            let inner = (gate * self.linear(&normed, &name("mlp.up_proj"))?)?;
            x = (x + self.linear(&inner, &name("mlp.down_proj"))?)?;
        }
        let x = self.norm(&x, "model.norm.weight")?;
        self.linear(&x, "model.embed_tokens.weight")
    }

    /// Mean cross entropy of `targets` under `ids`; both `[batch, positions]`.
    pub fn loss(&self, ids: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let logits = self.forward(ids, None)?;
        let largest = logits.max_keepdim(D::Minus1)?.detach();
        let shifted = logits.broadcast_sub(&largest)?;
        let total = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
        let chosen = shifted.gather(&targets.flatten_all()?.unsqueeze(1)?, 1)?;
        Ok((total - chosen)?.mean_all()?)
    }

    fn attention(
        &self,
        x: &Tensor,
        layer: usize,
        (batch, length, start): (usize, usize, usize),
        cache: Option<&mut Cache>,
    ) -> Result<Tensor> {
        let Shape { heads, kv_heads, head_dim, .. } = self.shape;
        let project = |part: &str| self.linear(x, &format!("model.layers.{layer}.self_attn.{part}.weight"));
        let split = |t: Tensor, n: usize| t.reshape((batch, length, n, head_dim))?.transpose(1, 2)?.contiguous();
        let q = self.rope(&split(project("q_proj")?, heads)?, start)?;
        let mut k = self.rope(&split(project("k_proj")?, kv_heads)?, start)?;
        let mut v = split(project("v_proj")?, kv_heads)?;
        if let Some(cache) = cache {
            if let Some((keys, values)) = cache.layers.get(layer) {
                k = Tensor::cat(&[keys, &k], 2)?;
                v = Tensor::cat(&[values, &v], 2)?;
            }
            match cache.layers.get_mut(layer) {
                Some(slot) => *slot = (k.clone(), v.clone()),
                None => cache.layers.push((k.clone(), v.clone())),
            }
        }
        // The query heads of a group stand under each other, so keys and values are never repeated.
        let group = heads / kv_heads;
        let q = (q.reshape((batch, kv_heads, group * length, head_dim))? * (head_dim as f64).powf(-0.5))?;
        let scores = q.matmul(&k.t()?)?;
        let seen = start + length;
        let scores = if length > 1 {
            let mask = self.mask.narrow(0, start, length)?.narrow(1, 0, seen)?;
            let mask = Tensor::cat(&vec![&mask; group], 0)?;
            scores.broadcast_add(&mask)?
        } else {
            scores
        };
        let largest = scores.max_keepdim(D::Minus1)?.detach();
        let weights = scores.broadcast_sub(&largest)?.exp()?;
        let total = weights.sum_keepdim(D::Minus1)?;
        // Dividing after the product with the values: it is `seen / head_dim` times smaller there.
        let mixed = weights.matmul(&v)?.broadcast_div(&total)?;
        let mixed = mixed
            .reshape((batch, heads, length, head_dim))?
            .transpose(1, 2)?
            .reshape((batch * length, heads * head_dim))?;
        self.linear(&mixed, &format!("model.layers.{layer}.self_attn.o_proj.weight"))
    }

    /// Rotates the halves of each head, `x` `[batch, heads, positions, head_dim]`.
    fn rope(&self, x: &Tensor, start: usize) -> Result<Tensor> {
        let length = x.dims()[2];
        let (cos, sin) = (self.cos.narrow(0, start, length)?, self.sin.narrow(0, start, length)?);
        let turned = x.reshape(((), self.shape.head_dim))?.matmul(&self.rotate)?.reshape(x.shape())?;
        Ok((x.broadcast_mul(&cos)? + turned.broadcast_mul(&sin)?)?)
    }

    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + self.shape.norm_eps)?.sqrt()?.recip()?;
        Ok(x.broadcast_mul(&scale)?.broadcast_mul(self.weight(name))?)
    }

    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        Ok(x.matmul(&self.weight(name).t()?)?)
    }

    fn weight(&self, name: &str) -> &Tensor {
        self.weights.get(name).unwrap_or_else(|| panic!("no weight {name}")).as_tensor()
    }
}

/// Every parameter's name and dimensions.
fn parameters(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    let (hidden, inner) = (shape.hidden, shape.inner);
    let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let mut list = vec![("model.embed_tokens.weight".to_string(), vec![shape.vocab, hidden])];
    for layer in 0..shape.layers {
        let parts = [
            ("input_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![q, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, q]),
            ("post_attention_layernorm", vec![hidden]),
            ("mlp.gate_proj", vec![inner, hidden]),
            ("mlp.up_proj", vec![inner, hidden]),
            ("mlp.down_proj", vec![hidden, inner]),
        ];
        list.extend(parts.map(|(part, dims)| (format!("model.layers.{layer}.{part}.weight"), dims)));
    }
    list.push(("model.norm.weight".to_string(), vec![hidden]));
    list
}

fn gauss(rng: &mut Rng) -> f64 {
    // Box-Muller.
    (-2.0 * rng.unit().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * rng.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Shape = Shape {
        vocab: 24,
        hidden: 16,
        inner: 24,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        context: 16,
        ..STORYTELLER
    };

    fn ids(length: usize) -> Result<Tensor> {
        let mut rng = Rng::new(5);
        let ids: Vec<u32> = (0..length).map(|_| rng.below(TINY.vocab) as u32).collect();
        Ok(Tensor::from_vec(ids, (1, length), &Device::Cpu)?)
    }

    #[test]
    fn every_parameter_receives_a_gradient() -> Result<()> {
        let model = Llama::new(TINY, 1)?;
        let grads = model.loss(&ids(12)?, &ids(12)?)?.backward()?;
        for (name, var) in &model.weights {
            let square = grads.get(var).with_context(|| name.clone())?.sqr()?.sum_all()?.to_scalar::<f32>()?;
            assert!(square > 0.0, "{name}");
        }
        Ok(())
    }

    #[test]
    fn a_gradient_is_the_slope_of_the_loss() -> Result<()> {
        let model = Llama::new(TINY, 1)?;
        let (ids, targets) = (ids(12)?, ids(12)?);
        let grads = model.loss(&ids, &targets)?.backward()?;
        for (name, var) in &model.weights {
            // Along the gradient itself, where rounding matters least.
            let (old, slope) = (var.as_tensor().copy()?, grads.get(var).with_context(|| name.clone())?);
            let expected = slope.sqr()?.sum_all()?.to_scalar::<f32>()?;
            let reach = 0.02 / expected.sqrt();
            let loss_at = |by: f32| -> Result<f32> {
                var.set(&(&old + (slope * f64::from(by))?)?)?;
                Ok(model.loss(&ids, &targets)?.to_scalar::<f32>()?)
            };
            let found = (loss_at(reach)? - loss_at(-reach)?) / (2.0 * reach);
            var.set(&old)?;
            assert!((found - expected).abs() < 0.05 * expected + 1e-4, "{name}: {found} is not {expected}");
        }
        Ok(())
    }

    #[test]
    fn a_cache_changes_nothing() -> Result<()> {
        let model = Llama::new(TINY, 2)?;
        let ids = ids(10)?;
        let whole = model.forward(&ids, None)?;
        let mut cache = Cache::default();
        let parts = [(0, 4), (4, 1), (5, 5)]
            .into_iter()
            .map(|(from, count)| model.forward(&ids.narrow(1, from, count)?.contiguous()?, Some(&mut cache)))
            .collect::<Result<Vec<_>>>()?;
        let difference = (whole - Tensor::cat(&parts, 0)?)?.abs()?.max_all()?.to_scalar::<f32>()?;
        assert!(difference < 1e-5, "{difference}");
        Ok(())
    }
}
