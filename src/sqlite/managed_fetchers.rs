//! The fetchers that the daemon runs itself, over its restarts (`shiftboss_managed_fetchers`).
//!
//! Called by the store's operations, and by the views. The table is nobody's but the daemon's; what
//! is not understood in a row, since somebody edited it, counts as unknown, and keeps no daemon from
//! starting. A table that is not what we made is an error, as any other of ours is.

use rusqlite::Row;
use shiftboss_actors::store::{EndedRun, FetcherRecord};

use super::SqliteStore;

/// All of them, by name.
pub(super) const ALL: &str =
    "SELECT name, state, run_started, next_run, last_started, last_ended, last_code, last_message
    FROM shiftboss_managed_fetchers ORDER BY name";

/// Reads a row of [`ALL`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<FetcherRecord> {
    let (started, ended): (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
    let (code, message): (Option<i64>, String) = (row.get(6)?, text(row, 7)?);
    let last_run = started.zip(ended).zip(code).map(|((started, ended), code)| EndedRun {
        started,
        ended,
        exit_code: u8::try_from(code).unwrap_or(u8::MAX),
        message,
    });
    Ok(FetcherRecord {
        name: text(row, 0)?.into(),
        state: text(row, 1)?,
        run_started: row.get(2)?,
        last_run,
        next_run: row.get(3)?,
    })
}

/// A text that somebody may have edited: SQLite takes bytes for text that are none. NULL is empty.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

impl SqliteStore {
    /// Notes how a fetcher is, in place of what was noted of it before.
    pub(super) fn save_record(&self, record: &FetcherRecord) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO shiftboss_managed_fetchers
                (name, state, run_started, next_run, last_started, last_ended, last_code, last_message)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let last = record.last_run.as_ref();
        let values = (
            &*record.name,
            &record.state,
            record.run_started,
            record.next_run,
            last.map(|last| last.started),
            last.map(|last| last.ended),
            last.map(|last| last.exit_code),
            last.map(|last| &last.message),
        );
        self.execute(sql, values)
    }

    pub(super) fn records(&self) -> rusqlite::Result<Vec<FetcherRecord>> {
        self.prepared(ALL)?.query_map([], read)?.collect()
    }

    /// Forgets a fetcher that is not managed any more.
    pub(super) fn forget_record(&self, name: &str) -> rusqlite::Result<()> {
        self.execute("DELETE FROM shiftboss_managed_fetchers WHERE name = ?1", [name])
    }
}
