//! Watching over workers: loops that died are begun again, other servers are asked how they are.

use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::local::{Local, Run};
use super::pool::Pool;
use forebay_core::units::Micros;

/// A loop that dies again within this time is begun again later and later.
const STABLE: Micros = Micros::from_millis(60_000);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Until [`Pool::shutdown`], and until every loop has ended and its thread is joined.
pub async fn watch(pool: Pool, check_interval: Duration) {
    let loops = pool.locals().map(|(worker, local)| keep(&pool, worker, local));
    let checks = (0..pool.workers().len()).map(|worker| check(&pool, worker, check_interval));
    tokio::join!(join_all(loops), join_all(checks));
}

/// Keeps a loop in its place.
async fn keep(pool: &Pool, worker: usize, local: &Local) {
    let Some(mut run) = local.take_first() else { return };
    let mut pause = FIRST_PAUSE;
    loop {
        let began = pool.0.clock.now();
        end_of(run).await;
        local.replace(None);
        local.heartbeat.end();
        if pool.is_ending() {
            return;
        }
        let id = pool.worker(worker).id();
        tracing::error!(event = "engine_died", worker = id, "an engine loop died; it is begun again");
        if pool.0.clock.now().since(began) > STABLE {
            pause = FIRST_PAUSE;
        }
        let Some(next) = begin_again(pool, worker, local, &mut pause).await else { return };
        run = next;
    }
}

/// The loop has returned or died, and its thread has gone.
async fn end_of((thread, ended): (JoinHandle<()>, oneshot::Receiver<()>)) {
    let _ = ended.await;
    // The panic's message is in the log already: the hook has written it.
    let _ = spawn_blocking(move || drop(thread.join())).await;
}

/// Tries until it succeeds, waiting longer and longer; `None` when the end comes first.
async fn begin_again(
    pool: &Pool,
    worker: usize,
    local: &Local,
    pause: &mut Duration,
) -> Option<(JoinHandle<()>, oneshot::Receiver<()>)> {
    loop {
        tokio::select! {
            () = pool.ended() => return None,
            () = sleep(*pause) => {}
        }
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        let start = local.start.clone();
        // Allocates a cache.
        match spawn_blocking(move || start()).await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(Run { handle, thread, ended }) => {
                if pool.brief(&handle).await.is_ok() {
                    pool.board(|board| board.renew(worker));
                    local.replace(Some(handle));
                    pool.worker(worker).metrics().restarted();
                }
                // The end may have come while it began, and was then told to the others only.
                if pool.is_ending()
                    && let Some(handle) = local.handle()
                {
                    let _ = handle.shutdown().await;
                }
                return Some((thread, ended));
            }
            Err(error) => {
                let id = pool.worker(worker).id();
                tracing::error!(
                    event = "engine_not_begun",
                    worker = id,
                    error,
                    "an engine loop could not be begun again"
                );
            }
        }
    }
}

/// Asks another server how it is, now and then.
async fn check(pool: &Pool, worker: usize, every: Duration) {
    let Some(upstream) = pool.worker(worker).upstream() else { return };
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = pool.ended() => return,
            _ = ticks.tick() => {}
        }
        let healthy = upstream.check().await;
        let now = pool.0.clock.now();
        pool.board(|board| match healthy {
            Ok(()) => board.set_up(worker, true),
            Err(_) => board.check_failed(worker, now),
        });
        if let Err(fault) = healthy {
            let id = pool.worker(worker).id();
            tracing::warn!(event = "check_failed", worker = id, %fault, "{id} did not pass its check");
        }
    }
}
