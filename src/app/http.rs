//! The HTTP face on its own runtime, and the order in which everything ends.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{self, Runtime};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::api::{self, BodyLimits, Health, ServeConfig};
use crate::clock::{self, Clock};
use crate::config::{AdminAccess, Config, ServerConfig};
use crate::jobs::{Runner, RunnerParts};
use crate::store::Store;
use crate::workers::{self, Pool};

use super::workers::Workers;
use super::{Failure, input, measures, signals, thermal};

/// Handlers only parse, wait and frame; two threads keep one slow poll from delaying a probe.
const WORKER_THREADS: usize = 2;
/// Once the engine is empty, the last bytes need no longer than this.
const FLUSH: Duration = Duration::from_secs(5);

/// The address could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}")]
struct Bind {
    address: SocketAddr,
    error: std::io::Error,
}

pub fn bind(config: &ServerConfig) -> Result<TcpListener, Failure> {
    let address = SocketAddr::new(config.host, config.port);
    let listener = TcpListener::bind(address).map_err(|error| input(Bind { address, error }))?;
    listener.set_nonblocking(true).context("the listener")?;
    Ok(listener)
}

pub fn runtime() -> Result<Runtime, Failure> {
    let mut builder = runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKER_THREADS).thread_name("http").enable_all().build();
    Ok(runtime.context("the HTTP runtime")?)
}

/// What has been started before.
pub struct Serving {
    pub listener: TcpListener,
    /// Open.
    pub store: Store,
    pub workers: Workers,
    pub clock: Clock,
}

pub fn serve(config: &Config, runtime: Runtime, serving: Serving) -> Result<(), Failure> {
    let Serving { listener, store, workers: started, clock } = serving;
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
        store: store.clone(),
        batches: Arc::default(),
        max_file_bytes: config.max_file_bytes,
        drain: Arc::default(),
        canaries: Arc::default(),
        live: Arc::default(),
        instance: measures::instance(config.server.port).into(),
    };
    let sampled = front.clone();
    let (drain_asked, wake) = (front.drain.clone(), front.batches.clone());
    let router = match generator {
        Some(generator) => api::router(api::State { front, generator, replays: Arc::default() }),
        None => api::relay_router(front),
    };
    let parts =
        RunnerParts { store: store.clone(), answerer: api::answerer(router.clone()), clock, config: config.jobs, wake };
    let served = runtime.block_on(async {
        let address = listener.local_addr().context("the listener")?;
        let listener = tokio::net::TcpListener::from_std(listener).context("the listener")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(api::serve(listener, router, serve_config(config), async {
            let _ = stopped.await;
        }));
        let watch = tokio::spawn(workers::watch(pool.clone(), config.workers.check_interval));
        health.loaded();
        tracing::info!(event = "listening", url = %format!("http://{address}"), "listening on http://{address}");
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
        watch.await.context("the watch over the workers")?;
        drop(stop);
        server.await.context("the accept loop")?;
        let _ = sensor.await;
        sampler.abort();
        let _ = sampler.await;
        store.close().await;
        end
    });
    drop(runtime);
    tracing::info!(event = "stopped", "stopped");
    Ok(served?)
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
