//! The end of the server, in order: not ready, a while later no new requests, running ones to their end or the deadline.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::notify;
use super::signals::{Signal, Signals};
use forebay_engine::workers::Pool;

/// Once the engine is empty, the last bytes need no longer than this.
pub const FLUSH: Duration = Duration::from_secs(5);
/// After the deadline or a second signal: error events are on their way.
pub const LAST_WORDS: Duration = Duration::from_millis(1_500);

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything that ran has finished.
    Drained,
    /// At the deadline something still ran, and was ended.
    Deadline,
    /// A second signal said at once.
    Aborted(Signal),
}

impl End {
    /// Of the process.
    pub const fn exit_code(self) -> u8 {
        match self {
            End::Drained | End::Deadline => 0,
            End::Aborted(signal) => signal.exit_code(),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            End::Drained => "drained",
            End::Deadline => "drain timeout",
            End::Aborted(_) => "second signal",
        }
    }
}

/// How much time there is, as configured when the end begins.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Requests are still taken.
    pub delay: Duration,
    /// And then what runs may finish.
    pub limit: Duration,
}

/// Who asked for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Signal,
    /// The operator, over HTTP. The signal that usually follows (Kubernetes sends one after its hook) is the first.
    Order,
}

pub async fn asked(signals: &mut Signals, order: Arc<Notify>) -> Asked {
    tokio::select! {
        _ = signals.stop() => Asked::Signal,
        () = order.notified() => Asked::Order,
    }
}

/// Waits out the delay and then for what runs, until the deadline or the second signal.
pub async fn drain(pool: &Pool, patience: Patience, asked: Asked, signals: &mut Signals) -> End {
    let Patience { delay, limit } = patience;
    tracing::info!(
        event = "draining",
        delay_ms = delay.as_millis() as u64,
        limit_ms = limit.as_millis() as u64,
        "draining; a second signal aborts"
    );
    notify::stopping(delay + limit + FLUSH);
    let drained = async {
        sleep(delay).await;
        let drained = timeout(limit, pool.drain()).await;
        if drained.is_ok() { End::Drained } else { End::Deadline }
    };
    let end = tokio::select! {
        end = drained => end,
        signal = second(signals, asked) => End::Aborted(signal),
    };
    tracing::info!(event = "drained", why = end.name(), "ending the workers");
    end
}

/// The second thing that asks for the end as a signal does.
async fn second(signals: &mut Signals, asked: Asked) -> Signal {
    if asked == Asked::Order {
        signals.stop().await;
    }
    signals.stop().await
}
