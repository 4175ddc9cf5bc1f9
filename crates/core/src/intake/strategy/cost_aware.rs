//! `cost_aware`: opens the gate only as far as the next step gains by it. Pure.

use super::flush::{FlushMetrics, FlushStrategy, Gathering, Joining};
use crate::units::Micros;

/// Knows what a step costs (measured live). Nothing gathers by the clock; whose turn has come joins the next step if that
/// saves more waiting than it costs, and is asked again a step later if not.
///
/// Tokens come at the end of a step, so whoever joins one keeps everybody in it waiting for longer. What is gained is a step:
/// what does not join needs another, and everybody behind waits for that, too.
/// - Cost: what the prompt's part adds to the step, once for each first token that is under way.
/// - Gain: a step without prompts, for the request itself if it then needs one step less, and in proportion to the part
///   that fits for everybody behind: those queued, and those who will come while the backlog lasts, which at load ρ takes
///   `1 / (1 − ρ)` times as long as what is there now.
///
/// So a short queue is served almost one by one, in short steps; a long one in full steps, which drain it fastest. While no
/// prompt is under way the next always joins: the engine never stands idle, and nobody waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostAware;

/// No measured load counts as more: beyond it the backlog would seem endless.
const HIGHEST_LOAD: f64 = 0.9;

impl FlushStrategy for CostAware {
    fn calculate_timeout(&self, _queue_depth: usize, _metrics: &FlushMetrics) -> Micros {
        Micros::ZERO
    }

    fn should_flush(&self, batch: &Gathering, _queue_depth: usize) -> bool {
        batch.size > 0
    }

    fn admits(&self, joining: &Joining) -> bool {
        let Joining { tokens, behind, prices, .. } = *joining;
        if prices.prompts == 0 {
            return true;
        }
        let step_tokens = prices.step_tokens.max(1);
        let fitting = step_tokens.saturating_sub(prices.tokens).min(tokens);
        if fitting == 0 {
            return false;
        }
        let steps_saved = tokens.div_ceil(step_tokens) - (tokens - fitting).div_ceil(step_tokens);
        let part = fitting as f64 / tokens.min(step_tokens) as f64;
        let gain = prices.step_us * (steps_saved as f64 + part * (behind as f64 + to_come(joining)));
        let cost = (prices.prompt_us + prices.token_us * fitting as f64) * prices.prompts as f64;
        gain >= cost
    }
}

/// Requests that are expected while the backlog lasts.
fn to_come(joining: &Joining) -> f64 {
    let Joining { tokens, behind, tokens_behind, prices } = *joining;
    let queued = (behind + 1) as f64;
    let backlog_us = prices.token_us * (prices.tokens + tokens + tokens_behind) as f64
        + (prices.prompt_us + prices.step_us) * queued;
    let meanwhile = prices.arrivals_per_us * backlog_us;
    let load = (meanwhile / (queued + prices.prompts as f64)).min(HIGHEST_LOAD);
    meanwhile / (1.0 - load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::Prices;

    /// 20 ms a step, 0.5 ms a token, steps of 400 tokens, nobody else to come.
    fn prices(prompts: usize, tokens: usize) -> Prices {
        Prices { step_us: 20_000.0, token_us: 500.0, step_tokens: 400, prompts, tokens, ..Prices::default() }
    }

    fn admits(tokens: usize, behind: usize, prices: Prices) -> bool {
        CostAware.admits(&Joining { tokens, behind, tokens_behind: 100 * behind, prices })
    }

    #[test]
    fn what_joins_is_worth_a_step() {
        // Nobody is under way: always, however long it is.
        assert!(admits(1, 0, prices(0, 0)) && admits(100_000, 0, prices(0, 0)));
        // One is: 40 tokens cost it 20 ms, as much as the step that they save.
        assert!(admits(40, 0, prices(1, 100)) && !admits(41, 0, prices(1, 100)));
        // Two are: twice the cost.
        assert!(admits(20, 0, prices(2, 100)) && !admits(21, 0, prices(2, 100)));
        // Everybody behind gains a step.
        assert!(!admits(100, 1, prices(1, 100)) && admits(100, 2, prices(1, 100)));
        // Nothing fits.
        assert!(!admits(1, 1_000, prices(1, 400)) && !admits(1, 1_000, prices(1, 4_000)));
    }

    #[test]
    fn a_part_counts_as_a_part() {
        // 300 fit of 400 (150 ms); the request itself needs one more step either way.
        assert!(!admits(400, 9, prices(1, 100)) && admits(400, 10, prices(1, 100)));
        // Of 650, the 300 make a step out of two for itself.
        assert!(admits(650, 9, prices(1, 100)));
    }

    #[test]
    fn who_is_to_come_counts_like_who_is_there() {
        let busy = |per_s: f64| Prices { arrivals_per_us: per_s / 1e6, ..prices(1, 100) };
        assert!(!admits(100, 0, busy(0.0)) && admits(100, 0, busy(20.0)));
        // Overload does not make it endless, nor a number that is none.
        assert!(to_come(&Joining { tokens: 1, behind: 0, tokens_behind: 0, prices: busy(1e9) }).is_finite());
        // Before anything was measured, it costs nothing.
        assert!(admits(100, 0, Prices { prompts: 1, step_tokens: 200, ..Prices::default() }));
    }
}
