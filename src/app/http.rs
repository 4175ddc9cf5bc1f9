//! The HTTP face on its own runtime, and the order in which everything ends.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::api::{self, BodyLimits, Health, ServeConfig};
use crate::clock::{self, Clock};
use crate::config::{AdminAccess, Config, Loaded, ServerConfig};
use crate::engine::export::Export;
use crate::engine::trace::Trace;
use crate::jobs::{Runner, RunnerParts};
use crate::store::Store;
use crate::telemetry::Telemetry;
use crate::workers;

use super::ending::{self, End, Patience};
use super::logging::Level;
use super::reload::{Reloader, ReloaderParts};
use super::signals::{Hangups, Signals};
use super::workers::Workers;
use super::{Failure, input, notify, thermal};

/// Handlers only parse, wait and frame; two threads keep one slow poll from delaying a probe.
const WORKER_THREADS: usize = 2;
/// Once the engine is empty, the last bytes need no longer than this.
pub const FLUSH: Duration = Duration::from_secs(5);
/// After the deadline or a second signal: error events are on their way.
const LAST_WORDS: Duration = Duration::from_millis(1_500);

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
    pub level: Level,
    pub spans: Option<Spans>,
}

/// Who makes spans, who gives it traces, and those.
pub type Spans = (Telemetry, Export, mpsc::Receiver<Arc<Trace>>);

pub fn serve(loaded: Loaded, runtime: Runtime, serving: Serving) -> Result<End, Failure> {
    let Serving { listener, store, workers: started, clock, level, spans } = serving;
    let Workers { pool, generator, shared, fingerprint } = started;
    let config = loaded.config.clone();
    let health = Arc::new(Health::new(pool.clone()));
    let access = Arc::new(AtomicBool::new(config.logging.access));
    let parts = ReloaderParts { pool: pool.clone(), store: store.clone(), clock: clock.clone(), level, access };
    let access = parts.access.clone();
    let reloader = Arc::new(Reloader::new(loaded, parts));
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
        reload: reload_by(reloader.clone()),
        access_log: access,
        telemetry: spans.as_ref().map(|(telemetry, ..)| telemetry.clone()),
    };
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
        let mut signals = Signals::new().context("listening for signals")?;
        let hangups = Hangups::new().context("listening for signals")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let mut server = tokio::spawn(api::serve(listener, router, serve_config(&config), async {
            let _ = stopped.await;
        }));
        let mut watch = tokio::spawn(workers::watch(pool.clone(), config.workers.check_interval));
        let beside = [
            tokio::spawn(thermal::watch(reloader.live(), pool.clone())),
            tokio::spawn(reload_on(hangups, reloader.clone())),
            tokio::spawn(notify::watchdog(pool.clone())),
        ];
        let spans = spans.map(|(telemetry, export, ended)| {
            let (stop, stopped) = oneshot::channel::<()>();
            let following = telemetry.clone().follow(ended, async {
                let _ = stopped.await;
            });
            (tokio::spawn(following), stop, telemetry, export)
        });
        health.loaded();
        let url = format!("http://{address}");
        tracing::info!(event = "listening", url, "listening on {url}");
        notify::ready(&url);
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
        if timeout(grace, &mut watch).await.is_err() {
            tracing::error!(event = "step_not_ended", "a step did not end in time; the process ends without it");
            watch.abort();
        }
        drop(stop);
        if timeout(grace, &mut server).await.is_err() {
            // Drops every connection.
            server.abort();
            let _ = server.await;
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
        let _ = timeout(FLUSH, store.close()).await;
        anyhow::Ok(end)
    });
    // Not waiting for what hangs.
    runtime.shutdown_background();
    tracing::info!(event = "stopped", "stopped");
    Ok(served?)
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
