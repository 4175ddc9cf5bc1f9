//! `--model sim`: real loops, queues and schedulers around a model that only costs time. For trying policies, balancers and
//! clients over real HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::config::{Config, Simulated};
use crate::generate::Embeddings;
use forebay_core::request::{Limits, Request};
use forebay_core::step::{Outcome, StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId, TokenId};
use forebay_model::{LoadOptions, Source};
use forebay_sim::CostModel;
use forebay_sim::executor::{SimExecutor, Stopwatch};
use forebay_turn::executor::{ExecuteError, Executor};

use super::engine::{self, Engines, Served};
use super::failure::{Failure, input};
use super::loops::{Blueprint, Shared};

/// Of prompt and completion, where `engine.max_model_len` says nothing.
const CONTEXT: u32 = 4_096;
/// All that it ever says, with the tokenizer of the embedded model.
const WORD: &str = " and";

/// The simulator's executor, taking the time that it says.
struct Paced {
    simulated: SimExecutor,
    stopwatch: Stopwatch,
    word: TokenId,
    /// The step that was run last.
    computed: Micros,
}

impl Executor for Paced {
    fn admit(&mut self, request: &Request) {
        self.simulated.admit(request);
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        let mut output = self.simulated.run(batch)?;
        for (_, outcome) in &mut output.outcomes {
            if let Outcome::Token(sampled) = outcome {
                sampled.token = self.word;
            }
        }
        self.computed = self.stopwatch.take();
        // The loop's blocking thread, as a forward pass has it.
        sleep(Duration::from_micros(self.computed.0));
        Ok(output)
    }

    fn computed(&self) -> Option<Micros> {
        Some(self.computed)
    }

    fn forget(&mut self, seq: SeqId) {
        self.simulated.forget(seq);
    }
}

pub fn start(config: &Config, shared: &Shared) -> Result<Engines, Failure> {
    // Only its words are wanted.
    let loaded = forebay_model::load(&Source::Builtin, &LoadOptions::default()).map_err(input)?;
    let tokenizer = Arc::new(engine::tokenizer(&loaded)?);
    let word = tokenizer.encode(WORD, false).map_err(input)?.last().copied().unwrap_or_default();
    let max_model_len = config.model.options.context.unwrap_or(CONTEXT);
    let limits = Limits::new(max_model_len, loaded.model.vocab_size() as u32, tokenizer.max_token_bytes());
    // Blocks hold nothing here, so every seat has all it could use.
    let blocks = (max_model_len as usize).div_ceil(config.kv_cache.block_size) * config.scheduler.max_num_seqs;
    let core = engine::core_config(config, blocks, max_model_len as usize, config.workers.simulated.max_batch_tokens);
    let (cost, seeds) = (cost(&config.workers.simulated), AtomicU64::new(config.model.options.seed));
    let executor = move || {
        let stopwatch = Stopwatch::default();
        // Loops stray from their times each in its own way.
        let simulated = SimExecutor::new(cost, seeds.fetch_add(1, Ordering::Relaxed), stopwatch.clone());
        Ok(Paced { simulated, stopwatch, word, computed: Micros::ZERO })
    };
    let blueprint = Blueprint::new(config, core, shared);
    let count = config.workers.count;
    tracing::info!(event = "model_loaded", model = "sim", workers = count, max_model_len, "simulated model");
    Ok(Engines {
        locals: blueprint.start("sim", count, count, executor)?,
        served: Served {
            template: engine::chat_template(&loaded)?,
            eos: Vec::new(),
            embeddings: Embeddings::default(),
            limits: Limits { simulated: true, ..limits },
            id: "sim".into(),
            fingerprint: "fp_simulated".into(),
            tokenizer,
        },
    })
}

fn cost(of: &Simulated) -> CostModel {
    CostModel {
        step_us: of.base_ms * 1e3,
        prefill_token_us: of.per_token_ms * 1e3,
        decode_token_us: of.per_token_ms * 1e3,
        base_noise: of.variance,
        ..CostModel::simulated_worker()
    }
}
