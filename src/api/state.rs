//! What handlers share: the front of every server, and what one with a model of its own has beside it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::extract::FromRef;
use tokio::sync::Notify;

use crate::api::cors::Origins;
use crate::api::extract::BodyLimits;
use crate::api::health::Health;
use crate::api::hosts::Hosts;
use crate::api::operator::admin::audience::Access;
use crate::api::operator::admin::canary::Canaries;
use crate::api::operator::admin::feed::Feed;
use crate::api::operator::admin::reloading::Reload;
use crate::api::proxies::Proxies;
use crate::api::replay::Replays;
use crate::generate::Generator;
use forebay_clock::Clock;
use forebay_engine::metrics::Metrics;
use forebay_engine::telemetry::Telemetry;
use forebay_engine::workers::Pool;
use forebay_store::Store;
use forebay_store::keys::Keys;

/// What every server has, with a model of its own or without. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub info: Arc<ServerInfo>,
    pub body: BodyLimits,
    pub clock: Clock,
    /// For `/admin`, traces and relays; completions of the server's own model go through its generator.
    pub workers: Pool,
    pub admin: Access,
    /// Without them everybody may ask for everything that `admin` lets through.
    pub keys: Option<Keys>,
    /// Pages of other origins that may ask; without them, none.
    pub origins: Option<Origins>,
    /// Names by which it may be called.
    pub hosts: Hosts,
    pub store: Store,
    /// Told when a batch came, or is to be cancelled.
    pub batches: Arc<Notify>,
    /// Of an upload.
    pub max_file_bytes: usize,
    /// Who may speak for others.
    pub proxies: Proxies,
    /// Told when the operator asks for a drain.
    pub drain: Arc<Notify>,
    /// The strategy on trial.
    pub canaries: Canaries,
    /// What the dashboard is shown.
    pub live: Feed,
    /// This server among those that share a store: its host's name and port.
    pub instance: Arc<str>,
    /// Who reads the configuration again.
    pub reload: Reload,
    /// Whether each request is logged.
    pub access_log: Arc<AtomicBool>,
    /// Who makes spans of requests, if anybody does.
    pub telemetry: Option<Telemetry>,
}

/// What the handlers of the server's own model share. Cheap to clone.
#[derive(Clone)]
pub struct State {
    pub front: Front,
    pub generator: Generator,
    pub replays: Arc<Replays>,
    /// A stream that has no seat says nothing for so long: not even that all is well.
    pub stream_hold: Duration,
}

impl Deref for State {
    type Target = Front;

    fn deref(&self) -> &Front {
        &self.front
    }
}

/// Facts about this server that answers repeat.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Unix seconds at start: the `created` of the model.
    pub created: u64,
    /// Same fingerprint, same seed: same tokens.
    pub system_fingerprint: String,
}

impl FromRef<Front> for Arc<Metrics> {
    fn from_ref(front: &Front) -> Arc<Metrics> {
        front.metrics.clone()
    }
}

impl FromRef<Front> for Arc<Health> {
    fn from_ref(front: &Front) -> Arc<Health> {
        front.health.clone()
    }
}
