//! `cost_aware`: opens the gate only as far as the next step gains by it. Pure.

use super::{FlushMetrics, FlushStrategy, Gathering, Joining};
use crate::units::Micros;

/// Knows what a step costs (measured live). Nothing gathers by the clock; a request joins the next step if that saves more
/// waiting than it costs, and is asked again a step later if not.
///
/// Tokens come at the end of a step, so whoever joins a step keeps everybody in it waiting for longer. What is gained
/// is a step: without company each prompt needs one of its own, and everybody behind it waits for that, too.
/// - Costs: what the prompt adds to the step, once for each first token that the step would bring.
/// - Gains: a step without prompts, once for the request itself if its prompt fits the step whole, and for everybody behind
///   it in proportion to how much of the prompt fits.
///
/// A short queue is served almost one by one, in the shortest steps; a long one in full steps, which drain it fastest. While
/// no prompt is under way the next always joins, so the engine never stands idle, and nobody is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostAware;

impl FlushStrategy for CostAware {
    fn calculate_timeout(&self, _queue_depth: usize, _metrics: &FlushMetrics) -> Micros {
        Micros::ZERO
    }

    fn should_flush(&self, batch: &Gathering, _queue_depth: usize) -> bool {
        batch.size > 0
    }

    fn admits(&self, joining: &Joining) -> bool {
        let Joining { tokens, behind, prices, .. } = joining;
        if prices.prompts == 0 {
            return true;
        }
        let hold = match std::env::var("FB_HOLD").ok().and_then(|x| x.parse::<u64>().ok()).unwrap_or(0) { 0 => u64::MAX, 1 => joining.max_wait.0, ms => ms * 1000 };
        if joining.waited.0 >= hold { return true; }
        let room = prices.step_tokens.saturating_sub(prices.tokens);
        let fitting = room.min(*tokens);
        if fitting == 0 {
            return false;
        }
        let env = |name: &str, default: f64| std::env::var(name).ok().and_then(|x| x.parse().ok()).unwrap_or(default);
        let most = prices.step_tokens.max(1);
        let saved = tokens.div_ceil(most) - (tokens - fitting).div_ceil(most);
        let own = if env("FB_CEIL", 1.0) > 0.0 { saved as f64 } else if fitting == *tokens { 1.0 } else { 0.0 };
        let share = fitting as f64 / (*tokens).min(most) as f64;
        let added = prices.prompt_us + prices.token_us * fitting as f64;
        let cost = added * prices.prompts as f64;
        let backlog_us = (joining.tokens_behind + tokens + prices.tokens) as f64 * prices.token_us + (*behind as f64 + 1.0) * prices.step_us;
        let n = (*behind + 1 + prices.prompts) as f64;
        let during = prices.arrivals_per_us * backlog_us;
        let rho = (during / n).min(0.9);
        let future = env("FB_EXT", 1.0) * during / (1.0 - rho * env("FB_RHO", 0.0));
        let gain = prices.step_us * (own + share * (*behind as f64 + future)) * env("FB_GAIN", 1.0);
        gain >= cost
    }
}
