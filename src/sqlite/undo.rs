//! Undoing a dispatch whose answer did not arrive (spec 5): as if it had not happened.
//!
//! Called by the store's operation of that name; what must be restored was noted by
//! [`flights`](super::flights).

use rusqlite::{OptionalExtension, Row};
use shiftboss_actors::model::{Attempt, Key};

use super::SqliteStore;
use super::dispatch::LogRow;

impl SqliteStore {
    /// Undoes a dispatch whose answer did not arrive, as if it had not happened, if nothing has
    /// happened to its key since.
    pub(super) fn undo_dispatch(&mut self, key: &Key, attempt: Attempt) -> rusqlite::Result<bool> {
        let sql = "SELECT flight.attr_path, flight.fetcher_id, fetchers.name, prev_turn, rearm,
                prev_started, prev_finished, prev_exit_code
            FROM shiftboss_flights AS flight
            JOIN log ON log.attr_path = flight.attr_path
                AND log.started = flight.started AND log.finished IS NULL
            LEFT JOIN fetchers ON fetchers.fetcher_id = flight.fetcher_id
            WHERE flight.attr_path = ?1 AND flight.attempt = ?2 AND flight.attempt = (
                SELECT max(attempt) FROM shiftboss_flights WHERE attr_path = ?1)";
        let mut statement = self.prepared(sql)?;
        let flight = statement.query_row((key.as_str(), attempt.0), Undone::read).optional()?;
        drop(statement);
        let Some(flight) = flight else {
            return Ok(false);
        };
        self.memory.take_lone(&flight.key);
        self.memory.forget_order();
        self.forget_flight(&flight.key, attempt.0)?;
        self.rearm(&flight)?;
        if let Some(fetcher) = &flight.fetcher {
            self.set_turn(&flight.key, fetcher, flight.turn)?;
        }
        self.restore_log(&flight)?;
        self.recompute(&flight.key)?;
        Ok(true)
    }

    /// The rows that the dispatch marked wait again.
    fn rearm(&self, flight: &Undone) -> rusqlite::Result<()> {
        let sql = "UPDATE queue SET is_dequeued = 0 WHERE attr_path = ?1 AND fetcher_id = ?2
            AND is_dequeued <> 0 AND fetcher_run_started IN (SELECT value FROM json_each(?3))
            RETURNING fetcher_run_started";
        let mut rearmed = self.prepared(sql)?;
        let parameters = (&flight.key, flight.fetcher_id, &flight.rearm);
        let runs = rearmed.query_map(parameters, |row| row.get(0))?;
        for run in runs.collect::<rusqlite::Result<Vec<i64>>>()? {
            self.count(flight.fetcher_id, run, 0, 1)?;
        }
        Ok(())
    }

    fn restore_log(&self, flight: &Undone) -> rusqlite::Result<()> {
        let (started, finished, exit_code) = flight.log;
        if started.is_some() {
            let sql = "UPDATE log SET started = ?2, finished = ?3, exit_code = ?4
                WHERE attr_path = ?1";
            self.prepared(sql)?.execute((&flight.key, started, finished, exit_code))?;
        } else {
            self.prepared("DELETE FROM log WHERE attr_path = ?1")?.execute([&flight.key])?;
        }
        self.set_last_started(&flight.key, started)
    }
}

/// What is to be restored.
struct Undone {
    key: String,
    fetcher_id: i64,
    fetcher: Option<String>,
    turn: Option<i64>,
    rearm: String,
    /// Before the dispatch.
    log: LogRow,
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
