//! Log-probabilities under the model's own distribution: before penalties, temperature and filters, as OpenAI reports them.

use std::cmp::Ordering;

use crate::step::Logprobs;
use crate::units::TokenId;

/// Of `token`, and of the `count` most likely tokens (best first, ties by lowest id). `logits` has a finite maximum.
pub fn of(logits: &[f32], token: TokenId, count: usize) -> Logprobs {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // In f64 and in id order: one fixed sum for one row of logits.
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
    let log_sum = f64::from(max) + sum.ln();
    let logprob = |token: TokenId| (f64::from(logits[token as usize]) - log_sum) as f32;
    let top = most_likely(logits, count).into_iter().map(|token| (token, logprob(token))).collect();
    Logprobs { sampled: logprob(token), rank: rank(logits, token), top, prompt: Vec::new() }
}

/// Ties by lowest id, as in the list of the most likely.
fn rank(logits: &[f32], token: TokenId) -> usize {
    let (before, after) = logits.split_at(token as usize);
    let own = after[0];
    let above = |logit: &&f32| logit.total_cmp(&own) == Ordering::Greater;
    1 + before.iter().filter(|logit| logit.total_cmp(&own) != Ordering::Less).count()
        + after.iter().filter(above).count()
}

/// One pass with a short sorted list: of a large vocabulary nearly no token gets past the list's last.
fn most_likely(logits: &[f32], count: usize) -> Vec<TokenId> {
    let mut best: Vec<TokenId> = Vec::with_capacity(count + 1);
    for (id, logit) in logits.iter().enumerate() {
        let better = |other: &TokenId| logits[*other as usize].total_cmp(logit) != Ordering::Less;
        if best.len() == count && best.last().is_none_or(better) {
            continue;
        }
        // Of equals the earlier id stays in front.
        best.insert(best.partition_point(better), id as TokenId);
        best.truncate(count);
    }
    best
}
