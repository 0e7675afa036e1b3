//! The store that these tests run on: SQLite, with a database in memory for speed.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::counts::COUNTS;
use shiftboss_queue::look::{Look, Opens};
use shiftboss_queue::reader::ReadResult;
use shiftboss_queue::records::at_once;
use shiftboss_sqlite::SqliteReader;
pub use shiftboss_sqlite::SqliteRecords as Store;
use tempfile::TempDir;

/// A store on the same thread is never waited for.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    at_once(future).expect("it waits")
}

/// Whether one daemon's numbers of attempts may have gaps.
pub const HAS_GAPS: bool = false;

pub fn new() -> Store {
    Store::new(Connection::open_in_memory().unwrap()).unwrap()
}

/// From now on the store refuses batches that write anything, or no longer does.
pub fn refuse(store: &Store, refuse: bool) -> bool {
    store.connection().pragma_update(None, "query_only", refuse).is_ok()
}

/// How long the questions of one test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A queue as of one moment, in a file, and its reader.
pub struct Looking {
    reader: SqliteReader,
    pub directory: TempDir,
}

pub fn reader(store: &Store) -> Looking {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    store.connection().execute("VACUUM INTO ?1", [path.to_str()]).unwrap();
    Looking { reader: SqliteReader::glance(path, PATIENCE), directory }
}

impl Opens for Looking {
    type Found = <SqliteReader as Opens>::Found;

    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl AsyncFnOnce(&mut Look<'_, Self::Found>) -> Result<T, rusqlite::Error>,
    ) -> ReadResult<T> {
        self.reader.ask(now, question)
    }
}

/// Deletes all ended attempts.
pub fn forget_ends(store: &mut Store) {
    store.connection().execute("DELETE FROM attempts", ()).unwrap();
}

/// What is counted, by fetcher and run.
pub fn counts(store: &Store) -> BTreeMap<(i64, i64), [i64; COUNTS]> {
    let mut query = store.connection().prepare("SELECT * FROM counts").unwrap();
    let rows = query.query_map([], |row| {
        let counts = std::array::from_fn(|at| row.get(2 + at).unwrap());
        Ok(((row.get(0)?, row.get(1)?), counts))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Sums of attempts that ended, by hour, fetcher and outcome: jobs, milliseconds, revisits, seconds.
pub fn hours(store: &Store) -> BTreeMap<(i64, i64, String), [i64; 4]> {
    let sql = "SELECT * FROM hours WHERE jobs <> 0";
    let mut query = store.connection().prepare(sql).unwrap();
    let rows = query.query_map([], |row| {
        let sums = [row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
        Ok(((row.get(0)?, row.get(1)?, row.get(2)?), sums))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Jobs by minute and exit code.
pub fn minutes(store: &Store) -> BTreeMap<(i64, i64), i64> {
    let sql = "SELECT minute, exit_code, jobs FROM minutes WHERE jobs <> 0";
    let mut query = store.connection().prepare(sql).unwrap();
    let rows = query.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// The number of keys that have a turn.
pub fn ready(store: &Store) -> usize {
    let sql = "SELECT count(*) FROM keys WHERE turn IS NOT NULL";
    let count: u32 = store.connection().query_row(sql, [], |row| row.get(0)).unwrap();
    count as usize
}

/// The last start of each key that ran, its end, and the exit code.
pub fn log(store: &Store) -> BTreeMap<String, (i64, Option<i64>, Option<i64>)> {
    let sql = "SELECT key, started, finished, exit_code FROM keys WHERE started IS NOT NULL";
    let mut query = store.connection().prepare(sql).unwrap();
    let rows =
        query.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?))));
    rows.unwrap().map(Result::unwrap).collect()
}
