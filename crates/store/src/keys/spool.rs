//! What was used, on its way to the ledger. Bounded by places: a billed request takes one when it begins and gives it back
//! when the store has what it used, so that what waits here is never more than the bound, and never dropped.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{Store, StoreError, UsageRow, UsageSum};
use forebay_clock::Clock;

/// What one request used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pub key_id: String,
    /// Since 1970.
    pub day: i64,
    pub route: &'static str,
    pub model: String,
    pub sum: UsageSum,
}

/// A request's place, until what it used is in the store.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    places: Arc<Semaphore>,
    bound: usize,
    /// Guards what waits; no await happens under it.
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    rows: Rows,
    places: Vec<Place>,
    /// Tokens of each key that the store does not have, those on their way included.
    tokens: HashMap<String, u64>,
}

/// By key, day, route and model.
type Rows = HashMap<(String, i64, &'static str, String), UsageSum>;

/// Between two writes, so that what ends together is written together.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// At the end.
const LAST_WRITES: Duration = Duration::from_secs(10);
const LAST_LOOK: Duration = Duration::from_millis(20);

impl Spool {
    /// `places` is the bound.
    pub fn new(store: Store, places: usize) -> Spool {
        let bound = places.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(bound));
        Spool(Arc::new(Inner { store, places, bound, waiting: Mutex::default(), more: Notify::new() }))
    }

    /// `None` at the bound.
    pub fn place(&self) -> Option<Place> {
        self.0.places.clone().try_acquire_owned().ok().map(|permit| Place { _permit: permit })
    }

    /// A request is over.
    pub fn push(&self, used: Used, place: Place) {
        let Used { key_id, day, route, model, sum } = used;
        let mut waiting = self.waiting();
        *waiting.tokens.entry(key_id.clone()).or_default() += tokens_of(&sum);
        add(waiting.rows.entry((key_id, day, route, model)).or_default(), &sum);
        waiting.places.push(place);
        drop(waiting);
        self.0.more.notify_one();
    }

    /// Tokens of a key that the store does not have yet.
    pub fn unwritten(&self, key_id: &str) -> u64 {
        self.waiting().tokens.get(key_id).copied().unwrap_or_default()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until `stop` completes, then what is left: also of requests that are just ending.
    pub async fn run(self, clock: Clock, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut writer = Writer::new(self.clone(), clock);
        let mut failures = 0u32;
        loop {
            tokio::select! { biased;
                () = &mut stop => break,
                () = self.0.more.notified(), if failures == 0 => {}
                () = sleep(backoff(failures)), if failures > 0 => {}
            }
            match writer.write().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(event = "ledger_waits", %error, "usage cannot be written; it is kept and tried again");
                }
            }
            tokio::select! { biased;
                () = &mut stop => break,
                () = sleep(PAUSE) => {}
            }
        }
        let last = async {
            let mut failures = 0;
            loop {
                match writer.write().await {
                    Ok(()) if self.0.places.available_permits() >= self.0.bound => return,
                    Ok(()) => sleep(LAST_LOOK).await,
                    Err(_) => {
                        failures += 1;
                        sleep(backoff(failures)).await;
                    }
                }
            }
        };
        if timeout(LAST_WRITES, last).await.is_err() {
            let left = self.waiting().rows.values().chain(writer.rows()).map(|sum| sum.requests).sum::<i64>();
            if left > 0 {
                tracing::error!(
                    event = "ledger_lost",
                    requests = left,
                    "the store did not take the usage of these requests"
                );
            }
        }
    }
}

fn backoff(failures: u32) -> Duration {
    (PAUSE * (1 << failures.min(10))).min(LONGEST_PAUSE)
}

/// The one who writes.
pub struct Writer {
    spool: Spool,
    clock: Clock,
    under_way: Option<Batch>,
}

/// What is written together. Its id makes it count once, however often it has to be sent.
struct Batch {
    id: String,
    rows: Rows,
    places: Vec<Place>,
}

impl Writer {
    pub fn new(spool: Spool, clock: Clock) -> Writer {
        Writer { spool, clock, under_way: None }
    }

    /// Writes what waits. After an error the same is written again first.
    pub async fn write(&mut self) -> Result<(), StoreError> {
        loop {
            if self.under_way.is_none() {
                let mut waiting = self.spool.waiting();
                if waiting.rows.is_empty() {
                    return Ok(());
                }
                let (rows, places) = (std::mem::take(&mut waiting.rows), std::mem::take(&mut waiting.places));
                drop(waiting);
                self.under_way = Some(Batch { id: Uuid::new_v4().to_string(), rows, places });
            }
            let Some(batch) = &self.under_way else { return Ok(()) };
            let row = |((key, day, route, model), sum): (&(String, i64, &'static str, String), &UsageSum)| UsageRow {
                key_id: Some(key.clone()),
                day: Some(*day),
                route: Some((*route).to_owned()),
                model: Some(model.clone()),
                sum: *sum,
            };
            let mut rows: Vec<UsageRow> = batch.rows.iter().map(row).collect();
            // Servers that write the same rows take them in the same order, or they would wait for each other for ever.
            rows.sort_by(|a, b| (&a.key_id, a.day, &a.route, &a.model).cmp(&(&b.key_id, b.day, &b.route, &b.model)));
            self.spool.0.store.add_usage(&batch.id, &rows, self.clock.unix_millis()).await?;
            let Some(batch) = self.under_way.take() else { return Ok(()) };
            let mut waiting = self.spool.waiting();
            for ((key, ..), sum) in &batch.rows {
                if let Some(left) = waiting.tokens.get_mut(key) {
                    *left = left.saturating_sub(tokens_of(sum));
                    if *left == 0 {
                        waiting.tokens.remove(key);
                    }
                }
            }
            drop(waiting);
            drop(batch.places);
        }
    }

    fn rows(&self) -> impl Iterator<Item = &UsageSum> {
        self.under_way.iter().flat_map(|batch| batch.rows.values())
    }
}

fn tokens_of(sum: &UsageSum) -> u64 {
    (sum.prompt_tokens + sum.completion_tokens).max(0) as u64
}

fn add(to: &mut UsageSum, sum: &UsageSum) {
    to.requests += sum.requests;
    to.prompt_tokens += sum.prompt_tokens;
    to.cached_tokens += sum.cached_tokens;
    to.completion_tokens += sum.completion_tokens;
}
