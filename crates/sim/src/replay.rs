//! A live loop's decision log through the same [`Turn`]: the same times and tokens must lead to the same decisions.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_core::report::StepReport;
use forebay_core::request::Request;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::step::{Outcome, StepBatch, StepOutput};
use forebay_core::units::{Micros, SeqId};
use forebay_turn::control::Tuning;
use forebay_turn::core::{Config, Core};
use forebay_turn::decision_log::{Entry, Planned};
use forebay_turn::executor::{ExecuteError, Executor};
use forebay_turn::turn::Turn;

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
    /// Index of the log's entry.
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
        let recorded = self.steps.try_recv().map_err(|_| ExecuteError::Failed("the log has no such step".into()))?;
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

/// Drives a fresh engine of the same `tuning` and `config` through `log`, which begins with the loop's first turn, and compares
/// each release and each plan. For loops with one step per call, without guesses or grammars.
pub fn replay(log: &[Entry], tuning: Tuning, config: Config) -> Result<Replayed, Difference> {
    let (script, steps) = channel();
    let mut run = Replay {
        turn: Turn::new(tuning, Thresholds::default()),
        core: Some(Core::new(config, Script { steps })),
        away: None,
        script,
        replayed: Replayed::default(),
    };
    let outcome = log.iter().enumerate().try_for_each(|(at, entry)| match entry {
        Entry::Planned { now, plan } => {
            // The executor must know what to say before the core runs; what was heard meanwhile comes first in the log.
            let outcomes = log[at..].iter().find_map(|later| match later {
                Entry::Stepped { outcomes, .. } => Some(outcomes.clone()),
                _ => None,
            });
            run.plan(at, *now, plan.as_ref(), outcomes)
        }
        other => run.hear(at, other),
    });
    // A log that ends in the middle leaves sequences behind, whose blocks must be given back.
    core(&mut run.core).abort_all();
    outcome.map(|()| run.replayed)
}

struct Replay {
    turn: Turn,
    /// Absent only inside [`Core::execute`].
    core: Option<Core<Script>>,
    /// Of a step that, by the log's time, is not over.
    away: Option<StepReport>,
    script: Sender<Vec<(SeqId, Outcome)>>,
    replayed: Replayed,
}

impl Replay {
    fn hear(&mut self, at: usize, entry: &Entry) -> Result<(), Difference> {
        match entry {
            Entry::Submitted { now, group, accepted } => {
                return equal(at, accepted, &self.turn.on_submit(group.clone(), *now).is_ok());
            }
            Entry::Aborted { seq } => self.turn.on_abort(*seq),
            Entry::Paused => self.turn.on_pause(),
            Entry::Resumed => self.turn.on_resume(),
            Entry::Changed(set) => return equal(at, &true, &self.turn.on_change(set).is_ok()),
            Entry::Settled { now, batch } => {
                let release = self.turn.on_home(core(&mut self.core), *now).release;
                let found = release.map(|release| {
                    (release.batch, release.sequences.iter().map(|released| released.seq).collect::<Vec<_>>())
                });
                self.replayed.releases += usize::from(batch.is_some());
                return equal(at, batch, &found);
            }
            Entry::Stepped { elapsed, .. } => {
                if let Some(report) = self.away.take() {
                    self.turn.on_report(core(&mut self.core), report, *elapsed);
                }
            }
            Entry::Delivered { now } => drop(self.turn.take_report(*now)),
            Entry::Planned { .. } => unreachable!("`replay` takes these itself"),
        }
        Ok(())
    }

    fn plan(
        &mut self,
        at: usize,
        now: Micros,
        recorded: Option<&Planned>,
        outcomes: Option<Vec<(SeqId, Outcome)>>,
    ) -> Result<(), Difference> {
        let mut core = self.core.take().expect(HOME);
        let plan = self.turn.next_plan(&mut core, now);
        let found = plan.as_ref().map(Planned::of);
        if let (Some(plan), Some(outcomes), true) = (plan, outcomes, found.as_ref() == recorded) {
            self.replayed.plans += 1;
            self.script.send(outcomes).expect("the executor lives as long as the core");
            self.turn.on_step(&plan, now);
            let (home, report) = core.execute(plan, now);
            (core, self.away) = (home, Some(report));
        }
        self.core = Some(core);
        equal(at, &recorded.cloned(), &found)
    }
}

fn core(home: &mut Option<Core<Script>>) -> &mut Core<Script> {
    home.as_mut().expect(HOME)
}

const HOME: &str = "the core is away only while it computes";

fn equal<T: PartialEq + std::fmt::Debug>(at: usize, recorded: &T, simulated: &T) -> Result<(), Difference> {
    match recorded == simulated {
        true => Ok(()),
        false => Err(Difference { at, recorded: format!("{recorded:?}"), simulated: format!("{simulated:?}") }),
    }
}
