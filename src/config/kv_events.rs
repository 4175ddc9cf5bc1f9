//! `kv_events`: what routers are told of the prefix cache.

use super::ConfigError;
use super::values::Reader;

#[derive(Clone, Debug, PartialEq)]
pub struct KvEventsConfig {
    pub endpoint: String,
    /// `None` offers no replay.
    pub replay_endpoint: Option<String>,
    pub topic: String,
    /// Messages that can be asked for again.
    pub buffer_steps: usize,
    /// Steps whose changes may wait to be told.
    pub queue_size: usize,
}

pub fn kv_events(read: &Reader) -> Result<Option<KvEventsConfig>, ConfigError> {
    let Some(endpoint) = endpoint(read, "kv_events.endpoint")? else {
        if read.text("kv_events.replay_endpoint").is_empty() {
            return Ok(None);
        }
        let message = "there is nothing to replay without kv_events.endpoint".into();
        return Err(read.contradiction("kv_events", "replay_endpoint", message));
    };
    if !cfg!(feature = "kv-events") {
        let allowed = "empty: this binary was built without the cargo feature kv-events";
        return Err(read.refuse("kv_events.endpoint", allowed.into()));
    }
    if !read.boolean("kv_cache.prefix_caching")? {
        let message = "there is nothing to tell while kv_cache.prefix_caching is false".into();
        return Err(read.contradiction("kv_events", "endpoint", message));
    }
    Ok(Some(KvEventsConfig {
        endpoint,
        replay_endpoint: self::endpoint(read, "kv_events.replay_endpoint")?,
        topic: read.text("kv_events.topic").to_owned(),
        buffer_steps: read.integer("kv_events.buffer_steps")? as usize,
        queue_size: read.integer("kv_events.queue_size")? as usize,
    }))
}

/// `tcp://HOST:PORT`; empty is `None`.
fn endpoint(read: &Reader, key: &'static str) -> Result<Option<String>, ConfigError> {
    let text = read.text(key);
    if text.is_empty() {
        return Ok(None);
    }
    let address = text.strip_prefix("tcp://").and_then(|address| address.rsplit_once(':'));
    match address {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Some(text.to_owned())),
        _ => Err(read.refuse(key, "empty or tcp://HOST:PORT, such as tcp://*:5557".into())),
    }
}
