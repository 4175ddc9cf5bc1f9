//! Which strategy and policy are in force: a gauge of 1 for each that is, and the names for `/metrics/json`.

use std::sync::{Arc, Mutex, PoisonError};

use ::prometheus::IntGaugeVec;

/// All loops are tuned alike, so they share one.
#[derive(Clone, Debug)]
pub(super) struct Selected {
    /// By group: labelled with the name.
    gauges: [IntGaugeVec; 2],
    /// Guards two names for the length of a copy.
    names: Arc<Mutex<Option<[&'static str; 2]>>>,
}

impl Selected {
    pub fn new(gauges: [IntGaugeVec; 2]) -> Selected {
        Selected { gauges, names: Arc::default() }
    }

    pub fn set(&self, names: [&'static str; 2]) {
        let before = self.names.lock().unwrap_or_else(PoisonError::into_inner).replace(names);
        for (group, gauge) in self.gauges.iter().enumerate() {
            if let Some(before) = before {
                gauge.with_label_values(&[before[group]]).set(0);
            }
            gauge.with_label_values(&[names[group]]).set(1);
        }
    }

    pub fn get(&self) -> Option<[&'static str; 2]> {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
