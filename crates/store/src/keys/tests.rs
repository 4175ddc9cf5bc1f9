//! Keys against a store and a clock that the test moves.

use std::time::Duration;

use super::spool::Writer;
use super::testing::{with_keys, with_spool};
use super::*;
use crate::testing::stores;
use crate::{Grouping, UsageQuery, UsageRow, UsageSum};
use forebay_core::request::{Payer, Priority, Weight};
use forebay_core::units::Micros;

fn unauthorized<T: std::fmt::Debug>(result: Result<T, RequestError>) -> bool {
    matches!(result, Err(RequestError::Unauthorized { .. }))
}

fn seconds(n: u64) -> Micros {
    Micros(n * 1_000_000)
}

fn refused(keys: &Keys, holder: &Arc<Holder>) -> RequestError {
    keys.admit(holder, "chat").map(|_| ()).unwrap_err().error
}

async fn usage(store: &Store, by: Grouping) -> Vec<UsageRow> {
    store.usage(&UsageQuery { days: (0, i64::MAX), key_id: None, by }).await.unwrap()
}

#[tokio::test]
async fn keys_are_believed_until_they_are_revoked_rotated_or_expire() {
    let clock = Clock::manual();
    let now = clock.unix_millis();
    let expiring = NewKey { expires_ms: Some(now + 5_000), ..NewKey::named("b") };
    let (keys, store, minted) = with_keys(&clock, &[NewKey::named("a"), expiring, NewKey::named("c")]).await;
    let [a, b, c] = &minted[..] else { panic!("three keys") };
    assert_eq!(keys.authenticate(&a.token).unwrap().key.id, a.id);
    assert!(unauthorized(keys.authenticate("")) && unauthorized(keys.authenticate(&a.id)));
    // Another's id with one's own secret.
    let (_, secret) = b.token.rsplit_once('-').unwrap();
    let (front, _) = a.token.rsplit_once('-').unwrap();
    assert!(unauthorized(keys.authenticate(&format!("{front}-{secret}"))));

    assert!(keys.authenticate(&b.token).is_ok());
    clock.advance(seconds(5));
    assert!(unauthorized(keys.authenticate(&b.token)) && unauthorized(keys.holder(&b.id)));

    assert!(store.revoke_key(&a.id, now).await.unwrap() && !store.revoke_key(&a.id, now).await.unwrap());
    assert!(keys.authenticate(&a.token).is_ok(), "nobody has looked yet");
    keys.directory().look().await.unwrap();
    assert!(unauthorized(keys.authenticate(&a.token)) && unauthorized(keys.holder(&a.id)));

    let again = Secret::new(b"a secret of the tests").remint(&c.id).unwrap();
    let until = clock.unix_millis() + 1_000;
    assert!(store.rotate_key(&c.id, &again.digest, until).await.unwrap());
    assert!(!store.rotate_key(&a.id, &again.digest, until).await.unwrap(), "it is revoked");
    keys.directory().look().await.unwrap();
    assert!(keys.authenticate(&c.token).is_ok() && keys.authenticate(&again.token).is_ok());
    clock.advance(seconds(1));
    assert!(unauthorized(keys.authenticate(&c.token)) && keys.authenticate(&again.token).is_ok());
}

#[tokio::test]
async fn what_was_read_too_long_ago_is_not_believed() {
    let clock = Clock::manual();
    let (keys, store, minted) = with_keys(&clock, &[NewKey::named("a")]).await;
    clock.advance(seconds(30));
    assert!(keys.authenticate(&minted[0].token).is_ok());
    store.close().await;
    assert!(keys.directory().look().await.is_err());
    clock.advance(Micros(1));
    assert_eq!(keys.authenticate(&minted[0].token).unwrap_err(), RequestError::StoreUnavailable);
}

#[tokio::test]
async fn requests_per_minute_come_back_one_by_one() {
    let clock = Clock::manual();
    let limited = NewKey { requests_per_minute: Some(3), ..NewKey::named("a") };
    let (keys, _store, minted) = with_keys(&clock, &[limited, NewKey::named("b")]).await;
    let holder = keys.authenticate(&minted[0].token).unwrap();
    let remaining = |admission: Admission| admission.seat.levels.requests.unwrap().remaining;
    for left in [2, 1, 0] {
        assert_eq!(remaining(keys.admit(&holder, "chat").unwrap()), left);
    }
    let refused_now = keys.admit(&holder, "chat").unwrap_err();
    let error = RequestError::RateLimited { what: "requests per minute", limit: 3, retry_after_ms: 20_000 };
    let level = Level { limit: 3, remaining: 0, reset: Duration::from_secs(60) };
    assert_eq!((refused_now.error, refused_now.levels.requests), (error, Some(level)));
    let other = keys.authenticate(&minted[1].token).unwrap();
    assert_eq!(keys.admit(&other, "chat").unwrap().seat.levels, Levels::default(), "no limit, no level");
    clock.advance(seconds(20));
    assert_eq!(remaining(keys.admit(&holder, "chat").unwrap()), 0);
    clock.advance(seconds(60));
    assert_eq!(remaining(keys.admit(&holder, "chat").unwrap()), 2);
}

#[tokio::test]
async fn tokens_that_were_taken_beyond_the_minute_are_paid_back_first() {
    let clock = Clock::manual();
    let limited = NewKey { tokens_per_minute: Some(60), ..NewKey::named("a") };
    let (keys, _store, minted) = with_keys(&clock, &[limited]).await;
    let holder = keys.authenticate(&minted[0].token).unwrap();
    let admission = keys.admit(&holder, "chat").unwrap();
    assert_eq!(admission.seat.levels.tokens.unwrap().remaining, 60);
    // The bucket holds 60; 150 are taken.
    admission.account.prompt(100);
    admission.account.completion(50);
    drop(admission);
    let wait = |keys: &Keys| match refused(keys, &holder) {
        RequestError::RateLimited { what: "tokens per minute", limit: 60, retry_after_ms } => retry_after_ms,
        other => panic!("{other:?}"),
    };
    // 90 are owed and one has to be there, at a token a second.
    assert_eq!(wait(&keys), 91_000);
    clock.advance(seconds(90));
    assert_eq!(wait(&keys), 1_000);
    clock.advance(seconds(1));
    assert!(keys.admit(&holder, "chat").is_ok());
}

#[tokio::test]
async fn requests_at_once_end_with_their_seats() {
    let clock = Clock::manual();
    let limited = NewKey { concurrency: Some(2), ..NewKey::named("a") };
    let (keys, _store, minted) = with_keys(&clock, &[limited]).await;
    let holder = keys.authenticate(&minted[0].token).unwrap();
    let first = keys.admit(&holder, "chat").unwrap();
    let _second = keys.admit(&holder, "chat").unwrap();
    assert!(matches!(refused(&keys, &holder), RequestError::RateLimited { what: "requests at once", limit: 2, .. }));
    drop(first);
    assert!(keys.admit(&holder, "chat").is_ok());
    assert_eq!(holder.meter.running(), 1, "a refusal gives its place back");
}

#[tokio::test]
async fn a_full_spool_refuses_and_loses_nothing() {
    let clock = Clock::manual();
    let (keys, store, minted) = with_spool(&clock, &[NewKey::named("a")], 2).await;
    let holder = keys.authenticate(&minted[0].token).unwrap();
    for tokens in [5, 7] {
        let admission = keys.admit(&holder, "chat").unwrap();
        admission.account.model("m");
        admission.account.prompt(tokens);
        admission.account.cached(2);
        admission.account.completion(1);
    }
    // Both are over; the store has neither.
    assert_eq!(refused(&keys, &holder), RequestError::LedgerFull);
    assert_eq!(keys.spool().unwritten(&minted[0].id), 14);
    let mut writer = Writer::new(keys.spool().clone(), clock.clone());
    writer.write().await.unwrap();
    assert_eq!(keys.spool().unwritten(&minted[0].id), 0);
    let all = Grouping { key: true, day: true, route: true, model: true };
    let row = UsageRow {
        key_id: Some(minted[0].id.clone()),
        day: Some(clock.unix_millis() / DAY_MS),
        route: Some("chat".into()),
        model: Some("m".into()),
        sum: UsageSum { requests: 2, prompt_tokens: 12, cached_tokens: 4, completion_tokens: 2 },
    };
    assert_eq!(usage(&store, all).await, [row]);
    // What took nothing is not billed, and has its place back at once.
    drop(keys.admit(&holder, "chat").unwrap());
    writer.write().await.unwrap();
    let sum = usage(&store, Grouping::default()).await[0].sum;
    assert_eq!(sum.requests, 2);
    assert!(keys.admit(&holder, "chat").is_ok());
}

#[tokio::test]
async fn what_a_store_did_not_take_is_kept_and_written_at_the_end() {
    let clock = Clock::manual();
    let (keys, store, minted) = with_spool(&clock, &[NewKey::named("a")], 1).await;
    let holder = keys.authenticate(&minted[0].token).unwrap();
    keys.admit(&holder, "chat").unwrap().account.prompt(3);
    let closed = Store::new(crate::Config::memory());
    closed.open().await.unwrap();
    closed.close().await;
    let broken = Spool::new(closed, 1);
    let used = Used { key_id: "k".into(), day: 1, route: "chat", model: "m".into(), sum: UsageSum::default() };
    broken.push(used, broken.place().unwrap());
    let mut writer = Writer::new(broken.clone(), clock.clone());
    assert!(writer.write().await.is_err() && writer.write().await.is_err());
    assert!(broken.place().is_none(), "its place is still taken");
    // `run` is told to stop at once, and writes before it ends.
    keys.spool().clone().run(clock, async {}).await;
    assert_eq!(usage(&store, Grouping::default()).await[0].sum.prompt_tokens, 3);
    assert!(keys.spool().place().is_some());
}

#[tokio::test]
async fn a_month_is_spent_across_what_is_written_and_what_is_not() {
    let clock = Clock::manual();
    let limited = NewKey { tokens_per_month: Some(10), ..NewKey::named("a") };
    let (keys, _store, minted) = with_keys(&clock, &[limited]).await;
    let holder = keys.authenticate(&minted[0].token).unwrap();
    keys.admit(&holder, "chat").unwrap().account.prompt(6);
    let mut writer = Writer::new(keys.spool().clone(), clock.clone());
    writer.write().await.unwrap();
    keys.directory().look().await.unwrap();
    keys.admit(&holder, "chat").unwrap().account.completion(4);
    assert_eq!(refused(&keys, &holder), RequestError::QuotaExceeded { used: 10, limit: 10 });
    // The clock began on 14 November.
    clock.advance(seconds(17 * 86_400));
    writer.write().await.unwrap();
    keys.directory().look().await.unwrap();
    assert!(keys.admit(&holder, "chat").is_ok(), "it is December");
}

#[tokio::test]
async fn a_key_is_stored_as_it_was_asked_for() {
    let whole = NewKey {
        roles: Roles::new(&[Role::Admin, Role::Inference]).unwrap(),
        expires_ms: Some(9),
        requests_per_minute: Some(u32::MAX),
        tokens_per_minute: Some(2),
        tokens_per_month: Some(u64::MAX),
        concurrency: Some(3),
        priority_ceiling: Some(Priority::Low),
        weight: Weight::from_thousandths(2_500).unwrap(),
        cache_salt: Some("x_1".into()),
        ..NewKey::named("whole")
    };
    for (store, _folder) in stores().await {
        assert_eq!(store.keys_revision().await.unwrap(), 0);
        let record = whole.record("key_1", "aa", 7);
        store.add_key(&record).await.unwrap();
        store.add_key(&NewKey::named("plain").record("key_2", "bb", 8)).await.unwrap();
        assert_eq!(store.keys_revision().await.unwrap(), 2);
        let records = store.keys().await.unwrap();
        assert_eq!(records[0], record);
        let plain = Key::read(&records[1]).unwrap();
        assert_eq!((plain.cache_salt.as_str(), plain.priority_ceiling), ("bb", Priority::Critical));
        assert_eq!((plain.concurrency, plain.weight), (None, Weight::default()));
        let read = Key::read(&records[0]).unwrap();
        assert_eq!((read.requests_per_minute, read.cache_salt.as_str()), (Some(u32::MAX), "x_1"));
        assert_eq!(read.roles.to_string(), "inference,admin");
        store.revoke_key("key_1", 9).await.unwrap();
        assert_eq!(store.keys_revision().await.unwrap(), 3);
        assert_eq!(Key::read(&store.keys().await.unwrap()[0]), None);
    }
}

#[test]
fn days_are_gregorian() {
    for (day, date) in [(0, (1970, 1, 1)), (-1, (1969, 12, 31)), (19_782, (2024, 2, 29)), (20_778, (2026, 11, 21))] {
        assert_eq!((date_of(day), day_of(date.0, date.1, date.2)), (date, day));
    }
    for day in (-1_000_000..1_000_000).step_by(97) {
        let (year, month, of_month) = date_of(day);
        assert_eq!(day_of(year, month, of_month), day);
    }
    assert_eq!(month_of(20_778), 20_758);
}
