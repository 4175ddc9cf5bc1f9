//! One sequence's place in its grammar.

use std::sync::mpsc::Sender;

use llguidance::CancellationHandle;
use toktrie::SimpleVob;

use super::{Grammar, MatchError, brief};
use forebay_core::units::TokenId;

/// One sequence's place in its grammar: the tokens that came, and which may come next.
///
/// The mask after given tokens is a function of the grammar and those tokens alone, however the matcher got there.
pub struct Matcher {
    grammar: Grammar,
    inner: llguidance::Matcher,
    accepted: Vec<TokenId>,
    /// Who may interrupt it.
    watcher: Option<Sender<Stop>>,
}

/// Interrupts a [`Matcher`] from another thread: what it computes becomes an error, soon.
#[derive(Clone, Debug)]
pub struct Stop(CancellationHandle);

impl Stop {
    pub fn stop(&self) {
        self.0.cancel();
    }
}

/// Whether more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Open,
    /// The text is complete, and nothing but the end can follow.
    Complete,
}

/// Which tokens may come next.
#[derive(Clone, Debug)]
pub struct Mask {
    set: SimpleVob,
    /// The end tokens among them, if the text may end here.
    eos: Vec<TokenId>,
    count: usize,
}

impl Matcher {
    /// At the beginning of a text.
    pub fn new(grammar: &Grammar) -> Matcher {
        Matcher::begun(grammar, None)
    }

    /// As [`Matcher::new`]. `watcher` is sent what interrupts it, anew whenever it has to begin over; an interrupted matcher
    /// does when it is rewound. Nothing but whether it fails depends on that.
    pub fn watched(grammar: &Grammar, watcher: Sender<Stop>) -> Matcher {
        Matcher::begun(grammar, Some(watcher))
    }

    fn begun(grammar: &Grammar, watcher: Option<Sender<Stop>>) -> Matcher {
        let inner = fresh(grammar, watcher.as_ref());
        Matcher { inner, grammar: grammar.clone(), accepted: Vec::new(), watcher }
    }

    /// The tokens it has taken since the beginning.
    pub fn accepted(&self) -> &[TokenId] {
        &self.accepted
    }

    /// Forgets all but the first `tokens` tokens, and an error that came after them.
    pub fn rewind(&mut self, tokens: usize) -> Result<(), MatchError> {
        let Some(back) = self.accepted.len().checked_sub(tokens).filter(|back| *back > 0 || self.inner.is_error())
        else {
            return Ok(());
        };
        self.accepted.truncate(tokens);
        if !self.inner.is_error() && self.inner.rollback(back).is_ok() {
            return Ok(());
        }
        // Some grammars cannot go back, and a matcher that met an error cannot either: over again.
        self.inner = fresh(&self.grammar, self.watcher.as_ref());
        self.inner.consume_tokens(&self.accepted).map_err(|error| MatchError(brief(error)))
    }

    /// Takes the next token. An error leaves the matcher useless until it is rewound.
    pub fn accept(&mut self, token: TokenId) -> Result<State, MatchError> {
        self.inner.consume_token(token).map_err(|error| MatchError(brief(error)))?;
        self.accepted.push(token);
        Ok(self.state())
    }

    pub fn state(&self) -> State {
        if self.inner.is_stopped() && !self.inner.is_error() { State::Complete } else { State::Open }
    }

    /// The tokens that may come next; none where the text is complete.
    pub fn mask(&mut self) -> Result<Mask, MatchError> {
        let fail = |error| MatchError(brief(error));
        if self.state() == State::Complete {
            return Ok(Mask { set: SimpleVob::alloc(self.grammar.0.width), eos: Vec::new(), count: 0 });
        }
        let may_end = self.inner.is_accepting().map_err(fail)?;
        let set = match self.inner.compute_mask() {
            Ok(set) => set,
            // A vocabulary without an end token has nothing left to allow.
            Err(_) if may_end && self.grammar.0.eos.is_empty() && !self.inner.is_cancelled() => {
                SimpleVob::alloc(self.grammar.0.width)
            }
            Err(error) => return Err(fail(error)),
        };
        let eos = self.grammar.0.eos.iter().copied().filter(|&id| set.is_allowed(id)).collect();
        Ok(Mask { count: set.num_set(), eos, set })
    }

    /// Tokens that must come next, at most `most`, cut as the model would cut them. A guess: whether each is the only one
    /// that its place allows is for the masks to say.
    pub fn forced(&mut self, most: usize) -> Vec<TokenId> {
        if self.inner.is_stopped() {
            return Vec::new();
        }
        let mut tokens = self.inner.compute_ff_tokens();
        tokens.truncate(most);
        tokens
    }
}

fn fresh(grammar: &Grammar, watcher: Option<&Sender<Stop>>) -> llguidance::Matcher {
    let copy = grammar.0.fresh.deep_clone();
    let Some(watcher) = watcher else { return copy };
    let copy = copy.into_cancellable();
    if let Some(handle) = copy.cancellation_handle() {
        let stop = Stop(handle);
        // Nobody is left who wants to know.
        if watcher.send(stop.clone()).is_err() {
            stop.stop();
        }
    }
    copy
}

impl Mask {
    /// Everything but the end.
    pub fn unfinished(grammar: &Grammar) -> Mask {
        let mut set = SimpleVob::alloc_ones(grammar.0.width);
        grammar.0.eos.iter().filter(|&&id| (id as usize) < grammar.0.width).for_each(|&id| set.disallow_token(id));
        Mask { count: set.num_set(), eos: Vec::new(), set }
    }

    /// `token`, too.
    pub fn and(mut self, token: TokenId) -> Mask {
        self.count += usize::from(!self.allows(token));
        self.set.allow_token(token);
        self
    }

    pub fn allows(&self, token: TokenId) -> bool {
        (token as usize) < self.set.len() && self.set.is_allowed(token)
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
        self.count == self.eos.len() || !self.eos.is_empty()
    }

    /// End tokens that may come.
    pub fn ends(&self) -> &[TokenId] {
        &self.eos
    }

    /// The first of them by id.
    pub fn first_text(&self) -> Option<TokenId> {
        self.set.iter().find(|id| !self.eos.contains(id))
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
