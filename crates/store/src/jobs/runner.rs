//! The loop that takes batches from `validating` to their end.
//!
//! ```text
//! wake (a batch came, or is cancelled), tick, or an answer
//!   └▶ write down answers ─▶ look at the batches ─▶ validate | ask | end ─▶ wait
//! ```
//! All batches share the lines that may be asked at once, in turns. Nothing here keeps what is not in the store but the lines
//! being asked, so the loop may end at any moment.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use super::active::{Active, READ_AHEAD};
use super::lines::{self, LineFault};
use super::wording::{self, Unanswered};
use super::{Answered, Answerer, Ask, Config};
use crate::{Batch, BatchStatus, FinishedItem, Item, Lead, NewItem, Store, StoreError};
use forebay_clock::Clock;

/// How often the loop looks without being woken: for batches that expire, and for those that another server took in.
const TICK: Duration = Duration::from_secs(1);
/// Lines of one transaction while a file is read or its rest given up.
const AT_ONCE: usize = 500;
/// Errors that a failed batch lists.
const MAX_FAULTS: usize = 100;
/// An upload that has not ended by then was given up by whoever sent it.
const UPLOAD_MS: i64 = 3_600_000;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a [`Runner`] is made of.
pub struct RunnerParts {
    pub store: Store,
    pub answerer: Answerer,
    pub clock: Clock,
    pub config: Config,
    /// Told when a batch came or is to be cancelled.
    pub wake: Arc<Notify>,
}

pub struct Runner {
    parts: RunnerParts,
    lead: Option<Lead>,
    /// By age.
    active: BTreeMap<(i64, String), Active>,
    tasks: JoinSet<FinishedItem>,
    /// Answers on their way to the store.
    finished: Vec<FinishedItem>,
    /// Whose turn it is to ask.
    turn: usize,
}

impl Runner {
    pub fn new(parts: RunnerParts) -> Runner {
        Runner { parts, lead: None, active: BTreeMap::new(), tasks: JoinSet::new(), finished: Vec::new(), turn: 0 }
    }

    /// Until `stop` completes. Lines that are being asked then are given up; they are asked again by whoever runs next.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let wake = self.parts.wake.clone();
        let mut look = true;
        let mut failures = 0;
        loop {
            let step = self.step(look);
            let result = tokio::select! { biased;
                () = &mut stop => break,
                result = step => result,
            };
            let pause = match result {
                Ok(()) => {
                    failures = 0;
                    TICK
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(event = "batches_paused", %error, "the store failed; batches wait for it");
                    backoff(failures)
                }
            };
            look = tokio::select! { biased;
                () = &mut stop => break,
                Some(done) = self.tasks.join_next_with_id(), if failures == 0 => {
                    self.note(done);
                    // Those that came together are written together.
                    while let Some(done) = self.tasks.try_join_next_with_id() {
                        self.note(done);
                    }
                    false
                }
                () = wake.notified() => true,
                () = sleep(pause) => true,
            };
        }
        self.tasks.shutdown().await;
    }

    fn note(&mut self, done: Result<(tokio::task::Id, FinishedItem), JoinError>) {
        let id = match &done {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let owner = self.active.values_mut().find_map(|active| active.asked.remove(&id).map(|_| active));
        match (done, owner) {
            (Ok((_, item)), Some(active)) => {
                active.unwritten += 1;
                self.finished.push(item);
            }
            // Its batch was cancelled or expired meanwhile.
            (Ok(_), None) | (Err(_), None) => {}
            // It panicked; the line is read and asked again.
            (Err(_), Some(active)) => {
                (active.cursor, active.all_read) = (0, false);
                active.stop();
            }
        }
    }

    /// One turn. After an error nothing is lost: the next turn does what this one did not.
    async fn step(&mut self, look: bool) -> Result<(), StoreError> {
        self.write_down().await?;
        if look {
            self.look().await?;
        }
        let keys: Vec<_> = self.active.keys().cloned().collect();
        for key in keys {
            self.advance(&key).await?;
        }
        self.ask().await
    }

    async fn write_down(&mut self) -> Result<(), StoreError> {
        if self.finished.is_empty() {
            return Ok(());
        }
        self.parts.store.finish_items(&self.finished).await?;
        for item in self.finished.drain(..) {
            if let Some(active) = self.active.values_mut().find(|active| active.batch.id == item.batch) {
                active.unwritten -= 1;
            }
        }
        Ok(())
    }

    /// Takes in which batches there are, and in which state.
    async fn look(&mut self) -> Result<(), StoreError> {
        let held = match &mut self.lead {
            Some(lead) => lead.holds().await,
            None => false,
        };
        if !held {
            // Whoever leads now may ask the same lines; the store keeps the first answer.
            self.active.values_mut().for_each(Active::stop);
            self.active.clear();
            self.lead = self.parts.store.lead().await?;
        }
        if self.lead.is_none() {
            return Ok(());
        }
        let now = self.now();
        self.parts.store.sweep_files(now - UPLOAD_MS, now).await?;
        let open = self.parts.store.open_batches().await?;
        self.active.retain(|(_, id), active| {
            let stays = open.iter().any(|batch| batch.id == *id);
            if !stays {
                active.stop();
            }
            stays
        });
        for batch in open {
            let key = (batch.created_ms, batch.id.clone());
            match self.active.get_mut(&key) {
                Some(active) => active.batch = batch,
                None => drop(self.active.insert(key, Active::new(batch))),
            }
        }
        Ok(())
    }

    /// Moves a batch on as far as it goes without waiting for answers.
    async fn advance(&mut self, key: &(i64, String)) -> Result<(), StoreError> {
        loop {
            let now = self.now();
            let Some(active) = self.active.get_mut(key) else { return Ok(()) };
            let id = active.batch.id.clone();
            let store = &self.parts.store;
            match active.batch.status {
                BatchStatus::Validating => validate(store, &active.batch, now).await?,
                BatchStatus::InProgress if active.batch.expires_ms <= now => {
                    active.stop();
                    give_up(store, &id, Unanswered::Expired).await?;
                    store.close_batch(&active.batch, BatchStatus::Expired, now).await?;
                }
                BatchStatus::InProgress if active.is_done() => store.finalize_batch(&id, now).await?,
                BatchStatus::InProgress => return Ok(()),
                BatchStatus::Cancelling => {
                    active.stop();
                    give_up(store, &id, Unanswered::Cancelled).await?;
                    store.close_batch(&active.batch, BatchStatus::Cancelled, now).await?;
                }
                BatchStatus::Finalizing => store.close_batch(&active.batch, BatchStatus::Completed, now).await?,
                BatchStatus::Completed | BatchStatus::Failed | BatchStatus::Expired | BatchStatus::Cancelled => {
                    tracing::info!(
                        event = "batch_ended",
                        batch = id,
                        status = active.batch.status.name(),
                        completed = active.batch.completed,
                        failed = active.batch.failed,
                        "a batch has ended"
                    );
                    self.active.remove(key);
                    return Ok(());
                }
            }
            match self.parts.store.batch(&id).await? {
                Some(batch) => active.batch = batch,
                None => drop(self.active.remove(key)),
            }
        }
    }

    /// Fills the lines that may be asked at once, a line of each batch in turn.
    async fn ask(&mut self) -> Result<(), StoreError> {
        let keys: Vec<_> = self.active.keys().cloned().collect();
        let mut idle = 0;
        while self.tasks.len() < self.parts.config.concurrency && idle < keys.len() {
            let key = &keys[self.turn % keys.len()];
            self.turn = (self.turn + 1) % keys.len();
            let Some(active) = self.active.get_mut(key).filter(|a| a.batch.status == BatchStatus::InProgress) else {
                idle += 1;
                continue;
            };
            if active.needs_lines() {
                let items = self.parts.store.open_items(&active.batch.id, active.cursor, READ_AHEAD).await?;
                active.read(items);
                if active.is_done() {
                    // There was nothing left to ask, so nothing else would look again.
                    self.parts.wake.notify_one();
                }
            }
            let Some(item) = active.ready.pop_front() else {
                idle += 1;
                continue;
            };
            idle = 0;
            let (answerer, batch) = (self.parts.answerer.clone(), &active.batch);
            let task = self.tasks.spawn(answer(answerer, batch.clone(), item));
            active.asked.insert(task.id(), task);
        }
        Ok(())
    }

    fn now(&self) -> i64 {
        self.parts.clock.unix_millis()
    }
}

/// Asks until there is an answer: a queue that is full, or a machine that is too hot, is none.
async fn answer(answerer: Answerer, batch: Batch, item: Item) -> FinishedItem {
    let Batch { id: batch, endpoint: url, owner, .. } = batch;
    let mut failures = 0;
    loop {
        let ask = Ask { batch: batch.clone(), owner: owner.clone(), url: url.clone(), body: item.request.clone() };
        let answered = answerer(ask).await;
        if !is_transient(&answered) {
            return wording::answered(&batch, &item, &answered);
        }
        failures += 1;
        let asked = answered.retry_after_s.map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds.into()));
        sleep(backoff(failures).max(asked).min(LONGEST_PAUSE)).await;
    }
}

/// Nothing is wrong with the request, and nothing came of it.
fn is_transient(answered: &Answered) -> bool {
    matches!(answered.status, 429 | 503 | 504)
}

fn backoff(failures: u32) -> Duration {
    (Duration::from_millis(100) * (1 << failures.min(10))).min(LONGEST_PAUSE)
}

/// Reads the file; its lines become the batch's, or its faults.
async fn validate(store: &Store, batch: &Batch, now: i64) -> Result<(), StoreError> {
    let Some(file) = store.file(&batch.input_file_id, now).await? else {
        let message = "the input file is not there any more".to_owned();
        let fault = LineFault { line: 0, code: "invalid_input_file", param: Some("input_file_id"), message };
        return store.fail_batch(&batch.id, &wording::faults(&[fault]), now).await;
    };
    let (mut at, mut number, mut total) = (-1, 0, 0);
    let mut items = Vec::new();
    let mut faults = Vec::new();
    while let Some(part) = store.part(&file, at).await? {
        at = part.at;
        for text in part.content.lines() {
            number += 1;
            if text.trim().is_empty() {
                continue;
            }
            match lines::parse(number, text) {
                Ok(line) if line.url != batch.endpoint => faults.push(wording::mismatched(number, batch)),
                Ok(line) => {
                    total += 1;
                    items.push(NewItem { line: number as i64, custom_id: line.custom_id, request: line.body });
                }
                Err(fault) => faults.push(fault),
            }
        }
        if faults.len() >= MAX_FAULTS {
            break;
        }
        if items.len() >= AT_ONCE {
            store.add_items(&batch.id, &items).await?;
            items.clear();
        }
    }
    faults.truncate(MAX_FAULTS);
    if !faults.is_empty() {
        return store.fail_batch(&batch.id, &wording::faults(&faults), now).await;
    }
    store.add_items(&batch.id, &items).await?;
    store.start_batch(&batch.id, total, now).await
}

/// Lines without an answer get an error instead.
async fn give_up(store: &Store, batch: &str, why: Unanswered) -> Result<(), StoreError> {
    loop {
        let open = store.open_items(batch, 0, AT_ONCE).await?;
        if open.is_empty() {
            return Ok(());
        }
        let items: Vec<FinishedItem> = open.iter().map(|item| wording::unanswered(batch, item, why)).collect();
        store.finish_items(&items).await?;
    }
}
