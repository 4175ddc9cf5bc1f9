//! Which tokens may be drawn, and with which weight.

use std::cmp::Ordering;

use crate::request::SamplingParams;
use crate::units::TokenId;

/// A token that may be drawn. Weights are unnormalised probabilities; the highest is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub token: TokenId,
    pub weight: f64,
}

/// Temperature and min-p in one pass: `candidates` become the tokens in ascending id order whose weight `exp((logit - max) / temperature)` is at
/// least `min_p` times the highest (Nguyen et al., "Min-p sampling", 2024).
pub fn weigh(logits: &[f32], max: f32, params: &SamplingParams, candidates: &mut Vec<Candidate>) {
    // Tiny temperatures divide to -∞, whose exponential is 0: that is greedy, not NaN, since the maximum itself is 0 / t.
    let temperature = f64::from(params.temperature);
    let weigh = |(id, &logit): (usize, &f32)| Candidate {
        token: id as TokenId,
        weight: (f64::from(logit - max) / temperature).exp(),
    };
    let least = f64::from(params.min_p);
    candidates.clear();
    candidates.extend(logits.iter().enumerate().map(weigh).filter(|c| c.weight > 0.0 && c.weight >= least));
}

/// Keeps the `k` heaviest (ties: lowest ids), in ascending id order. 0 keeps all.
pub fn top_k(candidates: &mut Vec<Candidate>, k: usize) {
    if k == 0 || k >= candidates.len() {
        return;
    }
    candidates.select_nth_unstable_by(k - 1, heaviest_first);
    candidates.truncate(k);
    candidates.sort_unstable_by_key(|c| c.token);
}

/// Keeps the tokens whose surprise is nearest to the distribution's entropy, as few as hold at least `p` of the mass
/// (Meister et al., "Locally Typical Sampling", 2023), at least one, in ascending id order. 1 keeps all.
pub fn typical(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 {
        return;
    }
    let total: f64 = candidates.iter().map(|c| c.weight).sum();
    let surprise = |candidate: &Candidate| -(candidate.weight / total).ln();
    let entropy: f64 = candidates.iter().map(|c| c.weight / total * surprise(c)).sum();
    let distance = |candidate: &Candidate| (surprise(candidate) - entropy).abs();
    candidates.sort_unstable_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.token.cmp(&b.token)));
    if let Some(keep) = nucleus(candidates, f64::from(p) * total) {
        candidates.truncate(keep);
    }
    candidates.sort_unstable_by_key(|c| c.token);
}

/// Keeps the shortest run of the heaviest that holds at least `p` of the mass (Holtzman et al., "The Curious Case of
/// Neural Text Degeneration", 2020), at least one, heaviest first. 1 keeps all and leaves the order alone.
pub fn top_p(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 {
        return;
    }
    let wanted = f64::from(p) * candidates.iter().map(|c| c.weight).sum::<f64>();
    // The nucleus is mostly a few dozen tokens of a large vocabulary, so sort a growing head instead of everything.
    let mut head = 64;
    loop {
        let sorted = head.min(candidates.len());
        if sorted < candidates.len() {
            candidates.select_nth_unstable_by(sorted - 1, heaviest_first);
        }
        candidates[..sorted].sort_unstable_by(heaviest_first);
        if let Some(keep) = nucleus(&candidates[..sorted], wanted) {
            return candidates.truncate(keep);
        }
        if sorted == candidates.len() {
            return;
        }
        head *= 4;
    }
}

/// How many of the sorted candidates reach `wanted`, if they do.
fn nucleus(sorted: &[Candidate], wanted: f64) -> Option<usize> {
    let mut mass = 0.0;
    sorted
        .iter()
        .position(|candidate| {
            mass += candidate.weight;
            mass >= wanted
        })
        .map(|last| last + 1)
}

fn heaviest_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.weight.total_cmp(&a.weight).then(a.token.cmp(&b.token))
}
