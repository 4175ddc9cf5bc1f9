//! Takes the samples behind `/metrics/json/history`, and writes one of many to the store.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing_appender::non_blocking::ErrorCounter;

use crate::api::Front;
use forebay_store::Snapshot;

/// Until it is dropped.
pub async fn sample(front: Front, lost: ErrorCounter) {
    let config = front.metrics.config().clone();
    let every = Duration::from_micros(config.interval.0);
    let mut ticks = interval(every);
    // A sample tells how long it stands for, so one that comes late needs no others to catch up.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut written_ms = front.clock.unix_millis();
    loop {
        ticks.tick().await;
        let now_ms = front.clock.unix_millis();
        front.metrics.sample(now_ms);
        front.metrics.log_lines_lost(lost.dropped_lines() as u64);
        let Some(kept_every) = config.kept_every else { continue };
        if now_ms - written_ms >= kept_every.as_millis() as i64 {
            write(&front, written_ms, now_ms - config.kept_for.as_millis() as i64).await;
            written_ms = now_ms;
        }
    }
}

/// One sample of what came after `since_ms`. A store that does not take it costs the sample, nothing else.
async fn write(front: &Front, since_ms: i64, oldest_ms: i64) {
    let Some((at_ms, body)) = crate::api::snapshot(front, since_ms) else { return };
    if let Err(error) = front.store.keep_snapshot(&front.instance, &Snapshot { at_ms, body }, oldest_ms).await {
        tracing::warn!(event = "snapshot_lost", %error, "a sample of the metrics was not written to the store");
    }
}

/// The host's name and the port as it is configured, so that a server which is begun again is the same.
pub fn instance(port: u16) -> String {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let name = name.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let name = if name.trim().is_empty() { "localhost" } else { name.trim() };
    format!("{name}:{port}")
}
