//! An engine loop in this process over a real model, for tests that need what HTTP hides: pools, steps, panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_clock::Clock;
use forebay_core::intake::{self, Capacity};
use forebay_core::request::{Event, FinishReason, Limits, Origin, Parameters, Request, RequestError};
use forebay_core::scheduler::policy::{PolicyConfig, PolicyKind};
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::scheduler::{self, Preemption, Speculative};
use forebay_core::units::{Micros, SeqId, TokenId};
use forebay_engine::forward::Forward;
use forebay_engine::heartbeat::Heartbeat;
use forebay_engine::loop_state::{LoopParts, LoopState};
use forebay_engine::metrics::Metrics;
use forebay_engine::permit::Gate;
use forebay_engine::{EngineHandle, run};
use forebay_model::{DeviceChoice, LoadOptions, Source};
use forebay_turn::control::Tuning;
use forebay_turn::core::{Config, Core};
use forebay_turn::decision_log::Entry;
use forebay_turn::executor::Executor;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::server::golden_folder;

pub const BLOCK_SIZE: usize = 16;

/// A loop under test. Dropping every handle ends it; `join` gives its core back.
pub struct Rig<E: Executor = Forward> {
    pub handle: EngineHandle,
    pub task: JoinHandle<Core<E>>,
    pub heartbeat: Arc<Heartbeat>,
    /// What the loop heard and decided, where [`Setup::record`] says so.
    pub log: Option<mpsc::Receiver<Entry>>,
    pub tuning: Tuning,
    pub config: Config,
}

/// What a test varies.
#[derive(Clone, Copy)]
pub struct Setup {
    pub num_blocks: usize,
    pub max_num_seqs: usize,
    pub max_num_batched_tokens: usize,
    pub multi_step_count: usize,
    pub queue_capacity: usize,
    pub preemption: Preemption,
    pub prefix_caching: bool,
    pub speculative: Speculative,
    pub overlap: bool,
    pub policy: PolicyKind,
    pub max_stall: Option<Micros>,
    /// Entries of the log.
    pub record: Option<usize>,
    pub device: DeviceChoice,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            num_blocks: 1_024,
            max_num_seqs: 32,
            max_num_batched_tokens: 64,
            multi_step_count: 1,
            queue_capacity: 1_000,
            preemption: Preemption::MostRecent,
            prefix_caching: true,
            speculative: Speculative::Off,
            overlap: true,
            policy: PolicyKind::Fair,
            max_stall: None,
            record: None,
            device: DeviceChoice::Auto,
        }
    }
}

/// The embedded model.
pub fn storyteller(setup: Setup) -> Rig {
    rig(setup, &Source::Builtin, 1_024, |forward| forward)
}

/// The embedded model, its executor wrapped.
pub fn storyteller_with<E: Executor>(setup: Setup, wrap: impl FnOnce(Forward) -> E) -> Rig<E> {
    rig(setup, &Source::Builtin, 1_024, wrap)
}

/// The golden Llama, its executor wrapped.
pub fn golden<E: Executor>(setup: Setup, wrap: impl FnOnce(Forward) -> E) -> Rig<E> {
    rig(setup, &Source::Folder(golden_folder("llama")), 256, wrap)
}

fn rig<E: Executor>(setup: Setup, source: &Source, context: usize, wrap: impl FnOnce(Forward) -> E) -> Rig<E> {
    let mut model = forebay_model::load(source, &LoadOptions { device: setup.device, ..LoadOptions::default() })
        .expect("the model loads")
        .model;
    model.allocate_kv(setup.num_blocks, BLOCK_SIZE).expect("memory for the cache");
    let scheduler = scheduler::Config {
        prefix_caching: setup.prefix_caching,
        speculative: setup.speculative,
        whole_prompts: model.spec().only_embeds(),
        max_num_seqs: setup.max_num_seqs,
        max_num_batched_tokens: setup.max_num_batched_tokens,
        max_model_len: context.min(setup.num_blocks * BLOCK_SIZE),
        preemption: setup.preemption,
        policy: PolicyConfig { kind: setup.policy, ..PolicyConfig::default() },
        max_stall: setup.max_stall,
        slo: forebay_core::slo::Slo::default(),
    };
    let config = Config {
        scheduler,
        num_blocks: setup.num_blocks,
        block_size: BLOCK_SIZE,
        multi_step_count: setup.multi_step_count,
    };
    let core = Core::new(config, wrap(Forward::new(model)));
    let (heartbeat, metrics) = (Arc::new(Heartbeat::default()), Metrics::new());
    let capacity = Capacity { requests: setup.queue_capacity, tokens: 1 << 30 };
    let intake = intake::Config { capacity, ..intake::Config::default() };
    let gate = Gate::new(capacity);
    let tuning = Tuning { intake, scheduler };
    let mut state = LoopState::new(LoopParts {
        tuning: tuning.clone(),
        thermal: Thresholds::default(),
        gate: gate.clone(),
        clock: Clock::system(),
        metrics,
        heartbeat: heartbeat.clone(),
    })
    .overlapping(setup.overlap);
    let (sender, commands) = mpsc::channel(256);
    let log = setup.record.map(|most| state.record(most));
    let task = tokio::spawn(run::run(core, state, commands));
    Rig { handle: EngineHandle::new(sender, gate), task, heartbeat, log, tuning, config }
}

impl<E: Executor> Rig<E> {
    /// Submits one greedy request and collects everything it says.
    pub async fn complete(&self, prompt: &[TokenId], max_tokens: i64) -> Completion {
        collect(self.submit(prompt, max_tokens).await).await
    }

    pub async fn submit(&self, prompt: &[TokenId], max_tokens: i64) -> mpsc::Receiver<Event> {
        submit(&self.handle, vec![request(prompt, max_tokens)]).await.expect("accepted").remove(0)
    }

    /// Ends the loop and looks at its core.
    pub async fn join(self) -> Core<E> {
        drop(self.handle);
        self.task.await.expect("the loop ends cleanly")
    }
}

/// Permit and submission in one.
pub async fn submit(handle: &EngineHandle, group: Vec<Request>) -> Result<Vec<mpsc::Receiver<Event>>, RequestError> {
    let tokens = group.iter().map(|request| request.prompt().len()).sum();
    let class = group.iter().map(Request::priority).max().unwrap_or_default();
    let permit = handle.permit(class, group.len(), tokens, 0.5)?;
    Ok(handle.submit(group, permit).await?.1)
}

/// A finished sequence's tokens and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    pub tokens: Vec<TokenId>,
    pub end: Result<FinishReason, RequestError>,
}

pub async fn collect(mut events: mpsc::Receiver<Event>) -> Completion {
    let mut tokens = Vec::new();
    loop {
        match events.recv().await.expect("an end before the channel closes") {
            Event::Admitted { .. } | Event::Embedded(_) => {}
            Event::Token(sampled) => tokens.push(sampled.token),
            Event::Finished(reason) => return Completion { tokens, end: Ok(reason) },
            Event::Failed(error) => return Completion { tokens, end: Err(error) },
        }
    }
}

/// A greedy request that runs to its `max_tokens`.
pub fn request(prompt: &[TokenId], max_tokens: i64) -> Request {
    asking(prompt, max_tokens, |raw| raw)
}

/// The same, of this tenant.
pub fn request_of(tenant: &str, prompt: &[TokenId], max_tokens: i64) -> Request {
    let origin = Origin { tenant: tenant.into(), ..Origin::default() };
    asking(prompt, max_tokens, |raw| Parameters { origin, ..raw })
}

/// The same, with more to ask for.
pub fn asking(prompt: &[TokenId], max_tokens: i64, more: impl FnOnce(Parameters) -> Parameters) -> Request {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let raw =
        Parameters { max_tokens: Some(max_tokens), temperature: Some(0.0), ignore_eos: true, ..Parameters::default() };
    let limits = Limits::new(1_024, 320, 64);
    let checked = more(raw).check(&limits, 0).expect("in range");
    let id = || SeqId(NEXT.fetch_add(1, Ordering::Relaxed));
    checked.into_requests(prompt.to_vec(), &[], &limits, id).expect("fits").requests.remove(0)
}
