//! How large the KV cache of each loop is: what `serve` takes, and what `doctor` and `model inspect` say that it will take.

use crate::config::Config;
use forebay_model::Spec;

use super::memory::{self, KvNeeds, KvSize, TooSmall};

/// What is to be known of a model before its cache can be sized.
pub struct KvModel<'a> {
    pub spec: &'a Spec,
    /// The longest sequence that its files allow.
    pub context: u32,
    /// Of all layers, K and V.
    pub bytes_per_token: usize,
}

/// The KV caches of all loops, which are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvPlan {
    /// Of one loop.
    pub size: KvSize,
    pub block_size: usize,
    pub loops: usize,
    /// The longest sequence that the model and `engine.max_model_len` allow.
    pub wanted: usize,
    /// Places that a sequence takes beyond that. An embedding takes its seat with room for the token that others draw.
    pub spare: usize,
}

/// Divides `budget_bytes` evenly among the loops that `config` asks for.
pub fn plan(config: &Config, model: &KvModel, budget_bytes: usize) -> Result<KvPlan, TooSmall> {
    let loops = config.workers.count.max(1);
    let wanted = config.model.options.context.unwrap_or(model.context).min(model.context) as usize;
    let spare = usize::from(model.spec.only_embeds());
    let needs = KvNeeds {
        bytes_per_token: model.bytes_per_token,
        block_size: config.kv_cache.block_size,
        max_num_seqs: config.scheduler.max_num_seqs,
        max_model_len: wanted + spare,
    };
    let size = memory::kv_size(&needs, budget_bytes / loops)?;
    Ok(KvPlan { size, block_size: needs.block_size, loops, wanted, spare })
}

impl KvPlan {
    /// Tokens of all loops together.
    pub fn tokens(&self) -> usize {
        self.loop_tokens() * self.loops
    }

    /// Bytes of all loops together.
    pub fn bytes(&self) -> usize {
        self.size.bytes * self.loops
    }

    /// The longest sequence that will be served: one must fit a loop's pool alone, or it could never finish.
    pub fn max_model_len(&self) -> usize {
        self.wanted.min(self.loop_tokens().saturating_sub(self.spare))
    }

    fn loop_tokens(&self) -> usize {
        self.size.num_blocks * self.block_size
    }
}
