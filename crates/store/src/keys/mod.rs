//! API keys: who a client is, what it may do and how much of it, and what it has used.
//!
//! ```text
//! token.rs      what clients send, and its digest     secret.rs  where the secret of the digests is
//! config.rs     how keys are used, and its settings
//! key.rs        P a key: roles, limits, ceiling       directory.rs  all keys in memory, read again as they change
//! meter.rs      a key's requests, tokens and places   account.rs  what one request took
//! spool.rs      what was used, on its way to the ledger
//! ```
//! No request waits for the store: keys are looked up in memory, and what was used is written behind it. A request that will
//! be billed has a place in the spool from its start until the store has it; when no place is left it is refused, so nothing
//! is lost while the process lives.

mod account;
mod config;
mod directory;
mod key;
mod meter;
mod secret;
mod spool;
mod token;

use std::sync::Arc;

use crate::{Store, StoreError};
use forebay_clock::Clock;
use forebay_core::request::RequestError;

pub use account::Account;
pub use config::{Config, SecretSource, settings};
pub use directory::{Directory, Holder};
pub use key::{Key, NewKey, Role, Roles};
pub use meter::{Level, Levels, Refused, Seat};
pub use secret::SecretError;
pub use spool::{Spool, Used};
pub use token::{Minted, Secret};

/// What the HTTP face asks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keys(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: Directory,
    spool: Spool,
    clock: Clock,
}

/// A request that may begin.
#[derive(Debug)]
pub struct Admission {
    /// Held until the request is over.
    pub seat: Seat,
    pub account: Arc<Account>,
}

impl Keys {
    /// Reads the keys for the first time. From then on [`Keys::refresh`] has to run.
    pub async fn open(config: &Config, store: Store, clock: Clock) -> Result<Keys, StoreError> {
        let secret = Secret::load(&config.secret, store.location())
            .map_err(|error| StoreError::Open { location: store.location().to_string(), message: error.to_string() })?;
        let directory = Directory::open(store.clone(), secret, config.cache_ttl, clock.clone()).await?;
        Ok(Keys(Arc::new(Inner { directory, spool: Spool::new(store, config.spool), clock })))
    }

    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    pub fn spool(&self) -> &Spool {
        &self.0.spool
    }

    /// Whose key this is. Never waits.
    pub fn authenticate(&self, token: &str) -> Result<Arc<Holder>, RequestError> {
        self.0.directory.authenticate(token)
    }

    /// The holder of a key that somebody had before, by the key's id.
    pub fn holder(&self, id: &str) -> Result<Arc<Holder>, RequestError> {
        self.0.directory.holder(id)
    }

    /// Lets a request begin that will be billed, or says why not.
    pub fn admit(&self, holder: &Arc<Holder>, route: &'static str) -> Result<Admission, Refused> {
        let inner = &self.0;
        let key = &holder.key;
        if let Some(limit) = key.tokens_per_month {
            let used = inner.directory.spent(&key.id).saturating_add(inner.spool.unwritten(&key.id));
            if used >= limit {
                return Err(RequestError::QuotaExceeded { used, limit }.into());
            }
        }
        let place = inner.spool.place().ok_or(RequestError::LedgerFull)?;
        let seat = holder.meter.admit()?;
        let day = inner.clock.unix_millis().div_euclid(DAY_MS);
        let account = Account::new(holder.clone(), route, day, place, inner.spool.clone());
        Ok(Admission { seat, account: Arc::new(account) })
    }
}

pub const DAY_MS: i64 = 86_400_000;

/// The day on which the month of `day` begins, both since 1970.
pub fn month_of(day: i64) -> i64 {
    let (year, month, _) = date_of(day);
    day_of(year, month, 1)
}

/// Year, month and day of the month, in the proleptic Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms").
pub fn date_of(day: i64) -> (i64, i64, i64) {
    let z = day + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// The inverse of [`date_of`].
pub fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
