//! From configuration to what routers are told of the caches, where the feature `kv-events` is built in.

use tokio::sync::mpsc;

use crate::config::Config;
use forebay_clock::Clock;
use forebay_engine::cache_feed::Told;

#[cfg(feature = "kv-events")]
pub use with::{Pending, prepare};
#[cfg(not(feature = "kv-events"))]
pub use without::{Pending, prepare};

/// The loops' end of the channel.
type Feed = Option<mpsc::Sender<Told>>;

#[cfg(feature = "kv-events")]
mod with {
    use tokio::task::JoinHandle;

    use super::*;
    use crate::app::failure::{Failure, input};
    use forebay_engine::kv_events::{Parts, Publisher};

    /// What is told, once it is started; `None` where nobody is told anything.
    pub struct Pending(Option<(Parts, mpsc::Receiver<Told>)>);

    pub fn prepare(config: &Config, clock: &Clock) -> (Feed, Pending) {
        let events = &config.kv_events;
        let Some(endpoint) = &events.endpoint else { return (None, Pending(None)) };
        let (sender, receiver) = mpsc::channel(events.queue_size);
        let parts = Parts {
            endpoint: endpoint.clone(),
            replay_endpoint: events.replay_endpoint.clone(),
            topic: events.topic.clone(),
            buffer_steps: events.buffer_steps,
            loops: config.workers.count,
            block_size: config.kv_cache.block_size,
            adapters: config.model.adapters.clone(),
            clock: clock.clone(),
        };
        (Some(sender), Pending(Some((parts, receiver))))
    }

    impl Pending {
        /// To be aborted once every loop has ended.
        pub async fn start(self) -> Result<Option<JoinHandle<()>>, Failure> {
            let Some((parts, changes)) = self.0 else { return Ok(None) };
            let publisher = Publisher::bind(parts).await.map_err(input)?;
            let (endpoint, replay) = (&publisher.endpoint, publisher.replay_endpoint.as_deref());
            tracing::info!(event = "kv_events", endpoint, replay, "telling routers what the prefix cache holds");
            Ok(Some(tokio::spawn(publisher.run(changes))))
        }
    }
}

#[cfg(not(feature = "kv-events"))]
mod without {
    use tokio::task::JoinHandle;

    use super::*;
    use crate::app::failure::Failure;

    /// Nobody is told anything.
    pub struct Pending;

    pub fn prepare(_config: &Config, _clock: &Clock) -> (Feed, Pending) {
        (None, Pending)
    }

    impl Pending {
        pub async fn start(self) -> Result<Option<JoinHandle<()>>, Failure> {
            Ok(None)
        }
    }
}
