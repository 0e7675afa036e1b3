//! Undoing a dispatch whose answer did not arrive, as if it had not happened (spec 5).

use rusqlite::{OptionalExtension, Row};
use shiftboss_actors::model::Attempt;

use super::SqliteStore;

impl SqliteStore {
    /// Restores what was before a dispatch, if nothing has happened to its key since.
    pub(super) fn undo_dispatch(&mut self, attempt: Attempt) -> rusqlite::Result<bool> {
        let sql = "SELECT flight.attr_path, flight.fetcher_id, fetchers.name, prev_turn, rearm,
                prev_started, prev_finished, prev_exit_code
            FROM shiftboss_flights AS flight
            JOIN log ON log.attr_path = flight.attr_path
                AND log.started = flight.started AND log.finished IS NULL
            LEFT JOIN fetchers ON fetchers.fetcher_id = flight.fetcher_id
            WHERE flight.attempt = ?1 AND flight.attempt = (
                SELECT max(attempt) FROM shiftboss_flights WHERE attr_path = flight.attr_path)";
        let flight = self.prepared(sql)?.query_row([attempt.0], Undone::read).optional()?;
        let Some(flight) = flight else {
            return Ok(false);
        };
        self.prepared("DELETE FROM shiftboss_flights WHERE attempt = ?1")?.execute([attempt.0])?;
        let rearm = "UPDATE queue SET is_dequeued = 0 WHERE attr_path = ?1 AND fetcher_id = ?2
            AND fetcher_run_started IN (SELECT value FROM json_each(?3))";
        self.prepared(rearm)?.execute((&flight.key, flight.fetcher_id, &flight.rearm))?;
        if let Some(fetcher) = &flight.fetcher {
            self.set_turn(&flight.key, fetcher, flight.turn)?;
        }
        self.restore_log(&flight)?;
        Ok(true)
    }

    /// Puts the log row back. Not by an UPDATE: that would count as the end of a job.
    fn restore_log(&self, flight: &Undone) -> rusqlite::Result<()> {
        self.prepared("DELETE FROM log WHERE attr_path = ?1")?.execute([&flight.key])?;
        match flight.log {
            (Some(started), finished, exit_code) => {
                // Tells the trigger that this is no end of a job.
                let undoing = "INSERT INTO shiftboss_state (name, value) VALUES ('undoing', '1')";
                self.prepared(undoing)?.execute([])?;
                let sql = "INSERT INTO log (attr_path, started, finished, exit_code)
                    VALUES (?1, ?2, ?3, ?4)";
                self.prepared(sql)?.execute((&flight.key, started, finished, exit_code))?;
                self.prepared("DELETE FROM shiftboss_state WHERE name = 'undoing'")?.execute([])?;
            }
            (None, ..) => {
                let sql = "UPDATE queue SET last_started = NULL WHERE attr_path = ?1";
                self.prepared(sql)?.execute([&flight.key])?;
            }
        }
        Ok(())
    }
}

/// What is to be restored.
struct Undone {
    key: String,
    fetcher_id: i64,
    fetcher: Option<String>,
    turn: Option<i64>,
    rearm: String,
    /// started, finished and exit_code before the dispatch.
    log: (Option<i64>, Option<i64>, Option<i64>),
}

impl Undone {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get(0)?,
            fetcher_id: row.get(1)?,
            fetcher: row.get(2)?,
            turn: row.get(3)?,
            rearm: row.get(4)?,
            log: (row.get(5)?, row.get(6)?, row.get(7)?),
        })
    }
}
