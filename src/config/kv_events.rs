//! `kv_events`: what routers are told of the prefix cache.

use forebay_core::settings::Setting;

use super::checks::Reader;
use super::error::ConfigError;

#[derive(Clone, Debug, PartialEq)]
pub struct KvEventsConfig {
    /// `None` tells nobody.
    pub endpoint: Option<String>,
    /// `None` offers no replay.
    pub replay_endpoint: Option<String>,
    pub topic: String,
    /// Messages that can be asked for again.
    pub buffer_steps: usize,
    /// Steps whose changes may wait to be told.
    pub queue_size: usize,
}

impl Default for KvEventsConfig {
    fn default() -> KvEventsConfig {
        KvEventsConfig {
            endpoint: None,
            replay_endpoint: None,
            topic: String::new(),
            buffer_steps: 10_000,
            queue_size: 1_024,
        }
    }
}

const ENDPOINT: &str = "empty or tcp://HOST:PORT, such as tcp://*:5557";

pub fn settings() -> Vec<Setting<KvEventsConfig>> {
    let show = |endpoint: &Option<String>| endpoint.clone().unwrap_or_default();
    vec![
        Setting::own("kv_events.endpoint", |c: &mut KvEventsConfig| &mut c.endpoint, ENDPOINT, show, endpoint)
            .flag("kv-events")
            .help("ZMQ endpoint that tells routers what the prefix cache holds, such as tcp://*:5557, to whoever connects (prompts, as tokens); empty is off"),
        Setting::own(
            "kv_events.replay_endpoint",
            |c: &mut KvEventsConfig| &mut c.replay_endpoint,
            ENDPOINT,
            show,
            endpoint,
        )
        .flag("kv-events-replay")
        .help("where routers ask for what they missed, such as tcp://*:5558; empty is off"),
        Setting::new("kv_events.topic", |c: &mut KvEventsConfig| &mut c.topic)
            .flag("kv-events-topic")
            .help("first frame of each message: empty for vllm-router, kv@IP@MODEL for llm-d"),
        Setting::new("kv_events.buffer_steps", |c: &mut KvEventsConfig| &mut c.buffer_steps)
            .whole(0..=10_000_000)
            .help("newest messages that can be asked for again"),
        Setting::new("kv_events.queue_size", |c: &mut KvEventsConfig| &mut c.queue_size)
            .whole(1..=1_000_000)
            .help("steps whose changes may wait to be told; beyond it all that the cache holds is told anew"),
    ]
}

/// `tcp://HOST:PORT`; empty is `None`.
fn endpoint(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let (host, port) = text.strip_prefix("tcp://")?.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| Some(text.to_owned()))
}

pub fn check(config: &KvEventsConfig, prefix_caching: bool, read: &Reader) -> Result<(), ConfigError> {
    let (told, replayed) = (config.endpoint.is_some(), config.replay_endpoint.is_some());
    if replayed && !told {
        let message = "there is nothing to replay without kv_events.endpoint".into();
        return Err(read.contradiction("kv_events", "replay_endpoint", message));
    }
    if told && !cfg!(feature = "kv-events") {
        let allowed = "empty: this binary was built without the cargo feature kv-events";
        return Err(read.refuse("kv_events.endpoint", allowed.into()));
    }
    if told && !prefix_caching {
        let message = "there is nothing to tell while kv_cache.prefix_caching is false".into();
        return Err(read.contradiction("kv_events", "endpoint", message));
    }
    Ok(())
}
