//! A store in a temporary directory, and short words for what the tests do with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::ProptestConfig;
use rusqlite::Connection;
use shiftboss_actors::file_identity::Position;
use shiftboss_actors::store::{
    Dispatched, LeaseHolder, Operation, ReadResult, Reader, Reading, Request, RetryRules, RowBatch,
};
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::{Attempt, Key, Row, Run};
use tempfile::TempDir;

use crate::stores::sqlite::partitions::Partitions;
use crate::stores::sqlite::schema;
use crate::stores::sqlite::{Durability, Options, Policy, SqliteReader, SqliteStore};

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
        bump_share: Rules::default().bump_share,
        backoff: None,
        retries: RetryRules::default(),
    }
}

/// With the model's rules.
pub fn options_by(rules: &Rules, policy: Policy) -> Options {
    Options {
        max_expired_leases: u32::try_from(rules.max_expired_leases).unwrap(),
        backoff: rules.backoff.clone(),
        retries: rules.retries.clone(),
        ..options(policy)
    }
}

/// So many random cases as the environment's PROPTEST_CASES says (`make soak`), or few.
pub fn cases(few: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.map(|text| text.parse().expect("PROPTEST_CASES is a number"));
    ProptestConfig::with_cases(asked.unwrap_or(few))
}

/// More than a test asks.
const STATEMENTS: usize = 64;

/// A store, a second connection as an outsider has, and their directory.
pub struct Site {
    pub store: SqliteStore,
    pub outside: Connection,
    pub directory: TempDir,
}

/// What the database at a path answers.
pub fn ask<T>(
    path: &Path,
    now: i64,
    question: impl FnOnce(&dyn Reader, i64) -> ReadResult<T>,
) -> ReadResult<T> {
    question(&SqliteReader::new(path.to_owned()), now)
}

/// A run by name and number.
pub fn run(fetcher: &str, started: i64) -> Run {
    Run { fetcher: fetcher.into(), started }
}

/// A worker that speaks protocol 2.
pub fn holder(worker: &str, lease_seconds: u32) -> LeaseHolder {
    LeaseHolder { worker: worker.into(), lease_seconds }
}

/// A key.
pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// A batch of (key, payload) without a position worth the name.
pub fn batch(run: &Run, rows: &[(&str, &str)], complete: bool) -> RowBatch {
    let rows = rows.iter().map(|(k, payload)| Row { key: key(k), payload: (*payload).to_owned() });
    let position = Position::default();
    RowBatch {
        run: run.clone(),
        rows: rows.collect(),
        skipped: 0,
        from: None,
        by_range: false,
        position,
        complete,
        reading: Reading::Onward,
    }
}

impl Site {
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("state.db")
    }

    /// What its database answers.
    pub fn ask<T>(
        &self,
        now: i64,
        question: impl FnOnce(&dyn Reader, i64) -> ReadResult<T>,
    ) -> ReadResult<T> {
        ask(&self.path(), now, question)
    }

    /// A new, empty database.
    pub fn new(policy: Policy) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), policy)
    }

    /// The database that is in the directory, or a new one.
    pub fn in_directory(directory: TempDir, policy: Policy) -> Self {
        Self::opened(directory, &options(policy))
    }

    /// The same, with other options.
    pub fn opened(directory: TempDir, options: &Options) -> Self {
        let path = directory.path().join("state.db");
        let store = SqliteStore::open(&path, options).unwrap();
        let outside = Connection::open(&path).unwrap();
        outside.busy_timeout(Duration::from_secs(5)).unwrap();
        // The random histories ask the same things after each step: parsed anew, those took most of their time.
        outside.set_prepared_statement_cache_capacity(STATEMENTS);
        Self { store, outside, directory }
    }

    /// The daemon stops, or is killed, and is started again.
    pub fn restart(self, options: &Options, clean: bool) -> Self {
        let Self { mut store, outside, directory } = self;
        drop(outside);
        if clean {
            store.close_at_once().unwrap();
        }
        drop(store);
        Self::opened(directory, options)
    }

    /// Runs mutations, each in a transaction of its own.
    pub fn commit<T>(&mut self, mutation: impl FnOnce(&mut SqliteStore) -> T) -> T {
        let result = mutation(&mut self.store);
        self.check_partitions();
        result
    }

    /// Has a request fail at its commit.
    pub fn fail(&mut self, now: i64, request: impl Request) {
        let mut batch = Vec::new();
        request.push(&mut batch);
        self.fail_batch(now, batch);
    }

    /// Has a batch fail at its commit.
    pub fn fail_batch(&mut self, now: i64, batch: Vec<Operation>) {
        self.store.connection.commit_hook(Some(|| true)).unwrap();
        assert!(self.store.apply_at_once(now, batch).is_err());
        self.store.connection.commit_hook(None::<fn() -> bool>).unwrap();
        self.check_partitions();
    }

    /// What is known of partitions and deletions in memory is what is on disk.
    pub fn check_partitions(&self) {
        let sorted = |mut partitions: Partitions| {
            partitions.open.sort_unstable();
            partitions
        };
        let on_disk = Partitions::load(&self.store.connection).unwrap();
        assert_eq!(sorted(self.store.queue.partitions.clone()), sorted(on_disk));
    }

    /// Registers a run and adds rows of (key, payload).
    pub fn add(&mut self, run: &Run, rows: &[(&str, &str)]) {
        self.commit(|store| {
            store.register_run(run).unwrap();
            store.add_rows(&batch(run, rows, false)).unwrap();
        });
    }

    /// Adds rows whose payload names the run.
    pub fn list(&mut self, run: &Run, keys: &[&str]) {
        let payload = run.to_string();
        let rows: Vec<_> = keys.iter().map(|key| (*key, payload.as_str())).collect();
        self.add(run, &rows);
    }

    /// Deletes a run, whole.
    pub fn delete(&mut self, run: &Run) {
        while self.delete_step(run, 2) {}
    }

    /// One step of a deletion; whether there is more to delete.
    pub fn delete_step(&mut self, run: &Run, limit: usize) -> bool {
        self.commit(|store| store.delete_runs(std::slice::from_ref(run), limit)).unwrap() == 0
    }

    /// Asks for a job; `key payload` of it.
    pub fn next(&mut self, now: i64) -> Option<String> {
        self.attempt(now).map(|(_, job)| job)
    }

    /// Asks for a job; its attempt, and `key payload`.
    pub fn attempt(&mut self, now: i64) -> Option<(Attempt, String)> {
        match self.commit(|store| store.dispatch(now, None)).unwrap() {
            Dispatched::Job(attempt, job) => {
                Some((attempt, format!("{} {}", job.key, job.payload)))
            }
            Dispatched::Nothing => None,
            Dispatched::Later => panic!("no deletion is under way"),
        }
    }

    /// Ends a job with exit code 0.
    pub fn finish(&mut self, text: &str, now: i64) {
        self.commit(|store| store.finish(&key(text), 0, now)).unwrap();
    }

    /// Makes a dispatch undone.
    pub fn undo(&mut self, attempt: Attempt) -> bool {
        let sql =
            format!("SELECT attr_path FROM shiftboss_in_flight WHERE attempt = {}", attempt.0);
        let key = key(self.rows(&sql).first().map_or("unknown", String::as_str));
        self.commit(|store| store.undo(&key, attempt)).unwrap()
    }

    /// The public tables, and deliveries and turns, as lines.
    pub fn tables(&self) -> Vec<String> {
        let mut tables = self.rows(
            "SELECT 'fetcher|' || fetcher_id || '|' || name FROM fetchers
             UNION ALL SELECT 'run|' || fetcher_id || '|' || run_started || '|' || is_complete FROM fetcher_runs
             UNION ALL SELECT 'queue|' || fetcher_id || '|' || fetcher_run_started || '|' || attr_path || '|'
                || payload || '|' || is_dequeued || '|' || coalesce(last_started, '-') FROM queue
             UNION ALL SELECT 'log|' || attr_path || '|' || started || '|' || coalesce(finished, '-') || '|'
                || coalesce(exit_code, '-') FROM log
             UNION ALL SELECT 'delivery|' || attr_path || '|' || attempt FROM shiftboss_in_flight
             UNION ALL SELECT 'single|' || task || '|' || attr_path || '|' || payload || '|' || status
                FROM shiftboss_single_tasks
             UNION SELECT 'last_served|' || attr_path || '|' || name || '|' || last_served
                FROM queue JOIN fetchers USING (fetcher_id) WHERE last_served IS NOT NULL
             UNION ALL SELECT 'last_served|' || attr_path || '|' || name || '|' || attempt
                FROM shiftboss_last_served AS gone WHERE NOT EXISTS (
                    SELECT 1 FROM queue JOIN fetchers USING (fetcher_id)
                    WHERE queue.attr_path = gone.attr_path AND fetchers.name = gone.name)",
        );
        tables.sort();
        tables
    }

    /// What triggers and the daemon keep is what can be counted, and what the rule says.
    pub fn check_kept(&self) {
        // A row that was plain when it was dispatched, and that nothing happened to since, is as it was then.
        let alone = "state = -2 AND is_dequeued <> 0 AND fetcher_id <> 0 AND NOT EXISTS (
            SELECT 1 FROM queue AS other WHERE other.attr_path = queue.attr_path AND other.rowid <> queue.rowid
            UNION ALL SELECT 1 FROM shiftboss_deliveries AS kept WHERE kept.attr_path = queue.attr_path)";
        let wrong = format!(
            "SELECT attr_path FROM queue WHERE state IS NOT {} AND NOT ({alone})",
            schema::STATE
        );
        assert_eq!(self.rows(&wrong), Vec::<String>::new());
        let counts = "SELECT fetcher_id, run_started FROM shiftboss_runs AS run WHERE
                (rows, pending) IS NOT (SELECT count(*), coalesce(sum(is_dequeued = 0), 0) FROM queue
                    WHERE queue.fetcher_id = run.fetcher_id AND fetcher_run_started = run.run_started)
             UNION ALL SELECT * FROM (SELECT fetcher_id, run_started FROM fetcher_runs EXCEPT
                SELECT fetcher_id, run_started FROM shiftboss_runs)";
        assert_eq!(self.rows(counts), Vec::<String>::new());
        let singles = "SELECT name, value FROM shiftboss_counters WHERE name LIKE 'single%' EXCEPT
            SELECT 'single_tasks', count(*) FROM shiftboss_single_tasks EXCEPT
            SELECT 'single_tasks_ended', count(*) FROM shiftboss_single_tasks
                WHERE status <> 'waiting'";
        assert_eq!(self.rows(singles), Vec::<String>::new());
    }

    /// An edit from outside.
    pub fn edit(&self, sql: &str) {
        self.outside.execute_batch(sql).unwrap();
    }

    /// The rows of a query from outside, columns joined by `|`, NULL as `-`.
    pub fn rows(&self, sql: &str) -> Vec<String> {
        rows_of(&self.outside, sql)
    }
}

/// The rows of a query, columns joined by `|`, NULL as `-`.
pub fn rows_of(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare_cached(sql).unwrap();
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
