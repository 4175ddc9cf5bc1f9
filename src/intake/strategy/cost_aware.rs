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
        let Joining { tokens, behind, prices } = joining;
        if prices.prompts == 0 {
            return true;
        }
        let room = prices.step_tokens.saturating_sub(prices.tokens);
        let fitting = room.min(*tokens);
        if fitting == 0 {
            return false;
        }
        // In nanoseconds, and 128 bits: products of three large numbers.
        let ns = |time: Micros| u128::from(time.0) * 1_000;
        let added = ns(prices.prompt) + u128::from(prices.token_ns) * fitting as u128;
        let cost = added * prices.prompts as u128;
        let own = if fitting == *tokens { ns(prices.step) } else { 0 };
        let gain = own + ns(prices.step) * (*behind as u128) * fitting as u128 / *tokens as u128;
        gain >= cost
    }
}
