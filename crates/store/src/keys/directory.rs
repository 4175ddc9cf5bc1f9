//! All keys, in memory. Requests look here and never wait; beside them the keys are read again whenever the store says that
//! one has changed. What was read too long ago is not believed: a store that cannot be reached cannot tell of a revocation.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::key::Key;
use super::meter::Meter;
use super::token::{Minted, NoChance, Secret, id_of};
use super::{DAY_MS, month_of};
use crate::{KeyRecord, Store, StoreError};
use forebay_clock::Clock;
use forebay_core::request::RequestError;
use forebay_core::units::Micros;

/// A key and what it is using.
#[derive(Debug)]
pub struct Holder {
    pub key: Key,
    pub meter: Arc<Meter>,
    digest: String,
    /// And until when it is good.
    previous: Option<(String, i64)>,
}

/// As of one look.
#[derive(Debug)]
struct Snapshot {
    holders: HashMap<String, Arc<Holder>>,
    revision: i64,
    read: Micros,
    /// Tokens of this month, of keys that have a limit on them.
    spent: HashMap<String, u64>,
}

#[derive(Debug)]
pub struct Directory {
    store: Store,
    secret: Secret,
    ttl: Duration,
    clock: Clock,
    /// Looks are short: readers copy an `Arc`.
    snapshot: watch::Sender<Arc<Snapshot>>,
    /// What a key that nobody has is compared with, so that its answer takes as long.
    nobody: String,
}

/// Keys are looked at at least so often.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);

impl Directory {
    pub async fn open(store: Store, secret: Secret, ttl: Duration, clock: Clock) -> Result<Directory, StoreError> {
        let empty = Snapshot { holders: HashMap::new(), revision: -1, read: clock.now(), spent: HashMap::new() };
        let nobody = secret.digest("nobody");
        let directory = Directory { store, secret, ttl, clock, snapshot: watch::Sender::new(Arc::new(empty)), nobody };
        directory.look().await?;
        Ok(directory)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.snapshot.borrow().holders.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Another key's text, and what is to be stored of it.
    pub fn mint(&self) -> Result<Minted, NoChance> {
        self.secret.mint()
    }

    pub fn authenticate(&self, token: &str) -> Result<Arc<Holder>, RequestError> {
        let snapshot = self.fresh()?;
        let now = self.clock.unix_millis();
        let holder = id_of(token).and_then(|id| snapshot.holders.get(&id));
        let Some(holder) = holder else {
            self.secret.verify(token, &self.nobody);
            return Err(INCORRECT);
        };
        let previous = holder.previous.as_ref().filter(|(_, until)| now < *until);
        let is_theirs = self.secret.verify(token, &holder.digest)
            || previous.is_some_and(|(digest, _)| self.secret.verify(token, digest));
        if !is_theirs {
            return Err(INCORRECT);
        }
        if holder.key.has_expired(now) {
            return Err(RequestError::Unauthorized { why: "the API key has expired" });
        }
        Ok(holder.clone())
    }

    pub fn holder(&self, id: &str) -> Result<Arc<Holder>, RequestError> {
        let snapshot = self.fresh()?;
        let holder = snapshot.holders.get(id).filter(|holder| !holder.key.has_expired(self.clock.unix_millis()));
        holder.cloned().ok_or(RequestError::Unauthorized { why: "the API key has expired or was revoked" })
    }

    /// Tokens of this month, as the store knows.
    pub fn spent(&self, id: &str) -> u64 {
        self.snapshot.borrow().spent.get(id).copied().unwrap_or_default()
    }

    fn fresh(&self) -> Result<Arc<Snapshot>, RequestError> {
        let snapshot = self.snapshot.borrow().clone();
        let age = Duration::from_micros(self.clock.now().since(snapshot.read).0);
        if age > self.ttl { Err(RequestError::StoreUnavailable) } else { Ok(snapshot) }
    }

    /// Looks again and again, until `stop` completes.
    pub async fn refresh(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let interval = (self.ttl / 4).min(LONGEST_INTERVAL);
        loop {
            tokio::select! { biased;
                () = &mut stop => return,
                () = sleep(interval) => {}
            }
            let looked = tokio::select! { biased;
                () = &mut stop => return,
                looked = self.look() => looked,
            };
            if let Err(error) = looked {
                tracing::warn!(event = "keys_not_read", %error, "API keys cannot be read; those that are known are used for a while");
            }
        }
    }

    /// Reads the keys if one has changed.
    pub async fn look(&self) -> Result<(), StoreError> {
        // Before anything is read: what changes meanwhile may not be in it.
        let began = self.clock.now();
        let revision = self.store.keys_revision().await?;
        let before = self.snapshot.borrow().clone();
        let holders = if revision == before.revision {
            before.holders.clone()
        } else {
            self.store.keys().await?.iter().filter_map(|record| self.hold(record, &before)).collect()
        };
        let limited = holders.values().any(|holder: &Arc<Holder>| holder.key.tokens_per_month.is_some());
        let spent = match limited {
            true => self.store.tokens_since(month_of(self.clock.unix_millis().div_euclid(DAY_MS))).await?,
            false => HashMap::new(),
        };
        self.snapshot.send_replace(Arc::new(Snapshot { holders, revision, read: began, spent }));
        Ok(())
    }

    /// A key that goes on as it was keeps its meter.
    fn hold(&self, record: &KeyRecord, before: &Snapshot) -> Option<(String, Arc<Holder>)> {
        let key = Key::read(record)?;
        let meter = before.holders.get(&key.id).map(|holder| holder.meter.clone()).filter(|meter| meter.fits(&key));
        let meter = meter.unwrap_or_else(|| Arc::new(Meter::new(&key, &self.clock)));
        let previous = record.previous_digest.clone().zip(record.previous_until_ms);
        let digest = record.digest.clone();
        Some((key.id.clone(), Arc::new(Holder { key, meter, digest, previous })))
    }
}

const INCORRECT: RequestError = RequestError::Unauthorized { why: "incorrect API key provided" };
