//! When a request that arrives now would have its first token. Pure.
//!
//! An estimate from what is known: the work ahead of it, the measured cost of a step, the rate at which the queue drains.
//! Output lengths are not known, so it is a guess with a metric for its error, not a promise.

use forebay_core::scheduler::{StepCost, StepLoad};
use forebay_core::units::Micros;

/// What stands between a new request and its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ahead {
    /// Prompt tokens that are computed before its own: queued as urgently as it or more so, and under way.
    pub prefill_tokens: usize,
    pub own_tokens: usize,
    /// Requests queued before it.
    pub queued: usize,
    pub free_seats: usize,
    /// Sequences that decode in every step meanwhile, and the tokens that they attend to.
    pub decoding: usize,
    pub context_tokens: usize,
    /// Until the strategy lets prompts interrupt the sequences that decode.
    pub pause: Micros,
    /// Until the running step ends.
    pub step_rest: Micros,
    /// Prefill tokens that a step takes.
    pub chunk_tokens: usize,
    /// Requests that leave the queue per second.
    pub drained_per_s: f64,
}

/// `None` while the cost of a step is not known. Chunks are taken as large as any that was measured: what larger ones would
/// save is small beside what is not known.
pub fn ttft(ahead: &Ahead, cost: &StepCost) -> Option<Micros> {
    let all = prefill(ahead, ahead.prefill_tokens + ahead.own_tokens, cost)?;
    let own = prefill(ahead, ahead.own_tokens, cost)?;
    Some(ahead.step_rest + ahead.pause + all.max(seat_wait(ahead) + own))
}

/// Steps that compute so many prompt tokens beside those that decode.
fn prefill(ahead: &Ahead, tokens: usize, cost: &StepCost) -> Option<Micros> {
    let chunk = ahead.chunk_tokens.min(cost.reach()).clamp(1, tokens.max(1));
    let load = |prefill: usize| StepLoad {
        steps: 1,
        prefill_tokens: prefill,
        decode_tokens: ahead.decoding,
        prefills: usize::from(prefill > 0),
        context_tokens: ahead.context_tokens,
    };
    let whole = cost.expect(&load(chunk))?;
    let rest = match tokens % chunk {
        0 => Micros::ZERO,
        rest => cost.expect(&load(rest))?,
    };
    Some(Micros(whole.0 * (tokens / chunk) as u64) + rest)
}

/// Until a seat is free for it. Without a rate of departures nothing is known, and nothing is added.
fn seat_wait(ahead: &Ahead) -> Micros {
    let without_seat = (ahead.queued + 1).saturating_sub(ahead.free_seats);
    if without_seat == 0 || ahead.drained_per_s <= 0.0 {
        return Micros::ZERO;
    }
    Micros::from_secs_f64((without_seat as f64 / ahead.drained_per_s).min(MAX_SEAT_WAIT_S))
}

/// The rate decays towards zero in silence; what it says then is not worth more.
const MAX_SEAT_WAIT_S: f64 = 600.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 ms a step, 1 ms a prompt token, learnt.
    fn cost() -> StepCost {
        let mut cost = StepCost::default();
        for n in 0..200 {
            let prefill_tokens = if n % 3 == 0 { 1 + n % 100 } else { 0 };
            let prefills = usize::from(prefill_tokens > 0);
            let load = StepLoad { steps: 1, prefill_tokens, prefills, decode_tokens: n % 2, context_tokens: 0 };
            cost.observe(&load, Micros(10_000 + 1_000 * prefill_tokens as u64));
        }
        cost
    }

    fn predicted_ms(ahead: Ahead) -> u64 {
        ttft(&ahead, &cost()).unwrap().as_millis()
    }

    fn near(predicted: u64, expected: u64) {
        assert!(predicted.abs_diff(expected) <= expected / 20 + 1, "{predicted}, not {expected}");
    }

    #[test]
    fn everything_ahead_takes_its_time() {
        let alone = Ahead { own_tokens: 50, free_seats: 4, chunk_tokens: 100, ..Ahead::default() };
        near(predicted_ms(alone), 60);
        near(predicted_ms(Ahead { prefill_tokens: 100, ..alone }), 110 + 60);
        near(predicted_ms(Ahead { step_rest: Micros(7_000), ..alone }), 67);
        near(predicted_ms(Ahead { pause: Micros(50_000), ..alone }), 110);
        // One queued before it and no seat free, ten seats a second: two seats must free.
        let crowded = Ahead { queued: 1, free_seats: 0, drained_per_s: 10.0, ..alone };
        near(predicted_ms(crowded), 260);
        near(predicted_ms(Ahead { drained_per_s: 0.0, ..crowded }), 60);
        near(predicted_ms(Ahead { drained_per_s: 1e-9, ..crowded }), 600_060);
    }

    #[test]
    fn a_long_prompt_is_counted_in_chunks_that_were_seen() {
        let long = Ahead { own_tokens: 2_000, free_seats: 1, chunk_tokens: 5_000, ..Ahead::default() };
        // At most 100 at a time: twenty steps.
        near(predicted_ms(long), 2_000 + 200);
        assert_eq!(ttft(&long, &StepCost::default()), None);
    }
}
