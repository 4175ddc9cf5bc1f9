//! From configuration to a running engine loop.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::config::Config;
use crate::engine::command::EngineCommand;
use crate::engine::control::Tuning;
use crate::engine::core::{self, Core};
use crate::engine::forward::Forward;
use crate::engine::heartbeat::Heartbeat;
use crate::engine::home::{Home, HomeParts};
use crate::engine::permit::Gate;
use crate::engine::{EngineHandle, run};
use crate::generate::{Embeddings, Generator, GeneratorParts, GrammarConfig};
use crate::metrics::Metrics;
use crate::model::{self, LoadedModel, TokenizerSource};
use crate::request::Limits;
use crate::scheduler;
use crate::text::{ChatTemplate, Tokenizer};

use super::memory::{self, KvNeeds, KvSize};
use super::source;
use super::{Failure, input};

/// Commands that may wait for the loop; beyond it their senders wait, which is how a flood is slowed down.
const COMMAND_CAPACITY: usize = 1024;

/// A loop that runs on a thread of its own, and what the HTTP face needs of it.
pub struct RunningEngine {
    pub handle: EngineHandle,
    pub generator: Generator,
    pub metrics: Arc<Metrics>,
    pub heartbeat: Arc<Heartbeat>,
    pub thread: JoinHandle<()>,
    /// Resolves when the loop has returned.
    pub ended: oneshot::Receiver<()>,
    /// The same for the same program, model and backend.
    pub fingerprint: String,
}

pub fn start(config: &Config, clock: &Clock) -> Result<RunningEngine, Failure> {
    let mut loaded =
        model::load(&source::resolve(&config.model.reference).map_err(input)?, &config.model.options).map_err(input)?;
    let context = loaded.max_position_embeddings;
    let wanted = config.engine.max_model_len.unwrap_or(context).min(context) as usize;
    let kv = kv_size(config, &loaded, wanted)?;
    let block_size = config.kv_cache.block_size;
    let kv_tokens = kv.num_blocks * block_size;
    // A sequence must fit the pool alone, or it could never finish.
    let max_model_len = wanted.min(kv_tokens);
    report(&loaded, &kv, block_size, max_model_len, wanted);
    loaded.model.allocate_kv(kv.num_blocks, block_size).map_err(input)?;

    let core_config = core::Config {
        scheduler: scheduler::Config {
            max_num_seqs: config.engine.max_num_seqs,
            max_num_batched_tokens: config.engine.max_num_batched_tokens,
            max_model_len,
            preemption: config.engine.preemption,
            policy: config.policy,
            max_stall: config.engine.max_stall,
            prefix_caching: config.kv_cache.prefix_caching,
            speculative: config.engine.speculative,
        },
        num_blocks: kv.num_blocks,
        block_size,
        multi_step_count: config.engine.multi_step_count,
    };
    let tokenizer = Arc::new(tokenizer(&loaded)?);
    let template = chat_template(&loaded)?;
    let limits = Limits {
        defaults: loaded.defaults,
        ..Limits::new(max_model_len as u32, loaded.model.vocab_size() as u32, tokenizer.max_token_bytes())
    };
    let metrics = Metrics::new();
    let heartbeat = Arc::new(Heartbeat::default());
    let gate = Gate::new(config.intake.capacity);
    let home = Home::new(HomeParts {
        tuning: Tuning { intake: config.intake, scheduler: core_config.scheduler },
        thermal: config.thermal.thresholds,
        gate: gate.clone(),
        clock: clock.clone(),
        metrics: metrics.clone(),
        heartbeat: heartbeat.clone(),
    })
    .overlapping(config.engine.overlap);
    let (sender, commands) = mpsc::channel(COMMAND_CAPACITY);
    let handle = EngineHandle::new(sender, gate);
    let generator = Generator::new(GeneratorParts {
        engine: handle.clone(),
        tokenizer,
        template,
        eos: loaded.eos.clone(),
        limits,
        model_id: config.model.served_names.first().cloned().unwrap_or_else(|| loaded.id.clone()),
        aliases: config.model.served_names.iter().skip(1).cloned().collect(),
        parsers: config.model.parsers,
        grammars: GrammarConfig {
            max_bytes: config.structured_output.max_bytes,
            compile_timeout: config.structured_output.compile_timeout,
            cache_entries: config.structured_output.cache_entries,
        },
        embeddings: Embeddings {
            pooling: config.model.pooling.or(loaded.pooling).unwrap_or_default(),
            width: loaded.model.width(),
        },
    });
    let fingerprint = fingerprint(&loaded);
    let core = Core::new(core_config, Forward::new(loaded.model));
    // Ready from here on: what comes before the thread's first turn waits in the channel.
    heartbeat.rest();
    let (thread, ended) = spawn(core, home, commands)?;
    Ok(RunningEngine { handle, generator, metrics, heartbeat, thread, ended, fingerprint })
}

/// The loop has a runtime of its own: one thread for it and one, at most, for the step.
fn spawn(
    core: Core<Forward>,
    home: Home,
    commands: mpsc::Receiver<EngineCommand>,
) -> Result<(JoinHandle<()>, oneshot::Receiver<()>), Failure> {
    let runtime = runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_time()
        .build()
        .context("the engine's runtime")?;
    let (alive, ended) = oneshot::channel();
    let body = move || {
        let core = runtime.block_on(run::run(core, home, commands));
        drop((core, alive));
    };
    let thread = std::thread::Builder::new().name("engine".into()).spawn(body).context("the engine's thread")?;
    Ok((thread, ended))
}

fn kv_size(config: &Config, loaded: &LoadedModel, max_model_len: usize) -> Result<KvSize, Failure> {
    let needs = KvNeeds {
        bytes_per_token: loaded.model.kv_bytes_per_token(),
        block_size: config.kv_cache.block_size,
        max_num_seqs: config.engine.max_num_seqs,
        max_model_len,
    };
    memory::kv_size(&needs, config.kv_cache.memory_bytes.unwrap_or_else(memory::auto_budget)).map_err(input)
}

fn tokenizer(loaded: &LoadedModel) -> Result<Tokenizer, Failure> {
    match &loaded.tokenizer {
        TokenizerSource::Json(json) => Tokenizer::from_json(json).map_err(input),
        TokenizerSource::Gguf(vocab) => Tokenizer::from_gguf(vocab).map_err(input),
    }
}

fn fingerprint(loaded: &LoadedModel) -> String {
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), &loaded.id, loaded.model.spec().parameters()).hash(&mut hasher);
    match &loaded.tokenizer {
        TokenizerSource::Json(json) => json.hash(&mut hasher),
        TokenizerSource::Gguf(vocab) => (&vocab.tokens, &vocab.merges).hash(&mut hasher),
    }
    format!("fp_{:012x}", hasher.finish() >> 16)
}

fn chat_template(loaded: &LoadedModel) -> Result<Option<ChatTemplate>, Failure> {
    let chat = &loaded.chat;
    let compile = |source: &String| ChatTemplate::new(source, chat.bos_token.clone(), chat.eos_token.clone());
    chat.template.as_ref().map(compile).transpose().map_err(input)
}

/// Said before anything large is allocated, so that the last line before an out-of-memory kill explains it.
fn report(loaded: &LoadedModel, kv: &KvSize, block_size: usize, max_model_len: usize, wanted: usize) {
    tracing::info!(
        event = "model_loaded",
        model = loaded.id,
        parameters = loaded.model.spec().parameters(),
        kv_blocks = kv.num_blocks,
        kv_tokens = kv.num_blocks * block_size,
        kv_mib = kv.bytes >> 20,
        max_model_len,
        "model loaded"
    );
    if max_model_len < wanted {
        tracing::warn!(
            event = "context_limited",
            wanted,
            max_model_len,
            "the KV cache is smaller than the context; raise kv_cache.memory for the whole of it"
        );
    }
}
