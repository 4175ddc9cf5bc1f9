//! What systemd hears of the server (`Type=notify-reload`): ready, reloading, stopping, alive. Without `NOTIFY_SOCKET` nobody
//! is told anything.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use forebay_engine::workers::{Pool, Unready};

#[cfg(unix)]
use sd_notify::NotifyState;

/// Requests are served.
pub fn ready(url: &str) {
    #[cfg(unix)]
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("serving {url}"))]);
}

/// The configuration is read again; [`reloaded`] follows, whatever comes of it.
pub fn reloading() {
    #[cfg(unix)]
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(event = "notify_failed", %error, "systemd was not told"),
    }
}

pub fn reloaded(status: &str) {
    #[cfg(unix)]
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The end has begun and will take no longer than `longest`.
pub fn stopping(longest: Duration) {
    #[cfg(unix)]
    {
        let extend = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
        tell(&[NotifyState::Stopping, NotifyState::Status("draining"), NotifyState::ExtendTimeoutUsec(extend)]);
    }
}

/// Says twice per period that the server is alive, for as long as a loop is: one that hangs in a step is for systemd to
/// end. Ends at once where no watchdog is set.
pub async fn watchdog(workers: Pool) {
    let Some(period) = period() else { return };
    let mut ticks = interval((period / 2).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        // Loops that are being begun again, and other servers that are down, are no reason to end this process.
        if !matches!(workers.ready(), Err(Unready::Stalled(_))) {
            #[cfg(unix)]
            tell(&[NotifyState::Watchdog]);
        }
    }
}

#[cfg(unix)]
fn period() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

#[cfg(not(unix))]
fn period() -> Option<Duration> {
    None
}

#[cfg(unix)]
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(event = "notify_failed", %error, "systemd was not told");
    }
}
