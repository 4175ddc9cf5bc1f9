//! What happened to each request, and the numbers that `vllm bench serve` would print for it. The simulator and the load
//! generator fill the same records.

use super::arrival::Arrival;
use forebay_core::request::Priority;
use forebay_core::slo;
use forebay_core::units::Micros;

/// One request. Times count from the beginning of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub class: usize,
    pub priority: Priority,
    pub sent: Micros,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// When it came: how long until its first token, if that was predicted.
    pub predicted: Option<Micros>,
    pub first_token: Option<Micros>,
    /// When the newest token came, or the failure.
    pub last: Micros,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not yet.
    Open,
    Completed,
    /// Turned away at the door (429).
    Refused,
    Failed,
}

/// A measurement under way or over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Names of the classes that records point to.
    pub classes: Vec<String>,
    pub records: Vec<Record>,
    /// By class: every gap between two tokens of a request, in microseconds.
    pub gaps: Vec<Vec<u32>>,
    /// From the first request to the last event.
    pub duration: Micros,
    /// Requests that waited and that ran, now and then.
    pub depths: Vec<Depth>,
    /// Steps in which sequences decoded that were not to wait for longer than a limit, and by how many microseconds those took
    /// longer that did.
    pub limited_steps: usize,
    pub stalls: Vec<u32>,
    /// What only a simulation knows.
    pub inside: Inside,
}

/// What engines and workers did, which a client does not see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// Prompt tokens that were in the prefix cache.
    pub cached_tokens: u64,
    /// Sequences that gave their blocks away.
    pub preemptions: u64,
    /// Requests that a worker failed before their first token, and that were sent to another.
    pub retried: usize,
    /// How often a worker's circuit breaker opened.
    pub breaker_openings: usize,
    /// Requests that each worker was sent.
    pub by_worker: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    pub at: Micros,
    pub queued: usize,
    pub running: usize,
}

/// What a request must keep to count for goodput; what is not set is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slo {
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
    pub e2el_ms: Option<f64>,
    /// What is promised to its class.
    pub promises: Option<slo::Slo>,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub mean: f64,
    pub std: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

/// The numbers of `vllm bench serve`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub completed: usize,
    pub refused: usize,
    pub failed: usize,
    pub seconds: f64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Of completed requests, per second.
    pub request_throughput: f64,
    pub output_throughput: f64,
    pub total_throughput: f64,
    /// Completed requests that kept the SLO, per second; `None` without one.
    pub goodput: Option<f64>,
    pub ttft: Stats,
    /// Time per output token after the first.
    pub tpot: Stats,
    pub itl: Stats,
    pub e2el: Stats,
    /// How evenly tokens came: Jain's index of the times between two tokens, of all sequences (Jain, Chiu, Hawe, "A Quantitative
    /// Measure of Fairness", 1984). 1 if nobody's stream ever stood still for longer than another's, towards 0 the more of the
    /// time lies in a few long gaps.
    pub evenness: f64,
}

impl Record {
    /// Of a request that has not begun.
    pub fn of(arrival: &Arrival) -> Record {
        Record {
            class: arrival.class,
            priority: arrival.priority,
            sent: arrival.at,
            prompt_tokens: arrival.prompt_tokens,
            output_tokens: 0,
            predicted: None,
            first_token: None,
            last: arrival.at,
            end: End::Open,
        }
    }

    pub fn ttft_ms(&self) -> Option<f64> {
        Some(millis(self.first_token?.since(self.sent)))
    }

    pub fn e2el_ms(&self) -> f64 {
        millis(self.last.since(self.sent))
    }

    /// `None` for a single token.
    pub fn tpot_ms(&self) -> Option<f64> {
        let rest = self.last.since(self.first_token?);
        (self.output_tokens > 1).then(|| millis(rest) / f64::from(self.output_tokens - 1))
    }

    fn keeps(&self, slo: &Slo) -> bool {
        let within = |found: Option<f64>, limit: Option<f64>| limit.is_none_or(|limit| found.unwrap_or(0.0) <= limit);
        within(self.ttft_ms(), slo.ttft_ms)
            && within(self.tpot_ms(), slo.tpot_ms)
            && within(Some(self.e2el_ms()), slo.e2el_ms)
            && slo.promises.is_none_or(|promises| self.keeps_promise(&promises))
    }

    /// Whether it was served as its class is promised. Nothing is promised to batches, so they do.
    pub fn keeps_promise(&self, promises: &slo::Slo) -> bool {
        promises.promise(self.priority).is_none_or(|promise| {
            let within = |found: Option<f64>, limit: Micros| found.is_none_or(|found| found <= millis(limit));
            self.first_token.is_some() && within(self.ttft_ms(), promise.ttft) && within(self.tpot_ms(), promise.itl)
        })
    }
}

impl Slo {
    pub fn is_empty(&self) -> bool {
        *self == Slo::default()
    }

    /// `ttft:500`, `tpot:50` and `e2el:2000` in any choice, milliseconds, as `vllm bench serve --goodput` takes them, and
    /// `promises`: those that are made to each class.
    pub fn parse<'a>(parts: impl IntoIterator<Item = &'a str>, promises: &slo::Slo) -> Result<Slo, String> {
        let mut slo = Slo::default();
        for part in parts {
            if part == "promises" {
                slo.promises = Some(*promises);
                continue;
            }
            let wrong = || format!("{part:?} is no objective: it must be ttft:MS, tpot:MS, e2el:MS or promises");
            let (name, limit) = part.split_once(':').ok_or_else(wrong)?;
            let limit: f64 = limit.parse().ok().filter(|limit| *limit > 0.0).ok_or_else(wrong)?;
            match name {
                "ttft" => slo.ttft_ms = Some(limit),
                "tpot" => slo.tpot_ms = Some(limit),
                "e2el" => slo.e2el_ms = Some(limit),
                _ => return Err(wrong()),
            }
        }
        Ok(slo)
    }
}

impl Measured {
    pub fn new(classes: Vec<String>) -> Measured {
        Measured { gaps: vec![Vec::new(); classes.len()], classes, ..Measured::default() }
    }

    /// A token of request `at` came.
    pub fn token(&mut self, at: usize, now: Micros) {
        let record = &mut self.records[at];
        if record.first_token.is_none() {
            record.first_token = Some(now);
        } else {
            let gap = now.since(record.last).0.min(u32::MAX.into()) as u32;
            self.gaps[record.class].push(gap);
        }
        record.last = now;
        record.output_tokens += 1;
    }

    /// A step took so long that was not to take longer than `limit`.
    pub fn limited_step(&mut self, elapsed: Micros, limit: Micros) {
        self.limited_steps += 1;
        if elapsed > limit {
            self.stalls.push(elapsed.since(limit).0.min(u32::MAX.into()) as u32);
        }
    }

    pub fn end(&mut self, at: usize, how: End, now: Micros) {
        let record = &mut self.records[at];
        record.end = how;
        if how != End::Completed {
            record.last = now;
        }
    }

    /// Requests that were served as their class is promised.
    pub fn kept(&self, promises: &slo::Slo) -> usize {
        let kept = |record: &&Record| record.end == End::Completed && record.keeps_promise(promises);
        self.records.iter().filter(kept).count()
    }

    /// Another run of the same scenario, as if it had been measured after this one.
    pub fn append(&mut self, other: Measured) {
        assert_eq!(self.classes, other.classes, "runs of one scenario");
        let later = |record: Record| Record {
            sent: record.sent + self.duration,
            first_token: record.first_token.map(|at| at + self.duration),
            last: record.last + self.duration,
            ..record
        };
        self.records.extend(other.records.into_iter().map(later));
        self.gaps.iter_mut().zip(other.gaps).for_each(|(mine, theirs)| mine.extend(theirs));
        let later = |depth: Depth| Depth { at: depth.at + self.duration, ..depth };
        self.depths.extend(other.depths.into_iter().map(later));
        self.duration = self.duration + other.duration;
        self.limited_steps += other.limited_steps;
        self.stalls.extend(other.stalls);
        self.inside.append(&other.inside);
    }

    pub fn summary(&self, slo: &Slo) -> Summary {
        self.summary_of(slo, |_| true)
    }

    /// Of one class.
    pub fn class_summary(&self, slo: &Slo, class: usize) -> Summary {
        self.summary_of(slo, |other| other == class)
    }

    fn summary_of(&self, slo: &Slo, wanted: impl Fn(usize) -> bool) -> Summary {
        let records = || self.records.iter().filter(|record| wanted(record.class));
        let completed: Vec<&Record> = records().filter(|record| record.end == End::Completed).collect();
        let seconds = self.duration.as_secs_f64();
        let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let input_tokens: u64 = completed.iter().map(|record| u64::from(record.prompt_tokens)).sum();
        let output_tokens: u64 = completed.iter().map(|record| u64::from(record.output_tokens)).sum();
        let count = |end: End| records().filter(|record| record.end == end).count();
        let kept = || completed.iter().filter(|record| record.keeps(slo)).count();
        let gaps = self.gaps.iter().enumerate().filter(|(class, _)| wanted(*class)).flat_map(|(_, gaps)| gaps);
        Summary {
            completed: completed.len(),
            refused: count(End::Refused),
            failed: count(End::Failed),
            seconds,
            input_tokens,
            output_tokens,
            request_throughput: rate(completed.len() as f64),
            output_throughput: rate(output_tokens as f64),
            total_throughput: rate((input_tokens + output_tokens) as f64),
            goodput: (!slo.is_empty()).then(|| rate(kept() as f64)),
            ttft: Stats::of(completed.iter().filter_map(|record| record.ttft_ms()).collect()),
            tpot: Stats::of(completed.iter().filter_map(|record| record.tpot_ms()).collect()),
            itl: Stats::of(gaps.clone().map(|gap| f64::from(*gap) / 1e3).collect()),
            e2el: Stats::of(completed.iter().map(|record| record.e2el_ms()).collect()),
            evenness: jain(gaps.map(|gap| f64::from(*gap))),
        }
    }

    /// TTFT of completed requests, sorted.
    pub fn ttfts_ms(&self) -> Vec<f64> {
        let completed = self.records.iter().filter(|record| record.end == End::Completed);
        let mut ttfts: Vec<f64> = completed.filter_map(Record::ttft_ms).collect();
        ttfts.sort_unstable_by(f64::total_cmp);
        ttfts
    }
}

impl Inside {
    fn append(&mut self, other: &Inside) {
        self.cached_tokens += other.cached_tokens;
        self.preemptions += other.preemptions;
        self.retried += other.retried;
        self.breaker_openings += other.breaker_openings;
        self.by_worker.resize(self.by_worker.len().max(other.by_worker.len()), 0);
        self.by_worker.iter_mut().zip(&other.by_worker).for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl Stats {
    /// Zeros for no samples.
    pub fn of(mut samples: Vec<f64>) -> Stats {
        if samples.is_empty() {
            return Stats::default();
        }
        samples.sort_unstable_by(f64::total_cmp);
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / samples.len() as f64;
        Stats {
            mean,
            std: variance.sqrt(),
            p50: percentile(&samples, 0.5),
            p90: percentile(&samples, 0.9),
            p99: percentile(&samples, 0.99),
        }
    }
}

/// Linear between ranks, as numpy's (and so vLLM's) is. `sorted` is not empty, `q` from 0 to 1.
pub fn percentile(sorted: &[f64], q: f64) -> f64 {
    let rank = (sorted.len() - 1) as f64 * q;
    let (low, high) = (sorted[rank.floor() as usize], sorted[rank.ceil() as usize]);
    low + (high - low) * rank.fract()
}

/// 1 for no shares.
fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) = shares
        .fold((0.0, 0.0, 0.0), |(count, sum, squares), share| (count + 1.0, sum + share, squares + share * share));
    if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 }
}

fn millis(time: Micros) -> f64 {
    time.0 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at: u64) -> Record {
        Record {
            class: 0,
            priority: Priority::Normal,
            sent: Micros::from_millis(at),
            prompt_tokens: 10,
            output_tokens: 0,
            predicted: None,
            first_token: None,
            last: Micros::ZERO,
            end: End::Open,
        }
    }

    /// One request whose tokens come at 100, 110 and 140 ms, one that is refused, one that fails after a token.
    fn measured() -> Measured {
        let mut measured = Measured::new(vec!["chat".into()]);
        measured.records = vec![sent(0), sent(5), sent(10)];
        for at in [100, 110, 140] {
            measured.token(0, Micros::from_millis(at));
        }
        measured.end(0, End::Completed, Micros::from_millis(140));
        measured.end(1, End::Refused, Micros::from_millis(5));
        measured.token(2, Micros::from_millis(60));
        measured.end(2, End::Failed, Micros::from_millis(200));
        measured.duration = Micros::from_millis(500);
        measured
    }

    #[test]
    fn numbers_are_those_of_vllm() {
        let slo = Slo::parse(["ttft:150", "tpot:20"], &slo::Slo::DEFAULT).unwrap();
        let summary = measured().summary(&slo);
        assert_eq!((summary.completed, summary.refused, summary.failed), (1, 1, 1));
        assert_eq!((summary.input_tokens, summary.output_tokens), (10, 3));
        assert_eq!((summary.request_throughput, summary.output_throughput, summary.total_throughput), (2.0, 6.0, 26.0));
        assert_eq!((summary.ttft.p99, summary.tpot.mean, summary.e2el.p50), (100.0, 20.0, 140.0));
        assert_eq!((summary.itl.mean, summary.itl.p50), (20.0, 20.0));
        assert_eq!(summary.goodput, Some(2.0));
        assert_eq!(summary.evenness, 40.0 * 40.0 / (2.0 * (10.0 * 10.0 + 30.0 * 30.0)));
        assert_eq!(measured().summary(&Slo::parse(["ttft:99"], &slo::Slo::DEFAULT).unwrap()).goodput, Some(0.0));
        assert_eq!(measured().summary(&Slo::default()).goodput, None);
    }

    #[test]
    fn a_class_is_served_as_it_is_promised_or_not() {
        let promised = |ttft_ms: u64, itl_ms: u64| {
            let mut promises = slo::Slo::DEFAULT;
            let (ttft, itl) = (Micros::from_millis(ttft_ms), Micros::from_millis(itl_ms));
            promises.promises[Priority::Normal.index()] = slo::Promise { ttft, itl };
            measured().summary(&Slo::parse(["promises"], &promises).unwrap()).goodput
        };
        assert_eq!([promised(100, 20), promised(99, 20), promised(100, 19)], [Some(2.0), Some(0.0), Some(0.0)]);
    }

    #[test]
    fn two_runs_count_as_one_long_one() {
        let mut twice = measured();
        twice.append(measured());
        let (one, two) = (measured().summary(&Slo::default()), twice.summary(&Slo::default()));
        assert_eq!(two.completed, 2 * one.completed);
        assert_eq!((two.request_throughput, two.ttft, two.itl.p50), (one.request_throughput, one.ttft, one.itl.p50));
    }

    #[test]
    fn percentiles_lie_between_ranks() {
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 0.995, 1.0].map(|q| percentile(&sorted, q)), [0.0, 50.0, 99.0, 99.5, 100.0]);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert_eq!(Stats::of(Vec::new()), Stats::default());
        assert_eq!(Stats::of(vec![1.0, 3.0]).std, 1.0);
    }

    #[test]
    fn objectives_are_checked() {
        for bad in ["ttft", "ttft:", "ttft:-1", "ttft:0", "itl:5", "ttft:NaN"] {
            assert!(Slo::parse([bad], &slo::Slo::DEFAULT).unwrap_err().contains(bad));
        }
        assert_eq!(Slo::parse([], &slo::Slo::DEFAULT), Ok(Slo::default()));
    }
}
