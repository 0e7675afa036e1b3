//! Attempts that ended: the question of `shiftboss log`.
//!
//! In the order of their attempts, the one that was handed out last first: for jobs of like length
//! that is the order of their ends. At most the 100,000 that the daemon keeps are gone through.

use std::path::Path;

use rusqlite::{Connection, Row};
use serde::Serialize;
use shiftboss_protocol::model::UnixSeconds;

use super::outcome::outcome;
use super::snapshot::read_current;
use crate::sqlite::reader::ViewError;

/// Attempts that can be asked for at once.
pub const LOG_MAX: usize = 10_000;

/// Which attempts are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those only that ended with `failure` or `timeout`.
    pub failed: bool,
    /// Those only that ended at that time or later, in seconds since 1970.
    pub since: Option<UnixSeconds>,
    /// Those of this key only.
    pub key: Option<String>,
    /// At most so many, and at most [`LOG_MAX`].
    pub count: usize,
}

/// Attempts that ended; the JSON object of `log` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Log {
    /// The attempts, the one that was handed out last first.
    pub attempts: Vec<Ended>,
}

/// An attempt that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// Its number.
    pub attempt: i64,
    /// The key.
    pub key: String,
    /// The fetcher whose row it was; `None`: the fetcher has no run any more.
    pub fetcher: Option<String>,
    /// That fetcher's run.
    pub run: i64,
    /// The worker's name; `None`: a classic worker.
    pub worker: Option<String>,
    /// When it was handed out, in seconds since 1970.
    pub started: UnixSeconds,
    /// When it ended, in seconds since 1970.
    pub finished: UnixSeconds,
    /// Seconds between the two; not below 0, whatever the clock did.
    pub duration_seconds: i64,
    /// How long it was out, in milliseconds, if that is known.
    pub took_ms: Option<i64>,
    /// `success`, `failure`, `timeout`, `released`, `undone` or `expired`.
    pub outcome: String,
    /// Of `success`, `failure` and `timeout`.
    pub exit_code: Option<i64>,
    /// The file of its output, if its directory is known and it is there.
    pub output: Option<String>,
}

const ENDED: &str = "SELECT ended.attempt, attr_path,
        coalesce(name, iif(ended.fetcher_id = 0, '@tasks', NULL)), run_started, worker, started, finished,
        outcome, exit_code, took_ms
    FROM shiftboss_attempts AS ended LEFT JOIN fetchers USING (fetcher_id)
    WHERE (?1 IS NULL OR attr_path = ?1)
        AND (NOT ?2 OR (outcome = 'done' AND exit_code <> 0))
        AND (?3 IS NULL OR finished >= ?3)
    ORDER BY ended.attempt DESC LIMIT ?4";

/// The attempts that are wanted, of the 100,000 that are kept.
///
/// # Errors
/// When the database is missing, not ours or cannot be read.
pub fn log(path: &Path, wanted: &Wanted) -> Result<Log, ViewError> {
    read_current(path, |snapshot| list(snapshot, wanted))
}

fn list(snapshot: &Connection, wanted: &Wanted) -> rusqlite::Result<Log> {
    let count = i64::try_from(wanted.count.min(LOG_MAX)).unwrap_or(i64::MAX);
    let mut statement = snapshot.prepare(ENDED)?;
    let found = statement.query_map((&wanted.key, wanted.failed, wanted.since, count), read)?;
    Ok(Log { attempts: found.collect::<rusqlite::Result<_>>()? })
}

fn read(row: &Row<'_>) -> rusqlite::Result<Ended> {
    let (started, finished): (i64, i64) = (row.get(5)?, row.get(6)?);
    Ok(Ended {
        attempt: row.get(0)?,
        key: row.get(1)?,
        fetcher: row.get(2)?,
        run: row.get(3)?,
        worker: row.get(4)?,
        started,
        finished,
        duration_seconds: finished.saturating_sub(started).max(0),
        took_ms: row.get(9)?,
        outcome: outcome(row.get(7)?, row.get(8)?),
        exit_code: row.get(8)?,
        output: None,
    })
}
