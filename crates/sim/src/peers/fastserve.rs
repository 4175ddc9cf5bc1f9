//! FastServe's skip-join multi-level feedback queue (Wu et al., "Fast Distributed Inference Serving for Large Language Models",
//! arXiv:2305.05920, section 4.1).

use forebay_core::scheduler::StepLoad;
use forebay_core::units::Micros;

use super::blocks::Blocks;
use super::engine::{Engine, Scheduler};
use crate::cost::CostModel;
use crate::setup::Setup;

/// Every step serves the most urgent jobs, as many as there are seats; who is not among them waits with its KV. A job joins the
/// queue whose quantum its prompt takes, skipping those above, and falls a queue whenever it has used its quantum up. Who has waited for
/// too long rises to the first queue. Prompts are computed as a whole. KV of jobs that wait lies in the host's memory and is back
/// in time, always: what the paper's proactive swapping aims at.
pub struct FastServe {
    cost: CostModel,
    /// Of the first queue; that of each next one is twice as long.
    quantum_us: f64,
    /// The most urgent first: by queue, then by when they joined it.
    jobs: Vec<Job>,
    joined: u64,
}

struct Job {
    id: usize,
    level: u32,
    joined: u64,
    /// Time computed at this level, in microseconds.
    used_us: u64,
    /// When it was served last, or came.
    served: Option<Micros>,
}

/// Waiting after which a job rises to the first queue; the paper leaves the limit to the operator.
const STARVED: Micros = Micros::from_millis(10_000);
const LEVELS: u32 = 16;

impl FastServe {
    pub fn new(setup: &Setup) -> FastServe {
        // The shortest step that there is: one decode.
        let quantum_us = setup.cost.mean_us(&(StepLoad::STEP + StepLoad::decode(1)));
        FastServe { cost: setup.cost, quantum_us, jobs: Vec::new(), joined: 0 }
    }

    fn quantum(&self, level: u32) -> f64 {
        self.quantum_us * f64::from(1_u32 << level)
    }

    fn join(&mut self, id: usize, level: u32, served: Option<Micros>) {
        self.joined += 1;
        let job = Job { id, level: level.min(LEVELS), joined: self.joined, used_us: 0, served };
        let at = self.jobs.partition_point(|other| (other.level, other.joined) < (job.level, job.joined));
        self.jobs.insert(at, job);
    }

    fn raise_the_starved(&mut self, now: Micros) {
        for job in &mut self.jobs {
            job.served.get_or_insert(now);
        }
        let starved = |job: &Job| job.level > 0 && job.served.is_some_and(|served| now.since(served) > STARVED);
        let ids: Vec<usize> = self.jobs.iter().filter(|job| starved(job)).map(|job| job.id).collect();
        for id in ids {
            self.on_end(id);
            self.join(id, 0, Some(now));
        }
    }
}

impl Scheduler for FastServe {
    fn on_arrival(&mut self, engine: &Engine, id: usize) {
        let first = self.cost.mean_us(&(StepLoad::STEP + StepLoad::prefill(0, engine.sequences[id].prompt)));
        let level = (0..LEVELS).find(|level| self.quantum(*level) >= first).unwrap_or(LEVELS);
        self.join(id, level, None);
    }

    fn plan(&mut self, engine: &mut Engine, now: Micros) -> Vec<(usize, usize)> {
        self.raise_the_starved(now);
        let mut plan = Vec::new();
        let mut prompts = 0;
        for job in self.jobs.iter().take(engine.seats) {
            let tokens = engine.sequences[job.id].missing();
            // At least one prompt, however long.
            let fits = engine.sequences[job.id].decodes() || prompts == 0 || prompts + tokens <= engine.step_tokens;
            if fits && engine.grow(job.id, tokens) {
                prompts += if engine.sequences[job.id].decodes() { 0 } else { tokens };
                plan.push((job.id, tokens));
            }
        }
        plan
    }

    fn on_step(&mut self, _engine: &Engine, plan: &[(usize, usize)], took: Micros, now: Micros) {
        for &(id, _) in plan {
            let Some(at) = self.jobs.iter().position(|job| job.id == id) else { continue };
            self.jobs[at].used_us += took.0;
            self.jobs[at].served = Some(now);
            if self.jobs[at].used_us as f64 >= self.quantum(self.jobs[at].level) {
                let job = self.jobs.remove(at);
                self.join(id, job.level + 1, Some(now));
            }
        }
    }

    fn on_end(&mut self, id: usize) {
        self.jobs.retain(|job| job.id != id);
    }

    fn blocks(&self, size: usize, _count: usize) -> Blocks {
        Blocks::unbounded(size)
    }
}
