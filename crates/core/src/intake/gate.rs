//! Which of those whose turn has come are computed from the next step on. Pure.

use super::queue::Applicant;
use super::strategy::{FlushStrategy, Joining, Prices, Strategy};
use crate::request::{CLASSES, Priority, Request};

/// Asked of one request after the other; the first that is refused stays, with all of its class and below.
pub(super) struct StepGate {
    pub strategy: Strategy,
    pub prices: Option<Prices>,
    /// Prompts may interrupt the sequences that decode.
    pub interrupts: bool,
    /// By class: tokens of seated prompts of the class or a more urgent one that are not computed.
    pub prefill: [usize; CLASSES],
    /// Prompt tokens that the next step has room for, at least 1.
    pub step_tokens: usize,
}

impl StepGate {
    /// Seats are given no further ahead than the next step, so that who comes later can still go first. Classes above normal
    /// wait for nothing else. Whoever is overdue waits for the pause between two groups only: the bound on its wait counts seats
    /// and service, and prompts of others that are seated, however many and long, must not stretch it.
    pub fn opens(&mut self, next: &Applicant<'_>, cached: impl Fn(&Request) -> usize) -> bool {
        let waits = next.class > Priority::High.index();
        let is_ahead = self.prefill[next.class] >= self.step_tokens && !next.overdue;
        if (waits && !self.interrupts) || is_ahead {
            return false;
        }
        let prompt = next.request.prompt().len();
        let tokens = prompt.saturating_sub(cached(next.request)).max(1);
        let opens = !waits || next.overdue || self.is_worth_it(next, tokens);
        if opens {
            self.prefill[next.class..].iter_mut().for_each(|prefill| *prefill += tokens);
            if let Some(prices) = &mut self.prices {
                prices.prompts += 1;
                prices.tokens += tokens;
            }
        }
        opens
    }

    fn is_worth_it(&self, next: &Applicant<'_>, tokens: usize) -> bool {
        let Applicant { behind, tokens_behind, .. } = *next;
        self.prices.is_none_or(|prices| self.strategy.admits(&Joining { tokens, behind, tokens_behind, prices }))
    }
}
