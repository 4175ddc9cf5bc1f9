//! Series of workers, by their ids. The ids are the configuration's, so their number is bounded.

use ::prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

/// All series that have a worker's name on them.
#[derive(Clone, Debug)]
pub(super) struct WorkerFamilies {
    pub status: IntGaugeVec,
    pub pending: IntGaugeVec,
    pub utilisation: GaugeVec,
    /// The same under the name that everybody knows.
    pub utilization: GaugeVec,
    pub breaker: IntGaugeVec,
    pub transitions: IntCounterVec,
    pub requests: IntCounterVec,
    pub retries: IntCounterVec,
    pub restarts: IntCounterVec,
}

/// How a request at a worker went.
const VERDICTS: [&str; 3] = ["success", "failure", "uncounted"];
const STATUSES: [&str; 3] = ["idle", "busy", "unhealthy"];
const PHASES: [&str; 3] = ["closed", "half_open", "open"];

/// One worker's.
#[derive(Clone, Debug)]
pub struct WorkerMetrics {
    status: [IntGauge; 3],
    pending: IntGauge,
    utilisation: [Gauge; 2],
    breaker: IntGauge,
    transitions: [IntCounter; 3],
    requests: [IntCounter; 3],
    retries: IntCounter,
    restarts: IntCounter,
}

impl WorkerFamilies {
    pub fn of(&self, id: &str) -> WorkerMetrics {
        WorkerMetrics {
            status: STATUSES.map(|status| self.status.with_label_values(&[id, status])),
            pending: self.pending.with_label_values(&[id]),
            utilisation: [&self.utilisation, &self.utilization].map(|family| family.with_label_values(&[id])),
            breaker: self.breaker.with_label_values(&[id]),
            transitions: PHASES.map(|phase| self.transitions.with_label_values(&[id, phase])),
            requests: VERDICTS.map(|verdict| self.requests.with_label_values(&[id, verdict])),
            retries: self.retries.with_label_values(&[id]),
            restarts: self.restarts.with_label_values(&[id]),
        }
    }
}

impl WorkerMetrics {
    /// `phase` is 0 closed, 1 half-open, 2 open.
    pub fn state(&self, status: &str, phase: i64, pending: usize, utilisation: f64) {
        for (gauge, name) in self.status.iter().zip(STATUSES) {
            gauge.set((name == status).into());
        }
        self.breaker.set(phase);
        self.pending.set(pending as i64);
        self.utilisation.iter().for_each(|gauge| gauge.set(utilisation));
    }

    pub fn breaker_became(&self, phase: &str) {
        let counters = self.transitions.iter().zip(PHASES);
        counters.filter(|(_, name)| *name == phase).for_each(|(counter, _)| counter.inc());
    }

    /// 0 success, 1 failure, 2 uncounted.
    pub fn verdict(&self, verdict: usize) {
        self.requests[verdict].inc();
    }

    /// A request that failed here is begun again elsewhere.
    pub fn retried(&self) {
        self.retries.inc();
    }

    /// A loop that died was begun again.
    pub fn restarted(&self) {
        self.restarts.inc();
    }
}
