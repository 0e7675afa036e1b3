//! The queue's order: which job is next (spec 2 and 5). What a dispatch changes is in
//! [`deliveries`](super::deliveries).
//!
//! `queue.state` is always kept, so the next row is the first of an index of ready rows, or of the
//! index of held ones once the lease of its key's dispatch expired. Nothing here depends on how many
//! rows there are.

use std::cmp::Ordering;

use rusqlite::ffi::SQLITE_CORRUPT_INDEX;
use rusqlite::{Result, Row};
use shiftboss_actors::store::{Dispatched, LeaseHolder};
use shiftboss_protocol::model::UnixSeconds;

use super::error::failure;
use super::options::Policy;
use super::partitions::Partitions;
use super::query::{FromRow, Query, columns};
use super::rows::RunId;
use super::session::Session;

/// rowid, started, finished and exit_code of a key's log row.
pub(super) type LogRow = (i64, Option<i64>, Option<i64>, Option<i64>);

/// Plain rows of a partition whose key is not in flight, in order, with what a dispatch needs beside.
pub(super) const PLAIN: &str =
    "SELECT last_started, order_jitter, queue.attr_path, fetcher_id, fetcher_run_started,
        queue.rowid, iif(length(payload) <= 1024, payload, NULL), last_served,
        log.rowid, log.started, log.finished, log.exit_code
    FROM queue INDEXED BY shiftboss_ready
    LEFT JOIN log ON log.attr_path = iif(last_started IS NULL, NULL, queue.attr_path)
    WHERE partition = ?1 AND state = 1 AND state > 0
    ORDER BY last_started, order_jitter, queue.attr_path, fetcher_id";
/// Rows of a partition whose key is not in flight, in order: the plain ones (?2 is 1) or the others (2).
pub(super) const READY: &str =
    "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_ready WHERE partition = ?1 AND state = ?2 AND state > 0
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// Rows of a partition whose key's lease expired, in order.
pub(super) const HELD: &str =
    "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_held
    WHERE partition = ?1 AND state < 0 AND last_started < ?2
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// All rows of a key: the columns of a [`Candidate`], then those of [`History::read`].
pub(super) const CANDIDATES: &str =
    "SELECT queue.rowid, queue.fetcher_id, queue.fetcher_run_started,
        queue.payload, queue.is_dequeued, queue.state, queue.last_started,
        coalesce(fetchers.name, ''), queue.last_served, lost.expired_leases,
        log.rowid, log.started, log.finished, log.exit_code,
        EXISTS (SELECT 1 FROM shiftboss_deliveries WHERE attr_path = ?1)
    FROM queue INDEXED BY queue_attr_path_index
    LEFT JOIN fetchers ON fetchers.fetcher_id = queue.fetcher_id
    LEFT JOIN shiftboss_expired_leases AS lost ON lost.fetcher_id = queue.fetcher_id
        AND lost.run_started = queue.fetcher_run_started AND lost.attr_path = ?1
    LEFT JOIN log ON log.attr_path = ?1
    WHERE queue.attr_path = ?1";

/// Where a row is in the order; `None` comes first, as NULL does.
pub(super) type QueuePosition = (Option<i64>, Option<i64>, String, i64);

/// An eligible row; a plain one with all that its dispatch needs.
type Eligible = (QueuePosition, Option<Plain>);
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
    state: i64,
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

impl Session<'_> {
    /// Takes the next job and marks it.
    pub(super) fn next_job(
        &mut self,
        now: UnixSeconds,
        holder: Option<&LeaseHolder>,
    ) -> Result<Dispatched> {
        if self.queue.paused {
            return Ok(Dispatched::Nothing);
        }
        while let Some(Next { key, plain }) = self.next_key(now)? {
            if let Some(job) = self.hand_out(&key, plain, now, holder)? {
                return Ok(job);
            }
            // A key that came up twice may be in flight by now; the first one of a lookup cannot.
            if self.queue.cache.is_first() {
                return Err(disagreeing_indexes(&key));
            }
        }
        if self.may_be_shadowed()? { Ok(Dispatched::Later) } else { Ok(Dispatched::Nothing) }
    }

    /// Whether there is an eligible row, and nothing is paused.
    pub(super) fn is_any_eligible(&self, now: UnixSeconds) -> Result<bool> {
        Ok(!self.queue.paused
            && (!self.first_eligible(now, 1)?.is_empty() || !self.edited_tasks()?.is_empty()))
    }

    /// The key of the first eligible row.
    fn next_key(&mut self, now: UnixSeconds) -> Result<Option<Next>> {
        if let Some(next) = self.queue.cache.next_key(now) {
            return Ok(Some(next));
        }
        let eligible = self.first_eligible(now, self.queue.cache.wanted())?;
        let next = |(position, plain): Eligible| Next { key: position.2, plain };
        self.queue.cache.expect(eligible.into_iter().map(next), now);
        Ok(self.queue.cache.next_key(now))
    }

    /// The first eligible rows, at most `limit`, in order.
    pub(super) fn first_eligible(&self, now: UnixSeconds, limit: usize) -> Result<Vec<Eligible>> {
        let expired = self.queue.policy.expired(now);
        let mut first = Vec::new();
        for partition in &self.queue.partitions.open {
            self.first_of(PLAIN, [partition], plain, limit, &mut first)?;
            self.first_of(READY, [partition, &2], |_| Ok(None), limit, &mut first)?;
            self.first_of(HELD, [partition, &expired], |_| Ok(None), limit, &mut first)?;
        }
        Ok(first)
    }

    /// Merges the first rows of a query into `first`, of which the first `limit` stay. Those of runs
    /// under deletion are left out: they count as gone.
    fn first_of(
        &self,
        sql: &'static str,
        parameters: impl rusqlite::Params,
        read: fn(&Row<'_>) -> Result<Option<Plain>>,
        limit: usize,
        first: &mut Vec<Eligible>,
    ) -> Result<()> {
        let (known, last) = (first.len(), first.get(limit - 1).map(|(last, _)| last.clone()));
        self.with(sql, |statement| {
            let mut rows = statement.query(parameters)?;
            while first.len() < known + limit
                && let Some(row) = rows.next()?
            {
                let position = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                if last.as_ref().is_some_and(|last| position > *last) {
                    break;
                }
                let run = RunId { fetcher_id: position.3, started: row.get(4)? };
                if self.queue.partitions.allow(run) {
                    first.push((position, read(row)?));
                }
            }
            Ok(())
        })?;
        if known > 0 && first.len() > known {
            // A stable sort merges two lists that are in order.
            first.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        first.truncate(limit);
        Ok(())
    }

    /// A row of an older run may be eligible once a newer run's deletion got to its key.
    fn may_be_shadowed(&mut self) -> Result<bool> {
        if self.queue.partitions.deleting.is_empty() {
            return Ok(false);
        }
        self.queue.counters.flush(self.connection)?;
        // One query over all runs: there may be very many, and all of one fetcher.
        let sql = "SELECT EXISTS (
            SELECT 1 FROM shiftboss_runs AS older JOIN (
                SELECT fetcher_id, max(run_started) AS run_started
                FROM shiftboss_runs WHERE deleting <> 0 GROUP BY fetcher_id
            ) AS gone USING (fetcher_id)
            WHERE older.run_started < gone.run_started
                AND older.deleting = 0 AND older.pending > 0)";
        self.value(sql, [])
    }
}

/// The order names a row that cannot be handed out.
pub(super) fn disagreeing_indexes(key: &str) -> rusqlite::Error {
    let why = format!("the indexes of the queue disagree about {key}: the file is damaged");
    failure(SQLITE_CORRUPT_INDEX, why)
}

/// Reads a row of [`PLAIN`].
fn plain(row: &Row<'_>) -> Result<Option<Plain>> {
    let Some(payload) = row.get(6)? else {
        return Ok(None);
    };
    let candidate = Candidate {
        rowid: row.get(5)?,
        fetcher_id: row.get(3)?,
        run_started: row.get(4)?,
        payload,
        again: false,
        state: 1,
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
