//! A model's tokens as grammars see them: exact bytes in a trie, and the way in which the model would cut a text.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use llguidance::ParserFactory;
use llguidance::api::{ParserLimits, StopReason, TopLevelGrammar};
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::limits::Limits;
use super::spec::Source;
use super::{Grammar, GrammarError, GrammarSpec, Matcher, bounds, brief};
use crate::Tokenizer;
use forebay_core::constraint::{ConstraintState, Stop};
use forebay_core::units::TokenId;

/// The trie's nodes count their depth in ten bits. Longer tokens exist only in crafted files and are never allowed.
const LONGEST_TOKEN: usize = 1_000;
/// A text of what JSON is made of. A tokenizer that cannot take it apart and leave its bytes alone forces no tokens.
const PROBE: &str = "{\"name\": \"a b\", \"list\": [1, -2.5e3, true, null]}\n";
/// Put before a text whose beginning the tokenizer would treat as the beginning of all, and taken away again.
const GUARD: &str = "\u{2}";

/// The stack that [`Vocabulary::compile`] may need: it descends along an object's keys.
pub const STACK_BYTES: usize = 64 << 20;

/// Compiles grammars for one model.
pub struct Vocabulary {
    factory: ParserFactory,
    limits: Limits,
    eos: Arc<[TokenId]>,
    width: usize,
}

struct Env {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
    /// Texts can be cut as the model would; else no tokens are forced and the model chooses how to spell what must come.
    canonical: bool,
}

impl Vocabulary {
    /// `width` is that of the logits, `eos` the tokens that end a completion. They, special tokens and ids without a token
    /// are no text.
    pub fn new(
        tokenizer: &Arc<Tokenizer>,
        width: usize,
        eos: &[TokenId],
        limits: Limits,
    ) -> Result<Vocabulary, GrammarError> {
        if !tokenizer.is_spelled_in_bytes() {
            return Err(GrammarError::NoBytes);
        }
        let eos: Arc<[TokenId]> = eos.iter().copied().filter(|&id| (id as usize) < width).collect();
        let words: Vec<Vec<u8>> = (0..width as TokenId).map(|id| word(tokenizer, id, &eos)).collect();
        // The crate asserts what it expects of a vocabulary.
        let factory = catch_unwind(AssertUnwindSafe(|| factory(tokenizer, &words, &eos, &limits)));
        let factory = factory.map_err(|_| GrammarError::Invalid("the vocabulary cannot be read".into()))?;
        let factory = factory.map_err(|error| GrammarError::Invalid(brief(error)))?;
        Ok(Vocabulary { factory, limits, eos, width })
    }

    /// Checks sizes first, then compiles, then looks whether anything can come at all.
    ///
    /// The work is bounded by the limits, but may take seconds and [`STACK_BYTES`] of stack: not for a thread that others
    /// wait for.
    pub fn compile(&self, spec: &GrammarSpec) -> Result<Grammar, GrammarError> {
        // Nobody listens, so nobody interrupts.
        self.compile_watched(spec, None)
    }

    /// As [`Vocabulary::compile`]; the first steps, which no limit bounds as tightly as a clock, can be interrupted by what
    /// `watcher` is sent.
    pub fn compile_watched(&self, spec: &GrammarSpec, watcher: Option<Sender<Stop>>) -> Result<Grammar, GrammarError> {
        bounds::check(spec, &self.limits)?;
        let grammar = match spec.source()? {
            Source::Json(schema) => TopLevelGrammar::from_json_schema(schema),
            Source::Regex(pattern) => TopLevelGrammar::from_regex(&pattern),
            Source::Lark(grammar) => TopLevelGrammar::from_lark(grammar),
        };
        let fresh = llguidance::Matcher::new(self.factory.create_parser(grammar));
        if let Some(error) = fresh.get_error() {
            let error = brief(error);
            let unsatisfiable = error.starts_with("Unsatisfiable");
            return Err(if unsatisfiable { GrammarError::Unsatisfiable } else { GrammarError::said(error) });
        }
        let grammar = Grammar::new(fresh, Arc::clone(&self.eos), self.width);
        try_out(match watcher {
            Some(watcher) => Matcher::watched(&grammar, watcher),
            None => Matcher::new(&grammar),
        })?;
        Ok(grammar)
    }
}

/// A few steps: whether there is a first token, and whether the limits on a step hold where a text has just begun.
fn try_out(mut matcher: Matcher) -> Result<(), GrammarError> {
    const STEPS: usize = 4;
    for step in 0..STEPS {
        let mask = match matcher.allowed() {
            Ok(mask) => mask,
            Err(error) if error.0 == StopReason::NoExtensionBias.to_string() => {
                return Err(GrammarError::Unsatisfiable);
            }
            Err(error) => return Err(GrammarError::said(error.0)),
        };
        match mask.first_text() {
            Some(token) => matcher.advance(token).map_err(|error| GrammarError::said(error.0))?,
            // Nothing at all, or only the end.
            None if step == 0 => return Err(GrammarError::Unsatisfiable),
            None => break,
        };
    }
    Ok(())
}

/// What the trie holds for `id`. Special tokens have a name that no text can spell.
fn word(tokenizer: &Tokenizer, id: TokenId, eos: &[TokenId]) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id);
    let special = eos.contains(&id) || !tokenizer.is_text(id);
    match bytes {
        [] => Vec::new(),
        _ if bytes.len() > LONGEST_TOKEN => Vec::new(),
        _ if special => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        // No character begins with the marker, so nothing is lost.
        [TokTrie::SPECIAL_TOKEN_MARKER, ..] => Vec::new(),
        bytes => bytes.to_vec(),
    }
}

fn factory(
    tokenizer: &Arc<Tokenizer>,
    words: &[Vec<u8>],
    eos: &[TokenId],
    limits: &Limits,
) -> Result<ParserFactory, String> {
    let first = eos.first().copied().unwrap_or(toktrie::INVALID_TOKEN);
    let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, first), words);
    let trie = if eos.is_empty() { trie } else { trie.with_eos_tokens(eos) };
    let mut env = Env { trie, tokenizer: Arc::clone(tokenizer), canonical: true };
    env.canonical = env.cut(PROBE).is_some();
    let env: TokEnv = Arc::new(env);
    let slices = llguidance::earley::SlicedBiasComputer::general_slices();
    // The tokens forced are ours to feed: the parser only says which.
    let mut factory =
        ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        max_items_in_row: limits.items_in_row,
        step_max_items: limits.items_in_mask,
        max_lexer_states: limits.lexer_states,
        max_grammar_size: limits.symbols,
        verbose_errors: false,
        ..ParserLimits::default()
    };
    Ok(factory)
}

impl Env {
    /// The tokens that the model would read `text` as; `None` where they do not spell it byte by byte.
    fn cut(&self, text: &str) -> Option<Vec<TokenId>> {
        self.spelling(self.tokenizer.encode(text, false).ok()?, text)
            .or_else(|| self.spelling(self.behind_guard(text)?, text))
    }

    /// The tokens of `text` where it is not the beginning of all, which some tokenizers put a space before.
    fn behind_guard(&self, text: &str) -> Option<Vec<TokenId>> {
        let tokens = self.tokenizer.encode(&format!("{GUARD}{text}"), false).ok()?;
        let guard = self.tokenizer.encode(GUARD, false).ok()?;
        tokens.strip_prefix(&guard[..]).map(<[TokenId]>::to_vec)
    }

    fn spelling(&self, tokens: Vec<TokenId>, text: &str) -> Option<Vec<TokenId>> {
        let known = |token: &TokenId| (*token as usize) < self.trie.vocab_size() && self.tokenizer.is_text(*token);
        let mut left = text.as_bytes();
        for token in &tokens {
            left = left.strip_prefix(self.trie.token(*token)).filter(|_| known(token))?;
        }
        left.is_empty().then_some(tokens)
    }
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let cut = |text: &str| self.cut(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()));
        self.trie.tokenize_with_greedy_fallback(bytes, cut)
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}
