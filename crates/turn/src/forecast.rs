//! The engine's next steps, played forward on paper until a request that arrives now has its first token, or its last. Pure.
//!
//! ```text
//! arrivals ─▶ queued, by class ── flushed, pause over, seat, room in the step ──▶ seated ── chunks ──▶ decoding ──▶ gone
//! ```
//! It follows the rules of the intake and the scheduler, on numbers of tokens in place of requests: classes and their ageing,
//! the strategy's pause, seats and who gives way, chunks cut by `max_stall_ms`, the measured cost of each step. What nobody
//! can know is taken at its mean: when sequences end, and who arrives meanwhile. Tenants and blocks are left out.

use std::collections::VecDeque;

use forebay_core::intake::{FlushMetrics, FlushStrategy, Pause, Strategy};
use forebay_core::request::{CLASSES, Priority};
use forebay_core::scheduler::{self, PolicyKind, StepCost, StepLoad, may_take};
use forebay_core::units::Micros;

/// A sequence, as far as it keeps others waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Index of its class.
    pub class: usize,
    /// Tokens that it computes before it decodes; 0 if it decodes.
    pub to_compute: usize,
    /// Tokens of its prompt, and those that it has drawn.
    pub known: usize,
    /// Tokens that it is expected to draw yet.
    pub to_draw: usize,
}

/// Requests that arrive meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Between two of them; infinite where none come.
    pub every_us: f64,
    /// What each is like.
    pub like: Sequence,
}

impl Arrivals {
    /// Nobody comes.
    pub const NONE: Arrivals =
        Arrivals { every_us: f64::INFINITY, like: Sequence { class: 0, to_compute: 0, known: 0, to_draw: 0 } };
}

/// The engine when the request arrives, once the step under way is over.
#[derive(Clone, Debug)]
pub struct Outlook<'a> {
    pub scheduler: &'a scheduler::Config,
    pub cost: &'a StepCost,
    /// Until the step under way ends, and between two steps.
    pub step_rest: Micros,
    pub between: Micros,
    /// Sequences that may run at once.
    pub seats: usize,
    /// With seats, in the order of their turn.
    pub seated: Vec<Sequence>,
    /// Without, by class, in the order of their turn, the request itself among them.
    pub queued: [VecDeque<Queued>; CLASSES],
    pub strategy: Strategy,
    pub p99_ttft: Option<Micros>,
    /// Until what gathers is flushed, unless the engine is idle before.
    pub flush_in: Micros,
    /// An idle engine takes what gathers at once.
    pub idle_release: bool,
    /// At most so many leave the queue together.
    pub max_batch_size: usize,
    /// A group of prompts is being computed; else how long none has been.
    pub burst: bool,
    pub quiet: Micros,
    /// Service to others after which a class has a turn, times its rank; and what is left of it now.
    pub aging: Micros,
    pub due_in: [Micros; CLASSES],
    pub arrivals: [Arrivals; CLASSES],
}

/// One that waits for a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    pub sequence: Sequence,
    /// It is not flushed yet.
    pub gathers: bool,
    /// It is the one that is asked about.
    pub own: bool,
}

/// Steps that are played at most; what is left then goes on at the same pace.
const MOST_STEPS: usize = 256;
/// In an overload requests come faster than ever, and what is far away is far away however exactly it is computed.
const DEEP: usize = 1_024;
const DEEP_STEPS: usize = 32;
/// As the scheduler has it.
const MIN_CHUNK: usize = 16;
const UNMEASURED_CHUNK: usize = 32;
const PATIENCE: usize = 8;
const BATCH: usize = Priority::Batch.index();

/// Until the first token; `None` while the cost of a step is not known.
pub fn first_token(outlook: Outlook) -> Option<Micros> {
    outlook.cost.predict(&(StepLoad::STEP + StepLoad::prefill(0, 1)))?;
    Some(Play::new(outlook).run(0).0)
}

/// Until the first token and until `more` others; `None` as for [`first_token`].
pub fn last_token(outlook: Outlook, more: usize) -> Option<(Micros, Micros)> {
    outlook.cost.predict(&(StepLoad::STEP + StepLoad::prefill(0, 1)))?;
    Some(Play::new(outlook).run(more))
}

/// A prompt with a seat.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    sequence: Sequence,
    own: bool,
    /// Steps in a row without it.
    passed_over: usize,
}

impl Prompt {
    fn new(sequence: Sequence, own: bool) -> Prompt {
        Prompt { sequence, own, passed_over: 0 }
    }
}

/// A sequence that decodes, in terms of the decode steps that were played.
#[derive(Clone, Copy, Debug)]
struct Decode {
    class: usize,
    /// Tokens that it would know at step 0.
    known_at_0: i64,
    /// The step in which it draws its last.
    ends_at: usize,
}

struct Play<'a> {
    outlook: Outlook<'a>,
    now: Micros,
    served: Micros,
    /// By class, of each the oldest first.
    prompts: Vec<Prompt>,
    decodes: Vec<Decode>,
    /// Steps played in which everybody decoded, the first in which a sequence ends, and the tokens that one step reads.
    steps: usize,
    next_end: usize,
    context: usize,
    /// Gave their seats to more urgent ones.
    displaced: VecDeque<Sequence>,
    /// By class: those with a seat, displaced ones included.
    held: [usize; CLASSES],
    /// Queued, and the tokens of their prompts.
    waiting: usize,
    waiting_tokens: usize,
    flushed: bool,
    /// By class: the service after which it has a turn whoever else waits.
    due: [Micros; CLASSES],
    /// When the next of each class arrives, in microseconds.
    next_arrival: [f64; CLASSES],
    /// Prompts are computed without a break, or have not been since.
    burst: bool,
    ended: Micros,
    /// Requests that go before the one in question, as of its arrival; by class, those that left the queue.
    before: usize,
    left: [usize; CLASSES],
}

impl<'a> Play<'a> {
    fn new(mut outlook: Outlook<'a>) -> Play<'a> {
        let seated = std::mem::take(&mut outlook.seated);
        let queued = || outlook.queued.iter().flatten();
        let mut play = Play {
            now: outlook.step_rest,
            served: outlook.step_rest,
            prompts: Vec::new(),
            decodes: Vec::with_capacity(seated.len()),
            steps: 0,
            next_end: usize::MAX,
            context: 0,
            displaced: VecDeque::new(),
            held: [0; CLASSES],
            waiting: queued().count(),
            waiting_tokens: queued().map(|queued| queued.sequence.known).sum(),
            flushed: false,
            due: outlook.due_in,
            // In the middle of the time that it may take.
            next_arrival: outlook.arrivals.map(|arrivals| arrivals.every_us / 2.0),
            burst: outlook.burst,
            // Times count from the arrival; what was before is in `quiet`.
            ended: Micros::ZERO,
            before: 0,
            left: [0; CLASSES],
            outlook,
        };
        play.before = play.go_before();
        for sequence in seated {
            play.held[sequence.class] += 1;
            match sequence.to_compute {
                0 => play.decode(sequence),
                _ => play.seat(Prompt::new(sequence, false)),
            }
        }
        play
    }

    /// Until the first token, and until `more` others.
    fn run(mut self, more: usize) -> (Micros, Micros) {
        let mut first = None;
        for _ in 0..if self.waiting > DEEP { DEEP_STEPS } else { MOST_STEPS } {
            if let Some((first, since)) = first
                && self.steps - since >= more
            {
                return (first, self.now);
            }
            self.arrive();
            if self.burst && self.prompts.iter().all(|prompt| prompt.sequence.class == BATCH) {
                (self.burst, self.ended, self.outlook.quiet) = (false, self.now, Micros::ZERO);
            }
            self.release();
            if self.step() {
                first = Some((self.now, self.steps));
            }
        }
        match first {
            Some((first, since)) => {
                let pace = self.now.since(first).0 as f64 / (self.steps - since).max(1) as f64;
                (first, first + Micros((pace * more as f64).min(FAR_US) as u64))
            }
            None => {
                // Until then steps will be like those so far.
                let (first, pace) = (self.at_this_pace(), self.now.0 as f64 / self.steps.max(1) as f64);
                (first, first + Micros((pace * more as f64).min(FAR_US) as u64))
            }
        }
    }

    /// Queued requests that go before the one in question, whose turn has not come.
    fn go_before(&self) -> usize {
        let own = self.outlook.queued.iter().position(|queue| queue.iter().any(|queued| queued.own));
        let Some(own) = own else { return 0 };
        let of_class = self.outlook.queued[own].iter().take_while(|queued| !queued.own).count();
        of_class + self.outlook.queued[..own].iter().map(VecDeque::len).sum::<usize>()
    }

    /// The steps so far have shown how fast those before it become fewer, and how often its class has a turn whoever else comes.
    fn at_this_pace(&self) -> Micros {
        let own = self.outlook.queued.iter().position(|queue| queue.iter().any(|queued| queued.own));
        // It has left the queue, and only its prompt is not computed yet: nothing of its size is known to be left.
        let Some(own) = own else { return self.now };
        let ahead = self.go_before();
        let of_class = self.outlook.queued[own].iter().take_while(|queued| !queued.own).count() + 1;
        let drained = ahead as f64 / self.before.saturating_sub(ahead) as f64;
        let turns = of_class as f64 / self.left[own] as f64;
        let times = drained.min(turns);
        let rest = if times.is_finite() { self.now.0 as f64 * times } else { FAR_US };
        Micros(self.now.0 + rest.min(FAR_US) as u64)
    }

    fn arrive(&mut self) {
        let shortest = self.outlook.scheduler.policy.kind == PolicyKind::LatencyFirst;
        for class in 0..CLASSES {
            let Arrivals { every_us, like } = self.outlook.arrivals[class];
            while self.next_arrival[class] <= self.now.0 as f64 {
                self.next_arrival[class] += every_us;
                self.waiting += 1;
                self.waiting_tokens += like.known;
                let queue = &mut self.outlook.queued[class];
                // A shorter one goes before longer ones, where the policy says so.
                let at =
                    if shortest { queue.partition_point(|one| one.sequence.known <= like.known) } else { queue.len() };
                queue.insert(at, Queued { sequence: like, gathers: true, own: false });
            }
        }
    }

    fn timeout(&self) -> Micros {
        self.outlook.strategy.calculate_timeout(self.waiting, &FlushMetrics { p99_ttft: self.outlook.p99_ttft })
    }

    /// Prompt tokens that the next step has room for, as the intake estimates it.
    fn step_tokens(&self) -> usize {
        let by_tokens = self.outlook.scheduler.max_num_batched_tokens.saturating_sub(self.decodes.len()).max(1);
        let Some(stall) = self.stall() else { return by_tokens };
        let costs = self.outlook.cost.coefficients();
        let step_us = costs.step_us
            + costs.decode_token_us * self.decodes.len() as f64
            + costs.context_token_us * self.context as f64;
        let by_time = (stall.0 as f64 - step_us - costs.prefill_us) / costs.prefill_token_us.max(1e-3);
        by_tokens.min(by_time.max(1.0) as usize)
    }

    /// How long a step may take for those that decode.
    fn stall(&self) -> Option<Micros> {
        let scheduler = self.outlook.scheduler;
        let promised = |decode: &Decode| scheduler.slo.promise(Priority::ALL[decode.class]).map(|promise| promise.itl);
        let promises = || self.decodes.iter().filter_map(promised).min();
        let itl = if scheduler.policy.kind == PolicyKind::Slo { promises() } else { None };
        scheduler.stall_limit(self.decodes.len(), itl).filter(|_| !self.decodes.is_empty())
    }

    /// Who leaves the queue for a seat.
    fn release(&mut self) {
        let idle = self.prompts.is_empty() && self.decodes.is_empty();
        self.flushed |= self.now >= self.outlook.flush_in || (idle && self.outlook.idle_release);
        while self.prompts.len() + self.decodes.len() < self.outlook.seats
            && let Some(sequence) = self.displaced.pop_front()
        {
            self.seat(Prompt::new(sequence, false));
        }
        let step_tokens = self.step_tokens();
        let quiet = self.outlook.quiet + self.now.since(self.ended);
        let (queued, tokens) = (self.waiting, self.waiting_tokens);
        let pause = Pause { quiet, timeout: self.timeout(), queued, tokens, step_tokens };
        let interrupts = self.decodes.is_empty() || self.burst || self.outlook.strategy.interrupts(&pause);
        for _ in 0..self.outlook.max_batch_size {
            let Some(class) = self.next_class() else { return };
            let until = |prompt: &&Prompt| prompt.sequence.class <= class;
            let under_way: usize = self.prompts.iter().filter(until).map(|one| one.sequence.to_compute).sum();
            if (class > Priority::High.index() && !interrupts) || under_way >= step_tokens {
                return;
            }
            let Some(Queued { sequence, own, .. }) = self.outlook.queued[class].pop_front() else { return };
            self.waiting -= 1;
            self.waiting_tokens -= sequence.known;
            let turn = self.outlook.aging.0.saturating_mul(class as u64);
            self.due[class] = Micros(self.served.0.saturating_add(turn));
            self.left[class] += 1;
            self.burst |= class != BATCH;
            self.make_way();
            self.held[class] += 1;
            self.seat(Prompt::new(sequence, own));
        }
    }

    /// The class that was passed over for too long, or else the first of which somebody waits.
    fn next_class(&self) -> Option<usize> {
        let closed = self.burst && !self.decodes.is_empty() && self.outlook.strategy.closes_groups();
        let open = |class: &usize| {
            let urgent = *class <= Priority::High.index();
            let stays = |holder: &usize| !may_take(Priority::ALL[*class], Priority::ALL[*holder]);
            let held: usize = (0..CLASSES).filter(stays).map(|holder| self.held[holder]).sum();
            let head = self.outlook.queued[*class].front();
            head.is_some_and(|head| (self.flushed || !head.gathers) && (urgent || !closed)) && held < self.outlook.seats
        };
        let due = |class: &usize| self.due[*class] <= self.served;
        let overdue = (1..BATCH).filter(open).filter(due).min_by_key(|class| self.due[*class]);
        overdue.or_else(|| (0..CLASSES).find(open))
    }

    /// Where every seat is taken, the newest of the lowest class gives up its own, to go on later where it was.
    fn make_way(&mut self) {
        if self.prompts.len() + self.decodes.len() < self.outlook.seats {
            return;
        }
        let prompt = self.prompts.last().map(|prompt| prompt.sequence.class);
        let newest = (0..self.decodes.len()).max_by_key(|at| self.decodes[*at].class);
        match newest {
            Some(at) if prompt.is_none_or(|class| class < self.decodes[at].class) => {
                let decode = self.decodes.remove(at);
                let known = decode.known(self.steps);
                self.context -= known;
                // The prefix cache has what it computed, all but its last token.
                let to_draw = decode.ends_at.saturating_sub(self.steps);
                self.displaced.push_back(Sequence { class: decode.class, to_compute: 1, known, to_draw });
            }
            _ => self.displaced.extend(self.prompts.pop().map(|prompt| prompt.sequence)),
        }
    }

    fn seat(&mut self, new: Prompt) {
        let at = self.prompts.partition_point(|prompt| prompt.sequence.class <= new.sequence.class);
        self.prompts.insert(at, new);
    }

    fn decode(&mut self, sequence: Sequence) {
        let ends_at = self.steps + sequence.to_draw;
        self.next_end = self.next_end.min(ends_at);
        self.context += sequence.known;
        let known_at_0 = sequence.known as i64 - self.steps as i64;
        self.decodes.push(Decode { class: sequence.class, known_at_0, ends_at });
    }

    /// Plays a step, or several that are alike. True once the request has its first token.
    fn step(&mut self) -> bool {
        if self.prompts.is_empty() && self.decodes.is_empty() {
            self.now = self.next_event().unwrap_or(self.now + Micros::MILLISECOND);
            return false;
        }
        let decodes = StepLoad { decode_tokens: self.decodes.len(), context_tokens: self.context, ..StepLoad::STEP };
        let load = self.cut_chunks(decodes);
        let takes = self.outlook.cost.expect(&load).unwrap_or_default() + self.outlook.between;
        let steps = if load.prefill_tokens > 0 { 1 } else { self.alike(takes) };
        let all = Micros(takes.0.saturating_mul(steps as u64));
        (self.now, self.served) = (self.now + all, self.served + all);
        self.draw(steps);
        self.finish_prompts()
    }

    /// Steps without prompts until somebody ends or something else happens.
    fn alike(&self, takes: Micros) -> usize {
        let ends = self.next_end.saturating_sub(self.steps);
        let event = self.next_event().map_or(usize::MAX, |at| at.since(self.now).0.div_ceil(takes.0.max(1)) as usize);
        ends.min(event).max(1)
    }

    /// The next time at which something may leave the queue.
    fn next_event(&self) -> Option<Micros> {
        let rested = Micros(self.ended.0 + self.timeout().since(self.outlook.quiet).0);
        let arrival = self.next_arrival.iter().copied().fold(f64::INFINITY, f64::min).ceil();
        let arrival = arrival.is_finite().then_some(Micros(arrival as u64));
        let times = [Some(rested), Some(self.outlook.flush_in), arrival];
        times.into_iter().flatten().filter(|at| *at > self.now).min()
    }

    /// Cuts the prompts' chunks of a step beside `decodes`, and takes them as computed.
    fn cut_chunks(&mut self, decodes: StepLoad) -> StepLoad {
        let limit = self.stall();
        let (cost, scheduler) = (self.outlook.cost, self.outlook.scheduler);
        let mut load = decodes;
        let mut tokens = scheduler.max_num_batched_tokens.saturating_sub(decodes.decode_tokens);
        if scheduler.policy.kind == PolicyKind::LatencyFirst {
            self.prompts.sort_by_key(|prompt| (prompt.sequence.class, prompt.sequence.to_compute));
        }
        // Whoever was passed over for too long gets a little before all others.
        let starved = (0..self.prompts.len()).max_by_key(|at| self.prompts[*at].passed_over);
        let starved = starved.filter(|at| self.prompts[*at].passed_over >= PATIENCE);
        let others = (0..self.prompts.len()).filter(|at| Some(*at) != starved);
        let order: Vec<(usize, usize)> =
            starved.map(|at| (at, MIN_CHUNK)).into_iter().chain(others.map(|at| (at, usize::MAX))).collect();
        self.prompts.iter_mut().for_each(|prompt| prompt.passed_over += 1);
        for (at, most) in order {
            let Prompt { sequence, passed_over, .. } = &mut self.prompts[at];
            let most = sequence.to_compute.min(tokens).min(most);
            let computed = sequence.known.saturating_sub(sequence.to_compute);
            let fits = limit.map_or(most, |limit| {
                let unmeasured = UNMEASURED_CHUNK.saturating_sub(load.prefill_tokens).min(most);
                cost.longest_chunk(load, computed, most, limit).unwrap_or(unmeasured)
            });
            let chunk = match (load.prefills, most.min(MIN_CHUNK)) {
                (0, least) => fits.max(least),
                (_, least) if fits < least => break,
                _ => fits,
            };
            if chunk == 0 {
                break;
            }
            load = load + StepLoad::prefill(computed, chunk);
            tokens -= chunk;
            sequence.to_compute -= chunk;
            *passed_over = 0;
        }
        load
    }

    /// Everybody who decodes has drawn; whoever has drawn all leaves.
    fn draw(&mut self, steps: usize) {
        self.steps += steps;
        self.context += steps * self.decodes.len();
        if self.steps < self.next_end {
            return;
        }
        for gone in self.decodes.extract_if(.., |decode| decode.ends_at <= self.steps) {
            self.context -= gone.known(self.steps);
            self.held[gone.class] -= 1;
        }
        self.next_end = self.decodes.iter().map(|decode| decode.ends_at).min().unwrap_or(usize::MAX);
    }

    /// Prompts that are computed draw their first token. True if the request's was among them.
    fn finish_prompts(&mut self) -> bool {
        let mut first = false;
        let done: Vec<Prompt> = self.prompts.extract_if(.., |prompt| prompt.sequence.to_compute == 0).collect();
        for Prompt { sequence, own, .. } in done {
            first |= own;
            match sequence.to_draw {
                0 | 1 => self.held[sequence.class] -= 1,
                more => self.decode(Sequence { known: sequence.known + 1, to_draw: more - 1, ..sequence }),
            }
        }
        first
    }
}

impl Decode {
    /// Tokens that it knows after so many steps.
    fn known(&self, steps: usize) -> usize {
        (self.known_at_0 + steps as i64) as usize
    }
}

/// Nothing is said of what lies further away, in microseconds.
const FAR_US: f64 = 600e6;

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
