//! Prompts before decodes: vLLM v0 (`vllm/core/scheduler.py`, `Scheduler._schedule_default`), whose iteration-level batching is that
//! of Orca (Yu et al., OSDI 2022).

use std::collections::VecDeque;

use forebay_core::units::Micros;

use super::engine::{Engine, Scheduler};

/// First come, first served: as long as the next prompts fit into a step as a whole and seats and blocks are left, steps compute
/// prompts only; otherwise all sequences that run decode. A step holds as many tokens as the longest prompt at least, as v0
/// requires. There is no prefix cache, v0's default. Who finds no block puts out who came last.
#[derive(Default)]
pub struct PrefillFirst {
    waiting: VecDeque<usize>,
    running: Vec<usize>,
}

impl PrefillFirst {
    fn prompts(&mut self, engine: &mut Engine) -> Vec<(usize, usize)> {
        let mut plan: Vec<(usize, usize)> = Vec::new();
        let mut spent = 0;
        while self.running.len() < engine.seats {
            let Some(&id) = self.waiting.front() else { break };
            let tokens = engine.sequences[id].missing();
            let fits = spent == 0 || spent + tokens <= engine.step_tokens;
            if !fits || !engine.grow(id, tokens) {
                break;
            }
            spent += tokens;
            self.waiting.pop_front();
            self.running.push(id);
            plan.push((id, tokens));
        }
        plan
    }

    fn decodes(&mut self, engine: &mut Engine) -> Vec<(usize, usize)> {
        let mut at = 0;
        while at < self.running.len() {
            if engine.grow(self.running[at], 1) {
                at += 1;
            } else {
                let last = self.running.pop().expect("one of them asked");
                engine.forget(last);
                self.waiting.push_front(last);
            }
        }
        self.running.iter().map(|id| (*id, 1)).collect()
    }
}

impl Scheduler for PrefillFirst {
    fn on_arrival(&mut self, _engine: &Engine, id: usize) {
        self.waiting.push_back(id);
    }

    fn plan(&mut self, engine: &mut Engine, _now: Micros) -> Vec<(usize, usize)> {
        let prompts = self.prompts(engine);
        if prompts.is_empty() { self.decodes(engine) } else { prompts }
    }

    fn on_end(&mut self, id: usize) {
        self.running.retain(|other| *other != id);
    }
}
