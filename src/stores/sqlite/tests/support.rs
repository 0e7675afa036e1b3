//! A store in a temporary directory, and short words for what the tests do with it.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use shiftboss_actors::store::Store;
use shiftboss_protocol::model::LeaseHolder;
use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::operation::{AddRows, Dispatch, Dispatched, RegisterRun, Request, RowBatch};
use shiftboss_queue::policy::RetryRules;
use shiftboss_sqlite::at_once;
use tempfile::TempDir;

use crate::stores::sqlite::{Durability, Options, Policy, SqliteStore};

/// The default policy of spec 5.
pub const FAIR: Policy = Policy::Fair { lease_seconds: 43_200 };

/// Options that cost no syncs.
pub fn options(policy: Policy) -> Options {
    Options {
        policy,
        durability: Durability::Process,
        busy_timeout: Duration::from_secs(5),
        max_expired_leases: 5,
        max_single_tasks: 1_000,
        history: 100_000,
        bump_share: 100,
        backoff: None,
        retries: RetryRules::default(),
        unlisted_kept: None,
        groups: Default::default(),
    }
}

/// A store, a second connection as an outsider has, and their directory.
pub struct Site {
    pub store: SqliteStore,
    pub outside: Connection,
    pub directory: TempDir,
}

/// Asks for one thing, in a batch of its own.
pub fn ask<R: Request>(store: &mut SqliteStore, now: i64, request: R) -> StoreResult<R::Answer> {
    let mut batch = Vec::new();
    request.push(&mut batch);
    let outcomes = at_once(store.apply(now * 1_000, batch))?;
    R::answer(&mut outcomes.into_iter())
}

/// A run by name and number.
pub fn run(fetcher: &str, started: i64) -> Run {
    Run { fetcher: fetcher.into(), started }
}

/// A worker that speaks protocol 2.
pub fn holder(worker: &str, lease_seconds: u32) -> LeaseHolder {
    LeaseHolder { worker: worker.into(), lease_seconds }
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// A batch of (key, payload) without a position worth the name.
pub fn batch(run: &Run, rows: &[(&str, &str)]) -> RowBatch {
    let rows = rows.iter().map(|(k, payload)| Row { key: key(k), payload: (*payload).to_owned() });
    RowBatch::of(run.clone(), rows.collect())
}

impl Site {
    /// A new, empty database.
    pub fn new(policy: Policy) -> Self {
        Self::opened(tempfile::tempdir().unwrap(), &options(policy))
    }

    /// The database that is in the directory, or a new one.
    pub fn opened(directory: TempDir, options: &Options) -> Self {
        let path = directory.path().join("state.db");
        let store = SqliteStore::open(&path, options).unwrap();
        let outside = Connection::open(&path).unwrap();
        outside.busy_timeout(Duration::from_secs(5)).unwrap();
        Self { store, outside, directory }
    }

    pub fn ask<R: Request>(&mut self, now: i64, request: R) -> StoreResult<R::Answer> {
        ask(&mut self.store, now, request)
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("state.db")
    }

    pub fn list(&mut self, run: &Run, keys: &[&str]) {
        self.ask(0, RegisterRun(run.clone())).unwrap();
        let rows: Vec<_> = keys.iter().map(|key| (*key, "payload")).collect();
        self.ask(0, AddRows(batch(run, &rows))).unwrap();
    }

    /// The key of the next job.
    pub fn next(&mut self, now: i64) -> Option<String> {
        match self.ask(now, Dispatch { holder: None, fetchers: None }).unwrap() {
            Dispatched::Job(_, row, _) => Some(row.key.to_string()),
            Dispatched::Nothing | Dispatched::Later => None,
        }
    }

    /// An edit from outside.
    pub fn edit(&self, sql: &str) {
        self.outside.execute_batch(sql).unwrap();
    }

    /// The rows of a query from outside, columns joined by `|`, NULL as `-`.
    pub fn rows(&self, sql: &str) -> Vec<String> {
        let mut statement = self.outside.prepare_cached(sql).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let text = |column| match row.get_ref(column).unwrap() {
                rusqlite::types::ValueRef::Null => "-".to_owned(),
                rusqlite::types::ValueRef::Integer(value) => value.to_string(),
                rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                other => format!("{other:?}"),
            };
            Ok((0..columns).map(text).collect::<Vec<_>>().join("|"))
        };
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }
}
