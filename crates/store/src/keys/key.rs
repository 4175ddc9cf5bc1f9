//! A key: whose it is, what it may do and how much of it. Pure.

use crate::KeyRecord;
use forebay_core::request::{Priority, Weight};

/// What a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whatever a model answers, and the files and batches of the key.
    Inference,
    /// What the operator sees and changes.
    Admin,
}

impl Role {
    pub const ALL: [Role; 2] = [Role::Inference, Role::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Role::Inference => "inference",
            Role::Admin => "admin",
        }
    }

    pub fn from_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// The roles of a key: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles(Vec<Role>);

impl Roles {
    pub fn new(roles: &[Role]) -> Option<Roles> {
        let roles: Vec<Role> = Role::ALL.into_iter().filter(|role| roles.contains(role)).collect();
        (!roles.is_empty()).then_some(Roles(roles))
    }

    pub fn parse(text: &str) -> Option<Roles> {
        Roles::new(&text.split(',').map(Role::from_name).collect::<Option<Vec<_>>>()?)
    }

    pub fn has(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

/// As they are stored and shown.
impl std::fmt::Display for Roles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(|role| role.name()).collect::<Vec<_>>().join(","))
    }
}

/// A key that is good, but for its expiry.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub id: String,
    pub name: String,
    pub roles: Roles,
    pub expires_ms: Option<i64>,
    pub requests_per_minute: Option<u32>,
    pub tokens_per_minute: Option<u32>,
    pub tokens_per_month: Option<u64>,
    pub concurrency: Option<u32>,
    /// The most urgent class that its requests may ask for.
    pub priority_ceiling: Priority,
    /// In the fair share: with two, it gets twice as much as others while there is not enough for all.
    pub weight: Weight,
    /// Of requests that bring none.
    pub cache_salt: String,
}

impl Key {
    /// `None` for a row that no version of this program writes, and for a key that was revoked.
    pub fn read(record: &KeyRecord) -> Option<Key> {
        let small = |number: Option<i64>| number.map(|n| u32::try_from(n.max(1)).unwrap_or(u32::MAX));
        if record.revoked_ms.is_some() {
            return None;
        }
        let priority_ceiling = match &record.priority_ceiling {
            Some(name) => Priority::from_name(name)?,
            None => Priority::Critical,
        };
        Some(Key {
            id: record.id.clone(),
            name: record.name.clone(),
            roles: Roles::parse(&record.roles)?,
            expires_ms: record.expires_ms,
            requests_per_minute: small(record.requests_per_minute),
            tokens_per_minute: small(record.tokens_per_minute),
            tokens_per_month: record.tokens_per_month.map(|n| n.max(0) as u64),
            concurrency: small(record.concurrency),
            priority_ceiling,
            weight: Weight::from_thousandths(u32::try_from(record.weight).ok()?)?,
            cache_salt: record.cache_salt.clone(),
        })
    }

    pub fn has_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires| expires <= now_ms)
    }
}

/// Of a digest, for a salt.
const SALT_DIGITS: usize = 32;

/// What somebody wants to make.
#[derive(Clone, Debug, PartialEq)]
pub struct NewKey {
    pub name: String,
    pub roles: Roles,
    pub expires_ms: Option<i64>,
    pub requests_per_minute: Option<u32>,
    pub tokens_per_minute: Option<u32>,
    pub tokens_per_month: Option<u64>,
    pub concurrency: Option<u32>,
    pub priority_ceiling: Option<Priority>,
    pub weight: Weight,
    /// `None` is one of its own, so that nobody else's prompts are found in the cache.
    pub cache_salt: Option<String>,
}

impl NewKey {
    /// For inference, without limits.
    pub fn named(name: &str) -> NewKey {
        NewKey {
            name: name.to_owned(),
            roles: Roles(vec![Role::Inference]),
            expires_ms: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            tokens_per_month: None,
            concurrency: None,
            priority_ceiling: None,
            weight: Weight::default(),
            cache_salt: None,
        }
    }

    /// As it is stored under `id`.
    pub fn record(&self, id: &str, digest: &str, now_ms: i64) -> KeyRecord {
        KeyRecord {
            id: id.to_owned(),
            created_ms: now_ms,
            name: self.name.clone(),
            roles: self.roles.to_string(),
            digest: digest.to_owned(),
            previous_digest: None,
            previous_until_ms: None,
            expires_ms: self.expires_ms,
            revoked_ms: None,
            requests_per_minute: self.requests_per_minute.map(i64::from),
            tokens_per_minute: self.tokens_per_minute.map(i64::from),
            tokens_per_month: self.tokens_per_month.map(|n| i64::try_from(n).unwrap_or(i64::MAX)),
            concurrency: self.concurrency.map(i64::from),
            priority_ceiling: self.priority_ceiling.map(|priority| priority.name().to_owned()),
            weight: i64::from(self.weight.thousandths()),
            // Nobody can guess it, so no client can name another's.
            cache_salt: self.cache_salt.clone().unwrap_or_else(|| digest.chars().take(SALT_DIGITS).collect()),
        }
    }
}
