//! What is shown of a queue, each in one read transaction: how it stands ([`status`]), what is next ([`mod@queue`]),
//! where a key is ([`mod@why`]), what ended ([`log`]), which tasks have a status ([`mod@tasks`]). Asked through the
//! port [`Reader`], of which [`SqliteReader`] is the one for SQLite.

use std::path::PathBuf;

use rusqlite::{Connection, Result, Row};
use shiftboss_actors::store::answers::{Ended, Log, Queue, QueueStatus, Tasks, Turn, Why};
use shiftboss_actors::store::{EndedAttempts, ReadResult, Reader, TasksWith};
use shiftboss_protocol::model::{Key, UnixSeconds};

use super::query::{FromRow, Query};
use super::{schema, snapshot};
use crate::stores::views::{LOG_MAX, outcome};

pub(super) mod order;
pub(super) mod queue;
mod relays;
pub(super) mod status;
pub(super) mod tasks;
mod why;

/// Reads the database at a path, whether or not a daemon keeps it. It is opened for each question and closed
/// again: operators ask seldom, and a reader that stays keeps the database's log from being cut.
#[derive(Debug)]
pub struct SqliteReader(pub PathBuf);

impl SqliteReader {
    /// Asks a database that this version has taken over.
    fn look<T>(&self, look: impl FnOnce(&Connection) -> Result<T>) -> ReadResult<T> {
        snapshot::read(&self.0, |snapshot, version| {
            (version == schema::VERSION).then(|| look(snapshot)).transpose()
        })
    }
}

impl Reader for SqliteReader {
    fn status(&self, now: UnixSeconds) -> ReadResult<QueueStatus> {
        let look = |snapshot: &_, version| status::queue_status(snapshot, version, now).map(Some);
        snapshot::read(&self.0, look)
    }

    fn why(&self, now: UnixSeconds, key: &str) -> ReadResult<Option<Why>> {
        self.look(|snapshot| why::why(snapshot, key, now))
    }

    fn next_jobs(&self, now: UnixSeconds, count: usize) -> ReadResult<Queue> {
        self.look(|snapshot| queue::queue(snapshot, count, now))
    }

    fn ended_attempts(&self, asked: &EndedAttempts) -> ReadResult<Log> {
        self.look(|snapshot| log(snapshot, asked))
    }

    fn tasks(&self, now: UnixSeconds, asked: &TasksWith) -> ReadResult<Tasks> {
        self.look(|snapshot| tasks::tasks(snapshot, asked, now))
    }

    fn turns(&self, now: UnixSeconds, keys: &[Key]) -> ReadResult<Vec<Turn>> {
        self.look(|snapshot| queue::turns(snapshot, keys, now))
    }
}

impl FromRow for Ended {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (started, finished): (i64, i64) = (row.get(5)?, row.get(6)?);
        let exit_code = row.get(8)?;
        Ok(Self {
            attempt: row.get(0)?,
            key: row.get(1)?,
            fetcher: row.get(2)?,
            run: row.get(3)?,
            worker: row.get(4)?,
            started,
            finished,
            duration_seconds: finished.saturating_sub(started).max(0),
            took_ms: row.get(9)?,
            outcome: outcome(row.get(7)?, exit_code),
            exit_code,
            output: None,
        })
    }
}

const ENDED: &str = "SELECT ended.attempt, attr_path,
        coalesce(name, iif(ended.fetcher_id = 0, '@tasks', NULL)), run_started, worker, started, finished,
        outcome, exit_code, took_ms
    FROM shiftboss_attempts AS ended LEFT JOIN fetchers USING (fetcher_id)
    WHERE (?1 IS NULL OR attr_path = ?1)
        AND (NOT ?2 OR (outcome = 'done' AND exit_code <> 0))
        AND (?3 IS NULL OR finished >= ?3)
    ORDER BY ended.attempt DESC LIMIT ?4";

/// Attempts that ended, the one that was handed out last first: for jobs of like length that is the order of their
/// ends. At most the 100,000 that the daemon keeps are gone through.
fn log(snapshot: &Connection, wanted: &EndedAttempts) -> Result<Log> {
    let count = i64::try_from(wanted.count.min(LOG_MAX)).unwrap_or(i64::MAX);
    let asked = (&wanted.key, wanted.failed, wanted.since, count);
    Ok(Log { attempts: snapshot.rows(ENDED, asked)? })
}
