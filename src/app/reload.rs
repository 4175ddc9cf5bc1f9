//! The configuration, read again: all of what can change while the server runs is put in force, or nothing is.
//!
//! ```text
//! read and check ─ tune every loop at once ─ balancer, thermal, log level, drain, access log ─ tell what waits for a restart
//!     └ refused       └ refused                 cannot fail
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, watch};

use super::logging::Level;
use super::{engine, notify};
use crate::api::{Refused, Reloaded, Waits};
use crate::config::{Config, Difference, Loaded};
use forebay_clock::Clock;
use forebay_core::request::RequestError;
use forebay_core::settings::Effect;
use forebay_engine::metrics::Metrics;
use forebay_engine::workers::Pool;
use forebay_store::{AuditEntry, Store};
use forebay_turn::control::{self, ChangeSet, Changed, Tuning};

/// Puts configurations in force.
pub struct Reloader {
    parts: ReloaderParts,
    /// What memory was sized for.
    started: Config,
    /// What is in force. One reload at a time.
    loaded: Mutex<Loaded>,
    /// The same, for who reads it when it matters.
    live: watch::Sender<Arc<Config>>,
}

pub struct ReloaderParts {
    pub pool: Pool,
    pub store: Store,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub level: Level,
    /// Whether requests are logged.
    pub access: Arc<AtomicBool>,
}

impl Reloader {
    pub fn new(loaded: Loaded, parts: ReloaderParts) -> Reloader {
        let live = watch::Sender::new(Arc::new(loaded.config.clone()));
        Reloader { parts, started: loaded.config.clone(), loaded: Mutex::new(loaded), live }
    }

    /// What is in force, now and later.
    pub fn live(&self) -> watch::Receiver<Arc<Config>> {
        self.live.subscribe()
    }

    /// On behalf of `who`. After an error everything is as it was.
    pub async fn reload(&self, who: &str) -> Result<Reloaded, Refused> {
        let mut loaded = self.loaded.lock().await;
        notify::reloading();
        let outcome = self.attempt(&mut loaded, who).await;
        self.parts.metrics.reloaded(outcome.is_ok());
        match &outcome {
            Ok(Reloaded { changed, restart }) => {
                for Changed { what, from, to } in changed {
                    tracing::info!(event = "control_changed", who, what, from, to, "{what}: {from} → {to}");
                }
                for Waits { key, from, to, .. } in restart {
                    tracing::warn!(event = "restart_needed", key, from, to, "{key} = {to} waits for a restart");
                }
                let (changed, waiting) = (changed.len(), restart.len());
                tracing::info!(event = "reloaded", who, changed, waiting, "the configuration was read again");
                notify::reloaded("serving; the configuration was read again");
            }
            Err(Refused { message, .. }) => {
                tracing::error!(event = "reload_refused", who, error = message, "the configuration stays as it was");
                notify::reloaded("serving; a new configuration was refused");
            }
        }
        outcome
    }

    async fn attempt(&self, loaded: &mut Loaded, who: &str) -> Result<Reloaded, Refused> {
        let before = loaded.clone();
        let read = tokio::task::spawn_blocking(move || before.again()).await;
        let next = read.map_err(|error| Refused::new(error.to_string()))?.map_err(|error| Refused {
            message: error.to_string(),
            place: error.place().map(|place| (place.line, place.column)),
        })?;
        let differences = loaded.differences(&next);
        let level = self.parts.level.parse(&next.config.logging).map_err(Refused::new)?;
        let (set, beyond) = self.change_set(&next.config);
        let mut changed = self.change(set).await?;
        changed.extend(self.parts.pool.balance(next.config.workers.balancer));
        // From here on nothing fails.
        let mut restart = beyond;
        for difference in differences {
            self.report(difference, &mut changed, &mut restart);
        }
        if let Some(waits) = self.parts.level.put(level, &next.config.logging) {
            restart.push(waits);
        }
        self.parts.access.store(next.config.logging.access, Ordering::Relaxed);
        self.live.send_replace(Arc::new(next.config.clone()));
        *loaded = next;
        self.audit(who, &changed).await;
        Ok(Reloaded { changed, restart })
    }

    /// What the loops are told, and what they could not take: more than memory was sized for.
    fn change_set(&self, config: &Config) -> (ChangeSet, Vec<Waits>) {
        let mut tuning = tuning(config);
        let start = self::tuning(&self.started);
        let mut beyond = Vec::new();
        for knob in control::knobs().iter().filter(|knob| knob.sized_at_start) {
            let (to, most) = (knob.text(&tuning), knob.text(&start));
            if knob.kind_since(&start).parse(&to).is_none() && knob.put(&mut tuning, &most).is_ok() {
                let why = format!("memory was sized for {most} at the start");
                beyond.push(Waits { key: knob.key.into(), from: most, to, why });
            }
        }
        (ChangeSet { changes: tuning.changes(), thermal: Some(config.thermal.thresholds) }, beyond)
    }

    async fn change(&self, set: ChangeSet) -> Result<Vec<Changed>, Refused> {
        if !self.parts.pool.has_engines() {
            return Ok(Vec::new());
        }
        match self.parts.pool.change(set).await {
            Ok(changed) => Ok(changed),
            Err(RequestError::EngineStopped) => Err(Refused::new("no engine loop lives just now; try again".into())),
            Err(error) => Err(Refused::new(error.to_string())),
        }
    }

    /// Files a difference under what it came to. What the loops and the pool told of is there already.
    fn report(&self, difference: Difference, changed: &mut Vec<Changed>, restart: &mut Vec<Waits>) {
        let Difference { key, from, to, effect } = difference;
        match effect {
            Effect::Tuned(_) => {}
            Effect::Reload => changed.push(Changed { what: key.into(), from, to }),
            Effect::Restart => {
                restart.push(Waits { key: key.into(), from, to, why: "what it made is in use".into() });
            }
        }
    }

    async fn audit(&self, who: &str, changed: &[Changed]) {
        let now = self.parts.clock.unix_millis();
        let entry = |c: &Changed| AuditEntry::new(now, who, &c.what, &c.from, &c.to);
        let entries: Vec<AuditEntry> = changed.iter().map(entry).collect();
        if !entries.is_empty()
            && let Err(error) = self.parts.store.record(&entries).await
        {
            tracing::warn!(event = "store_failed", %error, "a reload was not written down");
        }
    }
}

/// What the loops of such a configuration are tuned to.
fn tuning(config: &Config) -> Tuning {
    let step_tokens = match config.model.is_simulated() {
        true => config.workers.simulated.max_batch_tokens,
        false => config.scheduler.max_num_batched_tokens,
    };
    // No knob is the context: it is the model's.
    Tuning { intake: config.intake, scheduler: engine::scheduler_config(config, 0, step_tokens) }
}
