//! Takes the samples behind `/metrics/json/history`.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::api::Front;

/// Until it is dropped.
pub async fn sample(front: Front) {
    let every = Duration::from_micros(front.metrics.config().interval.0);
    let mut ticks = interval(every);
    // A sample tells how long it stands for, so one that comes late needs no others to catch up.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        front.metrics.sample(front.clock.unix_millis());
    }
}
