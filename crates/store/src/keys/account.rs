//! What one request takes, told to the key's meter as it is taken and to the ledger at its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::directory::Holder;
use super::spool::{Place, Spool, Used};
use crate::UsageSum;
use forebay_core::request::Payer;

/// Shared by the generations of a request; when the last of them is gone, what they took goes to the spool. A request that
/// took nothing is not in the ledger.
#[derive(Debug)]
pub struct Account {
    holder: Arc<Holder>,
    route: &'static str,
    day: i64,
    model: OnceLock<String>,
    prompt: AtomicU64,
    cached: AtomicU64,
    completion: AtomicU64,
    /// Until the end.
    place: Option<Place>,
    spool: Spool,
}

/// Names of models are the operator's, or an upstream's.
const LONGEST_MODEL: usize = 200;

impl Account {
    pub fn new(holder: Arc<Holder>, route: &'static str, day: i64, place: Place, spool: Spool) -> Account {
        Account {
            holder,
            route,
            day,
            model: OnceLock::new(),
            prompt: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            completion: AtomicU64::new(0),
            place: Some(place),
            spool,
        }
    }
}

impl Payer for Account {
    fn model(&self, name: &str) {
        self.model.get_or_init(|| name.chars().take(LONGEST_MODEL).collect());
    }

    fn prompt(&self, tokens: usize) {
        self.prompt.fetch_add(tokens as u64, Ordering::Relaxed);
        self.holder.meter.charge(tokens);
    }

    fn cached(&self, tokens: usize) {
        self.cached.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    fn completion(&self, tokens: usize) {
        self.completion.fetch_add(tokens as u64, Ordering::Relaxed);
        self.holder.meter.charge(tokens);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let count = |counter: &mut AtomicU64| i64::try_from(*counter.get_mut()).unwrap_or(i64::MAX);
        let sum = UsageSum {
            requests: 1,
            prompt_tokens: count(&mut self.prompt),
            cached_tokens: count(&mut self.cached),
            completion_tokens: count(&mut self.completion),
        };
        let Some(place) = self.place.take() else { return };
        if sum.prompt_tokens == 0 && sum.completion_tokens == 0 {
            return;
        }
        let (key_id, model) = (self.holder.key.id.clone(), self.model.take().unwrap_or_default());
        self.spool.push(Used { key_id, day: self.day, route: self.route, model, sum }, place);
    }
}
