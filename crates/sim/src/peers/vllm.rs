//! vLLM v1 (`vllm/v1/core/sched/scheduler.py`, `Scheduler.schedule`).

use forebay_core::units::Micros;

use super::engine::{Engine, Scheduler};

/// No phases: each step has a budget of tokens, which goes first to the sequences that run, in the order in which they came, then
/// to those that wait, as far as seats and blocks are left. Prompts are cut at the budget (chunked prefill, the default). Who finds
/// no block puts the sequence that came last out of its seat, to be computed again.
///
/// With priorities the queue is ordered by them, and it is the least urgent that is put out; who has a seat keeps it otherwise.
#[derive(Default)]
pub struct Vllm {
    by_priority: bool,
    /// Next first.
    waiting: Vec<usize>,
    running: Vec<usize>,
}

impl Vllm {
    pub fn with_priorities() -> Vllm {
        Vllm { by_priority: true, ..Vllm::default() }
    }

    /// The smaller, the earlier.
    fn rank(&self, engine: &Engine, id: usize) -> (usize, usize) {
        (if self.by_priority { engine.sequences[id].priority.index() } else { 0 }, id)
    }

    fn enqueue(&mut self, engine: &Engine, id: usize) {
        let rank = self.rank(engine, id);
        let at = self.waiting.partition_point(|other| self.rank(engine, *other) < rank);
        self.waiting.insert(at, id);
    }

    /// Blocks for a running sequence, taken from others if need be; false if it had to go itself.
    fn make_room(&mut self, engine: &mut Engine, plan: &mut Vec<(usize, usize)>, id: usize, tokens: usize) -> bool {
        while !engine.grow(id, tokens) {
            let last = self.running.iter().copied().max_by_key(|other| self.rank(engine, *other));
            let victim = last.expect("it runs itself");
            self.running.retain(|other| *other != victim);
            plan.retain(|(other, _)| *other != victim);
            engine.forget(victim);
            self.enqueue(engine, victim);
            if victim == id {
                return false;
            }
        }
        true
    }
}

impl Scheduler for Vllm {
    fn on_arrival(&mut self, engine: &Engine, id: usize) {
        self.enqueue(engine, id);
    }

    fn plan(&mut self, engine: &mut Engine, _now: Micros) -> Vec<(usize, usize)> {
        let mut plan = Vec::new();
        let mut preempted = false;
        for id in self.running.clone() {
            let budget = engine.step_tokens - spent(&plan);
            if budget == 0 || !self.running.contains(&id) {
                continue;
            }
            let tokens = engine.sequences[id].missing().min(budget);
            let before = self.running.len();
            if self.make_room(engine, &mut plan, id, tokens) {
                engine.publish(id, engine.sequences[id].computed + tokens);
                plan.push((id, tokens));
            }
            preempted |= self.running.len() < before;
        }
        while !preempted && self.running.len() < engine.seats && spent(&plan) < engine.step_tokens {
            let Some(&id) = self.waiting.first() else { break };
            engine.share(id);
            let tokens = engine.sequences[id].missing().min(engine.step_tokens - spent(&plan));
            if !engine.grow(id, tokens) {
                engine.forget(id);
                break;
            }
            engine.publish(id, engine.sequences[id].computed + tokens);
            self.waiting.remove(0);
            self.running.push(id);
            plan.push((id, tokens));
        }
        plan
    }

    fn on_end(&mut self, id: usize) {
        self.running.retain(|other| *other != id);
    }
}

fn spent(plan: &[(usize, usize)]) -> usize {
    plan.iter().map(|(_, tokens)| tokens).sum()
}
