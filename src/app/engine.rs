//! From configuration to engine loops over one model.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::Config;
use crate::generate::{Embeddings, Generator, GeneratorParts};
use forebay_core::request::Limits;
use forebay_core::scheduler;
use forebay_engine::forward::Forward;
use forebay_engine::workers::Local;
use forebay_model::{LoadedModel, Model, TokenizerSource};
use forebay_text::{ChatTemplate, Tokenizer};
use forebay_turn::core;

use super::failure::{Failure, input};
use super::kv_plan::{self, KvModel, KvPlan};
use super::loops::{Blueprint, Shared};
use super::memory;
use super::source;
use super::threads::compute_threads;

/// Engine loops, and what a generator over them is made of.
pub struct Engines {
    /// With their ids.
    pub locals: Vec<(String, Local)>,
    pub served: Served,
}

/// Bytes that a token of a prompt may stand for where words are unknown as a whole.
const UNKNOWN_WORD_BYTES: usize = 256;

/// A model, as far as whoever asks it needs to know.
pub struct Served {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub eos: Vec<forebay_core::units::TokenId>,
    pub limits: Limits,
    pub embeddings: Embeddings,
    /// Its own name.
    pub id: String,
    /// The same for the same program, model and backend.
    pub fingerprint: String,
}

/// Loads the model, once for all loops, and starts them.
pub fn start(config: &Config, shared: &Shared) -> Result<Engines, Failure> {
    let loaded = forebay_model::load(&source::resolve(&config.model.reference).map_err(input)?, &config.model.options)
        .map_err(input)?;
    let only_embeds = loaded.model.spec().only_embeds();
    let kv = kv_plan(config, &loaded)?;
    report(&loaded, &kv);
    let (num_blocks, block_size, max_model_len) = (kv.size.num_blocks, kv.block_size, kv.max_model_len());
    let core = core_config(config, num_blocks, max_model_len + kv.spare, config.scheduler.max_num_batched_tokens);
    let core = core::Config { scheduler: scheduler::Config { whole_prompts: only_embeds, ..core.scheduler }, ..core };
    let tokenizer = Arc::new(tokenizer(&loaded)?);
    // A WordPiece tokenizer makes one token of a word that it does not know, however long.
    let longest_token = tokenizer.max_token_bytes().max(if only_embeds { UNKNOWN_WORD_BYTES } else { 0 });
    let served = Served {
        tokenizer,
        template: chat_template(&loaded)?,
        eos: loaded.eos.clone(),
        limits: Limits {
            defaults: loaded.defaults,
            only_embeds,
            ..Limits::new(max_model_len as u32, loaded.model.vocab_size() as u32, longest_token)
        },
        embeddings: Embeddings {
            pooling: config.model.pooling.or(loaded.pooling).unwrap_or_default(),
            width: loaded.model.width(),
            normalised: loaded.normalised,
        },
        id: loaded.id.clone(),
        fingerprint: fingerprint(&loaded),
    };
    // Its weights are the loops'; it computes nothing itself.
    let prototype = Arc::new(Mutex::new(loaded.model));
    let executor = move || {
        let mut model: Model = prototype.lock().unwrap_or_else(PoisonError::into_inner).replica();
        model.allocate_kv(num_blocks, block_size).map_err(|error| error.to_string())?;
        Ok(Forward::new(model))
    };
    let blueprint = Blueprint::new(config, core, shared);
    let locals = blueprint.start("engine", config.workers.count, compute_threads(config), executor)?;
    Ok(Engines { locals, served })
}

/// What decides in each loop.
pub fn core_config(
    config: &Config,
    num_blocks: usize,
    max_model_len: usize,
    max_num_batched_tokens: usize,
) -> core::Config {
    core::Config {
        scheduler: scheduler_config(config, max_model_len, max_num_batched_tokens),
        num_blocks,
        block_size: config.kv_cache.block_size,
        multi_step_count: config.engine.multi_step_count,
    }
}

/// What plans steps, of generation; encoders want whole prompts beside it.
pub fn scheduler_config(config: &Config, max_model_len: usize, max_num_batched_tokens: usize) -> scheduler::Config {
    scheduler::Config { max_num_batched_tokens, max_model_len, ..config.scheduler }
}

impl Served {
    /// Who makes requests of text, and text of tokens.
    pub fn generator(self, config: &Config, workers: forebay_engine::workers::Pool) -> Generator {
        let Served { tokenizer, template, eos, limits, embeddings, id, .. } = self;
        Generator::new(GeneratorParts {
            workers,
            tokenizer,
            template,
            eos,
            limits,
            model_id: config.model.served_names.first().cloned().unwrap_or(id),
            aliases: config.model.served_names.iter().skip(1).cloned().collect(),
            adapters: config.model.adapters.clone(),
            parsers: config.model.parsers,
            grammars: config.structured_output,
            embeddings,
        })
    }
}

fn kv_plan(config: &Config, loaded: &LoadedModel) -> Result<KvPlan, Failure> {
    let asked = config.kv_cache.memory_bytes;
    let budget = match loaded.model.device_memory().map_err(input)? {
        Some(room) => memory::device_budget(asked, room).map_err(input)?,
        None => asked.unwrap_or_else(memory::auto_budget),
    };
    let model = KvModel {
        spec: loaded.model.spec(),
        context: loaded.max_position_embeddings,
        bytes_per_token: loaded.model.kv_bytes_per_token(),
    };
    kv_plan::plan(config, &model, budget).map_err(input)
}

pub fn tokenizer(loaded: &LoadedModel) -> Result<Tokenizer, Failure> {
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

pub fn chat_template(loaded: &LoadedModel) -> Result<Option<ChatTemplate>, Failure> {
    let chat = &loaded.chat;
    let compile = |source: &String| ChatTemplate::new(source, chat.bos_token.clone(), chat.eos_token.clone());
    chat.template.as_ref().map(compile).transpose().map_err(input)
}

/// Said before anything large is allocated, so that the last line before an out-of-memory kill explains it.
fn report(loaded: &LoadedModel, kv: &KvPlan) {
    let max_model_len = kv.max_model_len();
    tracing::info!(
        event = "model_loaded",
        model = loaded.id,
        parameters = loaded.model.spec().parameters(),
        workers = kv.loops,
        kv_blocks = kv.size.num_blocks * kv.loops,
        kv_tokens = kv.tokens(),
        kv_mib = kv.bytes() >> 20,
        max_model_len,
        "model loaded"
    );
    if !loaded.model.unpacked().is_empty() {
        tracing::warn!(
            event = "weights_unpacked",
            types = loaded.model.unpacked().join(", "),
            "the device has no kernels for these types of the file; such weights are unpacked and take more memory"
        );
    }
    if max_model_len < kv.wanted {
        tracing::warn!(
            event = "context_limited",
            wanted = kv.wanted,
            max_model_len,
            "the KV cache is smaller than the context; raise kv_cache.memory for the whole of it"
        );
    }
}
