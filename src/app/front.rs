//! From configuration to what the routes share, the routes, and the reloader that one of them asks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::api::{self, BodyLimits, Health};
use crate::config::{AdminAccess, Config, Loaded};
use crate::generate::Generator;
use forebay_clock::Clock;
use forebay_engine::metrics::Metrics;
use forebay_engine::telemetry::Telemetry;
use forebay_engine::workers::Pool;
use forebay_store::Store;
use forebay_store::keys::Keys;

use super::logging::Level;
use super::measures;
use super::reload::{Reloader, ReloaderParts};

/// What the routes share with the rest of the server.
pub struct Parts {
    pub metrics: Arc<Metrics>,
    /// The same for the same program, model and backend.
    pub fingerprint: String,
    pub clock: Clock,
    pub workers: Pool,
    /// Where they are asked for.
    pub keys: Option<Keys>,
    pub store: Store,
    /// What is logged.
    pub level: Level,
    pub telemetry: Option<Telemetry>,
}

/// What the routes share, and who changes the configuration that is in force.
pub struct Face {
    pub front: api::Front,
    pub reloader: Arc<Reloader>,
}

impl Face {
    pub fn new(loaded: Loaded, parts: Parts) -> Face {
        let config = loaded.config.clone();
        let access_log = Arc::new(AtomicBool::new(config.logging.access));
        let reloading = ReloaderParts {
            pool: parts.workers.clone(),
            store: parts.store.clone(),
            clock: parts.clock.clone(),
            metrics: parts.metrics.clone(),
            level: parts.level.clone(),
            access: access_log.clone(),
        };
        let reloader = Arc::new(Reloader::new(loaded, reloading));
        Face { front: front(&config, parts, reloader.clone(), access_log), reloader }
    }
}

fn front(config: &Config, parts: Parts, reloader: Arc<Reloader>, access_log: Arc<AtomicBool>) -> api::Front {
    let Parts { metrics, fingerprint, clock, workers, keys, store, telemetry, .. } = parts;
    api::Front {
        metrics,
        health: Arc::new(Health::new(workers.clone())),
        info: Arc::new(api::ServerInfo { created: forebay_clock::unix_seconds(), system_fingerprint: fingerprint }),
        body: BodyLimits { max_bytes: config.server.max_body_bytes, read_timeout: config.server.read_timeout },
        clock,
        workers,
        admin: match config.server.admin {
            AdminAccess::Loopback => api::Access::Loopback,
            AdminAccess::Any => api::Access::Any,
            AdminAccess::Off => api::Access::Off,
        },
        keys,
        origins: config.server.origins.as_deref().map(api::Origins::of),
        hosts: api::Hosts::of(&config.server.hosts),
        store,
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
        reload: reload_by(reloader),
        access_log,
        telemetry,
    }
}

/// All routes. Without a generator, those of the model are other servers'.
pub fn router(front: api::Front, generator: Option<Generator>, stream_hold: Duration) -> axum::Router {
    match generator {
        Some(generator) => api::router(api::State { front, generator, replays: Arc::default(), stream_hold }),
        None => api::relay_router(front),
    }
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
