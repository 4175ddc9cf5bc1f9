//! A compiled grammar, as the engine gets it.

use std::fmt;
use std::sync::Arc;

use forebay_core::units::TokenId;

/// A compiled grammar over one vocabulary. Cheap to clone.
#[derive(Clone)]
pub struct Grammar(Arc<Compiled>);

struct Compiled {
    /// At the beginning of a text. Never advanced: a [`super::Matcher`] works on a copy of its own, so that what one sequence makes
    /// the lexer learn, and the limits on that, is no other sequence's business.
    fresh: llguidance::Matcher,
    /// Tokens that end a completion and are no text.
    eos: Arc<[u32]>,
    /// The width of masks.
    width: usize,
}

impl PartialEq for Grammar {
    /// The same compiled grammar, not merely an equal one.
    fn eq(&self, other: &Grammar) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grammar")
    }
}

impl Grammar {
    pub(super) fn new(fresh: llguidance::Matcher, eos: Arc<[TokenId]>, width: usize) -> Grammar {
        Grammar(Arc::new(Compiled { fresh, eos, width }))
    }

    /// A copy of the parser at the beginning of a text.
    pub(super) fn fresh(&self) -> llguidance::Matcher {
        self.0.fresh.deep_clone()
    }

    pub(super) fn eos(&self) -> &[TokenId] {
        &self.0.eos
    }

    pub(super) fn width(&self) -> usize {
        self.0.width
    }
}
