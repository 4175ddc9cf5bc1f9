//! AdamW with a clipped gradient and a cosine schedule.
//!
//! candle-nn's `AdamW` keeps its moments to itself, so it cannot be resumed, and decays norms like matrices; this one
//! works in place on plain vectors and hands its moments to the checkpoint.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};

#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub peak: f64,
    pub warmup: usize,
    /// Steps of the first part, on the broad mix.
    pub broad: usize,
    /// Steps of both parts.
    pub steps: usize,
}

impl Schedule {
    /// Linear warm-up, then a cosine down to a tenth of the peak; the second part has a lower cosine of its own.
    pub fn rate(&self, step: usize) -> f64 {
        let fall = |from: f64, to: f64, step: usize, steps: usize| {
            let done = (step as f64 / steps.max(1) as f64).min(1.0);
            to + (from - to) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
        };
        let warm = ((step + 1) as f64 / self.warmup.max(1) as f64).min(1.0);
        if step < self.broad {
            self.peak * warm * fall(1.0, 0.1, step, self.broad)
        } else {
            self.peak * fall(0.4, 0.03, step - self.broad, self.steps.saturating_sub(self.broad))
        }
    }
}

/// The moments of every parameter, by name.
pub struct AdamW {
    pub moments: BTreeMap<String, Moments>,
    /// Updates made so far.
    pub updates: usize,
}

#[derive(Clone)]
pub struct Moments {
    pub mean: Vec<f32>,
    pub square: Vec<f32>,
}

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.95;
const EPS: f32 = 1e-8;
const DECAY: f32 = 0.1;
const CLIP: f32 = 1.0;

impl AdamW {
    pub fn new(weights: &BTreeMap<String, Var>) -> Self {
        let moments = weights
            .iter()
            .map(|(name, var)| {
                let n = var.elem_count();
                (name.clone(), Moments { mean: vec![0.0; n], square: vec![0.0; n] })
            })
            .collect();
        AdamW { moments, updates: 0 }
    }

    /// One update with the mean of several parts' gradients; returns its norm before clipping.
    ///
    /// Fails if a parameter has no gradient in some part, or a zero one: a form without backward must not pass unseen.
    pub fn step(&mut self, weights: &BTreeMap<String, Var>, parts: &[GradStore], rate: f64) -> Result<f32> {
        let mut gradients = Vec::with_capacity(weights.len());
        for (name, var) in weights {
            let mut mean = vec![0f32; var.elem_count()];
            for part in parts {
                let grad = part.get(var).with_context(|| format!("{name} received no gradient"))?;
                let grad = grad.flatten_all()?.to_vec1::<f32>()?;
                mean.iter_mut().zip(grad).for_each(|(mean, grad)| *mean += grad / parts.len() as f32);
            }
            let square: f32 = mean.chunks(1 << 14).map(|c| c.iter().map(|g| g * g).sum::<f32>()).sum();
            anyhow::ensure!(square.is_finite() && square > 0.0, "the gradient of {name} has the squared norm {square}");
            gradients.push((mean, square));
        }
        let norm = gradients.iter().map(|(_, square)| square).sum::<f32>().sqrt();
        let clip = (CLIP / norm).min(1.0);
        self.updates += 1;
        let rate = rate as f32;
        let fix1 = 1.0 - BETA1.powi(self.updates as i32);
        let fix2 = 1.0 - BETA2.powi(self.updates as i32);
        for ((name, var), (grad, _)) in weights.iter().zip(&gradients) {
            let Moments { mean, square } =
                self.moments.get_mut(name).with_context(|| format!("no moments for {name}"))?;
            let keep = if var.dims().len() == 2 { 1.0 - rate * DECAY } else { 1.0 };
            let mut values = var.flatten_all()?.to_vec1::<f32>()?;
            for i in 0..values.len() {
                let g = grad[i] * clip;
                mean[i] = BETA1 * mean[i] + (1.0 - BETA1) * g;
                square[i] = BETA2 * square[i] + (1.0 - BETA2) * g * g;
                let move_by = (mean[i] / fix1) / ((square[i] / fix2).sqrt() + EPS);
                values[i] = values[i] * keep - rate * move_by;
            }
            var.set(&Tensor::from_vec(values, var.dims(), &Device::Cpu)?)?;
        }
        Ok(norm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_and_falls_twice() {
        let schedule = Schedule { peak: 1.0, warmup: 10, broad: 1000, steps: 1200 };
        let check = |step, expected: f64| assert!((schedule.rate(step) - expected).abs() < 1e-3, "at {step}");
        check(0, 0.1);
        check(10, 1.0);
        check(999, 0.1);
        check(1000, 0.4);
        check(1200, 0.03);
    }

    #[test]
    fn a_parameter_without_a_gradient_is_an_error() -> Result<()> {
        let var = |value: f32| Var::new(&[value], &Device::Cpu);
        let weights = BTreeMap::from([("seen".to_string(), var(1.0)?), ("unseen".to_string(), var(1.0)?)]);
        let grads = weights["seen"].sqr()?.sum_all()?.backward()?;
        let error = AdamW::new(&weights).step(&weights, &[grads], 0.1).expect_err("`unseen` has no gradient");
        assert!(error.to_string().contains("unseen"), "{error}");
        Ok(())
    }
}
