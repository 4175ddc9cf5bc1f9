//! `forebay keys`, `forebay usage` and `forebay db`: the operator's commands on the store.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::config::{Config, DbArgs, KeysArgs, UsageArgs};
use forebay_clock::Clock;
use forebay_core::request::Weight;
use forebay_store::keys::{DAY_MS, Minted, NewKey, Secret, date_of, month_of};
use forebay_store::{AuditEntry, KeyRecord, Location, SchemaState, Store, UsageQuery, UsageRow};

use super::failure::{Failure, input};

/// What the commands refuse.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(
        "a store in memory ends with its server, and nobody else can reach it; name another with store.url (--store)"
    )]
    Memory,
    #[error("there is no key {id} that was not revoked; `forebay keys list` shows all")]
    NoKey { id: String },
    #[error("there is no store at {location} yet; `forebay db migrate` makes one")]
    NoStore { location: String },
    #[error("the store's schema is not this version's: {what}")]
    Schema { what: String },
}

/// Who did it, for the audit.
const ACTOR: &str = "command line";

pub fn keys(args: &KeysArgs, config: &Config) -> Result<(), Failure> {
    with_store(config, async |store| {
        let clock = Clock::system();
        let now = clock.unix_millis();
        let secret = || Secret::load(&config.keys.secret, store.location()).map_err(input);
        match args {
            KeysArgs::Create { key, expires_in, json } => {
                let expires_ms = expires_in.map(|span| now + millis(span));
                let key = NewKey { expires_ms, ..(**key).clone() };
                let minted = secret()?.mint().map_err(input)?;
                store.add_key(&key.record(&minted.id, &minted.digest, now)).await.map_err(input)?;
                audit(&store, now, "keys.create", "", &format!("{} {}", minted.id, key.name)).await?;
                print_key(&minted, *json)
            }
            KeysArgs::List { json } => print(&listed(&store.keys().await.map_err(input)?, now, *json)),
            KeysArgs::Revoke { id } => {
                if !store.revoke_key(id, now).await.map_err(input)? {
                    return Err(input(Refused::NoKey { id: id.clone() }));
                }
                audit(&store, now, "keys.revoke", id, "").await?;
                print(&format!("{id} is revoked\n"))
            }
            KeysArgs::Rotate { id, grace, json } => {
                let minted = secret()?.remint(id).map_err(input)?;
                if !store.rotate_key(id, &minted.digest, now + millis(*grace)).await.map_err(input)? {
                    return Err(input(Refused::NoKey { id: id.clone() }));
                }
                audit(&store, now, "keys.rotate", id, id).await?;
                print_key(&minted, *json)
            }
        }
    })
}

pub fn usage(args: &UsageArgs, config: &Config) -> Result<(), Failure> {
    with_store(config, async |store| {
        let today = Clock::system().unix_millis().div_euclid(DAY_MS);
        let days = (args.from.unwrap_or_else(|| month_of(today)), args.to.unwrap_or(today));
        let query = UsageQuery { days, key_id: args.key.clone(), by: args.by };
        let rows = store.usage(&query).await.map_err(input)?;
        let names = store.keys().await.map_err(input)?;
        print(&reported(&rows, &names, days, args.json))
    })
}

pub fn db(args: DbArgs, config: &Config) -> Result<(), Failure> {
    if args == DbArgs::Migrate {
        return with_store(config, async |store| {
            check(&store).await?;
            print(&format!("the schema of {} is up to date\n", store.location()))
        });
    }
    if let Location::File(path) = &config.store.location
        && !path.exists()
    {
        return Err(input(Refused::NoStore { location: config.store.location.to_string() }));
    }
    run(async {
        let store = Store::reader(reachable(config)?);
        check(&store).await?;
        let text = format!("{} can be opened, and its schema is this version's\n", store.location());
        store.close().await;
        print(&text)
    })
}

/// Prints each step; an error unless all are as they should be.
async fn check(store: &Store) -> Result<(), Failure> {
    let (steps, newer) = store.schema().await.map_err(input)?;
    let mut wrong = Vec::new();
    for step in &steps {
        let state = match step.state {
            SchemaState::Applied => "applied",
            SchemaState::Pending => "pending",
            SchemaState::Different => "different",
        };
        print(&format!("{:04}_{} {state}\n", step.version, step.name))?;
        if step.state != SchemaState::Applied {
            wrong.push(format!("{:04}_{} is {state}", step.version, step.name));
        }
    }
    wrong.extend(newer.iter().map(|version| format!("{version:04} is of a newer version")));
    if wrong.is_empty() { Ok(()) } else { Err(input(Refused::Schema { what: wrong.join(", ") })) }
}

fn with_store(config: &Config, work: impl AsyncFnOnce(Store) -> Result<(), Failure>) -> Result<(), Failure> {
    run(async {
        let store = Store::beside(reachable(config)?);
        store.open().await.map_err(input)?;
        let result = work(store.clone()).await;
        store.close().await;
        result
    })
}

fn reachable(config: &Config) -> Result<forebay_store::Config, Failure> {
    match config.store.location {
        Location::Memory => Err(input(Refused::Memory)),
        Location::File(_) | Location::Postgres(_) => Ok(config.store.clone()),
    }
}

fn run(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime")?;
    runtime.block_on(work)
}

async fn audit(store: &Store, now: i64, what: &str, from: &str, to: &str) -> Result<(), Failure> {
    store.record(&[AuditEntry::new(now, ACTOR, what, from, to)]).await.map_err(input)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4)
}

/// A closed pipe is nobody's mistake.
fn print(text: &str) -> Result<(), Failure> {
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn print_key(minted: &Minted, json: bool) -> Result<(), Failure> {
    let Minted { id, token, .. } = minted;
    match json {
        true => print(&format!("{}\n", json!({"id": id, "key": token}))),
        // The key alone on standard output, so that a script can take it.
        false => {
            eprintln!("{id}; this is the only time that the key is shown:");
            print(&format!("{token}\n"))
        }
    }
}

fn listed(records: &[KeyRecord], now: i64, json: bool) -> String {
    let state = |key: &KeyRecord| match key {
        KeyRecord { revoked_ms: Some(_), .. } => "revoked",
        KeyRecord { expires_ms: Some(at), .. } if *at <= now => "expired",
        _ => "active",
    };
    let weight = |key: &KeyRecord| {
        let weight = u32::try_from(key.weight).ok().and_then(Weight::from_thousandths).unwrap_or_default();
        f64::from(weight.thousandths()) / 1_000.0
    };
    if json {
        let object = |key: &KeyRecord| -> Value {
            json!({
                "id": key.id, "name": key.name, "state": state(key), "roles": key.roles.split(',').collect::<Vec<_>>(),
                "created_ms": key.created_ms, "expires_ms": key.expires_ms, "revoked_ms": key.revoked_ms,
                "requests_per_minute": key.requests_per_minute, "tokens_per_minute": key.tokens_per_minute,
                "tokens_per_month": key.tokens_per_month, "concurrency": key.concurrency,
                "priority_ceiling": key.priority_ceiling, "weight": weight(key), "cache_salt": key.cache_salt,
            })
        };
        return format!("{}\n", Value::Array(records.iter().map(object).collect()));
    }
    let limit = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let header = [
        "id",
        "name",
        "state",
        "roles",
        "created",
        "expires",
        "req/min",
        "tok/min",
        "tok/month",
        "at once",
        "ceiling",
        "weight",
    ];
    let row = |key: &KeyRecord| {
        vec![
            key.id.clone(),
            key.name.clone(),
            state(key).to_owned(),
            key.roles.clone(),
            date(key.created_ms.div_euclid(DAY_MS)),
            key.expires_ms.map_or_else(|| "-".to_owned(), |ms| date(ms.div_euclid(DAY_MS))),
            limit(key.requests_per_minute),
            limit(key.tokens_per_minute),
            limit(key.tokens_per_month),
            limit(key.concurrency),
            key.priority_ceiling.clone().unwrap_or_else(|| "-".to_owned()),
            weight(key).to_string(),
        ]
    };
    table(&header, records.iter().map(row))
}

fn reported(rows: &[UsageRow], keys: &[KeyRecord], days: (i64, i64), json: bool) -> String {
    let name = |id: &str| keys.iter().find(|key| key.id == id).map(|key| key.name.clone()).unwrap_or_default();
    if json {
        let object = |row: &UsageRow| -> Value {
            let mut object = serde_json::Map::new();
            if let Some(id) = &row.key_id {
                object.insert("key".into(), json!(id));
                object.insert("name".into(), json!(name(id)));
            }
            let texts = [("day", row.day.map(date)), ("route", row.route.clone()), ("model", row.model.clone())];
            object.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text?)))));
            let sum = &row.sum;
            let counts = [
                ("requests", sum.requests),
                ("prompt_tokens", sum.prompt_tokens),
                ("cached_tokens", sum.cached_tokens),
                ("completion_tokens", sum.completion_tokens),
            ];
            object.extend(counts.map(|(name, count)| (name.to_owned(), json!(count))));
            Value::Object(object)
        };
        let rows: Vec<Value> = rows.iter().map(object).collect();
        return format!("{}\n", json!({"from": date(days.0), "to": date(days.1), "usage": rows}));
    }
    let by = rows.first().cloned().unwrap_or_default();
    let columns = [
        (by.key_id.is_some(), &["key", "name"][..]),
        (by.day.is_some(), &["day"]),
        (by.route.is_some(), &["route"]),
        (by.model.is_some(), &["model"]),
        (true, &["requests", "prompt", "cached", "completion"]),
    ];
    let header: Vec<&str> = columns.iter().filter(|(shown, _)| *shown).flat_map(|(_, names)| *names).copied().collect();
    let line = |row: &UsageRow| {
        let mut cells = Vec::new();
        if let Some(id) = &row.key_id {
            cells.extend([id.clone(), name(id)]);
        }
        cells.extend(row.day.map(date).into_iter().chain(row.route.clone()).chain(row.model.clone()));
        let sum = &row.sum;
        let counts = [sum.requests, sum.prompt_tokens, sum.cached_tokens, sum.completion_tokens];
        cells.extend(counts.map(|count| count.to_string()));
        cells
    };
    format!("{} to {}\n{}", date(days.0), date(days.1), table(&header, rows.iter().map(line)))
}

fn date(day: i64) -> String {
    let (year, month, day) = date_of(day);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Columns as wide as they need to be.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines: Vec<Vec<String>> = vec![header.iter().map(|&name| name.to_owned()).collect()];
    lines.extend(rows);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let spell = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(spell).collect()
}
