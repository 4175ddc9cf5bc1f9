//! An engine loop over a model, as the server starts it: a thread of its own, the step on another. For examples that measure it.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use forebay_clock::Clock;
use forebay_core::intake::{self, Capacity};
use forebay_core::request::{Event, Limits, Parameters, Priority};
use forebay_core::scheduler::policy::PolicyConfig;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::scheduler::{self, Preemption, Speculative};
use forebay_core::units::SeqId;
use forebay_engine::forward::Forward;
use forebay_engine::heartbeat::Heartbeat;
use forebay_engine::loop_state::{LoopParts, LoopState};
use forebay_engine::metrics::Metrics;
use forebay_engine::permit::Gate;
use forebay_engine::{EngineHandle, run};
use forebay_model::{LoadOptions, Source};
use forebay_turn::control::Tuning;
use forebay_turn::core::{Config, Core};
use tokio::sync::mpsc;

const BLOCK_SIZE: usize = 32;
pub const CONTEXT: usize = 1_024;
const PROMPT: usize = 16;

#[derive(Clone, Copy)]
pub struct Setup {
    pub seats: usize,
    pub queue: usize,
    pub overlap: bool,
}

pub struct Engine {
    pub handle: EngineHandle,
    thread: JoinHandle<()>,
}

/// Over a GGUF file, or the embedded model.
pub fn start(file: Option<&Path>, setup: Setup) -> Result<Engine> {
    let source = file.map_or(Source::Builtin, |path| Source::Gguf(path.to_path_buf()));
    let mut model = forebay_model::load(&source, &LoadOptions::default())?.model;
    let num_blocks = setup.seats * CONTEXT / BLOCK_SIZE;
    model.allocate_kv(num_blocks, BLOCK_SIZE)?;
    let scheduler = scheduler::Config {
        prefix_caching: true,
        speculative: Speculative::Off,
        whole_prompts: false,
        max_num_seqs: setup.seats,
        max_num_batched_tokens: 512,
        max_model_len: CONTEXT,
        preemption: Preemption::MostRecent,
        policy: PolicyConfig::default(),
        max_stall: None,
        slo: forebay_core::slo::Slo::default(),
    };
    let core =
        Core::new(Config { scheduler, num_blocks, block_size: BLOCK_SIZE, multi_step_count: 1 }, Forward::new(model));
    let capacity = Capacity { requests: setup.queue, tokens: 1 << 30 };
    let gate = Gate::new(capacity);
    let state = LoopState::new(LoopParts {
        tuning: Tuning { intake: intake::Config { capacity, ..intake::Config::default() }, scheduler },
        thermal: Thresholds::default(),
        gate: gate.clone(),
        clock: Clock::system(),
        metrics: Metrics::new(),
        heartbeat: Arc::new(Heartbeat::default()),
    })
    .overlapping(setup.overlap);
    let (sender, commands) = mpsc::channel(256);
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_time().build()?;
    let thread = std::thread::spawn(move || drop(runtime.block_on(run::run(core, state, commands))));
    Ok(Engine { handle: EngineHandle::new(sender, gate), thread })
}

impl Engine {
    /// A greedy request with a prompt of its own.
    pub async fn submit(&self, id: usize, max_tokens: usize) -> Result<mpsc::Receiver<Event>> {
        let raw = Parameters {
            max_tokens: Some(max_tokens as i64),
            temperature: Some(0.0),
            ignore_eos: true,
            ..Parameters::default()
        };
        let limits = Limits::new(CONTEXT as u32, 2_048, 8);
        let prompt = (0..PROMPT).map(|at| (300 + (id * 31 + at * 17) % 1_500) as u32).collect();
        let built = raw.check(&limits, 0)?.into_requests(prompt, &[], &limits, || SeqId(id as u64 + 1))?;
        let permit = self.handle.permit(Priority::Normal, 1, PROMPT, 0.5)?;
        Ok(self.handle.submit(built.requests, permit).await?.1.remove(0))
    }

    pub async fn shutdown(self) -> Result<()> {
        self.handle.shutdown().await?;
        self.thread.join().ok().context("the loop panicked")
    }
}

/// Waits for the next token.
pub async fn token(events: &mut mpsc::Receiver<Event>) -> Result<()> {
    loop {
        match events.recv().await.context("the engine is gone")? {
            Event::Admitted { .. } | Event::Embedded(_) => {}
            Event::Token(_) => return Ok(()),
            Event::Finished(_) => bail!("a sequence ended before it was measured"),
            Event::Failed(error) => return Err(error.into()),
        }
    }
}
