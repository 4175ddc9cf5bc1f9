//! Stores for tests: SQLite without a file, with one, and PostgreSQL where `FOREBAY_TEST_POSTGRES` names a server.

use std::str::FromStr;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, AssertSqlSafe, ConnectOptions, Connection};

use super::*;

/// The stores, with what keeps them.
pub async fn stores() -> Vec<(Store, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let file = Config { location: Location::File(folder.path().join("a b%20.db")), max_mib: None };
    let mut stores = vec![(Store::new(Config::memory()), None), (Store::new(file), Some(folder))];
    match postgres().await {
        Some(location) => stores.push((Store::new(Config { location, max_mib: None }), None)),
        None => println!("PostgreSQL is skipped: FOREBAY_TEST_POSTGRES is not set; run `make test-postgres`"),
    }
    stores
}

/// A database of its own.
pub async fn postgres() -> Option<Location> {
    let url = std::env::var("FOREBAY_TEST_POSTGRES").ok()?;
    sqlx::any::install_default_drivers();
    let name = format!("forebay_{}", uuid::Uuid::new_v4().simple());
    let mut connection = connect(&url).await;
    let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(create).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    Location::parse(&format!("{server}/{name}"))
}

async fn connect(url: &str) -> AnyConnection {
    AnyConnectOptions::from_str(url).unwrap().connect().await.unwrap()
}
