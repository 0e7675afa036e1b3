//! Attempts that ended: the question of `shiftboss log`; and how they ended, in the words of the life of a task.
//!
//! In the order of their attempts, the one that was handed out last first: for jobs of like length
//! that is the order of their ends. At most the 100,000 that the daemon keeps are gone through.

use std::path::Path;

use nix::sys::signal::Signal;
use rusqlite::Row;
use serde::Serialize;
use shiftboss_protocol::model::UnixSeconds;

use crate::stores::sqlite::query::Query;
use crate::stores::sqlite::reader::{ViewError, read_current};

/// Attempts that can be asked for at once.
pub const LOG_MAX: usize = 10_000;
const TIMEOUT: i64 = 124;
/// A shell's code of a command that a signal ended is so much more than the signal's number.
const SIGNALS: i64 = 128;

/// Which attempts are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those only that ended with `failure` or `timeout`.
    pub failed: bool,
    /// Those only that ended at that time or later, in seconds since 1970.
    pub since: Option<UnixSeconds>,
    pub key: Option<String>,
    /// At most so many, and at most [`LOG_MAX`].
    pub count: usize,
}

/// The JSON object of `log` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Log {
    /// The one that was handed out last first.
    pub attempts: Vec<Ended>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    pub attempt: i64,
    pub key: String,
    /// `None`: the fetcher has no run any more.
    pub fetcher: Option<String>,
    pub run: i64,
    /// `None`: a classic worker.
    pub worker: Option<String>,
    pub started: UnixSeconds,
    pub finished: UnixSeconds,
    /// Not below 0, whatever the clock did.
    pub duration_seconds: i64,
    pub took_ms: Option<i64>,
    /// `success`, `failure`, `timeout`, `released`, `undone` or `expired`.
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// The file of its output, if its directory is known and it is there.
    pub output: Option<String>,
}

impl<'r> TryFrom<&'r Row<'r>> for Ended {
    type Error = rusqlite::Error;

    fn try_from(row: &'r Row<'r>) -> rusqlite::Result<Self> {
        let (started, finished): (i64, i64) = (row.get(5)?, row.get(6)?);
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
            outcome: outcome(row.get(7)?, row.get(8)?),
            exit_code: row.get(8)?,
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
///
/// # Errors
/// When the database is missing, not ours or cannot be read.
pub fn log(path: &Path, wanted: &Wanted) -> Result<Log, ViewError> {
    let count = i64::try_from(wanted.count.min(LOG_MAX)).unwrap_or(i64::MAX);
    let asked = (&wanted.key, wanted.failed, wanted.since, count);
    read_current(path, |snapshot| snapshot.rows(ENDED, asked)).map(|attempts| Log { attempts })
}

/// What the outcome is that the database calls `done`; all others have the same name there.
pub(super) fn outcome(stored: String, exit_code: Option<i64>) -> String {
    match (stored.as_str(), exit_code.unwrap_or(0)) {
        ("done", 0) => "success".to_owned(),
        ("done", TIMEOUT) => "timeout".to_owned(),
        ("done", _) => "failure".to_owned(),
        _ => stored,
    }
}

/// The signal that an exit code tells, without `SIG`.
fn signal(exit_code: i64) -> Option<&'static str> {
    let number = i32::try_from(exit_code.checked_sub(SIGNALS)?).ok()?;
    Signal::try_from(number).ok().map(|signal| signal.as_str().trim_start_matches("SIG"))
}

/// An end in words: `success`, `timeout`, `failure 1`, `failure SEGV`.
#[must_use]
pub fn in_words(outcome: &str, exit_code: Option<i64>) -> String {
    match exit_code {
        Some(code) if outcome == "failure" => match signal(code) {
            Some(signal) => format!("failure {signal}"),
            None => format!("failure {code}"),
        },
        _ => outcome.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each code as people read it.
    #[test]
    fn ends_are_words() {
        let words_of = |code| in_words(&outcome("done".to_owned(), Some(code)), Some(code));
        let codes = [0, 1, 124, 127, 128, 137, 139, 143, 255, -1, i64::MIN];
        let words = [
            "success",
            "failure 1",
            "timeout",
            "failure 127",
            "failure 128",
            "failure KILL",
            "failure SEGV",
            "failure TERM",
            "failure 255",
            "failure -1",
            "failure -9223372036854775808",
        ];
        assert_eq!(codes.map(words_of), words);
        assert_eq!(in_words(&outcome("expired".to_owned(), None), None), "expired");
    }
}
