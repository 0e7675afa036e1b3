//! The store that the tests here are about: PostgreSQL, each in a schema of its own on the server that `make test-postgres` started.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

pub use shiftboss_postgres::PostgresRecords as Store;
use shiftboss_queue::counts::COUNTS;
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

/// The name of a schema that nobody has, in place of this thread's last but one.
pub fn schema() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static LAST: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("queue_{}_{count}", std::process::id());
    LAST.with_borrow_mut(|last| last.push(schema.clone()));
    if count > 1 {
        let last = LAST.with_borrow_mut(|last| last.remove(0));
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

/// What is counted, by fetcher and run.
pub fn counts(store: &Store) -> BTreeMap<(i64, i64), [i64; COUNTS]> {
    let sql = "SELECT fetcher, run, ARRAY[sum(rows), sum(waiting), sum(in_flight), sum(leased), sum(redelivered), sum(delayed),
            sum(dead), sum(failed), sum(held), sum(backed_off), sum(bumped)]::int8[]
        FROM counts GROUP BY fetcher, run";
    let rows = query(store, sql);
    let sums = rows.iter().map(|row| {
        let sums: Vec<i64> = row.get(2);
        ((row.get(0), row.get(1)), sums.try_into().unwrap())
    });
    sums.filter(|(_, sums): &(_, [i64; COUNTS])| sums.iter().any(|it| *it != 0)).collect()
}

/// Sums of attempts that ended, by hour, fetcher and outcome: jobs, milliseconds, revisits, seconds.
pub fn hours(store: &Store) -> BTreeMap<(i64, i64, String), [i64; 4]> {
    let sql =
        "SELECT hour, fetcher, outcome, sum(jobs)::int8, sum(took_ms)::int8, sum(revisits)::int8,
            sum(revisit_seconds)::int8
        FROM hours GROUP BY hour, fetcher, outcome HAVING sum(jobs) <> 0";
    let rows = query(store, sql);
    let sums = |row: &Row| [row.get(3), row.get(4), row.get(5), row.get(6)];
    rows.iter().map(|row| ((row.get(0), row.get(1), row.get(2)), sums(row))).collect()
}

/// Jobs by minute and exit code.
pub fn minutes(store: &Store) -> BTreeMap<(i64, i64), i64> {
    let sql = "SELECT minute, exit_code, sum(jobs)::int8 FROM minutes GROUP BY minute, exit_code
        HAVING sum(jobs) <> 0";
    let rows = query(store, sql);
    rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect()
}

/// So many keys have a turn.
pub fn in_order(store: &Store) -> usize {
    let rows = query(store, "SELECT count(*) FROM places WHERE kind = 1");
    usize::try_from(rows[0].get::<_, i64>(0)).unwrap()
}

/// The last start of each key that ran, its end, and the exit code.
pub fn log(store: &Store) -> BTreeMap<String, (i64, Option<i64>, Option<i64>)> {
    let sql = "SELECT convert_from(key, 'UTF8'), started, finished, exit_code FROM keys
        WHERE started IS NOT NULL";
    let rows = query(store, sql);
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect()
}
