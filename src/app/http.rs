//! The HTTP face on its own runtime, and the order in which everything ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{self, Runtime};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::api::{self, BodyLimits, Health, ServeConfig};
use crate::clock::{self, Clock};
use crate::config::{AdminAccess, Config};
use crate::jobs::{Runner, RunnerParts};
use crate::keys::Keys;
use crate::store::Store;
use crate::workers::{self, Pool};

use super::listeners::{Listeners, Named};
use super::workers::Workers;
use super::{Failure, input, measures, signals, thermal};

/// Handlers only parse, wait and frame; two threads keep one slow poll from delaying a probe.
const WORKER_THREADS: usize = 2;
/// Once the engine is empty, the last bytes need no longer than this.
const FLUSH: Duration = Duration::from_secs(5);

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
}

pub fn serve(config: &Config, runtime: Runtime, serving: Serving) -> Result<(), Failure> {
    let Serving { listeners, store, keys, workers: started, clock } = serving;
    let Workers { pool, generator, shared, fingerprint } = started;
    let health = Arc::new(Health::new(pool.clone()));
    let front = api::Front {
        metrics: shared.metrics,
        health: health.clone(),
        info: Arc::new(api::ServerInfo { created: clock::unix_seconds(), system_fingerprint: fingerprint }),
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
        max_file_bytes: config.max_file_bytes,
        drain: Arc::default(),
        canaries: Arc::default(),
        live: Arc::default(),
        instance: measures::instance(&listener).into(),
    };
    let sampled = front.clone();
    let (drain_asked, wake) = (front.drain.clone(), front.batches.clone());
    let router = match generator {
        Some(generator) => api::router(api::State { front, generator, replays: Arc::default() }),
        None => api::relay_router(front),
    };
    let parts = RunnerParts {
        store: store.clone(),
        answerer: api::answerer(router.clone()),
        clock: clock.clone(),
        config: config.jobs,
        wake,
    };
    let served = runtime.block_on(async {
        let (stop, stopped) = watch::channel(());
        let mut servers = Vec::new();
        let mut urls = Vec::new();
        for Named { entrance, url } in listeners.open()? {
            let mut stopped = stopped.clone();
            servers.push(tokio::spawn(api::serve(entrance, router.clone(), serve_config(config), async move {
                // Nothing is ever sent: the sender's end is the word.
                let _ = stopped.changed().await;
            })));
            urls.push(url);
        }
        let keeper = keys.map(|keys| Keeper::start(keys, clock));
        let watcher = tokio::spawn(workers::watch(pool.clone(), config.workers.check_interval));
        health.loaded();
        for url in urls {
            tracing::info!(event = "listening", %url, "listening on {url}");
        }
        let sampler = tokio::spawn(measures::sample(sampled));
        let sensor = tokio::spawn(thermal::watch(config.thermal.clone(), pool.clone()));
        let (stop_batches, batches_stopped) = oneshot::channel::<()>();
        let batches = tokio::spawn(Runner::new(parts).run(async {
            let _ = batches_stopped.await;
        }));
        let end = until_told(drain_asked).await;
        health.drain();
        // What they ask for is given up: it is asked again after the next start, and nobody waits for it here.
        drop(stop_batches);
        let _ = batches.await;
        if end.is_ok() {
            drain(&pool, config.engine.drain_timeout).await;
        }
        sensor.abort();
        pool.shutdown().await;
        // Every loop has ended, and its thread is joined.
        watcher.await.context("the watch over the workers")?;
        drop(stop);
        for server in servers {
            server.await.context("the accept loop")?;
        }
        let _ = sensor.await;
        sampler.abort();
        let _ = sampler.await;
        // Every request has ended, so what it used is in the spool.
        if let Some(keeper) = keeper {
            keeper.end().await;
        }
        store.close().await;
        end
    });
    drop(runtime);
    tracing::info!(event = "stopped", "stopped");
    Ok(served?)
}

/// Reads the keys, where they are asked for.
pub fn open_keys(config: &Config, runtime: &Runtime, store: &Store, clock: &Clock) -> Result<Option<Keys>, Failure> {
    if !config.keys.required {
        return Ok(None);
    }
    let keys = runtime.block_on(Keys::open(&config.keys, store.clone(), clock.clone())).map_err(input)?;
    if keys.directory().is_empty() {
        tracing::warn!(
            event = "no_keys",
            "API keys are required and there are none: make one with `forebay keys create`"
        );
    }
    Ok(Some(keys))
}

/// The two tasks behind the keys: what has changed, and what was used.
struct Keeper {
    refresh: JoinHandle<()>,
    stop_refresh: oneshot::Sender<()>,
    ledger: JoinHandle<()>,
    stop_ledger: oneshot::Sender<()>,
}

impl Keeper {
    fn start(keys: Keys, clock: Clock) -> Keeper {
        let (stop_refresh, refresh_stopped) = oneshot::channel();
        let (stop_ledger, ledger_stopped) = oneshot::channel();
        let ledger = tokio::spawn(keys.spool().clone().run(clock, async {
            let _ = ledger_stopped.await;
        }));
        let refresh = tokio::spawn(async move {
            keys.directory().refresh(async { drop(refresh_stopped.await) }).await;
        });
        Keeper { refresh, stop_refresh, ledger, stop_ledger }
    }

    /// Writes what is left.
    async fn end(self) {
        drop((self.stop_refresh, self.stop_ledger));
        let _ = self.refresh.await;
        let _ = self.ledger.await;
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

async fn until_told(drain_asked: Arc<Notify>) -> anyhow::Result<()> {
    tokio::select! {
        signal = signals::stop() => signal.context("listening for signals"),
        () = drain_asked.notified() => Ok(()),
    }
}

/// Running requests finish, within the limit or until a second signal; queued ones are refused at once.
async fn drain(workers: &Pool, limit: Duration) {
    tracing::info!(event = "draining", limit_s = limit.as_secs(), "draining; a second signal aborts");
    let why = tokio::select! {
        drained = timeout(limit, workers.drain()) => if drained.is_ok() { "drained" } else { "drain timeout" },
        _ = signals::stop() => "second signal",
    };
    tracing::info!(event = "drained", why, "ending the workers");
}
