//! Grammars of requests: compiled away from everybody else, within bounds, and kept for the next request that asks the same.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use forebay_core::constraint::Stop;
use forebay_core::request::RequestError;
use forebay_core::units::TokenId;
use forebay_text::Tokenizer;
use forebay_text::grammar::{
    Cache, Grammar, GrammarConfig, GrammarError, GrammarSpec, Limits, STACK_BYTES, Vocabulary,
};

use super::raw::RawGrammar;

/// What clients wrote for all grammars that are kept.
const CACHE_BYTES: usize = 8 << 20;
/// Grammars that are compiled at the same time; more wait. Most of a compilation cannot be stopped, so this also bounds what
/// those given up can cost.
const PLACES: usize = 2;
/// How long a grammar may wait for a place, in times that it may take itself.
const PATIENCE: u32 = 5;

/// Why a request has no grammar.
enum Refusal {
    /// All places were taken for too long.
    NoPlace,
    Late,
    Grammar(GrammarError),
}

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
    /// That others' grammars take long is not.
    pub async fn compile(self: &Arc<Self>, raw: &RawGrammar) -> Result<Grammar, RequestError> {
        if let Some(grammar) = self.known(&raw.spec) {
            return Ok(grammar);
        }
        let limit = self.config.compile_timeout;
        let refusal = match self.compiled(&raw.spec).await {
            Ok(grammar) => return Ok(grammar),
            Err(refusal) => refusal,
        };
        Err(match refusal {
            Refusal::NoPlace => RequestError::GrammarBusy { retry_after_s: limit.as_secs().max(1) as u32 },
            Refusal::Late => RequestError::GrammarTooComplex {
                param: raw.param.clone(),
                message: format!("took longer than {} ms to compile", limit.as_millis()),
            },
            Refusal::Grammar(GrammarError::NoBytes) => {
                RequestError::Unsupported { param: raw.param.clone(), message: GrammarError::NoBytes.to_string() }
            }
            Refusal::Grammar(error) if error.is_limit() => {
                RequestError::GrammarTooComplex { param: raw.param.clone(), message: error.to_string() }
            }
            Refusal::Grammar(error) => RequestError::invalid(raw.param.clone(), error.to_string()),
        })
    }

    async fn compiled(self: &Arc<Self>, spec: &GrammarSpec) -> Result<Grammar, Refusal> {
        let failed = || Refusal::Grammar(GrammarError::Invalid("the compiler failed".into()));
        let place = timeout(self.config.compile_timeout * PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(|_| Refusal::NoPlace)?.map_err(|_| failed())?;
        // Whoever had the place before may have compiled the same.
        if let Some(grammar) = self.known(spec) {
            return Ok(grammar);
        }
        let (answer, answered) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let (watcher, stops) = mpsc::channel();
        let (grammars, spec) = (Arc::clone(self), spec.clone());
        // A thread of its own, for its stack; it ends with the compilation and gives the place back, waited for or not.
        let work = move || {
            let compiled = grammars.vocabulary().and_then(|vocabulary| {
                let _ = ready.send(());
                grammars.compile_here(vocabulary, spec, watcher)
            });
            drop(place);
            let _ = answer.send(compiled);
        };
        let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES).spawn(work);
        thread.map_err(|_| failed())?;
        // The vocabulary is the server's own work: the first to need it is not timed for it.
        let _ = is_ready.await;
        match timeout(self.config.compile_timeout, answered).await {
            Ok(answer) => answer.map_err(|_| failed())?.map_err(Refusal::Grammar),
            Err(_) => {
                // What comes after this finds nobody who listens, and stops as well.
                stops.try_iter().for_each(|stop| stop.stop());
                Err(Refusal::Late)
            }
        }
    }

    fn vocabulary(&self) -> Result<&Vocabulary, GrammarError> {
        let limits = Limits { bytes: self.config.max_bytes, ..Limits::default() };
        let make = || Vocabulary::new(&self.tokenizer, self.width, &self.eos, limits);
        self.vocabulary.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    fn compile_here(
        &self,
        vocabulary: &Vocabulary,
        spec: GrammarSpec,
        watcher: Sender<Stop>,
    ) -> Result<Grammar, GrammarError> {
        let grammar = vocabulary.compile_watched(&spec, Some(watcher))?;
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
    use std::time::Duration;

    use super::*;
    use forebay_text::fixtures;

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
    async fn who_gets_no_place_in_time_is_told_to_come_back() {
        let grammars = grammars(Duration::from_millis(4));
        let others = Arc::clone(&grammars.places).acquire_many_owned(PLACES as u32).await.unwrap();
        let refused = grammars.compile(&raw("a+")).await.unwrap_err();
        assert_eq!(refused, RequestError::GrammarBusy { retry_after_s: 1 }, "others' grammars are not its fault");
        drop(others);
        assert_eq!(grammars.places.available_permits(), PLACES, "nobody waits any more");
    }

    #[tokio::test]
    async fn only_the_compilation_is_timed() {
        let grammars = grammars(Duration::ZERO);
        // Whatever the clock says: the server's vocabulary is there before it runs.
        let compiled = grammars.compile(&raw("a+")).await;
        assert!(grammars.vocabulary.get().is_some());
        if let Err(refused) = compiled {
            let RequestError::GrammarTooComplex { message, .. } = refused else { panic!("{refused}") };
            assert_eq!(message, "took longer than 0 ms to compile");
        }
        // Given up or not, its place comes back.
        let _all = grammars.places.acquire_many(PLACES as u32).await.unwrap();
    }
}
