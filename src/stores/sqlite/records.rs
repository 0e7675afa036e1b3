//! What the daemon notes of itself, for status and its own next start: how it stands (`shiftboss_state`), the
//! input directory, rejected files, and the fetchers that it runs itself.
//!
//! Called by the store's operations, and by the views. What is not understood in a row of a managed fetcher,
//! since somebody edited it, counts as unknown, and keeps no daemon from starting. A table that is not what we
//! made is an error, as any other of ours is.

use rusqlite::{Connection, OptionalExtension, Result, Row};
use shiftboss_actors::store::{EndedRun, FetcherRecord, InputDirectory, RejectFile};
use shiftboss_protocol::model::UnixSeconds;

use super::query::{FromRow, Query};
use super::session::Session;

/// What the last daemon noted under a name.
pub(super) fn state(connection: &Connection, name: &str) -> Result<Option<String>> {
    connection.value("SELECT value FROM shiftboss_state WHERE name = ?1", [name]).optional()
}

pub(super) fn is_paused(connection: &Connection) -> Result<bool> {
    Ok(state(connection, "paused")?.as_deref() == Some("1"))
}

pub(super) fn set_state(database: &impl Query, name: &str, value: &str) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO shiftboss_state (name, value) VALUES (?1, ?2)";
    database.run(sql, (name, value))
}

/// All managed fetchers, by name.
pub(super) const MANAGED_FETCHERS: &str =
    "SELECT name, state, run_started, next_run, last_started, last_ended, last_code, last_message
    FROM shiftboss_managed_fetchers ORDER BY name";

/// Of [`MANAGED_FETCHERS`].
impl FromRow for FetcherRecord {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (started, ended): (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
        let (code, message): (Option<i64>, String) = (row.get(6)?, text(row, 7)?);
        let last_run = started.zip(ended).zip(code).map(|((started, ended), code)| EndedRun {
            started,
            ended,
            exit_code: u8::try_from(code).unwrap_or(u8::MAX),
            message,
        });
        Ok(Self {
            name: text(row, 0)?.into(),
            state: text(row, 1)?,
            run_started: row.get(2)?,
            last_run,
            next_run: row.get(3)?,
        })
    }
}

/// A text that somebody may have edited: SQLite takes bytes for text that are none. NULL is empty.
fn text(row: &Row<'_>, column: usize) -> Result<String> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

impl Session<'_> {
    /// Kept over restarts; in memory for the dispatches to come. Says how many jobs are in flight.
    pub(super) fn pause(&mut self, paused: bool, now: UnixSeconds) -> Result<u64> {
        set_state(self, "paused", if paused { "1" } else { "0" })?;
        self.queue.paused = paused;
        self.count_in_flight(now)
    }

    pub(super) fn set_input(&mut self, input: &InputDirectory, now: UnixSeconds) -> Result<()> {
        if let Some(relay) = self.relay {
            return self.set_relay_input(relay, input, now);
        }
        match input {
            InputDirectory::There(identity) => {
                set_state(self, "input_directory", &identity.to_string())?;
                let found = "DELETE FROM shiftboss_state
                    WHERE name IN ('directory_lost_since', 'directory_lost_reason')";
                self.run(found, [])
            }
            InputDirectory::Lost(reason) => {
                set_state(self, "directory_lost_reason", reason)?;
                let since = "INSERT INTO shiftboss_state (name, value)
                    VALUES ('directory_lost_since', ?1) ON CONFLICT DO NOTHING";
                self.run(since, [now.to_string()])
            }
        }
    }

    pub(super) fn note_rejected(&self, file: &RejectFile, now: UnixSeconds) -> Result<()> {
        if let Some(relay) = self.relay {
            let sql = "INSERT INTO shiftboss_relay_rejected_files (relay, name, reason, since)
                VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (relay, name) DO UPDATE SET reason = excluded.reason";
            return self.run(sql, (relay, &file.name, &file.reason, now));
        }
        let sql = "INSERT INTO shiftboss_rejected_files (name, reason, since) VALUES (?1, ?2, ?3)
            ON CONFLICT (name) DO UPDATE SET reason = excluded.reason";
        self.run(sql, (&file.name, &file.reason, now))
    }

    pub(super) fn forget_rejected(&self, name: &str) -> Result<()> {
        if let Some(relay) = self.relay {
            let sql = "DELETE FROM shiftboss_relay_rejected_files WHERE relay = ?1 AND name = ?2";
            return self.run(sql, (relay, name));
        }
        self.run("DELETE FROM shiftboss_rejected_files WHERE name = ?1", [name])
    }

    /// Notes how a fetcher is, in place of what was noted of it before.
    pub(super) fn save_record(&self, record: &FetcherRecord) -> Result<()> {
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
        self.run(sql, values)
    }

    pub(super) fn records(&self) -> Result<Vec<FetcherRecord>> {
        self.rows(MANAGED_FETCHERS, [])
    }

    /// Forgets a fetcher that is not managed any more.
    pub(super) fn forget_record(&self, name: &str) -> Result<()> {
        self.run("DELETE FROM shiftboss_managed_fetchers WHERE name = ?1", [name])
    }
}
