//! What the triggers keep for everybody else, kept by the daemon itself for its own statements.
//!
//! Triggers are switched off on the daemon's connection: they must expect every edit, while the
//! daemon knows what it changed, and most of the time that is one row. Called by the modules that
//! change rows; each change here has its trigger in `triggers.sql`, and the random histories in the
//! tests compare both with the rule.

use rusqlite::Row;
use shiftboss_protocol::model::UnixSeconds;

use super::{SqliteStore, schema};

/// Minutes for which ended jobs are counted.
const COUNTED_MINUTES: i64 = 24 * 60;

impl SqliteStore {
    /// Sets `queue.state` of all rows of a key by the one rule ([`schema::STATE`]).
    pub(super) fn recompute(&self, key: &str) -> rusqlite::Result<()> {
        self.prepared(&schema::RECOMPUTE)?.execute([key]).map(|_| ())
    }

    /// The same for a key that is not in flight and of which no dispatch is known.
    pub(super) fn recompute_idle(&self, key: &str) -> rusqlite::Result<()> {
        let sql = "SELECT rowid, is_dequeued FROM queue WHERE attr_path = ?1 LIMIT 2";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let rows: Vec<(i64, i64)> =
            self.prepared(sql)?.query_map([key], read)?.collect::<rusqlite::Result<_>>()?;
        match rows[..] {
            [] => Ok(()),
            [(rowid, dispatched)] => {
                let sql = "UPDATE queue SET state = ?2 WHERE rowid = ?1";
                self.prepared(sql)?.execute((rowid, i64::from(dispatched == 0))).map(|_| ())
            }
            _ => self.recompute(key),
        }
    }

    /// `queue.last_started` is `log.started` of the key, always.
    pub(super) fn set_last_started(
        &self,
        key: &str,
        started: Option<UnixSeconds>,
    ) -> rusqlite::Result<()> {
        let sql = "UPDATE queue SET last_started = ?2 WHERE attr_path = ?1";
        self.prepared(sql)?.execute((key, started)).map(|_| ())
    }

    /// Adds to a run's counts.
    pub(super) fn count(
        &self,
        fetcher_id: i64,
        run_started: i64,
        rows: i64,
        pending: i64,
    ) -> rusqlite::Result<()> {
        let sql = "UPDATE shiftboss_runs SET rows = rows + ?3, pending = pending + ?4
            WHERE fetcher_id = ?1 AND run_started = ?2";
        self.prepared(sql)?.execute((fetcher_id, run_started, rows, pending)).map(|_| ())
    }

    /// Takes an end back that was counted, if it still is.
    pub(super) fn uncount_done(
        &mut self,
        finished: UnixSeconds,
        exit_code: i64,
    ) -> rusqlite::Result<()> {
        self.counters.flush(&self.connection)?;
        let sql = "UPDATE shiftboss_completions SET jobs = jobs - 1
            WHERE minute = ?1 AND exit_code = ?2 AND jobs > 0";
        self.prepared(sql)?.execute((finished / 60, exit_code)).map(|_| ())
    }

    /// Drops counts of ended jobs that nobody asks for any more, once a minute.
    pub(super) fn forget_old_counts(&mut self, now: UnixSeconds) -> rusqlite::Result<()> {
        if self.minute != now / 60 {
            self.minute = now / 60;
            let sql = "DELETE FROM shiftboss_completions WHERE minute < ?1";
            self.prepared(sql)?.execute([self.minute - COUNTED_MINUTES])?;
        }
        Ok(())
    }
}
