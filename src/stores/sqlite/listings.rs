//! Rows that a run's file lists no longer (spec 4): which keys were read since the file was begun anew,
//! and the deletion of the others, in steps.
//!
//! The keys of a listing are in a temporary table, so that first readings cost nothing and memory is
//! bounded. A daemon that dies forgets them; the run is still marked as stale, and is listed again.
//! Called by [`runs`](super::runs) as batches come in, and by the store's operation `prune`.

use rusqlite::{Connection, OptionalExtension, Result};
use shiftboss_actors::store::Reading;
use shiftboss_protocol::model::Run;

use super::query::Query;
use super::rows::RunId;
use super::session::Session;

/// A listing's number is never used again, so what is left of one that was broken off does no harm.
const TABLES: &str = "
    CREATE TEMP TABLE shiftboss_listings (
        listing     INTEGER PRIMARY KEY AUTOINCREMENT,
        fetcher_id  INTEGER NOT NULL,
        run_started INTEGER NOT NULL,
        pruned_to   TEXT NOT NULL DEFAULT '',
        UNIQUE (fetcher_id, run_started)
    );
    CREATE TEMP TABLE shiftboss_listed (
        listing   INTEGER NOT NULL,
        attr_path TEXT NOT NULL,
        PRIMARY KEY (listing, attr_path)
    ) WITHOUT ROWID";

/// Makes the tables, for this connection alone.
pub(super) fn prepare(connection: &Connection) -> Result<()> {
    connection.execute_batch(TABLES)
}

impl Session<'_> {
    /// Notes what a batch means to the run's listing. Returns the listing that its rows belong to.
    pub(super) fn note_reading(&self, run: RunId, reading: Reading) -> Result<Option<i64>> {
        if reading != Reading::Onward {
            self.end_listing(run)?;
            let stale = "UPDATE shiftboss_runs SET stale = 1
                WHERE fetcher_id = ?1 AND run_started = ?2 AND stale <> 1";
            self.run(stale, run.pair())?;
        }
        if reading == Reading::Listing {
            let begin =
                "INSERT INTO temp.shiftboss_listings (fetcher_id, run_started) VALUES (?1, ?2)";
            self.run(begin, run.pair())?;
        }
        Ok(self.listing(run)?.map(|(listing, _)| listing))
    }

    pub(super) fn note_listed(&self, listing: i64, key: &str) -> Result<()> {
        let sql =
            "INSERT OR IGNORE INTO temp.shiftboss_listed (listing, attr_path) VALUES (?1, ?2)";
        self.run(sql, (listing, key))
    }

    /// Looks at up to `limit` rows of a run, and deletes those that its listing lacks. Returns whether
    /// there are more.
    pub(super) fn prune_step(&mut self, run: &Run, limit: usize) -> Result<bool> {
        let Some(run) = self.run_id(run)? else {
            return Ok(false);
        };
        self.queue.counters.flush(self.connection)?;
        let Some((listing, pruned_to)) = self.listing(run)? else {
            return Ok(false);
        };
        let keys = self.keys_behind(run, listing, &pruned_to, limit)?;
        let gone: Vec<&str> =
            keys.iter().filter(|(_, listed)| !listed).map(|(key, _)| key.as_str()).collect();
        self.delete_keys(run, &gone)?;
        if let Some((last, _)) = keys.last().filter(|_| keys.len() >= limit) {
            let sql = "UPDATE temp.shiftboss_listings SET pruned_to = ?2 WHERE listing = ?1";
            self.run(sql, (listing, last))?;
            return Ok(true);
        }
        self.end_listing(run)?;
        let sound =
            "UPDATE shiftboss_runs SET stale = 0 WHERE fetcher_id = ?1 AND run_started = ?2";
        self.run(sound, run.pair())?;
        Ok(false)
    }

    /// The next keys of a run, each with whether it is listed.
    fn keys_behind(
        &self,
        run: RunId,
        listing: i64,
        pruned_to: &str,
        limit: usize,
    ) -> Result<Vec<(String, bool)>> {
        let sql = "SELECT attr_path, EXISTS (SELECT 1 FROM temp.shiftboss_listed AS listed
                WHERE listed.listing = ?3 AND listed.attr_path = queue.attr_path)
            FROM queue
            WHERE fetcher_run_started = ?2 AND fetcher_id = ?1 AND attr_path > ?4
            ORDER BY attr_path LIMIT ?5";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.rows(sql, (run.fetcher_id, run.started, listing, pruned_to, limit))
    }

    /// A run's listing, if there is one, and the key up to which it was applied.
    fn listing(&self, run: RunId) -> Result<Option<(i64, String)>> {
        let sql = "SELECT listing, pruned_to FROM temp.shiftboss_listings
            WHERE fetcher_id = ?1 AND run_started = ?2";
        self.row(sql, run.pair()).optional()
    }

    /// Forgets a run's listing; the keys of all, at little cost, with the last one.
    pub(super) fn end_listing(&self, run: RunId) -> Result<()> {
        let sql = "DELETE FROM temp.shiftboss_listings WHERE fetcher_id = ?1 AND run_started = ?2";
        let ended = self.change(sql, run.pair())?;
        let any = "SELECT EXISTS (SELECT 1 FROM temp.shiftboss_listings)";
        if ended > 0 && !self.value(any, [])? {
            self.run("DELETE FROM temp.shiftboss_listed", [])?;
        }
        Ok(())
    }
}
