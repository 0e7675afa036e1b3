//! What the triggers keep for everybody else, kept by the daemon itself for its own statements.
//!
//! Triggers are switched off on the daemon's connection: they must expect every edit, while the
//! daemon knows what it changed, and most of the time that is one row. Called by the modules that
//! change rows; each change here has its trigger in `triggers.sql`, and the random histories in the
//! tests compare both with the rule.

use rusqlite::{Params, Result};
use shiftboss_protocol::model::UnixSeconds;

use super::query::Query;
use super::rows::RunId;
use super::schema;
use super::session::Session;

impl Session<'_> {
    /// Sets `queue.state` of all rows of a key by the one rule ([`schema::STATE`]), which knows the recorded dispatches: one
    /// that the key's only row records is to be [extracted](Self::extract) before.
    pub(super) fn recompute(&self, key: &str) -> Result<()> {
        self.run(&schema::RECOMPUTE, [key])
    }

    /// The same for a key that is not in flight and of which no dispatch is known.
    pub(super) fn recompute_idle(&self, key: &str) -> Result<()> {
        let sql = "SELECT rowid, is_dequeued FROM queue WHERE attr_path = ?1 LIMIT 2";
        let rows: Vec<(i64, i64)> = self.rows(sql, [key])?;
        match rows[..] {
            [] => Ok(()),
            [(rowid, dispatched)] if dispatched != 0 => {
                self.run("UPDATE queue SET state = 0 WHERE rowid = ?1", [rowid])
            }
            _ => self.recompute(key),
        }
    }

    /// The record of a key's dispatch is in `shiftboss_deliveries` from now on, not in its row.
    pub(super) fn extract(&self, key: &str) -> Result<()> {
        if self.change(&schema::EXTRACT, [key])? == 0 {
            return Ok(());
        }
        let sql = "UPDATE queue
            SET state = -1, last_started = (SELECT started FROM log WHERE log.attr_path = ?1)
            WHERE attr_path = ?1 AND state = -2";
        self.run(sql, [key])
    }

    /// `queue.last_started` is `log.started` of the key, always.
    pub(super) fn set_last_started(&self, key: &str, started: Option<UnixSeconds>) -> Result<()> {
        let sql = "UPDATE queue SET last_started = ?2 WHERE attr_path = ?1";
        self.run(sql, (key, started))
    }

    /// Carries out an UPDATE that marks rows as dispatched, or not any more, and returns their runs. It counts each
    /// row there.
    pub(super) fn mark_rows(
        &self,
        sql: &'static str,
        parameters: impl Params,
        pending: i64,
    ) -> Result<Vec<RunId>> {
        let runs: Vec<RunId> = self.rows(sql, parameters)?;
        runs.iter().try_for_each(|run| self.count(*run, 0, pending))?;
        Ok(runs)
    }

    pub(super) fn count(&self, run: RunId, rows: i64, pending: i64) -> Result<()> {
        let sql = "UPDATE shiftboss_runs SET rows = rows + ?3, pending = pending + ?4
            WHERE fetcher_id = ?1 AND run_started = ?2";
        self.run(sql, (run.fetcher_id, run.started, rows, pending))
    }
}
