//! The store that the tests here are about: PostgreSQL, each in a schema of its own on the server that `make test-postgres` started.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

pub use shiftboss_postgres::PostgresRecords as Store;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Row};

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
}

/// Waits for the server.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

pub async fn connect() -> Client {
    let url = std::env::var("SHIFTBOSS_TEST_POSTGRES")
        .expect("SHIFTBOSS_TEST_POSTGRES names a server: run `make test-postgres`");
    let (server, parameters) = url.split_once('?').unwrap_or((&url, ""));
    let url = format!("{}/postgres?{parameters}", server.trim_end_matches('/'));
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The name of a schema that nobody has, in place of this thread's last one.
pub fn schema() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("queue_{}_{count}", std::process::id());
    if let Some(last) = LAST.with(|last| last.replace(Some(schema.clone()))) {
        let drop = format!("DROP SCHEMA {last} CASCADE");
        ready(async { connect().await.batch_execute(&drop).await }).unwrap();
    }
    schema
}

/// The store of one daemon.
pub fn store(schema: &str, daemon: i64) -> Store {
    ready(async { Store::new(connect().await, schema, daemon).await.unwrap() })
}

pub fn new() -> Store {
    store(&schema(), 1)
}

fn query(store: &Store, sql: &str) -> Vec<Row> {
    ready(store.client().query(sql, &[])).unwrap()
}

/// Rows, waiting ones and those in flight, by fetcher and run.
pub fn counts(store: &Store) -> BTreeMap<(i64, i64), [i64; 3]> {
    let sql = "SELECT * FROM (SELECT fetcher, run, sum(rows)::int8 AS rows, sum(waiting)::int8 AS waiting,
            sum(in_flight)::int8 AS in_flight, sum(delayed)::int8 AS delayed FROM counts GROUP BY fetcher, run) sums
        WHERE (rows, waiting, in_flight, delayed) <> (0, 0, 0, 0)";
    let rows = query(store, sql);
    rows.iter()
        .map(|row| ((row.get(0), row.get(1)), [row.get(2), row.get(3), row.get(4)]))
        .collect()
}

/// The last start of each key that ran, its end, and the exit code.
pub fn log(store: &Store) -> BTreeMap<String, (i64, Option<i64>, Option<i64>)> {
    let sql = "SELECT convert_from(key, 'UTF8'), started, finished, exit_code FROM keys
        WHERE started IS NOT NULL";
    let rows = query(store, sql);
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect()
}
