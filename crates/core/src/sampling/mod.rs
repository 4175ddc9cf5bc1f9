//! Logits in, one token out. Pure: no clock, no global generator, no tensors.
//!
//! Order of operations, as in vLLM: penalties and biases ([`shape`]), temperature, min-p, top-k, typical, top-p, draw. Sums run over ascending token ids (or, after
//! top-p's sort, over descending probability with ties by id), so a draw depends on nothing but its own logits, the
//! parameters, and `(seed, position)`.

mod filters;
mod logprobs;
mod rng;
mod shaping;

use thiserror::Error;

use crate::request::SamplingParams;
use crate::step::{Logprobs, Sampled, SequenceFault};
use crate::units::TokenId;

use filters::Candidate;

pub use rng::uniform;
pub use shaping::{Seen, shape};

/// The logits held a NaN, +∞, or nothing above -∞.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("logits are not finite")]
pub struct NonFinite;

impl From<NonFinite> for SequenceFault {
    fn from(_: NonFinite) -> SequenceFault {
        SequenceFault::NonFiniteLogits
    }
}

/// Draws tokens, in memory that it keeps from one draw to the next.
#[derive(Debug, Default)]
pub struct Sampler {
    candidates: Vec<Candidate>,
}

/// Draws the token that follows position `position - 1`, i.e. takes place `position` in its sequence.
///
/// `logits` is `[vocab]`; -∞ forbids a token. `logprobs` asks for that many alternatives beside the drawn token's own.
///
/// ```
/// use forebay_core::request::SamplingParams;
/// use forebay_core::sampling::sample;
///
/// let greedy = sample(&[0.0, 2.0, 1.0], &SamplingParams::GREEDY, 0, Some(1)).unwrap();
/// assert_eq!(greedy.token, 1);
///
/// let params = SamplingParams { temperature: 1.0, seed: 7, ..SamplingParams::GREEDY };
/// let logits = [0.5; 100];
/// assert_eq!(sample(&logits, &params, 3, None), sample(&logits, &params, 3, None));
/// ```
pub fn sample(
    logits: &[f32],
    params: &SamplingParams,
    position: u32,
    logprobs: Option<u32>,
) -> Result<Sampled, NonFinite> {
    Sampler::default().sample(logits, params, position, logprobs)
}

impl Sampler {
    /// As [`sample`] does.
    pub fn sample(
        &mut self,
        logits: &[f32],
        params: &SamplingParams,
        position: u32,
        logprobs: Option<u32>,
    ) -> Result<Sampled, NonFinite> {
        let best = greedy(logits)?;
        let token = match params.temperature {
            0.0 => best,
            _ => self.draw(logits, logits[best as usize], params, position),
        };
        Ok(Sampled { token, logprobs: logprobs.map(|count| logprobs::of(logits, token, count as usize)) })
    }

    fn draw(&mut self, logits: &[f32], max: f32, params: &SamplingParams, position: u32) -> TokenId {
        let candidates = &mut self.candidates;
        filters::weigh(logits, max, params, candidates);
        filters::top_k(candidates, params.top_k as usize);
        filters::typical(candidates, params.typical_p);
        filters::top_p(candidates, params.top_p);
        pick(candidates, rng::uniform(params.seed, position))
    }
}

/// How likely `token` was by a row of logits, and what else was likely, as [`sample`] reports it.
pub fn logprobs(logits: &[f32], token: TokenId, count: u32) -> Result<Logprobs, NonFinite> {
    greedy(logits)?;
    Ok(logprobs::of(logits, token, count as usize))
}

/// The highest logit; ties go to the lowest id.
fn greedy(logits: &[f32]) -> Result<TokenId, NonFinite> {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit.is_nan() || logit == f32::INFINITY {
            return Err(NonFinite);
        }
        if logit > best.1 {
            best = (id as TokenId, logit);
        }
    }
    if best.1 == f32::NEG_INFINITY { Err(NonFinite) } else { Ok(best.0) }
}

/// Inverse transform over the candidates in their order. Never empty: each filter leaves at least one.
fn pick(candidates: &[Candidate], uniform: f64) -> TokenId {
    let total: f64 = candidates.iter().map(|c| c.weight).sum();
    let mut left = uniform * total;
    for candidate in candidates {
        left -= candidate.weight;
        if left < 0.0 {
            return candidate.token;
        }
    }
    // Rounding may leave a crumb; it belongs to the last token that can be drawn at all.
    candidates.iter().rev().find(|c| c.weight > 0.0).map_or(0, |c| c.token)
}

#[cfg(test)]
mod tests;
