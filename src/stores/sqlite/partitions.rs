//! Partitions: the parts of the dispatch order that large runs have for themselves.
//!
//! The order of dispatch is one index that begins with a partition. A large run's rows lie under its
//! own, so a run that is being deleted is passed over at once, however many rows it still has. All
//! small runs share partition 0: there a dispatch steps over the few rows of runs under deletion.
//! The next job is the first of the first rows of all partitions.

use std::collections::HashSet;

use rusqlite::{Connection, Result};

use super::query::Query;
use super::rows::RunId;

/// A run with more rows than this gets a partition; `rebuild.sql` says so too.
pub(super) const SMALL_RUN_ROWS: i64 = 500;
/// Partitions at the most: each costs a dispatch three seeks. Further large runs share partition 0.
const PARTITIONS_MAX: i64 = 64;

/// Where rows are looked for, and which are passed over. In memory; the truth is `shiftboss_runs`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Partitions {
    /// Partitions with rows that may be handed out; 0 is always one of them.
    pub(super) open: Vec<i64>,
    /// Runs under deletion: nothing of them is handed out.
    pub(super) deleting: HashSet<RunId>,
}

impl Partitions {
    /// Reads how the runs stand: all of them, so only at the start and after a rollback.
    pub(super) fn load(connection: &Connection) -> Result<Self> {
        let sql = "SELECT fetcher_id, run_started, partition, deleting <> 0 FROM shiftboss_runs
            WHERE partition > 0 OR deleting <> 0";
        let mut partitions = Self { open: vec![0], deleting: HashSet::new() };
        for (fetcher_id, started, partition, is_deleting) in connection.rows(sql, [])? {
            if is_deleting {
                partitions.deleting.insert(RunId { fetcher_id, started });
            } else if partition > 0 {
                partitions.open.push(partition);
            }
        }
        Ok(partitions)
    }

    /// A run has this partition, new or not.
    pub(super) fn open(&mut self, partition: i64) {
        if !self.open.contains(&partition) {
            self.open.push(partition);
        }
    }

    pub(super) fn begin_deletion(&mut self, run: RunId, partition: i64) {
        self.deleting.insert(run);
        // The rows that it has in partition 0, as all runs may have, are passed over one by one.
        self.open.retain(|known| *known == 0 || *known != partition);
    }

    /// A run under deletion is gone. Its partition was closed when that began.
    pub(super) fn end_deletion(&mut self, run: RunId) {
        self.deleting.remove(&run);
    }

    pub(super) fn allow(&self, run: RunId) -> bool {
        self.deleting.is_empty() || !self.deleting.contains(&run)
    }
}

/// The partition for further rows of a run: its own once it is large, as long as there are any left.
pub(super) fn partition_for(connection: &Connection, run: RunId) -> Result<i64> {
    let sql =
        "SELECT partition, rows FROM shiftboss_runs WHERE fetcher_id = ?1 AND run_started = ?2";
    let (partition, rows): (i64, i64) = connection.row(sql, run.pair())?;
    if partition > 0 || rows <= SMALL_RUN_ROWS {
        return Ok(partition);
    }
    let taken = "SELECT partition FROM shiftboss_runs WHERE partition > 0";
    let taken: Vec<i64> = connection.values(taken, [])?;
    let free = (1..PARTITIONS_MAX).find(|partition| !taken.contains(partition)).unwrap_or(0);
    let sql = "UPDATE shiftboss_runs SET partition = ?3 WHERE fetcher_id = ?1 AND run_started = ?2";
    connection.run(sql, (run.fetcher_id, run.started, free))?;
    Ok(free)
}
