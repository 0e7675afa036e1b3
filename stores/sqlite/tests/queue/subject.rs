//! The store that the tests here are about: SQLite, on a database that is in memory for speed.

use std::collections::BTreeMap;

use rusqlite::Connection;
pub use shiftboss_sqlite::SqliteRecords as Store;

pub use crate::words::at_once as ready;

pub fn new() -> Store {
    Store::new(Connection::open_in_memory().unwrap()).unwrap()
}

/// Rows, waiting ones and those in flight, by fetcher and run.
pub fn counts(store: &Store) -> BTreeMap<(i64, i64), [i64; 3]> {
    let sql = "SELECT fetcher, run, rows, waiting, in_flight FROM counts";
    let mut query = store.connection().prepare(sql).unwrap();
    let rows = query.query_map([], |row| {
        Ok(((row.get(0)?, row.get(1)?), [row.get(2)?, row.get(3)?, row.get(4)?]))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// The last start of each key that ran, its end, and the exit code.
pub fn log(store: &Store) -> BTreeMap<String, (i64, Option<i64>, Option<i64>)> {
    let sql = "SELECT key, started, finished, exit_code FROM keys WHERE started IS NOT NULL";
    let mut query = store.connection().prepare(sql).unwrap();
    let rows =
        query.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?))));
    rows.unwrap().map(Result::unwrap).collect()
}
