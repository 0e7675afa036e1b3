//! Attempts that ended: the question of `shiftboss log`.
//!
//! In the order of their attempts, the one that was handed out last first: for jobs of like length
//! that is the order of their ends. At most the 100,000 that the daemon keeps are gone through.

use rusqlite::{Connection, Result, Row};
use shiftboss_actors::store::EndedAttempts;
use shiftboss_actors::store::answers::{Ended, Log};

use crate::stores::outcome_words::of_code;
use crate::stores::sqlite::query::{FromRow, Query};

/// Attempts that can be asked for at once.
const LOG_MAX: usize = 10_000;

impl FromRow for Ended {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (started, finished): (i64, i64) = (row.get(5)?, row.get(6)?);
        let (outcome, exit_code): (String, Option<i64>) = (row.get(7)?, row.get(8)?);
        let is_done = outcome == "done";
        let outcome = if is_done { of_code(exit_code.unwrap_or(0)).to_owned() } else { outcome };
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
            outcome,
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

/// The attempts that are wanted, of the 100,000 that are kept.
pub(super) fn log(snapshot: &Connection, wanted: &EndedAttempts) -> Result<Log> {
    let count = i64::try_from(wanted.count.min(LOG_MAX)).unwrap_or(i64::MAX);
    let asked = (&wanted.key, wanted.failed, wanted.since, count);
    Ok(Log { attempts: snapshot.rows(ENDED, asked)? })
}
