//! Taking a dispatch back, so that its job is at its old place in the order: one whose answer did
//! not arrive (spec 5), that was released, or whose lease expired.
//!
//! Called by the store's operation `undo` and by [`leases`](super::leases); what must be restored was
//! noted by [`deliveries`](super::deliveries).

use rusqlite::Row;
use shiftboss_protocol::model::{Attempt, Key, jitter};

use super::SqliteStore;
use super::attempts::{Delivery, Outcome};
use super::dispatch::LogRow;

/// What a dispatch changed, as it was before.
struct Before {
    last_served: Option<i64>,
    /// The runs whose rows it marked, as a JSON array.
    marked_runs: String,
    log: LogRow,
    /// The key's log row is still that dispatch's.
    log_is_its: bool,
}

impl Before {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            last_served: row.get(0)?,
            marked_runs: row.get(1)?,
            log: (row.get(2)?, row.get(3)?, row.get(4)?),
            log_is_its: row.get(5)?,
        })
    }
}

impl SqliteStore {
    /// Undoes a dispatch whose answer did not arrive, as if it had not happened, if nothing has
    /// happened to its key since.
    pub(super) fn undo_dispatch(&mut self, key: &Key, attempt: Attempt) -> rusqlite::Result<bool> {
        let key = key.as_str();
        let last = self.deliveries(key)?.pop().filter(|delivery| delivery.attempt == attempt.0);
        let Some((delivery, before)) = last.map(|last| self.before(key, last)).transpose()? else {
            return Ok(false);
        };
        if !before.log_is_its {
            return Ok(false);
        }
        self.restore(key, &delivery, &before, true)?;
        self.retire(key, &delivery, Outcome::Undone, delivery.started)?;
        self.recompute(key)?;
        Ok(true)
    }

    /// Takes a leased dispatch back, whatever was done to its log row meanwhile. With `rearm` its rows
    /// wait again.
    pub(super) fn take_back(
        &mut self,
        key: &str,
        delivery: Delivery,
        outcome: Outcome,
        now: i64,
        rearm: bool,
    ) -> rusqlite::Result<()> {
        let (delivery, before) = self.before(key, delivery)?;
        self.restore(key, &delivery, &before, rearm)?;
        self.retire(key, &delivery, outcome, now)?;
        self.recompute(key)
    }

    fn before(&self, key: &str, delivery: Delivery) -> rusqlite::Result<(Delivery, Before)> {
        let sql =
            "SELECT prev_last_served, marked_runs, prev_started, prev_finished, prev_exit_code,
                EXISTS (SELECT 1 FROM log WHERE log.attr_path = ?1
                    AND log.started = delivery.started AND log.finished IS NULL)
            FROM shiftboss_deliveries AS delivery
            WHERE delivery.attr_path = ?1 AND delivery.attempt = ?2";
        let before = self.prepared(sql)?.query_row((key, delivery.attempt), Before::read)?;
        Ok((delivery, before))
    }

    fn restore(
        &mut self,
        key: &str,
        delivery: &Delivery,
        before: &Before,
        rearm: bool,
    ) -> rusqlite::Result<()> {
        self.cache.take_plain(key);
        self.cache.forget_order();
        if rearm {
            self.rearm(key, delivery, before)?;
        }
        self.restore_last_served(key, delivery.attempt, before.last_served)?;
        if before.log_is_its { self.restore_log(key, before) } else { Ok(()) }
    }

    /// The rows that the dispatch marked wait again.
    fn rearm(&self, key: &str, delivery: &Delivery, before: &Before) -> rusqlite::Result<()> {
        let sql = "UPDATE queue SET is_dequeued = 0 WHERE attr_path = ?1 AND fetcher_id = ?2
            AND is_dequeued <> 0 AND fetcher_run_started IN (SELECT value FROM json_each(?3))
            RETURNING fetcher_run_started";
        let mut rearmed = self.prepared(sql)?;
        let parameters = (key, delivery.fetcher_id, &before.marked_runs);
        let runs = rearmed.query_map(parameters, |row| row.get(0))?;
        for run in runs.collect::<rusqlite::Result<Vec<i64>>>()? {
            self.count(delivery.fetcher_id, run, 0, 1)?;
        }
        Ok(())
    }

    /// Turns are kept by a fetcher's name: the fetcher itself may be gone by now.
    fn restore_last_served(
        &self,
        key: &str,
        attempt: i64,
        before: Option<i64>,
    ) -> rusqlite::Result<()> {
        let sql = if before.is_some() {
            "UPDATE shiftboss_last_served SET attempt = ?4
                WHERE order_jitter = ?1 AND attr_path = ?2 AND attempt = ?3"
        } else {
            "DELETE FROM shiftboss_last_served
                WHERE order_jitter = ?1 AND attr_path = ?2 AND attempt = ?3 AND ?4 IS NULL"
        };
        self.prepared(sql)?.execute((jitter(key), key, attempt, before)).map(|_| ())
    }

    fn restore_log(&self, key: &str, before: &Before) -> rusqlite::Result<()> {
        let (started, finished, exit_code) = before.log;
        if started.is_some() {
            let sql = "UPDATE log SET started = ?2, finished = ?3, exit_code = ?4
                WHERE attr_path = ?1";
            self.prepared(sql)?.execute((key, started, finished, exit_code))?;
        } else {
            self.prepared("DELETE FROM log WHERE attr_path = ?1")?.execute([key])?;
        }
        self.set_last_started(key, started)
    }
}
