//! Keys for the tests of other rooms: a store without a file, and keys that exist from the start.

use std::time::Duration;

use super::*;

/// As a server has them, and the texts of `wanted`, in their order.
pub async fn with_keys(clock: &Clock, wanted: &[NewKey]) -> (Keys, Store, Vec<Minted>) {
    with_spool(clock, wanted, 100).await
}

pub async fn with_spool(clock: &Clock, wanted: &[NewKey], spool: usize) -> (Keys, Store, Vec<Minted>) {
    let store = Store::new(crate::Config::memory());
    let config = Config {
        required: true,
        secret: SecretSource::Text("a secret of the tests".into()),
        cache_ttl: Duration::from_secs(30),
        spool,
    };
    let keys = Keys::open(&config, store.clone(), clock.clone()).await.unwrap();
    let mut minted = Vec::new();
    for key in wanted {
        let one = keys.directory().mint().unwrap();
        store.add_key(&key.record(&one.id, &one.digest, clock.unix_millis())).await.unwrap();
        minted.push(one);
    }
    keys.directory().look().await.unwrap();
    (keys, store, minted)
}
