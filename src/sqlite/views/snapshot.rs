//! A consistent snapshot of a queue: a read transaction over a database that this version keeps.
//!
//! Used by every view. It asks nothing itself but what the last daemon noted of its rules.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use shiftboss_protocol::model::UnixSeconds;

use crate::sqlite::open::Policy;
use crate::sqlite::reader::{ViewError, open_to_read};
use crate::sqlite::schema;

/// Asks a database of any version that is known: `ask` is told which it is.
pub(super) fn read<T>(
    path: &Path,
    ask: impl FnOnce(&Connection, i64) -> rusqlite::Result<T>,
) -> Result<T, ViewError> {
    let connection = open_to_read(path)?;
    let failed = |source| ViewError::Sqlite { path: path.to_owned(), source };
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    match schema::version(&snapshot).map_err(failed)? {
        version if version > schema::VERSION => {
            Err(ViewError::Newer { path: path.to_owned(), version })
        }
        version => ask(&snapshot, version).map_err(failed),
    }
}

/// Asks a database that a shiftboss of this version has taken over.
pub(super) fn read_current<T>(
    path: &Path,
    ask: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, ViewError> {
    let older = |version| ViewError::NotTakenOver { path: path.to_owned(), version };
    read(path, |snapshot, version| match version {
        schema::VERSION => ask(snapshot).map(Ok),
        version => Ok(Err(older(version))),
    })?
}

/// What the last daemon noted of itself.
pub(in crate::sqlite) fn state(
    snapshot: &Connection,
    name: &str,
) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM shiftboss_state WHERE name = ?1";
    snapshot.query_row(sql, [name], |row| row.get(0)).optional()
}

/// Whether handing out is paused.
pub(super) fn is_paused(snapshot: &Connection) -> rusqlite::Result<bool> {
    Ok(state(snapshot, "paused")?.as_deref() == Some("1"))
}

/// How long a job may be out, in seconds; `None` where no daemon has noted it.
pub(super) fn lease(snapshot: &Connection) -> rusqlite::Result<Option<i64>> {
    Ok(state(snapshot, "lease")?.and_then(|text| text.parse().ok()))
}

/// The policy of the daemon that runs, or ran last.
pub(super) fn policy(snapshot: &Connection) -> rusqlite::Result<Policy> {
    let fair = state(snapshot, "policy")?.as_deref() != Some("classic");
    let lease_seconds = lease(snapshot)?.unwrap_or_else(|| Policy::Classic.lease());
    Ok(if fair { Policy::Fair { lease_seconds } } else { Policy::Classic })
}

/// A run's number is usually the time of its start; one that cannot be has no age.
pub(super) fn age(run: i64, now: UnixSeconds) -> Option<i64> {
    const YEAR_2000: i64 = 946_684_800;
    (YEAR_2000..=now).contains(&run).then(|| now - run)
}
