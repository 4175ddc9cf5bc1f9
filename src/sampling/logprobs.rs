//! Log-probabilities under the model's own distribution: before temperature and filters, as OpenAI reports them.

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
    Logprobs { sampled: logprob(token), top }
}

fn most_likely(logits: &[f32], count: usize) -> Vec<TokenId> {
    let mut ids: Vec<TokenId> = (0..logits.len() as TokenId).collect();
    let better = |a: &TokenId, b: &TokenId| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if count == 0 {
        return Vec::new();
    }
    if count < ids.len() {
        ids.select_nth_unstable_by(count - 1, better);
        ids.truncate(count);
    }
    ids.sort_unstable_by(better);
    ids
}
