//! When a request that arrives now would have its first token, and its last. Pure.
//!
//! What is known of the engine (who is queued and seated, what the prefix cache has, what a step costs) and what was learnt
//! while it ran (who arrives, how much sequences draw of what they may, how long the loop takes between two steps) becomes an
//! [`Outlook`], which [`forecast`] plays forward. It is an estimate with a metric for its error, not a promise.

use std::collections::{HashMap, VecDeque};

use forebay_core::intake::{InLine, Intake, Situation};
use forebay_core::kv::{Edit, Mirror, Node};
use forebay_core::report::SequenceView;
use forebay_core::request::{CLASSES, Event, FinishReason, Request};
use forebay_core::scheduler::{PolicyKind, StepPlan};
use forebay_core::units::{Micros, SeqId};

use super::control::Tuning;
use super::core::CoreView;
use super::forecast::{self, Arrivals, Outlook, Queued, Sequence};
use super::lengths::Lengths;
use super::window::Rate;

/// What predictions need beside the queue and the core's last known state.
#[derive(Debug, Default)]
pub struct Predictor {
    /// What the prefix cache held when the core last came home.
    cached: Mirror,
    step: Option<UnderWay>,
    /// When the core last came home, and how long it then takes until the next step.
    home_at: Option<Micros>,
    between: Mean,
    lengths: Lengths,
    /// What was expected of requests that are under way.
    told: HashMap<SeqId, Told>,
    /// How many times longer than expected it took to last tokens.
    times: Times,
    /// When the core last came home.
    latest: Micros,
    flows: [Flow; CLASSES],
    /// When the first request came.
    began: Option<Micros>,
}

/// The step for which the core is away, or that nobody has looked at since it came home.
#[derive(Debug)]
struct UnderWay {
    began: Micros,
    takes: Micros,
    /// The tokens that each sequence computes in it.
    chunks: HashMap<SeqId, usize>,
}

/// The requests of one class that arrive: how many, and their tokens.
#[derive(Clone, Copy, Debug)]
struct Flow {
    requests: Rate,
    to_compute: Rate,
    known: Rate,
    max_tokens: Rate,
}

impl Default for Flow {
    fn default() -> Flow {
        let rate = Rate::of_last(FLOW_S);
        Flow { requests: rate, to_compute: rate, known: rate, max_tokens: rate }
    }
}

/// Seconds of arrivals that count. Whoever looks at a few sees a burst in each queue that a burst has made, and expects it to go
/// on.
const FLOW_S: f64 = 60.0;

/// A mean that forgets.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    /// About the last `samples` count.
    fn follow(&mut self, sample: f64, samples: f64) {
        let mean = self.0.get_or_insert(sample);
        *mean += (sample - *mean) / samples;
    }

    fn micros(&self) -> Micros {
        Micros(self.0.unwrap_or_default() as u64)
    }
}

/// Samples that count of gaps between steps.
const GAPS: f64 = 20.0;

/// The newest ratios of what was to what was expected.
#[derive(Debug, Default)]
struct Times(VecDeque<f64>);

/// Ratios that are remembered, and the part of them that a deadline must survive.
const RATIOS: usize = 128;
const SURVIVED: f64 = 0.85;

impl Times {
    fn push(&mut self, was: Micros, expected: Micros) {
        if self.0.len() == RATIOS {
            self.0.pop_front();
        }
        self.0.push_back(was.0 as f64 / expected.0.max(1) as f64);
    }

    /// What nearly all stay below; 1 at least.
    fn nearly_all(&self) -> f64 {
        let mut ratios: Vec<f64> = self.0.iter().copied().collect();
        if ratios.is_empty() {
            return 1.0;
        }
        let rank = ((ratios.len() as f64 * SURVIVED) as usize).min(ratios.len() - 1);
        ratios.select_nth_unstable_by(rank, f64::total_cmp).1.max(1.0)
    }
}

/// What was expected of a request, and what it has had.
#[derive(Clone, Copy, Debug)]
struct Told {
    came: Micros,
    expected: Expected,
    max_tokens: usize,
    tokens: usize,
}

/// What is expected of a request when it comes, from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub first_token: Micros,
    /// Where it has a deadline.
    pub last: Option<Last>,
}

/// When the answer to a request is expected to end, if it is as short as 19 of 20 like it are at least: what it might draw
/// beyond is no reason to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    pub tokens: usize,
    pub after: Micros,
    /// With what such expectations mostly were too early by.
    pub at_latest: Micros,
}

impl Predictor {
    /// The core is home, and this was done to its prefix cache since it last was.
    pub fn mirror(&mut self, edits: Vec<Edit>) {
        self.cached.follow(edits);
    }

    /// Of each request of a group, the tokens of its prompt that it must compute itself: not what the prefix cache has, nor what
    /// the group's first computes for all.
    pub fn to_compute(&self, group: &[Request], tuning: &Tuning) -> Vec<usize> {
        let shares = |request: &Request| tuning.scheduler.shares_prefixes() && request.may_use_cache();
        let root = |request: &Request| Node::Root(request.cache_salt().clone());
        let of = |(at, request): (usize, &Request)| match request.prompt() {
            prompt if !shares(request) => prompt.len(),
            prompt if at > 0 && prompt == group[0].prompt() => 1,
            prompt => prompt.len() - self.cached.cached_tokens(root(request), prompt),
        };
        group.iter().enumerate().map(of).collect()
    }

    /// A group came, of which each must compute so many tokens.
    pub fn arrived<'a>(&mut self, group: impl Iterator<Item = (&'a Request, usize)>, now: Micros) {
        self.began.get_or_insert(now);
        for (request, to_compute) in group {
            let flow = &mut self.flows[request.priority().index()];
            flow.requests.count(1, now);
            flow.to_compute.count(to_compute, now);
            flow.known.count(request.prompt().len(), now);
            flow.max_tokens.count(request.max_tokens() as usize, now);
        }
    }

    /// The core leaves to compute `plan`.
    pub fn step_begins(&mut self, plan: &StepPlan, core: &CoreView, now: Micros) {
        if let Some(home) = self.home_at.take() {
            self.between.follow(now.since(home).0 as f64, GAPS);
        }
        let takes = core.cost.expect(&plan.load).unwrap_or_default();
        let chunks = plan.chunks.iter().map(|chunk| (chunk.seq, chunk.tokens.len())).collect();
        self.step = Some(UnderWay { began: now, takes, chunks });
    }

    /// The core came home from a step that took `elapsed`, in which this happened to sequences that were in `core`.
    pub fn step_ended(&mut self, events: &[(SeqId, Event)], core: &CoreView, elapsed: Micros) {
        let Some(step) = &mut self.step else { return };
        step.takes = elapsed;
        let now = step.began + elapsed;
        (self.home_at, self.latest) = (Some(now), now);
        for (seq, event) in events {
            match event {
                Event::Token(_) => self.came(*seq, now),
                Event::Finished(FinishReason::Stop | FinishReason::Length) => {
                    self.told.remove(seq);
                    let Some(view) = core.sequences.iter().find(|view| view.seq == *seq) else { continue };
                    let is_new = |(of, event): &&(SeqId, Event)| of == seq && matches!(event, Event::Token(_));
                    let drawn = view.generated_tokens + events.iter().filter(is_new).count();
                    self.lengths.ended(drawn, view.max_tokens);
                }
                Event::Finished(_) | Event::Failed(_) | Event::Admitted { .. } | Event::Embedded(_) => {}
            }
        }
    }

    /// The request was queued, and this is expected of it.
    pub fn tell(&mut self, seq: SeqId, max_tokens: usize, expected: Expected, came: Micros) {
        self.told.insert(seq, Told { came, expected, max_tokens, tokens: 0 });
    }

    /// A token came. The one by which its answer was expected to be complete is held against that.
    fn came(&mut self, seq: SeqId, now: Micros) {
        let Some(told) = self.told.get_mut(&seq) else { return };
        told.tokens += 1;
        if let Some(last) = told.expected.last
            && last.tokens == told.tokens
        {
            self.times.push(now.since(told.came), last.after);
        }
    }

    /// The request is over, and its client has what it wanted: a stop string, or nothing more.
    pub fn forget(&mut self, seq: SeqId) {
        let Some(Told { tokens, max_tokens, .. }) = self.told.remove(&seq) else { return };
        if tokens > 0 {
            self.lengths.ended(tokens, max_tokens);
        }
    }

    /// Its deadline has ended it. It says how slow it was all the same, or only the fast ones would be left to learn from.
    pub fn expired(&mut self, seq: SeqId) {
        let Some(Told { came, expected, max_tokens, tokens }) = self.told.remove(&seq) else { return };
        let waited = self.latest.since(came);
        if let Some(last) = expected.last.filter(|last| tokens < last.tokens && waited >= last.after) {
            self.times.push(waited, last.after);
        }
        if tokens > 0 {
            self.lengths.cut(tokens, max_tokens);
        }
    }

    /// The core is looked at, and with it what the step has changed.
    pub fn noted(&mut self) {
        self.step = None;
    }

    /// Nothing is to be computed.
    pub fn rests(&mut self) {
        self.home_at = None;
    }

    /// What a request can expect of whose prompt it must compute so many tokens; `None` while the cost of a step is not known.
    pub fn expected(&self, request: &Request, to_compute: usize, at: &Scene) -> Option<Expected> {
        let outlook = self.outlook(request, to_compute, at);
        if request.deadline().is_none() {
            return Some(Expected { first_token: forecast::first_token(outlook)?, last: None });
        }
        let tokens = self.lengths.at_least(request.max_tokens() as usize);
        let (first_token, after) = forecast::last_token(outlook, tokens - 1)?;
        let at_latest = Micros((after.0 as f64 * self.times.nearly_all()) as u64);
        Some(Expected { first_token, last: Some(Last { tokens, after, at_latest }) })
    }

    fn outlook<'a>(&self, request: &Request, to_compute: usize, at: &Scene<'a>) -> Outlook<'a> {
        let Scene { intake, situation, core, tuning } = *at;
        let prospect = intake.prospect(request.priority(), situation);
        let own = InLine {
            class: prospect.class,
            prompt_tokens: request.prompt().len(),
            to_compute,
            max_tokens: request.max_tokens() as usize,
            gathers: true,
        };
        let now = situation.now;
        let step_rest = self.step.as_ref().map_or(Micros::ZERO, |step| (step.began + step.takes).since(now));
        Outlook {
            scheduler: &tuning.scheduler,
            cost: &core.cost,
            step_rest,
            between: self.between.micros(),
            seats: core.seats,
            seated: core.sequences.iter().filter_map(|view| self.seated(view)).collect(),
            queued: self.queued(intake, own, tuning.scheduler.policy.kind),
            strategy: prospect.strategy,
            p99_ttft: situation.p99_ttft,
            flush_in: prospect.flush_in,
            idle_release: tuning.intake.flush.idle_release,
            max_batch_size: tuning.intake.flush.max_batch_size,
            burst: prospect.under_way,
            quiet: prospect.quiet,
            aging: prospect.turns,
            due_in: prospect.due_in,
            arrivals: std::array::from_fn(|class| self.arrivals(class, now)),
        }
    }

    /// As it will be after the step under way; `None` if it then ends.
    fn seated(&self, view: &SequenceView) -> Option<Sequence> {
        let chunk = self.step.as_ref().and_then(|step| step.chunks.get(&view.seq)).copied().unwrap_or(0);
        let to_compute = view.to_compute.saturating_sub(chunk);
        let draws = usize::from(chunk > 0 && to_compute == 0);
        if draws == 1 && view.generated_tokens + 1 >= view.max_tokens {
            return None;
        }
        let drawn = view.generated_tokens + draws;
        Some(Sequence {
            class: view.priority.index(),
            to_compute,
            known: view.prompt_tokens + drawn,
            to_draw: self.lengths.rest(view.max_tokens, drawn),
        })
    }

    /// By class, in the order of their turn under the policy, with the newcomer in its place.
    fn queued(&self, intake: &Intake, own: InLine, policy: PolicyKind) -> [VecDeque<Queued>; CLASSES] {
        let mut queued: [VecDeque<Queued>; CLASSES] = Default::default();
        let others = intake.in_line().map(|one| (one, false));
        for (one, is_own) in others.chain([(own, true)]) {
            let class = one.class.index();
            let sequence = Sequence {
                class,
                to_compute: one.to_compute,
                known: one.prompt_tokens,
                to_draw: self.lengths.rest(one.max_tokens, 0),
            };
            queued[class].push_back(Queued { sequence, gathers: one.gathers, own: is_own });
        }
        if policy == PolicyKind::LatencyFirst {
            let shortest = |queue: &mut VecDeque<Queued>| {
                queue.make_contiguous().sort_by_key(|queued| queued.sequence.known);
            };
            queued.iter_mut().for_each(shortest);
        }
        queued
    }

    fn arrivals(&self, class: usize, now: Micros) -> Arrivals {
        let flow = &self.flows[class];
        let (Some(began), per_s) = (self.began, flow.requests.per_s(now)) else { return Arrivals::NONE };
        if per_s <= 0.0 {
            return Arrivals::NONE;
        }
        let mean = |of: &Rate| (of.per_s(now) / per_s).round() as usize;
        let like = Sequence {
            class,
            to_compute: mean(&flow.to_compute).max(1),
            known: mean(&flow.known).max(1),
            to_draw: self.lengths.rest(mean(&flow.max_tokens).max(1), 0),
        };
        Arrivals { every_us: 1e6 / flow.requests.per_s_since(began, now), like }
    }
}

/// The engine as it is when a request arrives.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub intake: &'a Intake,
    pub situation: &'a Situation,
    pub core: &'a CoreView,
    pub tuning: &'a Tuning,
}
