//! `forebay serve`: what is opened before anybody is served, the services of the server, and the order in which they end.
//!
//! ```text
//! listeners, store, keys, spans, workers ─▶ Starts ─ list ─▶ Services ─ asked to end ─▶ drain ─▶ ended in the order of ENDING
//! ```

use std::sync::Arc;

use anyhow::Context;
use futures_util::FutureExt;
use tokio::runtime::{self, Runtime};
use tokio::sync::{oneshot, watch};
use tracing_appender::non_blocking::ErrorCounter;

use crate::api::{self, Health, ServeConfig};
use crate::config::{Config, Loaded};
use forebay_clock::Clock;
use forebay_engine::telemetry::{Spans, Telemetry};
use forebay_engine::workers::{self as pool, Pool};
use forebay_store::Store;
use forebay_store::jobs::{Runner, RunnerParts};
use forebay_store::keys::Keys;

use super::ending::{self, End, FLUSH, LAST_WORDS, Patience};
use super::failure::{Failure, input};
use super::front::{self, Face};
use super::keeper::{self, Keeper};
use super::listeners::{self, Listeners, Named};
use super::logging::{self, Level};
use super::reload::Reloader;
use super::services::{Grace, Order, Running, Service, Services, Starting, Step, starting, starting_if_any};
use super::signals::{Hangups, Signals};
use super::workers::{self, Workers};
use super::{measures, notify, thermal};

/// Handlers only parse, wait and frame; two threads keep one slow poll from delaying a probe.
const WORKER_THREADS: usize = 2;

const STORE: &str = "store";
const LOOPS: &str = "engine loops";
const KV_EVENTS: &str = "KV events";
const HTTP: &str = "HTTP";
const KEYS: &str = "API keys and usage";
const TEMPERATURE: &str = "temperature";
const RELOADS: &str = "reloads by SIGHUP";
const WATCHDOG: &str = "watchdog";
const SAMPLES: &str = "samples of metrics";
const SPANS: &str = "spans";
const READINESS: &str = "readiness";
const BATCHES: &str = "batches";

/// How the services of the server end.
const ENDING: Order = Order {
    before_drain: &[
        // Routers look elsewhere from here on.
        Step::End(READINESS),
        // What their lines ask for is given up: it is asked again after the next start, and the drain need not wait for it.
        Step::Tell(BATCHES),
    ],
    after_drain: &[
        // Requests that still run end with an error, which their handlers write.
        Step::End(LOOPS),
        Step::End(HTTP),
        Step::End(BATCHES),
        Step::End(TEMPERATURE),
        Step::End(RELOADS),
        Step::End(WATCHDOG),
        Step::End(SAMPLES),
        // Every request has ended, so all spans are there, all that caches held was told, and what was used is in the spool.
        Step::End(SPANS),
        Step::End(KV_EVENTS),
        Step::End(KEYS),
        // The services above write to it.
        Step::End(STORE),
    ],
    without_drain: LAST_WORDS,
};

/// How each service starts.
struct Starts {
    store: Starting,
    loops: Starting,
    kv_events: Starting,
    http: Starting,
    keys: Starting,
    temperature: Starting,
    reloads: Starting,
    watchdog: Starting,
    samples: Starting,
    spans: Starting,
    readiness: Starting,
    batches: Starting,
}

/// The services in the order in which they start, and how long each has to end.
fn list(starts: Starts) -> [Service; 12] {
    use Grace::{AsDrained, Fixed, Own};
    [
        Service::new(STORE, Fixed(FLUSH), starts.store),
        Service::new(LOOPS, AsDrained, starts.loops),
        // Before the first request, so that whoever listens from the beginning hears of the first block.
        Service::new(KV_EVENTS, Own, starts.kv_events),
        Service::new(HTTP, AsDrained, starts.http),
        Service::new(KEYS, Fixed(FLUSH), starts.keys),
        Service::new(TEMPERATURE, Own, starts.temperature),
        Service::new(RELOADS, Own, starts.reloads),
        Service::new(WATCHDOG, Own, starts.watchdog),
        Service::new(SAMPLES, Own, starts.samples),
        Service::new(SPANS, Own, starts.spans),
        // Said to probes, to the log and to systemd when requests are answered.
        Service::new(READINESS, Own, starts.readiness),
        // They ask the routes as clients do.
        Service::new(BATCHES, AsDrained, starts.batches),
    ]
}

/// Loads the model, starts the workers and serves until a signal comes and everything under way has ended.
pub fn serve(loaded: Loaded) -> Result<End, Failure> {
    let config = loaded.config.clone();
    let (level, lines) = logging::init(&config.logging);
    // The failpoints of `FAILPOINTS`, in builds for tests.
    let _scenario = fail::has_failpoints().then(fail::FailScenario::setup);
    let clock = Clock::system();
    // Bound first: a port that is taken should not cost the loading of a model.
    let listeners = listeners::bind(&config.server)?;
    let runtime = http_runtime()?;
    // So should a store that cannot be used.
    let store = Store::new(config.store.clone());
    runtime.block_on(store.open()).map_err(input)?;
    let keys = keeper::open(&config, &runtime, &store, &clock)?;
    let spans = Telemetry::start(&config.tracing, &clock, runtime.handle()).map_err(input)?;
    let export = spans.as_ref().map(|(_, export, _)| export.clone());
    let workers = workers::start(&config, &clock, export)?;
    workers.shared.gate.keep_connections(connections_for_all(&config));
    // What loading needed is no longer needed.
    forebay_model::release_freed();
    let lost = lines.lost.clone();
    let opened = Opened { listeners, store, keys, workers, clock, level, lost, spans };
    let served = runtime.block_on(run(loaded, opened));
    // Not waiting for what hangs.
    runtime.shutdown_background();
    tracing::info!(event = "stopped", "stopped");
    served
}

fn http_runtime() -> Result<Runtime, Failure> {
    let mut builder = runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKER_THREADS).thread_name("http").enable_all().build();
    Ok(runtime.context("the HTTP runtime")?)
}

/// What has been opened before anybody is served.
struct Opened {
    listeners: Listeners,
    store: Store,
    /// Where they are asked for.
    keys: Option<Keys>,
    workers: Workers,
    clock: Clock,
    level: Level,
    /// Log lines that were dropped.
    lost: ErrorCounter,
    spans: Option<Spans>,
}

/// Starts the services, and ends them when that is asked for.
async fn run(loaded: Loaded, opened: Opened) -> Result<End, Failure> {
    let mut signals = Signals::new().context("listening for signals")?;
    let pool = opened.workers.pool.clone();
    let Assembled { starts, reloader, drain_asked } = assemble(loaded, opened)?;
    let mut services = Services::start(list(starts), &ENDING).await?;
    let asked = ending::asked(&mut signals, drain_asked).await;
    services.walk(ENDING.before_drain, FLUSH).await;
    let live = reloader.live().borrow().clone();
    let patience = Patience { delay: live.server.drain_delay, limit: live.engine.drain_timeout };
    let end = ending::drain(&pool, patience, asked, &mut signals).await;
    // Nobody who was told to end at once, or by now, waits for long.
    let grace = if end == End::Drained { FLUSH } else { LAST_WORDS };
    services.walk(ENDING.after_drain, grace).await;
    Ok(end)
}

/// The server, put together and not started.
struct Assembled {
    starts: Starts,
    reloader: Arc<Reloader>,
    /// Told when the operator asks for a drain over HTTP.
    drain_asked: Arc<tokio::sync::Notify>,
}

/// Puts the server together, within its runtime.
fn assemble(loaded: Loaded, opened: Opened) -> Result<Assembled, Failure> {
    let Opened { listeners, store, keys, workers, clock, level, lost, spans } = opened;
    let Workers { pool, generator, shared, fingerprint, kv_events } = workers;
    let config = loaded.config.clone();
    let hangups = Hangups::new().context("listening for signals")?;
    let parts = front::Parts {
        level,
        metrics: shared.metrics,
        fingerprint,
        clock: clock.clone(),
        workers: pool.clone(),
        keys: keys.clone(),
        store: store.clone(),
        telemetry: spans.as_ref().map(|(telemetry, ..)| telemetry.clone()),
    };
    let Face { front, reloader } = Face::new(loaded, parts);
    let drain_asked = front.drain.clone();
    let router = front::router(front.clone(), generator, config.server.stream_hold);
    let runner = RunnerParts {
        store: store.clone(),
        answerer: api::answerer(router.clone()),
        clock: clock.clone(),
        config: config.jobs,
        wake: front.batches.clone(),
    };
    let entrances = listeners.open()?;
    let urls = entrances.iter().map(|named| named.url.clone()).collect();
    let starts = Starts {
        store: starting(|| Running::until_closed(async move { store.close().await }, Vec::new())),
        loops: loops(pool.clone(), &config),
        kv_events: async { Ok(kv_events.start().await?.map(Running::until_aborted)) }.boxed(),
        http: http(entrances, router, serve_config(&config)),
        keys: starting_if_any(|| keys.map(|keys| Running::until_closed(Keeper::start(keys, clock).end(), Vec::new()))),
        temperature: aborted(thermal::watch(reloader.live(), pool.clone())),
        reloads: aborted(reload_on(hangups, reloader.clone())),
        watchdog: aborted(notify::watchdog(pool)),
        samples: aborted(measures::sample(front.clone(), lost)),
        spans: starting_if_any(|| spans.map(follow)),
        readiness: readiness(front.health, urls),
        batches: batches(runner),
    };
    Ok(Assembled { starts, reloader, drain_asked })
}

/// A task that is aborted at the end.
fn aborted(task: impl Future<Output = ()> + Send + 'static) -> Starting {
    starting(|| Running::until_aborted(tokio::spawn(task)))
}

/// The loops run already, and are watched from here on. The task ends when every loop has ended and its thread is joined, which
/// one that hangs in a step never does.
fn loops(pool: Pool, config: &Config) -> Starting {
    let check_interval = config.workers.check_interval;
    starting(move || {
        let watcher = tokio::spawn(pool::watch(pool.clone(), check_interval));
        Running::until_closed(async move { pool.shutdown().await }, vec![watcher])
    })
}

fn http(entrances: Vec<Named>, router: axum::Router, config: ServeConfig) -> Starting {
    starting(move || {
        let (stop, stopped) = watch::channel(());
        let serve = |Named { entrance, .. }: Named| {
            let mut stopped = stopped.clone();
            tokio::spawn(api::serve(entrance, router.clone(), config, async move {
                // Nothing is ever sent: dropping the sender means stop.
                let _ = stopped.changed().await;
            }))
        };
        let servers = entrances.into_iter().map(serve).collect();
        Running::until_dropped(stop, servers)
    })
}

fn readiness(health: Arc<Health>, urls: Vec<String>) -> Starting {
    starting(move || {
        health.loaded();
        for url in &urls {
            tracing::info!(event = "listening", url, "listening on {url}");
        }
        notify::ready(&urls.join(" "));
        Running::until_called(move || health.drain())
    })
}

fn batches(runner: RunnerParts) -> Starting {
    starting(|| {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(Runner::new(runner).run(async {
            let _ = stopped.await;
        }));
        Running::until_dropped(stop, vec![task])
    })
}

/// Makes spans of the sequences that end, and sends the last of them before it ends.
fn follow((telemetry, export, ended): Spans) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let following = tokio::spawn(telemetry.clone().follow(ended, async {
        let _ = stopped.await;
    }));
    let close = async move {
        drop(stop);
        let _ = following.await;
        telemetry.close(&export).await;
    };
    Running::until_closed(close, Vec::new())
}

async fn reload_on(mut hangups: Hangups, reloader: Arc<Reloader>) {
    loop {
        hangups.next().await;
        // Whatever came of it is in the log.
        let _ = reloader.reload("SIGHUP").await;
    }
}

/// Connections that requests of classes up to normal may use up: an eighth is kept for others. A request that finds no connection is not
/// even heard, and nobody knows how urgent it is.
fn connections_for_all(config: &Config) -> usize {
    let connections = config.server.max_connections;
    connections - connections.div_ceil(8)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> Starting {
        starting_if_any(|| None)
    }

    fn all() -> [Service; 12] {
        list(Starts {
            store: never(),
            loops: never(),
            kv_events: never(),
            http: never(),
            keys: never(),
            temperature: never(),
            reloads: never(),
            watchdog: never(),
            samples: never(),
            spans: never(),
            readiness: never(),
            batches: never(),
        })
    }

    #[test]
    fn services_start_in_this_order_and_have_this_long_to_end() {
        let flush = Grace::Fixed(FLUSH);
        let expected = [
            ("store", flush),
            ("engine loops", Grace::AsDrained),
            ("KV events", Grace::Own),
            ("HTTP", Grace::AsDrained),
            ("API keys and usage", flush),
            ("temperature", Grace::Own),
            ("reloads by SIGHUP", Grace::Own),
            ("watchdog", Grace::Own),
            ("samples of metrics", Grace::Own),
            ("spans", Grace::Own),
            ("readiness", Grace::Own),
            ("batches", Grace::AsDrained),
        ];
        assert_eq!(all().map(|service| (service.name, service.grace)), expected);
    }

    #[test]
    fn services_end_in_this_order_and_none_is_forgotten() {
        let told = |step: &Step| match *step {
            Step::Tell(name) => format!("{name} told"),
            Step::End(name) => name.to_owned(),
        };
        let order = |steps: &[Step]| steps.iter().map(told).collect::<Vec<_>>().join(", ");
        assert_eq!(order(ENDING.before_drain), "readiness, batches told");
        let expected = "engine loops, HTTP, batches, temperature, reloads by SIGHUP, watchdog, samples of metrics, spans, \
                        KV events, API keys and usage, store";
        assert_eq!(order(ENDING.after_drain), expected);
        let steps = [ENDING.before_drain, ENDING.after_drain].concat();
        for Service { name, .. } in all() {
            assert_eq!(steps.iter().filter(|step| **step == Step::End(name)).count(), 1, "{name}");
        }
    }
}
