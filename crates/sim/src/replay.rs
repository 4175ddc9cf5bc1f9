//! A live loop's tape through the simulator's driver: the same times and tokens must lead to the same decisions.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::driver::Driver;
use forebay_core::request::Request;
use forebay_core::step::{Outcome, StepBatch, StepOutput};
use forebay_core::units::SeqId;
use forebay_turn::control::Tuning;
use forebay_turn::core::Config;
use forebay_turn::executor::{ExecuteError, Executor};
use forebay_turn::tape::{Entry, Planned};

/// How a replay went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Decisions that were compared and found equal.
    pub releases: usize,
    pub plans: usize,
}

/// Where the simulator decided otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Index of the tape's entry.
    pub at: usize,
    pub recorded: String,
    pub simulated: String,
}

/// Says what was recorded.
struct Script {
    steps: Receiver<Vec<(SeqId, Outcome)>>,
}

impl Executor for Script {
    fn admit(&mut self, _request: &Request) {}

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        let recorded = self.steps.try_recv().map_err(|_| ExecuteError::Failed("the tape has no such step".into()))?;
        let mut by_seq: HashMap<SeqId, VecDeque<Outcome>> = HashMap::new();
        recorded.into_iter().for_each(|(seq, outcome)| by_seq.entry(seq).or_default().push_back(outcome));
        let drawing = batch.chunks.iter().filter(|chunk| chunk.sample);
        let outcomes = drawing.flat_map(|chunk| {
            let said = by_seq.remove(&chunk.seq).unwrap_or_default();
            said.into_iter().map(|outcome| (chunk.seq, outcome))
        });
        Ok(StepOutput { outcomes: outcomes.collect(), guidance: Vec::new() })
    }

    fn forget(&mut self, _seq: SeqId) {}
}

/// Drives a fresh engine of the same `tuning` and `config` through `tape`, which begins with the loop's first turn, and compares
/// each release and each plan. For loops with one step per call, without guesses or grammars.
pub fn replay(tape: &[Entry], tuning: Tuning, config: Config) -> Result<Replayed, Difference> {
    let (script, steps) = channel();
    let mut run =
        Replay { driver: Driver::new(tuning, config, Script { steps }), script, replayed: Replayed::default() };
    for (at, entry) in tape.iter().enumerate() {
        match entry {
            Entry::Planned { now, plan } => {
                // The executor must know what to say before the core runs; what was heard meanwhile comes first in the tape.
                let outcomes = tape[at..].iter().find_map(|later| match later {
                    Entry::Stepped { outcomes, .. } => Some(outcomes.clone()),
                    _ => None,
                });
                run.plan(at, *now, plan.as_ref(), outcomes)?;
            }
            other => run.hear(at, other)?,
        }
    }
    Ok(run.replayed)
}

struct Replay {
    driver: Driver<Script>,
    script: Sender<Vec<(SeqId, Outcome)>>,
    replayed: Replayed,
}

impl Replay {
    fn hear(&mut self, at: usize, entry: &Entry) -> Result<(), Difference> {
        match entry {
            Entry::Submitted { now, group, accepted } => {
                let heard = self.driver.submit(group.clone(), *now).is_ok();
                equal(at, accepted, &heard)
            }
            Entry::Aborted { seq } => {
                self.driver.abort(*seq);
                Ok(())
            }
            Entry::Paused => {
                self.driver.inbox().pause();
                Ok(())
            }
            Entry::Resumed => {
                self.driver.inbox().resume();
                Ok(())
            }
            Entry::Changed(changes) => equal(at, &true, &self.driver.inbox().retune(changes).is_ok()),
            Entry::Settled { now, batch } => {
                let settled = self.driver.settle(*now).batch;
                let found = settled.map(|batch| {
                    (batch.id, batch.released.iter().map(|released| released.request.id()).collect::<Vec<_>>())
                });
                self.replayed.releases += usize::from(batch.is_some());
                equal(at, batch, &found)
            }
            Entry::Stepped { elapsed, .. } => {
                self.driver.step_over(*elapsed);
                Ok(())
            }
            Entry::Delivered { now } => {
                self.driver.deliver(*now);
                Ok(())
            }
            Entry::Planned { .. } => unreachable!("`replay` takes these itself"),
        }
    }

    fn plan(
        &mut self,
        at: usize,
        now: forebay_core::units::Micros,
        recorded: Option<&Planned>,
        outcomes: Option<Vec<(SeqId, Outcome)>>,
    ) -> Result<(), Difference> {
        let plan = self.driver.plan(now);
        equal(at, &recorded.cloned(), &plan.as_ref().map(Planned::of))?;
        if let (Some(plan), Some(outcomes)) = (plan, outcomes) {
            self.replayed.plans += 1;
            self.script.send(outcomes).expect("the executor lives as long as the core");
            self.driver.begin_step(plan, now);
        }
        Ok(())
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(at: usize, recorded: &T, simulated: &T) -> Result<(), Difference> {
    match recorded == simulated {
        true => Ok(()),
        false => Err(Difference { at, recorded: format!("{recorded:?}"), simulated: format!("{simulated:?}") }),
    }
}
