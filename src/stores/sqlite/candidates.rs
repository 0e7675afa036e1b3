//! What a dispatch reads of a key: its rows, what is known of its earlier dispatches, and the rule that chooses one.
//!
//! Called by [`dispatch`](super::dispatch), [`deliveries`](super::deliveries) and the views. It writes nothing.

use std::cmp::Ordering;

use rusqlite::{Result, Row};
use shiftboss_protocol::model::UnixSeconds;

use super::options::Policy;
use super::partitions::Partitions;
use super::query::{FromRow, Query, columns};
use super::rows::RunId;

/// The state of a row that is ready, and nothing but the log says anything else of its key.
pub(super) const PLAIN_STATE: i64 = 1;
/// rowid, started, finished and exit_code of a key's log row.
pub(super) type LogRow = (i64, Option<i64>, Option<i64>, Option<i64>);

/// Plain rows of a partition whose key is not in flight, in order, with what a dispatch needs beside.
pub(super) const PLAIN: &str =
    "SELECT last_started, order_jitter, queue.attr_path, fetcher_id, fetcher_run_started,
        queue.rowid, iif(octet_length(payload) <= 1024, payload, NULL), last_served,
        log.rowid, log.started, log.finished, log.exit_code
    FROM queue INDEXED BY shiftboss_ready
    LEFT JOIN log ON log.attr_path = iif(last_started IS NULL, NULL, queue.attr_path)
    WHERE partition = ?1 AND state = 1 AND state > 0
    ORDER BY last_started, order_jitter, queue.attr_path, fetcher_id";
/// All rows of a key: the columns of a [`Candidate`], then those of [`History::read`].
pub(super) const CANDIDATES: &str =
    "SELECT queue.rowid, queue.fetcher_id, queue.fetcher_run_started,
        queue.payload, queue.is_dequeued,
        iif(state <> -2, state, -(log.started IS NOT NULL AND finished IS NULL)),
        iif(state = -2, log.started, queue.last_started),
        coalesce(fetchers.name, ''), queue.last_served, lost.expired_leases,
        log.rowid, log.started, log.finished, log.exit_code,
        EXISTS (SELECT 1 FROM shiftboss_deliveries WHERE attr_path = ?1)
            OR state = -2 AND log.started IS NOT NULL AND finished IS NULL
    FROM queue INDEXED BY queue_attr_path_index
    LEFT JOIN fetchers ON fetchers.fetcher_id = queue.fetcher_id
    LEFT JOIN shiftboss_expired_leases AS lost ON lost.fetcher_id = queue.fetcher_id
        AND lost.run_started = queue.fetcher_run_started AND lost.attr_path = ?1
    LEFT JOIN log ON log.attr_path = ?1
    WHERE queue.attr_path = ?1";

/// What [`candidates`] would find of a key that has one row and no more.
pub(super) type Plain = (History, Candidate);

/// A key that is next.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) key: String,
    /// `None`: its rows are to be read. So are those with a large payload, for the window is in memory.
    pub(super) plain: Option<Plain>,
}

/// A row of a key that is about to be dispatched.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) rowid: i64,
    pub(super) fetcher_id: i64,
    pub(super) run_started: i64,
    pub(super) payload: String,
    /// It was dispatched before; a candidate was, and its lease expired.
    pub(super) again: bool,
    /// As `0009_shiftboss.sql` says; but a row that records its dispatch is held, or nothing.
    pub(super) state: i64,
    pub(super) last_started: Option<i64>,
    /// Its name, for those who look; the window does without.
    pub(super) fetcher: String,
    /// The attempt in which this fetcher's row of the key was last dispatched.
    pub(super) last_served: Option<i64>,
    /// How often its lease expired.
    pub(super) expired_leases: Option<i64>,
}

columns!(Candidate {
    rowid,
    fetcher_id,
    run_started,
    payload,
    again,
    state,
    last_started,
    fetcher,
    last_served,
    expired_leases
});

impl Candidate {
    pub(super) fn run(&self) -> RunId {
        RunId { fetcher_id: self.fetcher_id, started: self.run_started }
    }

    /// Undispatched rows first, then the fetcher whose turn is longest ago, then the older id.
    fn fair_order(&self, other: &Self) -> Ordering {
        let rank = |row: &Self| (row.again, row.last_served, row.fetcher_id);
        rank(self).cmp(&rank(other))
    }
}

/// What is known of a key's earlier dispatches.
#[derive(Debug)]
pub(super) struct History {
    /// Its log row, if it has one.
    pub(super) log: Option<LogRow>,
    /// There is a dispatch whose end is not known.
    pub(super) has_deliveries: bool,
}

impl History {
    fn read(row: &Row<'_>) -> Result<Self> {
        Ok(Self { log: log_row(row, 10)?, has_deliveries: row.get(14)? })
    }
}

/// Reads a row of [`PLAIN`].
pub(super) fn plain(row: &Row<'_>) -> Result<Option<Plain>> {
    let Some(payload) = row.get(6)? else {
        return Ok(None);
    };
    let candidate = Candidate {
        rowid: row.get(5)?,
        fetcher_id: row.get(3)?,
        run_started: row.get(4)?,
        payload,
        again: false,
        state: PLAIN_STATE,
        last_started: row.get(0)?,
        fetcher: String::new(),
        last_served: row.get(7)?,
        expired_leases: None,
    };
    Ok(Some((History { log: log_row(row, 8)?, has_deliveries: false }, candidate)))
}

/// A joined log row in the columns from `first` on, if there is one.
fn log_row(row: &Row<'_>, first: usize) -> Result<Option<LogRow>> {
    let Some(rowid) = row.get(first)? else {
        return Ok(None);
    };
    Ok(Some((rowid, row.get(first + 1)?, row.get(first + 2)?, row.get(first + 3)?)))
}

/// All rows of a key and what is known of it; `None` if it has no row.
pub(super) fn candidates(
    database: &impl Query,
    key: &str,
) -> Result<Option<(History, Vec<Candidate>)>> {
    let mut history = None;
    let candidates = database.map(CANDIDATES, [key], |row| {
        if history.is_none() {
            history = Some(History::read(row)?);
        }
        Candidate::from_row(row)
    })?;
    Ok(history.map(|history| (history, candidates)))
}

/// What decides which of a key's rows is dispatched.
pub(super) struct Rule<'a> {
    pub(super) policy: Policy,
    pub(super) partitions: &'a Partitions,
    /// A key whose dispatch is older than this has no lease.
    pub(super) expired: UnixSeconds,
}

impl Rule<'_> {
    /// The row that is dispatched; `None` if none of them may be.
    pub(super) fn choose(&self, rows: &[Candidate]) -> Option<usize> {
        let order = |a: &usize, b: &usize| match self.policy {
            Policy::Fair { .. } => rows[*a].fair_order(&rows[*b]),
            Policy::Classic => rows[*a].fetcher_id.cmp(&rows[*b].fetcher_id),
        };
        (0..rows.len()).filter(|at| self.is_free(&rows[*at])).min_by(order)
    }

    fn is_free(&self, row: &Candidate) -> bool {
        let held = row.state < 0 && row.last_started >= Some(self.expired);
        row.state != 0 && !held && self.partitions.allow(row.run())
    }
}
