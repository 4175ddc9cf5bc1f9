//! How keys are used, and the settings that say so.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use forebay_core::settings::Setting;
use forebay_core::units::Micros;

/// How keys are used.
#[derive(Clone, Debug)]
pub struct Config {
    /// Every route but those for probes asks for one.
    pub required: bool,
    pub secret: SecretSource,
    /// No key is believed that was read longer ago.
    pub cache_ttl: Duration,
    /// Billed requests that are running or not written down yet.
    pub spool: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { required: false, secret: SecretSource::BesideStore, cache_ttl: Duration::from_secs(30), spool: 10_000 }
    }
}

/// Where the secret of the digests comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The text itself.
    Text(String),
    File(PathBuf),
    /// A file beside the store, made where there is none.
    BesideStore,
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Text(_) => f.write_str("Text(***)"),
            SecretSource::File(path) => write!(f, "File({})", path.display()),
            SecretSource::BesideStore => f.write_str("BesideStore"),
        }
    }
}

/// In the order of config.yaml. Whoever sets both the secret and its file is contradicting himself, which no row can see.
pub fn settings() -> Vec<Setting<Config>> {
    vec![
        Setting::new("keys.required", |c: &mut Config| &mut c.required).flag("require-keys").help(
            "ask for an API key (forebay keys create) on every route but those for probes, /metrics and the documentation",
        ),
        Setting::with("keys.secret", "text", secret, set_secret).secret().help(
            "what digests of API keys are made with, at least 16 bytes; empty is keys.secret_file, or a file beside the store",
        ),
        Setting::with("keys.secret_file", "text", secret_file, set_secret_file)
            .help("a file with that secret; servers that share a database need the same"),
        Setting::new("keys.cache_ttl", |c: &mut Config| &mut c.cache_ttl)
            .duration(Micros::SECOND..=Micros::DAY)
            .help("keys are looked at every second; when the store cannot be reached for so long, requests get 503"),
        Setting::new("keys.spool", |c: &mut Config| &mut c.spool)
            .whole(1..=10_000_000)
            .help("billed requests that may run or wait for the ledger; beyond it, 503"),
    ]
}

fn secret(config: &Config) -> String {
    match &config.secret {
        SecretSource::Text(text) => text.clone(),
        SecretSource::File(_) | SecretSource::BesideStore => String::new(),
    }
}

fn set_secret(config: &mut Config, text: &str) -> Option<()> {
    if !text.is_empty() {
        config.secret = SecretSource::Text(text.to_owned());
    } else if matches!(config.secret, SecretSource::Text(_)) {
        config.secret = SecretSource::BesideStore;
    }
    Some(())
}

fn secret_file(config: &Config) -> String {
    match &config.secret {
        SecretSource::File(path) => path.to_string_lossy().into_owned(),
        SecretSource::Text(_) | SecretSource::BesideStore => String::new(),
    }
}

fn set_secret_file(config: &mut Config, text: &str) -> Option<()> {
    if !text.is_empty() {
        config.secret = SecretSource::File(text.into());
    } else if matches!(config.secret, SecretSource::File(_)) {
        config.secret = SecretSource::BesideStore;
    }
    Some(())
}
