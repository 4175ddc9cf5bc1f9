//! Penalties, biases and bans, before temperature and filters; in vLLM's order: bias, bans, repetition, frequency, presence.
//! A token that has to come goes before all of them.

use std::collections::{HashMap, HashSet};

use crate::request::Shaping;
use crate::units::TokenId;

/// The tokens of one sequence, as penalties count them.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    prompt: HashSet<TokenId>,
    drawn: Vec<TokenId>,
    counts: HashMap<TokenId, u32>,
}

impl Seen {
    pub fn new(prompt: &[TokenId]) -> Seen {
        Seen { prompt: prompt.iter().copied().collect(), ..Seen::default() }
    }

    pub fn push(&mut self, token: TokenId) {
        self.drawn.push(token);
        *self.counts.entry(token).or_default() += 1;
    }

    /// Forgets all but the first `drawn` tokens of the completion: a step that failed half-way is run again.
    pub fn rewind(&mut self, drawn: usize) {
        for token in self.drawn.drain(drawn.min(self.drawn.len())..) {
            if let Some(count) = self.counts.get_mut(&token) {
                *count -= 1;
            }
        }
    }

    /// Tokens of the completion, each once.
    fn counted(&self) -> impl Iterator<Item = (TokenId, u32)> + '_ {
        self.counts.iter().filter(|(_, count)| **count > 0).map(|(token, count)| (*token, *count))
    }
}

/// Changes `logits` (`[vocab]`) for the `drawn`-th token of the completion, counted from 0; `stops` are those that would
/// end it. Each logit depends on its own token only, so no order of the sets can change a bit.
pub fn shape(logits: &mut [f32], shaping: &Shaping, seen: &Seen, stops: &[TokenId], drawn: usize) {
    let Shaping { presence, frequency, repetition, ref bias, min_tokens, thinking } = *shaping;
    if let Some(budget) = thinking.filter(|budget| budget.is_spent(&seen.drawn)) {
        logits.fill(f32::NEG_INFINITY);
        if let Some(logit) = logits.get_mut(budget.tags.close as usize) {
            *logit = 0.0;
        }
        return;
    }
    let mut change = |token: TokenId, to: &dyn Fn(f32) -> f32| {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = to(*logit);
        }
    };
    for &(token, bias) in bias.iter() {
        change(token, &|logit| logit + bias);
    }
    if drawn < min_tokens as usize {
        stops.iter().for_each(|&token| change(token, &|_| f32::NEG_INFINITY));
    }
    if repetition != 1.0 {
        let repeated = |logit: f32| if logit > 0.0 { logit / repetition } else { logit * repetition };
        let of_completion = seen.counted().map(|(token, _)| token).filter(|token| !seen.prompt.contains(token));
        seen.prompt.iter().copied().chain(of_completion).for_each(|token| change(token, &repeated));
    }
    if presence != 0.0 || frequency != 0.0 {
        for (token, count) in seen.counted() {
            change(token, &|logit| logit - frequency * count as f32 - presence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ThinkingBudget, ThinkingTags};

    fn shaped(shaping: Shaping, prompt: &[TokenId], drawn: &[TokenId]) -> Vec<f32> {
        let mut seen = Seen::new(prompt);
        drawn.iter().for_each(|&token| seen.push(token));
        let mut logits = vec![2.0, -2.0, 1.0, 0.5];
        shape(&mut logits, &shaping, &seen, &[3], drawn.len());
        logits
    }

    #[test]
    fn neutral_changes_nothing() {
        assert!(!Shaping::neutral().changes(0));
        assert_eq!(shaped(Shaping::neutral(), &[0, 1], &[2, 2]), [2.0, -2.0, 1.0, 0.5]);
    }

    #[test]
    fn repetition_counts_prompt_and_completion_each_token_once() {
        let shaping = Shaping { repetition: 2.0, ..Shaping::neutral() };
        assert_eq!(shaped(shaping, &[0, 1, 1], &[0, 2, 2]), [1.0, -4.0, 0.5, 0.5]);
    }

    #[test]
    fn presence_and_frequency_count_the_completion_alone() {
        let shaping = Shaping { presence: 0.5, frequency: 0.25, ..Shaping::neutral() };
        assert_eq!(shaped(shaping, &[0], &[1, 2, 2]), [2.0, -2.75, 0.0, 0.5]);
    }

    #[test]
    fn a_bias_is_added_and_stops_are_banned_until_enough_came() {
        let shaping = Shaping { bias: vec![(1, 10.0)].into(), min_tokens: 2, ..Shaping::neutral() };
        assert_eq!(shaped(shaping.clone(), &[], &[0]), [2.0, 8.0, 1.0, f32::NEG_INFINITY]);
        assert_eq!(shaped(shaping, &[], &[0, 0]), [2.0, 8.0, 1.0, 0.5]);
    }

    #[test]
    fn a_thought_is_closed_when_it_is_long_enough() {
        let tags = ThinkingTags { open: 1, close: 3, begins_open: false };
        let budget = ThinkingBudget { max_tokens: 2, tags };
        let forced = |budget: ThinkingBudget, drawn: &[TokenId]| {
            let shaping = Shaping { thinking: Some(budget), min_tokens: 9, ..Shaping::neutral() };
            match shaped(shaping, &[], drawn)[..] {
                [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0] => true,
                [2.0, -2.0, 1.0, _] => false,
                ref other => panic!("{other:?}"),
            }
        };
        for (drawn, expected) in [
            (&[][..], false),
            (&[1, 0], false),
            (&[1, 0, 2], true),
            (&[0, 1, 0, 2], true),
            (&[1, 0, 2, 3], false),
            (&[1, 3, 0, 2, 0], false),
            (&[1, 0, 2, 3, 1, 0, 0, 0], false),
            (&[0, 0, 0, 0, 1, 0, 0, 0], false),
        ] {
            assert_eq!(forced(budget, drawn), expected, "{drawn:?}");
        }
        let open = ThinkingBudget { tags: ThinkingTags { begins_open: true, ..tags }, ..budget };
        assert!(forced(open, &[0, 0]) && !forced(open, &[0]) && !forced(open, &[0, 0, 3]));
        let none = ThinkingBudget { max_tokens: 0, ..open };
        assert!(forced(none, &[]) && !forced(none, &[3]));
    }

    #[test]
    fn rewound_tokens_count_no_more() {
        let mut seen = Seen::new(&[]);
        [1, 1, 2].iter().for_each(|&token| seen.push(token));
        seen.rewind(1);
        assert_eq!(seen.counted().collect::<Vec<_>>(), [(1, 1)]);
        seen.rewind(5);
        assert_eq!(seen.counted().collect::<Vec<_>>(), [(1, 1)]);
    }
}
