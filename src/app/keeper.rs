//! The tasks behind API keys: what has changed, and what was used.

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::Config;
use forebay_clock::Clock;
use forebay_store::Store;
use forebay_store::keys::Keys;

use super::failure::{Failure, input};

/// Reads the keys, where they are asked for.
pub fn open(config: &Config, runtime: &Runtime, store: &Store, clock: &Clock) -> Result<Option<Keys>, Failure> {
    if !config.keys.required {
        return Ok(None);
    }
    let keys = runtime.block_on(Keys::open(&config.keys, store.clone(), clock.clone())).map_err(input)?;
    if keys.directory().is_empty() {
        tracing::warn!(
            event = "no_keys",
            "API keys are required and there are none: make one with `forebay keys create`"
        );
    }
    Ok(Some(keys))
}

/// The two tasks behind the keys: what has changed, and what was used.
pub struct Keeper {
    refresh: JoinHandle<()>,
    stop_refresh: oneshot::Sender<()>,
    ledger: JoinHandle<()>,
    stop_ledger: oneshot::Sender<()>,
}

impl Keeper {
    pub fn start(keys: Keys, clock: Clock) -> Keeper {
        let (stop_refresh, refresh_stopped) = oneshot::channel();
        let (stop_ledger, ledger_stopped) = oneshot::channel();
        let ledger = tokio::spawn(keys.spool().clone().run(clock, async {
            let _ = ledger_stopped.await;
        }));
        let refresh = tokio::spawn(async move {
            keys.directory().refresh(async { drop(refresh_stopped.await) }).await;
        });
        Keeper { refresh, stop_refresh, ledger, stop_ledger }
    }

    /// Writes what is left.
    pub async fn end(self) {
        drop((self.stop_refresh, self.stop_ledger));
        let _ = self.refresh.await;
        let _ = self.ledger.await;
    }
}
