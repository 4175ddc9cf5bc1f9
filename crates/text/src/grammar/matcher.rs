//! One sequence's place in its grammar.

use std::sync::mpsc::Sender;

use forebay_core::constraint::{Constraint, ConstraintError, ConstraintState, Mask, Progress, Stop};
use forebay_core::units::TokenId;

use super::brief;
use super::compiled::Grammar;

/// One sequence's place in its grammar, over llguidance's parser.
pub struct Matcher {
    grammar: Grammar,
    inner: llguidance::Matcher,
    accepted: Vec<TokenId>,
    /// Who may interrupt it.
    watcher: Option<Sender<Stop>>,
}

impl Matcher {
    /// At the beginning of a text.
    pub fn new(grammar: &Grammar) -> Matcher {
        Matcher::begun(grammar, None)
    }

    /// As [`Matcher::new`]; see [`forebay_core::constraint::Constraint::start`].
    pub fn watched(grammar: &Grammar, watcher: Sender<Stop>) -> Matcher {
        Matcher::begun(grammar, Some(watcher))
    }

    fn begun(grammar: &Grammar, watcher: Option<Sender<Stop>>) -> Matcher {
        let inner = fresh(grammar, watcher.as_ref());
        Matcher { inner, grammar: grammar.clone(), accepted: Vec::new(), watcher }
    }
}

impl Constraint for Grammar {
    fn start(&self, watcher: Sender<Stop>) -> Box<dyn ConstraintState> {
        Box::new(Matcher::watched(self, watcher))
    }

    fn anything_but_the_end(&self) -> Mask {
        Mask::all_but(self.width(), self.eos())
    }
}

impl ConstraintState for Matcher {
    fn accepted(&self) -> &[TokenId] {
        &self.accepted
    }

    fn advance(&mut self, token: TokenId) -> Result<Progress, ConstraintError> {
        self.inner.consume_token(token).map_err(failed)?;
        self.accepted.push(token);
        Ok(self.progress())
    }

    fn rewind(&mut self, tokens: usize) -> Result<(), ConstraintError> {
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
        self.inner.consume_tokens(&self.accepted).map_err(failed)
    }

    fn progress(&self) -> Progress {
        if self.inner.is_stopped() && !self.inner.is_error() { Progress::Complete } else { Progress::Open }
    }

    fn allowed(&mut self) -> Result<Mask, ConstraintError> {
        let (width, eos) = (self.grammar.width(), self.grammar.eos());
        if self.progress() == Progress::Complete {
            return Ok(Mask::none(width));
        }
        let may_end = self.inner.is_accepting().map_err(failed)?;
        match self.inner.compute_mask() {
            Ok(set) => Ok(Mask::from_words(set.as_slice(), width, eos)),
            // A vocabulary without an end token has nothing left to allow.
            Err(_) if may_end && eos.is_empty() && !self.inner.is_cancelled() => Ok(Mask::none(width)),
            Err(error) => Err(failed(error)),
        }
    }

    fn forced(&mut self, most: usize) -> Vec<TokenId> {
        if self.inner.is_stopped() {
            return Vec::new();
        }
        let mut tokens = self.inner.compute_ff_tokens();
        tokens.truncate(most);
        tokens
    }
}

fn failed(error: impl std::fmt::Display) -> ConstraintError {
    ConstraintError(brief(error))
}

fn fresh(grammar: &Grammar, watcher: Option<&Sender<Stop>>) -> llguidance::Matcher {
    let copy = grammar.fresh();
    let Some(watcher) = watcher else { return copy };
    let copy = copy.into_cancellable();
    if let Some(handle) = copy.cancellation_handle() {
        let stop = Stop::new(move || handle.cancel());
        // Nobody is left who wants to know.
        if watcher.send(stop.clone()).is_err() {
            stop.stop();
        }
    }
    copy
}
