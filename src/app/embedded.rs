//! Engines inside another program: no HTTP, no signals, no log. What `ffi` gives to C.
//!
//! Every call may come from any thread. A request's answer is kept until it has been read to its end, or cancelled.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use thiserror::Error;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::{self, Config};
use crate::generate::RawRequest;
use crate::generate::{Delta, Generation, Generator};
use forebay_clock::Clock;
use forebay_core::request::{FinishReason, Origin, Parameters, RequestError};
use forebay_core::units::TokenId;
use forebay_engine::stats::EngineStats;
use forebay_engine::workers::{Pool, watch};
use forebay_turn::control::{Change, Group};

use super::failure::Failure;
use super::threads::compute_threads;
use super::workers::{self, Workers};

/// Why a call did nothing.
#[derive(Debug, Error)]
pub enum EmbeddedError {
    /// The configuration, the model, or a thread: there is no engine.
    #[error("{0}")]
    Start(String),
    #[error("there is no request {0}, or its answer has been read to its end")]
    UnknownRequest(u64),
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// A loaded model and its loops. Dropping it ends what is running and joins the loops' threads.
pub struct Embedded {
    runtime: Runtime,
    pool: Pool,
    generator: Generator,
    clock: Clock,
    answers: Mutex<HashMap<u64, Arc<Mutex<Answer>>>>,
    next: AtomicU64,
    /// Over the loops; ends when they have.
    watch: Option<JoinHandle<()>>,
}

/// How much a caller can take at once.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes of text; only whole characters are given.
    pub text: usize,
    pub tokens: usize,
}

/// What of an answer was new.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    pub text: String,
    pub tokens: Vec<TokenId>,
    pub prompt_tokens: usize,
    /// Found in the KV cache.
    pub cached_tokens: usize,
    /// With it everything has been given, and the request is forgotten.
    pub finished: Option<Finished>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    pub reason: FinishReason,
    pub completion_tokens: u32,
}

/// A running request and what was not read of it yet.
struct Answer {
    generation: Generation,
    text: String,
    tokens: Vec<TokenId>,
    end: Option<Result<Finished, RequestError>>,
}

impl Embedded {
    /// Loads `model` (a folder, a GGUF file, a hub id; empty is the embedded one) with the settings of `file`, a `config.yaml`;
    /// without a `model`, the file's. The environment is not read: another thread of the program may be writing it.
    pub fn start(model: Option<&str>, file: Option<&Path>) -> Result<Embedded, EmbeddedError> {
        let config = config::embedded(model, file).map_err(|error| EmbeddedError::Start(error.to_string()))?;
        if !config.workers.upstreams.is_empty() {
            return Err(EmbeddedError::Start("workers.upstreams: an embedded engine asks no other servers".into()));
        }
        share_threads(&config)?;
        let clock = Clock::system();
        let started = workers::start(&config, &clock, None).map_err(|failure| EmbeddedError::Start(words(failure)))?;
        forebay_model::release_freed();
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("forebay")
            .enable_time()
            .build()
            .map_err(|error| EmbeddedError::Start(error.to_string()))?;
        let Workers { pool, generator, .. } = started;
        let generator = generator.ok_or_else(|| EmbeddedError::Start("workers.count is 0".into()))?;
        let watch = runtime.spawn(watch(pool.clone(), config.workers.check_interval));
        Ok(Embedded {
            runtime,
            pool,
            generator,
            clock,
            answers: Mutex::default(),
            next: AtomicU64::new(1),
            watch: Some(watch),
        })
    }

    /// Checks and queues a request; returns its number. One choice only: its others would have nowhere to go.
    pub fn submit(&self, raw: RawRequest) -> Result<u64, EmbeddedError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let origin = Origin { id: request_name(id).into(), received: self.clock.now(), ..Origin::default() };
        let generation = self.runtime.block_on(
            self.generator.start(RawRequest { parameters: Parameters { origin, n: None, ..raw.parameters }, ..raw }),
        )?;
        let answer = Answer { generation, text: String::new(), tokens: Vec::new(), end: None };
        self.answers().insert(id, Arc::new(Mutex::new(answer)));
        Ok(id)
    }

    /// What is new of a request's answer, as much of it as there is `room` for. Waits up to `wait` while there is nothing.
    /// A failed request is forgotten with its error, once its text has been read.
    pub fn poll(&self, id: u64, wait: Duration, room: Room) -> Result<Piece, EmbeddedError> {
        let answer = self.answers().get(&id).cloned().ok_or(EmbeddedError::UnknownRequest(id))?;
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        self.runtime.block_on(answer.listen(wait));
        let piece = answer.take(room);
        if !matches!(piece, Ok(Piece { finished: None, .. })) {
            self.answers().remove(&id);
        }
        Ok(piece?)
    }

    /// Ends a request and forgets it; who waits for it hears [`RequestError::Aborted`].
    pub fn cancel(&self, id: u64) -> Result<(), EmbeddedError> {
        self.answers().remove(&id).ok_or(EmbeddedError::UnknownRequest(id))?;
        self.runtime.block_on(self.pool.cancel(request_name(id)))?;
        Ok(())
    }

    pub fn select_policy(&self, name: &str) -> Result<(), EmbeddedError> {
        let change = Change { group: Group::Policy, name: Some(name.to_owned()), values: Vec::new() };
        self.runtime.block_on(self.pool.change(change))?;
        Ok(())
    }

    pub fn stats(&self) -> Result<EngineStats, EmbeddedError> {
        Ok(self.runtime.block_on(self.pool.stats())?)
    }

    pub fn reset_stats(&self) -> Result<(), EmbeddedError> {
        Ok(self.runtime.block_on(self.pool.reset_stats())?)
    }

    /// Ends what is running; later requests are refused. Calls that wait return.
    pub fn shut_down(&self) {
        self.runtime.block_on(self.pool.shutdown());
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mutex<Answer>>>> {
        // Each use is one call of the map: a panic elsewhere leaves it whole.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shut_down();
        if let Some(watch) = self.watch.take() {
            // Joins their threads.
            let _ = self.runtime.block_on(watch);
        }
    }
}

impl Answer {
    /// Hears all that has been said; waits for a first word only where there is nothing to give.
    async fn listen(&mut self, wait: Duration) {
        let nothing = self.text.is_empty() && self.tokens.is_empty();
        if nothing
            && self.end.is_none()
            && let Ok(Some((_, delta))) = timeout(wait, self.next_words()).await
        {
            self.hear(delta);
        }
        while let Some(Some((_, delta))) = self.generation.next().now_or_never() {
            self.hear(delta);
        }
    }

    /// The next delta that tells a caller something.
    async fn next_words(&mut self) -> Option<(u32, Delta)> {
        loop {
            match self.generation.next().await {
                Some((_, Delta::Admitted { cached_tokens })) => self.generation.started.cached_tokens = cached_tokens,
                other => return other,
            }
        }
    }

    fn hear(&mut self, delta: Delta) {
        match delta {
            Delta::Admitted { cached_tokens } => self.generation.started.cached_tokens = cached_tokens,
            Delta::Text(delta) => {
                self.text += &delta.reasoning;
                self.text += &delta.text;
                self.tokens.extend(delta.tokens);
            }
            Delta::Finished { reason, completion_tokens, .. } => {
                self.end = Some(Ok(Finished { reason, completion_tokens }));
            }
            Delta::Failed(error) => self.end = Some(Err(error)),
            // Nobody can ask for these here.
            Delta::Prompt(_) | Delta::Embedded(_) => {}
        }
    }

    fn take(&mut self, room: Room) -> Result<Piece, RequestError> {
        let bytes = self.text.floor_char_boundary(room.text);
        let rest = self.text.split_off(bytes);
        let tokens = room.tokens.min(self.tokens.len());
        let piece = Piece {
            text: std::mem::replace(&mut self.text, rest),
            tokens: self.tokens.drain(..tokens).collect(),
            prompt_tokens: self.generation.started.prompt_tokens.len(),
            cached_tokens: self.generation.started.cached_tokens,
            finished: None,
        };
        let all = self.text.is_empty() && self.tokens.is_empty();
        match &self.end {
            Some(Ok(finished)) if all => Ok(Piece { finished: Some(*finished), ..piece }),
            // What was said before is given first.
            Some(Err(error)) if piece.text.is_empty() && piece.tokens.is_empty() => Err(error.clone()),
            _ => Ok(piece),
        }
    }
}

fn request_name(id: u64) -> String {
    format!("embedded-{id}")
}

/// The threads of the kernels are the process': the first engine says how many, and a later one may not say otherwise.
fn share_threads(config: &Config) -> Result<(), EmbeddedError> {
    let wanted = compute_threads(config);
    if rayon::ThreadPoolBuilder::new().num_threads(wanted).build_global().is_ok() {
        return Ok(());
    }
    let there = rayon::current_num_threads();
    match config.engine.threads {
        Some(threads) if threads != there => Err(EmbeddedError::Start(format!(
            "engine.threads is {threads}, but this process computes with {there} threads already"
        ))),
        _ => Ok(()),
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::Input(error) => error.to_string(),
        Failure::Runtime(error) => format!("{error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Prompt;

    fn started() -> Embedded {
        Embedded::start(None, None).expect("the embedded model")
    }

    fn story(max_tokens: i64) -> RawRequest {
        let parameters = Parameters {
            max_tokens: Some(max_tokens),
            max_tokens_param: "max_tokens",
            temperature: Some(0.0),
            ignore_eos: true,
            ..Parameters::default()
        };
        RawRequest { prompt: Prompt::Text("Once upon a time".into()), parameters, ..RawRequest::default() }
    }

    const LARGE: Room = Room { text: 4096, tokens: 4096 };
    const LONG: Duration = Duration::from_secs(60);

    fn read(engine: &Embedded, id: u64, room: Room) -> (String, Vec<TokenId>, Finished) {
        let (mut text, mut tokens) = (String::new(), Vec::new());
        loop {
            let piece = engine.poll(id, LONG, room).expect("an answer");
            assert!(piece.text.len() <= room.text && piece.tokens.len() <= room.tokens);
            text += &piece.text;
            tokens.extend(piece.tokens);
            if let Some(finished) = piece.finished {
                return (text, tokens, finished);
            }
        }
    }

    #[test]
    fn an_answer_does_not_depend_on_the_room_in_which_it_is_read() {
        let engine = started();
        let whole = read(&engine, engine.submit(story(24)).unwrap(), LARGE);
        let pieces = read(&engine, engine.submit(story(24)).unwrap(), Room { text: 5, tokens: 1 });
        assert_eq!(whole, pieces);
        assert_eq!(whole.2, Finished { reason: FinishReason::Length, completion_tokens: 24 });
        assert_eq!(whole.1.len(), 24);
    }

    #[test]
    fn what_was_read_to_its_end_or_cancelled_is_forgotten() {
        let engine = started();
        let id = engine.submit(story(2)).unwrap();
        read(&engine, id, LARGE);
        let unknown = |id| matches!(engine.poll(id, LONG, LARGE), Err(EmbeddedError::UnknownRequest(_)));
        assert!(unknown(id) && unknown(77));
        let id = engine.submit(story(500)).unwrap();
        engine.cancel(id).expect("it runs");
        assert!(unknown(id));
        assert!(matches!(engine.cancel(id), Err(EmbeddedError::UnknownRequest(_))));
        assert_eq!(engine.stats().unwrap().snapshot.running, 0, "nothing runs on for nobody");
    }

    #[test]
    fn who_waits_for_a_cancelled_request_is_woken() {
        let engine = started();
        let id = engine.submit(story(900)).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    if let Err(error) = engine.poll(id, LONG, LARGE) {
                        return error;
                    }
                }
            });
            engine.cancel(id).expect("it runs");
            let error = reader.join().expect("no panic");
            let told = matches!(error, EmbeddedError::Request(RequestError::Aborted));
            assert!(told || matches!(error, EmbeddedError::UnknownRequest(_)), "{error}");
        });
    }

    #[test]
    fn bad_requests_and_bad_models_are_errors() {
        let engine = started();
        let refused = engine
            .submit(RawRequest {
                parameters: Parameters { temperature: Some(-1.0), ..Parameters::default() },
                ..story(1)
            })
            .unwrap_err();
        assert_eq!(refused.to_string(), "'temperature': must be between 0 and 2, got -1");
        let empty = [Prompt::Text(String::new()), Prompt::Tokens(Vec::new()), Prompt::Chat(Vec::new())];
        assert!(empty.into_iter().all(|prompt| engine.submit(RawRequest { prompt, ..story(1) }).is_err()));
        assert!(matches!(Embedded::start(Some("./no/such"), None), Err(EmbeddedError::Start(_))));
        assert!(matches!(Embedded::start(None, Some(Path::new("no.yaml"))), Err(EmbeddedError::Start(_))));
    }
}
