//! The database as its readers and editors from outside see it (spec 6).

use std::path::Path;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::{Site, wait_equal};

/// The rows of the queue as `fetcher|run|key|payload|is_dequeued`, in the order of these.
pub const QUEUE: &str = "SELECT name, fetcher_run_started, attr_path, payload, is_dequeued \
    FROM queue JOIN fetchers USING (fetcher_id) ORDER BY name, fetcher_run_started, attr_path";

/// The runs as `fetcher|run|is_complete`.
pub const RUNS: &str = "SELECT name, run_started, is_complete \
    FROM fetcher_runs JOIN fetchers USING (fetcher_id) ORDER BY name, run_started";

/// The log as `key|started|finished|exit_code`.
pub const LOG: &str = "SELECT attr_path, started, finished, exit_code FROM log ORDER BY attr_path";

/// A second process's reading connection: `mode=ro`, with a busy timeout of 5 s.
pub fn reader(path: &Path) -> rusqlite::Result<Connection> {
    open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// An operator's connection: may write, with a busy timeout of 5 s; makes no new file.
pub fn editor(path: &Path) -> rusqlite::Result<Connection> {
    open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// What is looked at beside the four tables.
const SEEN: &str = include_str!("seen_in_file.sql");

fn open(path: &Path, mode: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = mode | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch(SEEN)?;
    Ok(connection)
}

/// What `query` returns: a line a row, columns separated by `|`, NULL as `-`.
pub fn rows(connection: &Connection, query: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(query)?;
    let columns = statement.column_count();
    let mapped = statement.query_map([], |row| {
        let values = (0..columns).map(|i| row.get::<_, Value>(i).map(show));
        Ok(values.collect::<rusqlite::Result<Vec<_>>>()?.join("|"))
    })?;
    mapped.collect()
}

fn show(value: Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text,
        Value::Blob(bytes) => format!("{bytes:?}"),
    }
}

impl Site {
    /// What `query` returns over a fresh reading connection.
    pub fn sql(&self, query: &str) -> Vec<String> {
        self.try_sql(query).unwrap()
    }

    /// As [`Site::sql`], for times at which the database may be absent or in change.
    pub fn try_sql(&self, query: &str) -> Result<Vec<String>, String> {
        match self.server() {
            Some(server) => server.rows(query),
            None => reader(&self.database())
                .and_then(|connection| rows(&connection, query))
                .map_err(|error| error.to_string()),
        }
    }

    /// Runs statements as an operator does by hand.
    pub fn edit(&self, statements: &str) {
        let connection = editor(&self.database()).unwrap();
        connection.execute_batch(statements).unwrap();
    }

    /// The single number that `query` returns.
    pub fn number(&self, query: &str) -> i64 {
        self.sql(query)[0].parse().unwrap()
    }

    /// Waits until `query` returns `expected`.
    pub fn wait_sql(&self, query: &str, expected: &[&str]) {
        let expected: Result<Vec<String>, String> =
            Ok(expected.iter().map(|line| (*line).to_owned()).collect());
        wait_equal(query, &expected, || self.try_sql(query));
    }

    /// Waits until the queue is `expected`, as [`QUEUE`] shows it.
    pub fn wait_queue(&self, expected: &[&str]) {
        self.wait_sql(QUEUE, expected);
    }

    /// Waits until the queue has `count` rows.
    pub fn wait_count(&self, count: usize) {
        self.wait_sql("SELECT count(*) FROM queue", &[&count.to_string()]);
    }

    /// What SQLite finds of its file and of references; a server looks after both.
    pub fn integrity(&self) -> Vec<String> {
        if self.server().is_some() {
            return vec!["ok".to_owned()];
        }
        let mut found = self.sql("PRAGMA integrity_check");
        found.extend(self.sql("PRAGMA foreign_key_check"));
        found
    }
}
