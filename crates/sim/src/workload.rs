//! What is simulated: a scenario, whose requests are drawn, or a trace, whose requests were recorded.

use super::arrival::{self, Arrival};
use super::cost::{Capacity, CostModel};
use super::scenario::Scenario;
use super::trace::Trace;

/// Requests and when they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    source: Source,
    /// Classes are drawn from [`arrival::MIX`], whatever the source says.
    mixed: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Scenario(Scenario),
    Trace(Trace),
}

impl From<Scenario> for Workload {
    fn from(scenario: Scenario) -> Workload {
        Workload { source: Source::Scenario(scenario), mixed: false }
    }
}

impl From<Trace> for Workload {
    fn from(trace: Trace) -> Workload {
        Workload { source: Source::Trace(trace), mixed: false }
    }
}

impl Workload {
    /// The five scenarios and the two traces that come with the program.
    pub fn all() -> Vec<Workload> {
        let scenarios = Scenario::all().into_iter().map(Workload::from);
        scenarios.chain(Trace::all().into_iter().map(Workload::from)).collect()
    }

    /// With all four classes in it, as [`arrival::MIX`] says.
    pub fn mixed(self) -> Workload {
        Workload { mixed: true, ..self }
    }

    pub fn name(&self) -> &str {
        match &self.source {
            Source::Scenario(scenario) => &scenario.name,
            Source::Trace(trace) => &trace.name,
        }
    }

    /// Names of the classes that arrivals point to.
    pub fn classes(&self) -> Vec<String> {
        match &self.source {
            _ if self.mixed => arrival::MIX.iter().map(|(priority, _)| priority.name().to_owned()).collect(),
            Source::Scenario(scenario) => scenario.classes.iter().map(|class| class.name.clone()).collect(),
            Source::Trace(_) => vec!["all".into()],
        }
    }

    /// `None` if it is a trace.
    pub fn scenario(&self) -> Option<&Scenario> {
        match &self.source {
            Source::Scenario(scenario) => Some(scenario),
            Source::Trace(_) => None,
        }
    }

    /// How many requests are expected.
    pub fn requests(&self) -> f64 {
        match &self.source {
            Source::Scenario(scenario) => scenario.mean_rps() * scenario.seconds(),
            Source::Trace(trace) => trace.requests() as f64,
        }
    }

    /// Requests per second.
    pub fn mean_rps(&self) -> f64 {
        match &self.source {
            Source::Scenario(scenario) => scenario.mean_rps(),
            Source::Trace(trace) => trace.requests() as f64 / trace.seconds(),
        }
    }

    /// The factor on all rates at which the work that arrives takes `share` of what the engine can do under `cost`.
    pub fn factor(&self, share: f64, cost: &CostModel, capacity: &Capacity) -> f64 {
        match &self.source {
            Source::Scenario(scenario) => scenario.factor(share, cost, capacity),
            Source::Trace(trace) => trace.factor(share, cost, capacity),
        }
    }

    /// All rates times `factor`.
    pub fn scaled(&self, factor: f64) -> Workload {
        let source = match &self.source {
            Source::Scenario(scenario) => Source::Scenario(scenario.scaled(factor)),
            Source::Trace(trace) => Source::Trace(trace.scaled(factor)),
        };
        Workload { source, ..*self }
    }

    /// The longest prompt and completion together, in tokens.
    pub fn longest(&self) -> u32 {
        match &self.source {
            Source::Scenario(scenario) => scenario.longest(),
            Source::Trace(trace) => trace.longest(),
        }
    }

    /// Every request, in the order of arrival; of a trace, the seed decides the classes only.
    pub fn arrivals(&self, seed: u64) -> Vec<Arrival> {
        let mut arrivals = match &self.source {
            Source::Scenario(scenario) => scenario.arrivals(seed),
            Source::Trace(trace) => trace.arrivals(),
        };
        if self.mixed {
            arrival::mix(&mut arrivals, seed);
        }
        arrivals
    }
}
