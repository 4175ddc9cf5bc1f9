//! Grammars of requests: compiled away from everybody else, within bounds, and kept for the next request that asks the same.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::grammar::{Cache, Grammar, GrammarError, GrammarSpec, Limits, STACK_BYTES, Vocabulary};
use crate::request::{RawGrammar, RequestError};
use crate::text::Tokenizer;
use crate::units::TokenId;

/// What grammars may cost the server.
#[derive(Clone, Copy, Debug)]
pub struct GrammarConfig {
    /// Of one grammar, as the client wrote it.
    pub max_bytes: usize,
    /// The wait for a place to compile in is part of it.
    pub compile_timeout: Duration,
    /// Compiled grammars that are kept.
    pub cache_entries: usize,
}

impl Default for GrammarConfig {
    fn default() -> GrammarConfig {
        GrammarConfig { max_bytes: 256 << 10, compile_timeout: Duration::from_secs(2), cache_entries: 128 }
    }
}

/// What clients wrote for all grammars that are kept.
const CACHE_BYTES: usize = 8 << 20;
/// Grammars that are compiled at the same time; more wait. A compilation cannot be stopped, so this also bounds what those
/// given up can cost.
const PLACES: usize = 2;

pub struct Grammars {
    config: GrammarConfig,
    tokenizer: Arc<Tokenizer>,
    width: usize,
    eos: Vec<TokenId>,
    /// Made by the first request that needs it.
    vocabulary: OnceLock<Result<Vocabulary, GrammarError>>,
    /// Locked to look and to put, never across an await or a compilation.
    cache: Mutex<Cache>,
    places: Arc<Semaphore>,
}

impl Grammars {
    /// `width` is that of the logits.
    pub fn new(config: GrammarConfig, tokenizer: &Arc<Tokenizer>, width: usize, eos: &[TokenId]) -> Grammars {
        Grammars {
            config,
            tokenizer: Arc::clone(tokenizer),
            width,
            eos: eos.to_vec(),
            vocabulary: OnceLock::new(),
            cache: Mutex::new(Cache::new(config.cache_entries, CACHE_BYTES)),
            places: Arc::new(Semaphore::new(PLACES)),
        }
    }

    /// The grammar of `raw`. What cannot be compiled, or not in time, is the client's to change: the error names its field.
    pub async fn compile(self: &Arc<Self>, raw: &RawGrammar) -> Result<Grammar, RequestError> {
        if let Some(grammar) = self.known(&raw.spec) {
            return Ok(grammar);
        }
        let late = || format!("took longer than {} ms to compile", self.config.compile_timeout.as_millis());
        match timeout(self.config.compile_timeout, self.compiled(&raw.spec)).await {
            Err(_) => Err(RequestError::GrammarTooComplex { param: raw.param.clone(), message: late() }),
            Ok(Err(GrammarError::NoBytes)) => {
                Err(RequestError::Unsupported { param: raw.param.clone(), message: GrammarError::NoBytes.to_string() })
            }
            Ok(Err(error)) if error.is_limit() => {
                Err(RequestError::GrammarTooComplex { param: raw.param.clone(), message: error.to_string() })
            }
            Ok(Err(error)) => Err(RequestError::invalid(raw.param.clone(), error.to_string())),
            Ok(Ok(grammar)) => Ok(grammar),
        }
    }

    async fn compiled(self: &Arc<Self>, spec: &GrammarSpec) -> Result<Grammar, GrammarError> {
        let failed = || GrammarError::Invalid("the compiler failed".into());
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| failed())?;
        // Whoever had the place before may have compiled the same.
        if let Some(grammar) = self.known(spec) {
            return Ok(grammar);
        }
        let (answer, answered) = oneshot::channel();
        let (grammars, spec) = (Arc::clone(self), spec.clone());
        // A thread of its own, for its stack; it ends with the compilation and gives the place back, waited for or not.
        let work = move || {
            let compiled = grammars.compile_here(spec, place);
            let _ = answer.send(compiled);
        };
        let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES).spawn(work);
        thread.map_err(|_| failed())?;
        answered.await.unwrap_or_else(|_| Err(failed()))
    }

    fn compile_here(&self, spec: GrammarSpec, _place: OwnedSemaphorePermit) -> Result<Grammar, GrammarError> {
        let limits = Limits { bytes: self.config.max_bytes, ..Limits::default() };
        let make = || Vocabulary::new(&self.tokenizer, self.width, &self.eos, limits);
        let vocabulary = self.vocabulary.get_or_init(make).as_ref().map_err(Clone::clone)?;
        let grammar = vocabulary.compile(&spec)?;
        self.cache().put(spec, grammar.clone());
        Ok(grammar)
    }

    fn known(&self, spec: &GrammarSpec) -> Option<Grammar> {
        self.cache().get(spec)
    }

    /// Nothing in there panics half-way, so a poisoned lock guards sound contents.
    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::fixtures;

    fn grammars(compile_timeout: Duration) -> Arc<Grammars> {
        let config = GrammarConfig { compile_timeout, ..GrammarConfig::default() };
        let tokenizer = Arc::new(fixtures::byte_level());
        Arc::new(Grammars::new(config, &tokenizer, fixtures::VOCAB as usize, &[fixtures::END]))
    }

    fn raw(pattern: &str) -> RawGrammar {
        RawGrammar { param: "guided_regex".into(), spec: GrammarSpec::Regex(pattern.into()) }
    }

    #[tokio::test]
    async fn the_same_spec_is_compiled_once() {
        let grammars = grammars(Duration::from_secs(60));
        let first = grammars.compile(&raw("a+")).await.unwrap();
        assert_eq!(grammars.compile(&raw("a+")).await.unwrap(), first);
        assert_ne!(grammars.compile(&raw("b+")).await.unwrap(), first);
        // At once, too: whoever comes second finds what the first made.
        let (raw_a, raw_b) = (raw("c+"), raw("c+"));
        let both = tokio::join!(grammars.compile(&raw_a), grammars.compile(&raw_b));
        assert!(both.0.is_ok() && both.1.is_ok());
        assert_eq!(grammars.places.available_permits(), PLACES);
    }

    #[tokio::test]
    async fn refusals_name_the_field_and_give_the_place_back() {
        let grammars = grammars(Duration::from_secs(60));
        let refused = grammars.compile(&raw("(")).await.unwrap_err();
        assert!(matches!(&refused, RequestError::InvalidValue { param, .. } if param == "guided_regex"), "{refused}");
        assert_eq!(grammars.places.available_permits(), PLACES);
        assert!(grammars.compile(&raw("a")).await.is_ok());
    }

    #[tokio::test]
    async fn who_gets_no_place_in_time_is_refused() {
        let grammars = grammars(Duration::from_millis(20));
        let others = Arc::clone(&grammars.places).acquire_many_owned(PLACES as u32).await.unwrap();
        let refused = grammars.compile(&raw("a+")).await.unwrap_err();
        let RequestError::GrammarTooComplex { message, .. } = refused else { panic!("{refused}") };
        assert_eq!(message, "took longer than 20 ms to compile");
        drop(others);
        assert_eq!(grammars.places.available_permits(), PLACES, "nobody waits any more");
    }
}
