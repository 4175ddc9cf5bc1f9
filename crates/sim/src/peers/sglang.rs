//! SGLang with the longest prefix match (Zheng et al., NeurIPS 2024; `python/sglang/srt/managers/schedule_policy.py` and
//! `scheduler.py`).

use std::cmp::Reverse;
use std::collections::HashSet;

use forebay_core::units::Micros;

use super::blocks::Key;
use super::engine::{Engine, Scheduler};

/// Prompts before decodes, in steps of their own, the one of which most is cached first; of several that begin alike and are not
/// cached, one goes in its turn and the others last. Prompts are cut at the tokens of a step, the chunk. A prompt is
/// taken only while there are blocks for it and for what is expected of all outputs; a share of them that falls with every decode
/// step (`new_token_ratio`). If blocks run out nevertheless, who has said least is computed again.
pub struct Sglang {
    waiting: Vec<usize>,
    running: Vec<usize>,
    /// Of which a part is computed.
    chunked: Option<usize>,
    new_token_ratio: f64,
}

/// Longer queues are not sorted (`CACHE_AWARE_POLICY_MAX_QUEUE`-like bound of `_determine_active_policy`).
const MOST_SORTED: usize = 128;
/// Tokens up to which something counts as not cached, and from which two prompts count as alike (`IN_BATCH_PREFIX_CACHING_*`).
const ALIKE_TOKENS: usize = 32;
/// `new_token_ratio` at first, at last, and the decode steps between.
const FIRST_RATIO: f64 = 0.7;
const LAST_RATIO: f64 = 0.098;
const RATIO_STEPS: f64 = 600.0;

impl Default for Sglang {
    fn default() -> Sglang {
        Sglang { waiting: Vec::new(), running: Vec::new(), chunked: None, new_token_ratio: FIRST_RATIO }
    }
}

impl Sglang {
    fn sort(&mut self, engine: &Engine) {
        if self.waiting.len() > MOST_SORTED {
            self.waiting.sort_unstable();
            return;
        }
        let alike = ALIKE_TOKENS.div_ceil(engine.blocks.size);
        let mut first: HashSet<Key> = HashSet::new();
        let mut ranked = Vec::with_capacity(self.waiting.len());
        self.waiting.sort_unstable();
        for &id in &self.waiting {
            let cached = engine.cached(id);
            // The key of a block names all before it, too.
            let beginning = engine.shareable(id).get(alike - 1).filter(|_| cached * engine.blocks.size <= ALIKE_TOKENS);
            let waits_for_another = beginning.is_some_and(|key| !first.insert(*key));
            ranked.push((waits_for_another, Reverse(cached), id));
        }
        ranked.sort_unstable();
        self.waiting = ranked.into_iter().map(|(_, _, id)| id).collect();
    }

    /// Tokens that those who run are expected to say still.
    fn expected(&self, engine: &Engine) -> f64 {
        let rest = |id: &usize| engine.sequences[*id].output - engine.sequences[*id].generated;
        self.running.iter().map(rest).sum::<usize>() as f64 * self.new_token_ratio
    }

    fn prompts(&mut self, engine: &mut Engine) -> Vec<(usize, usize)> {
        let mut plan = Vec::new();
        let mut left = engine.step_tokens;
        if let Some(id) = self.chunked {
            let tokens = engine.sequences[id].missing().min(left);
            if engine.grow(id, tokens) {
                left -= tokens;
                plan.push((id, tokens));
                self.chunked = (engine.sequences[id].missing() > tokens).then_some(id);
            }
        }
        self.sort(engine);
        while left > 0 && self.chunked.is_none() && self.running.len() < engine.seats {
            let Some(&id) = self.waiting.first() else { break };
            let output = engine.sequences[id].output;
            let room = (engine.blocks.free() * engine.blocks.size) as f64 - self.expected(engine);
            let missing = engine.sequences[id].missing();
            let alone = self.running.is_empty() && plan.is_empty();
            if !alone && (missing + output) as f64 > room {
                break;
            }
            engine.share(id);
            let missing = engine.sequences[id].missing();
            let tokens = missing.min(left);
            if !engine.grow(id, tokens) {
                engine.forget(id);
                break;
            }
            left -= tokens;
            self.waiting.remove(0);
            self.running.push(id);
            plan.push((id, tokens));
            self.chunked = (missing > tokens).then_some(id);
        }
        plan
    }

    fn decodes(&mut self, engine: &mut Engine) -> Vec<(usize, usize)> {
        while self.running.len() * usize::from(engine.blocks.free() < self.running.len()) > 1 {
            // Each may need a block. Who has said least goes; of equals the longest prompt.
            let least = |id: &usize| (engine.sequences[*id].generated, Reverse(engine.sequences[*id].prompt));
            let Some(victim) = self.running.iter().copied().min_by_key(least) else { break };
            self.on_end(victim);
            engine.forget(victim);
            self.waiting.push(victim);
        }
        self.new_token_ratio = (self.new_token_ratio - (FIRST_RATIO - LAST_RATIO) / RATIO_STEPS).max(LAST_RATIO);
        let decoding = self.running.iter().filter(|id| engine.sequences[**id].decodes());
        let ids: Vec<usize> = decoding.copied().collect();
        ids.into_iter().filter(|id| engine.grow(*id, 1)).map(|id| (id, 1)).collect()
    }
}

impl Scheduler for Sglang {
    fn on_arrival(&mut self, _engine: &Engine, id: usize) {
        self.waiting.push(id);
    }

    fn plan(&mut self, engine: &mut Engine, _now: Micros) -> Vec<(usize, usize)> {
        let prompts = self.prompts(engine);
        if prompts.is_empty() { self.decodes(engine) } else { prompts }
    }

    fn on_end(&mut self, id: usize) {
        self.running.retain(|other| *other != id);
        self.chunked = self.chunked.filter(|other| *other != id);
    }
}
