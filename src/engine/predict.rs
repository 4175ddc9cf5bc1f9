//! When a request that arrives now would have its first token. Pure.
//!
//! An estimate from what is known: the work ahead of it, the measured cost of a step, the rate at which the queue drains.
//! Output lengths are not known, so it is a guess with a metric for its error, not a promise.

use crate::scheduler::{StepCost, StepLoad};
use crate::units::Micros;

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
    /// Until the strategy would release it.
    pub flush: Micros,
    /// Until the running step ends.
    pub step_rest: Micros,
    /// Prefill tokens that a step takes.
    pub chunk_tokens: usize,
    /// Requests that leave the queue per second.
    pub drained_per_s: f64,
}

/// `None` while the cost of a step is not known.
pub fn ttft(ahead: &Ahead, cost: &StepCost) -> Option<Micros> {
    let tokens = ahead.prefill_tokens + ahead.own_tokens;
    let chunk = ahead.chunk_tokens.clamp(1, tokens.max(1));
    let load = |prefill: usize| StepLoad {
        steps: 1,
        prefill_tokens: prefill,
        decode_tokens: ahead.decoding,
        prefills: usize::from(prefill > 0),
        context_tokens: ahead.context_tokens,
    };
    let whole = cost.predict(&load(chunk))?;
    let rest = match tokens % chunk {
        0 => Micros::ZERO,
        rest => cost.predict(&load(rest))?,
    };
    let prefill = Micros(whole.0 * (tokens / chunk) as u64) + rest;
    Some(ahead.step_rest + ahead.flush.max(seat_wait(ahead)) + prefill)
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
