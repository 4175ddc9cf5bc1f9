//! What the engine needs of a compiled grammar: which tokens may come next, and which must. Who compiles grammars, and with
//! what, is not known here.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use thiserror::Error;

use crate::units::TokenId;

/// A compiled grammar over one vocabulary, shared by every sequence that has to satisfy it.
pub trait Constraint: fmt::Debug + Send + Sync {
    /// A sequence's own place in the grammar, at the beginning of a text.
    ///
    /// `watcher` is sent what interrupts it, anew whenever it has to begin over; an interrupted place begins over when it
    /// is rewound. If nobody listens any more, it is interrupted at once. Nothing but whether it fails depends on that.
    fn start(&self, watcher: Sender<Stop>) -> Box<dyn ConstraintState>;

    /// The mask of a text that may go on in any way, but not end.
    fn anything_but_the_end(&self) -> Mask;
}

/// One sequence's place in its grammar: the tokens that came, and which may come next.
///
/// The mask after given tokens is a function of the grammar and those tokens alone, however the state got there.
pub trait ConstraintState: Send {
    /// The tokens taken since the beginning.
    fn accepted(&self) -> &[TokenId];

    /// Takes the next token. An error leaves the state useless until it is rewound.
    fn advance(&mut self, token: TokenId) -> Result<Progress, ConstraintError>;

    /// Forgets all but the first `tokens` tokens, and an error that came after them.
    fn rewind(&mut self, tokens: usize) -> Result<(), ConstraintError>;

    /// Whether more may come after the tokens taken so far.
    fn progress(&self) -> Progress;

    /// The tokens that may come next; none where the text is complete.
    fn allowed(&mut self) -> Result<Mask, ConstraintError>;

    /// Tokens that must come next, at most `most`, cut as the model would cut them. A proposal: whether each is the only
    /// one that its place allows is for the masks to say.
    fn forced(&mut self, most: usize) -> Vec<TokenId>;
}

/// Whether more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Open,
    /// The text is complete, and nothing but the end can follow.
    Complete,
}

/// A grammar met a limit, or a token that it does not have; its state can only be rewound.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

/// Interrupts a [`ConstraintState`] from another thread: what it computes becomes an error, soon.
#[derive(Clone)]
pub struct Stop(Arc<dyn Fn() + Send + Sync>);

impl Stop {
    pub fn new(interrupt: impl Fn() + Send + Sync + 'static) -> Stop {
        Stop(Arc::new(interrupt))
    }

    pub fn stop(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}

/// Which tokens may come next: one bit per token of the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Bit `id % 32` of word `id / 32`; bits beyond the width are clear.
    words: Vec<u32>,
    width: usize,
    /// The end tokens among them, if the text may end here.
    ends: Vec<TokenId>,
    count: usize,
}

impl Mask {
    /// No token of a vocabulary of `width`.
    pub fn none(width: usize) -> Mask {
        Mask { words: vec![0; width.div_ceil(32)], width, ends: Vec::new(), count: 0 }
    }

    /// The tokens whose bits are set in `words`, of a vocabulary of `width` with the end tokens `eos`.
    pub fn from_words(words: &[u32], width: usize, eos: &[TokenId]) -> Mask {
        let mut words: Vec<u32> = words.iter().copied().chain(std::iter::repeat(0)).take(width.div_ceil(32)).collect();
        if let (Some(last), used @ 1..) = (words.last_mut(), width % 32) {
            *last &= (1 << used) - 1;
        }
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        let mut mask = Mask { words, width, ends: Vec::new(), count };
        mask.ends = eos.iter().copied().filter(|&id| mask.allows(id)).collect();
        mask
    }

    /// Every token but those of `eos`.
    pub fn all_but(width: usize, eos: &[TokenId]) -> Mask {
        let mut words = vec![u32::MAX; width.div_ceil(32)];
        for &id in eos.iter().filter(|&&id| (id as usize) < width) {
            words[id as usize / 32] &= !(1 << (id % 32));
        }
        Mask::from_words(&words, width, &[])
    }

    /// `token`, too.
    pub fn and(mut self, token: TokenId) -> Mask {
        if (token as usize) < self.width && !self.allows(token) {
            self.words[token as usize / 32] |= 1 << (token % 32);
            self.count += 1;
        }
        self
    }

    pub fn allows(&self, token: TokenId) -> bool {
        (token as usize) < self.width && self.words[token as usize / 32] >> (token % 32) & 1 == 1
    }

    /// How many tokens may come, end tokens included.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the text may end here.
    pub fn may_end(&self) -> bool {
        self.count == self.ends.len() || !self.ends.is_empty()
    }

    /// End tokens that may come.
    pub fn ends(&self) -> &[TokenId] {
        &self.ends
    }

    /// The first token by id that is not an end token.
    pub fn first_text(&self) -> Option<TokenId> {
        (0..self.width as TokenId).find(|&id| self.allows(id) && !self.ends.contains(&id))
    }

    /// Whether there is something to choose.
    pub fn is_choice(&self) -> bool {
        self.count > 1
    }

    /// Leaves -∞ for every token that may not come. Values that no logit may have stay, to be found.
    pub fn apply(&self, logits: &mut [f32]) {
        for (id, logit) in logits.iter_mut().enumerate() {
            if logit.is_finite() && !self.allows(id as TokenId) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_ends_with_its_vocabulary() {
        let all = Mask::from_words(&[u32::MAX, u32::MAX], 40, &[39, 41]);
        assert_eq!((all.len(), all.ends()), (40, &[39][..]));
        assert!(all.allows(39) && !all.allows(40) && !all.allows(1_000));
        let short = Mask::from_words(&[2], 40, &[]);
        assert_eq!((short.len(), short.first_text(), short.may_end()), (1, Some(1), false));
        assert!(Mask::none(40).is_empty() && Mask::none(40).may_end());
    }

    #[test]
    fn everything_but_the_end() {
        let mask = Mask::all_but(40, &[0, 39, 90]);
        assert_eq!((mask.len(), mask.first_text(), mask.may_end()), (38, Some(1), false));
        let with = mask.and(0).and(0).and(41);
        assert_eq!((with.len(), with.allows(0)), (39, true));
    }

    #[test]
    fn what_may_not_come_is_left_out_and_nothing_else_changes() {
        let mut logits = [1.0, 2.0, f32::NAN, f32::INFINITY, -3.0];
        Mask::from_words(&[0b10001], 4, &[]).apply(&mut logits);
        assert_eq!(logits[..2], [1.0, f32::NEG_INFINITY]);
        assert!(logits[2].is_nan() && logits[3] == f32::INFINITY && logits[4] == f32::NEG_INFINITY);
    }
}
