//! The HTTP face on its own runtime, and the order in which everything ends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{self, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing_appender::non_blocking::ErrorCounter;

use crate::api::{self, BodyLimits, Health, ServeConfig};
use crate::config::{AdminAccess, Config, Loaded};
use forebay_clock::Clock;
use forebay_engine::telemetry::Spans;
use forebay_engine::workers;
use forebay_store::Store;
use forebay_store::jobs::{Runner, RunnerParts};
use forebay_store::keys::Keys;

use super::ending::{self, End, Patience};
use super::keeper::Keeper;
use super::listeners::{Listeners, Named};
use super::logging::Level;
use super::reload::{Reloader, ReloaderParts};
use super::signals::{Hangups, Signals};
use super::workers::Workers;
use super::{Failure, measures, notify, thermal};

/// Handlers only parse, wait and frame; two threads keep one slow poll from delaying a probe.
const WORKER_THREADS: usize = 2;
/// Once the engine is empty, the last bytes need no longer than this.
pub const FLUSH: Duration = Duration::from_secs(5);
/// After the deadline or a second signal: error events are on their way.
const LAST_WORDS: Duration = Duration::from_millis(1_500);

pub fn runtime() -> Result<Runtime, Failure> {
    let mut builder = runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKER_THREADS).thread_name("http").enable_all().build();
    Ok(runtime.context("the HTTP runtime")?)
}

/// What has been started before.
pub struct Serving {
    pub listeners: Listeners,
    /// Open.
    pub store: Store,
    /// Where they are asked for.
    pub keys: Option<Keys>,
    pub workers: Workers,
    pub clock: Clock,
    pub level: Level,
    /// Log lines that were dropped.
    pub lost: ErrorCounter,
    pub spans: Option<Spans>,
}

pub fn serve(loaded: Loaded, runtime: Runtime, serving: Serving) -> Result<End, Failure> {
    let Serving { listeners, store, keys, workers: started, clock, level, lost, spans } = serving;
    let Workers { pool, generator, shared, fingerprint, kv_events } = started;
    let config = loaded.config.clone();
    let health = Arc::new(Health::new(pool.clone()));
    let access = Arc::new(AtomicBool::new(config.logging.access));
    let parts = ReloaderParts {
        pool: pool.clone(),
        store: store.clone(),
        clock: clock.clone(),
        metrics: shared.metrics.clone(),
        level,
        access,
    };
    let access = parts.access.clone();
    let reloader = Arc::new(Reloader::new(loaded, parts));
    let front = api::Front {
        metrics: shared.metrics,
        health: health.clone(),
        info: Arc::new(api::ServerInfo { created: forebay_clock::unix_seconds(), system_fingerprint: fingerprint }),
        body: BodyLimits { max_bytes: config.server.max_body_bytes, read_timeout: config.server.read_timeout },
        clock: clock.clone(),
        workers: pool.clone(),
        admin: match config.server.admin {
            AdminAccess::Loopback => api::Access::Loopback,
            AdminAccess::Any => api::Access::Any,
            AdminAccess::Off => api::Access::Off,
        },
        keys: keys.clone(),
        origins: config.server.origins.as_deref().map(api::Origins::of),
        store: store.clone(),
        batches: Arc::default(),
        max_file_bytes: config.uploads.max_file_bytes,
        proxies: api::Proxies {
            trusted: config.server.trusted_proxies.clone(),
            objectives: config.server.objectives.clone().into(),
        },
        drain: Arc::default(),
        canaries: Arc::default(),
        live: Arc::default(),
        instance: measures::instance(config.server.port).into(),
        reload: reload_by(reloader.clone()),
        access_log: access,
        telemetry: spans.as_ref().map(|(telemetry, ..)| telemetry.clone()),
    };
    let sampled = front.clone();
    let (drain_asked, wake) = (front.drain.clone(), front.batches.clone());
    let router = match generator {
        Some(generator) => {
            let stream_hold = config.server.stream_hold;
            api::router(api::State { front, generator, replays: Arc::default(), stream_hold })
        }
        None => api::relay_router(front),
    };
    let parts = RunnerParts {
        store: store.clone(),
        answerer: api::answerer(router.clone()),
        clock: clock.clone(),
        config: config.jobs,
        wake,
    };
    let served: Result<End, Failure> = runtime.block_on(async {
        let mut signals = Signals::new().context("listening for signals")?;
        let hangups = Hangups::new().context("listening for signals")?;
        // Before the first request, so that whoever listens from the beginning hears of the first block.
        let telling = kv_events.start().await?;
        let (stop, stopped) = watch::channel(());
        let mut servers = Vec::new();
        let mut urls = Vec::new();
        for Named { entrance, url } in listeners.open()? {
            let mut stopped = stopped.clone();
            servers.push(tokio::spawn(api::serve(entrance, router.clone(), serve_config(&config), async move {
                // Nothing is ever sent: the sender's end is the word.
                let _ = stopped.changed().await;
            })));
            urls.push(url);
        }
        let keeper = keys.map(|keys| Keeper::start(keys, clock));
        let mut watcher = tokio::spawn(workers::watch(pool.clone(), config.workers.check_interval));
        let beside = [
            tokio::spawn(thermal::watch(reloader.live(), pool.clone())),
            tokio::spawn(reload_on(hangups, reloader.clone())),
            tokio::spawn(notify::watchdog(pool.clone())),
            tokio::spawn(measures::sample(sampled, lost)),
        ];
        let spans = spans.map(|(telemetry, export, ended)| {
            let (stop, stopped) = oneshot::channel::<()>();
            let following = telemetry.clone().follow(ended, async {
                let _ = stopped.await;
            });
            (tokio::spawn(following), stop, telemetry, export)
        });
        health.loaded();
        for url in &urls {
            tracing::info!(event = "listening", url, "listening on {url}");
        }
        notify::ready(&urls.join(" "));
        let (stop_batches, batches_stopped) = oneshot::channel::<()>();
        let mut batches = tokio::spawn(Runner::new(parts).run(async {
            let _ = batches_stopped.await;
        }));
        let asked = ending::asked(&mut signals, drain_asked).await;
        health.drain();
        // What they ask for is given up: it is asked again after the next start, and nobody waits for it here.
        drop(stop_batches);
        let live = reloader.live().borrow().clone();
        let patience = Patience { delay: live.server.drain_delay, limit: live.engine.drain_timeout };
        let end = ending::drain(&pool, patience, asked, &mut signals).await;
        // Nobody who was told to end at once, or by now, waits for long.
        let grace = if end == End::Drained { FLUSH } else { LAST_WORDS };
        let _ = timeout(grace, pool.shutdown()).await;
        // Every loop has ended, and its thread is joined; but for one that hangs in a step, which nothing can end.
        if timeout(grace, &mut watcher).await.is_err() {
            tracing::error!(event = "step_not_ended", "a step did not end in time; the process ends without it");
            watcher.abort();
        }
        drop(stop);
        for mut server in servers {
            if timeout(grace, &mut server).await.is_err() {
                // Drops every connection.
                server.abort();
                let _ = server.await;
            }
        }
        if timeout(grace, &mut batches).await.is_err() {
            batches.abort();
        }
        for task in beside {
            task.abort();
            let _ = task.await;
        }
        if let Some((following, stop, telemetry, export)) = spans {
            drop(stop);
            let _ = following.await;
            telemetry.close(&export).await;
        }
        if let Some(telling) = telling {
            telling.abort();
            let _ = telling.await;
        }
        // Every request has ended, so what it used is in the spool.
        if let Some(keeper) = keeper {
            let _ = timeout(FLUSH, keeper.end()).await;
        }
        let _ = timeout(FLUSH, store.close()).await;
        Ok(end)
    });
    // Not waiting for what hangs.
    runtime.shutdown_background();
    tracing::info!(event = "stopped", "stopped");
    served
}

/// For `POST /admin/reload`.
fn reload_by(reloader: Arc<Reloader>) -> api::Reload {
    api::Reload::new(move |who: String| {
        let reloader = reloader.clone();
        // Not dropped half-way with the request that asked for it.
        let reloading = tokio::spawn(async move { reloader.reload(&who).await });
        Box::pin(async move { reloading.await.unwrap_or_else(|error| Err(api::Refused::new(error.to_string()))) })
    })
}

async fn reload_on(mut hangups: Hangups, reloader: Arc<Reloader>) {
    loop {
        hangups.next().await;
        // Whatever came of it is in the log.
        let _ = reloader.reload("SIGHUP").await;
    }
}

fn serve_config(config: &Config) -> ServeConfig {
    ServeConfig {
        header_timeout: config.server.header_timeout,
        write_timeout: config.server.write_timeout,
        max_connections: config.server.max_connections,
        drain_timeout: FLUSH,
        ..ServeConfig::default()
    }
}
