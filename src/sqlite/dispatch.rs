//! The queue's order: which job is next (spec 2 and 5). What a dispatch changes is in
//! [`flights`](super::flights).
//!
//! `queue.state` is always kept, so the next row is the first of an index in state 1, or in
//! state 2 once the lease of its key's dispatch ran out. Nothing here depends on how many rows
//! there are.

use std::cmp::Ordering;

use rusqlite::{CachedStatement, Row};
use shiftboss_actors::model::{Attempt, Job, Key, UnixSeconds, jitter};
use shiftboss_actors::store::Dispatch;

use super::{Policy, SqliteStore};

/// Rows of a slot whose key is not in flight, in order.
const READY: &str = "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_ready WHERE slot = ?1 AND state = 1 AND state > 0
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// Rows of a slot whose key's lease ran out, in order.
const HELD: &str = "SELECT last_started, order_jitter, attr_path, fetcher_id, fetcher_run_started
    FROM queue INDEXED BY shiftboss_ready
    WHERE slot = ?1 AND state = 2 AND state > 0 AND last_started < ?2
    ORDER BY last_started, order_jitter, attr_path, fetcher_id";
/// All rows of a key; the columns of [`Candidate::read`].
const CANDIDATES: &str = "SELECT queue.rowid, queue.fetcher_id, queue.fetcher_run_started,
        queue.payload, queue.is_dequeued, queue.state, coalesce(fetchers.name, ''), turn.attempt
    FROM queue INDEXED BY queue_attr_path_index
    LEFT JOIN fetchers ON fetchers.fetcher_id = queue.fetcher_id
    LEFT JOIN shiftboss_turns AS turn
        ON turn.order_jitter = ?2 AND turn.attr_path = ?1 AND turn.name = fetchers.name
    WHERE queue.attr_path = ?1";
/// The statements whose cost must not grow with the queue.
#[cfg(test)]
pub(super) const CHOOSING: [&str; 3] = [READY, HELD, CANDIDATES];

/// The place of a row in the order; `None` comes first, as NULL does.
type Place = (Option<i64>, Option<i64>, String, i64);

/// A row of a key that is about to be dispatched.
pub(super) struct Candidate {
    pub(super) rowid: i64,
    pub(super) fetcher_id: i64,
    pub(super) run_started: i64,
    payload: String,
    /// It was dispatched before; a candidate was, and lost its lease.
    pub(super) again: bool,
    state: i64,
    pub(super) fetcher: String,
    /// The attempt in which this fetcher's row of the key was last dispatched.
    pub(super) turn: Option<i64>,
}

impl Candidate {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            rowid: row.get(0)?,
            fetcher_id: row.get(1)?,
            run_started: row.get(2)?,
            payload: row.get(3)?,
            again: row.get::<_, i64>(4)? != 0,
            state: row.get(5)?,
            fetcher: row.get(6)?,
            turn: row.get(7)?,
        })
    }

    /// Undispatched rows first, then the fetcher whose turn is longest ago, then the older id.
    fn fair_order(&self, other: &Self) -> Ordering {
        let rank = |row: &Self| (row.again, row.turn, row.fetcher_id);
        rank(self).cmp(&rank(other))
    }
}

impl SqliteStore {
    /// Takes the next job and marks it.
    pub(super) fn next_job(&mut self, now: UnixSeconds) -> rusqlite::Result<Dispatch> {
        match self.next_key(now)? {
            Some(key) => self.hand_out(&key, now),
            None if self.may_be_shadowed()? => Ok(Dispatch::Later),
            None => Ok(Dispatch::Nothing),
        }
    }

    /// The key of the first eligible row.
    fn next_key(&self, now: UnixSeconds) -> rusqlite::Result<Option<String>> {
        let expired = now.saturating_sub(self.policy.lease());
        let mut first = None;
        for slot in &self.slots.open {
            for place in
                [self.first_place(READY, [slot])?, self.first_place(HELD, [slot, &expired])?]
            {
                first = match (first, place) {
                    (Some(first), Some(place)) => Some(std::cmp::min(first, place)),
                    (first, place) => first.or(place),
                };
            }
        }
        Ok(first.map(|place: Place| place.2))
    }

    /// The first row of a query that is in no run under deletion: those count as gone already.
    fn first_place(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
    ) -> rusqlite::Result<Option<Place>> {
        let mut statement = self.prepared(sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            if self.slots.allow(row.get(3)?, row.get(4)?) {
                return Ok(Some((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
            }
        }
        Ok(None)
    }

    /// A row of an older run may be eligible once a newer run's deletion got to its key.
    fn may_be_shadowed(&self) -> rusqlite::Result<bool> {
        if self.slots.deleting.is_empty() {
            return Ok(false);
        }
        // One look at all runs: there may be very many, and all of one fetcher.
        let sql = "SELECT EXISTS (
            SELECT 1 FROM shiftboss_runs AS older JOIN (
                SELECT fetcher_id, max(run_started) AS run_started
                FROM shiftboss_runs WHERE deleting <> 0 GROUP BY fetcher_id
            ) AS gone USING (fetcher_id)
            WHERE older.run_started < gone.run_started
                AND older.deleting = 0 AND older.pending > 0)";
        self.prepared(sql)?.query_row([], |row| row.get(0))
    }

    fn hand_out(&mut self, key: &str, now: UnixSeconds) -> rusqlite::Result<Dispatch> {
        let mut rows: Vec<Candidate> = self
            .prepared(CANDIDATES)?
            .query_map((key, jitter(key)), Candidate::read)?
            .collect::<Result<_, _>>()?;
        let slots = &self.slots;
        let is_free =
            |row: &Candidate| row.state > 0 && slots.allow(row.fetcher_id, row.run_started);
        let order = |a: &usize, b: &usize| match self.policy {
            Policy::Fair { .. } => rows[*a].fair_order(&rows[*b]),
            Policy::Classic => rows[*a].fetcher_id.cmp(&rows[*b].fetcher_id),
        };
        let Some(chosen) = (0..rows.len()).filter(|at| is_free(&rows[*at])).min_by(order) else {
            return Ok(Dispatch::Nothing);
        };
        let attempt = self.next_attempt()?;
        self.take_off(key, &rows, chosen, attempt, now)?;
        let payload = rows.swap_remove(chosen).payload;
        Ok(Dispatch::Job(attempt, Job { key: Key::stored(key), payload }))
    }

    fn next_attempt(&self) -> rusqlite::Result<Attempt> {
        let sql = "UPDATE shiftboss_counters SET value = value + 1 WHERE name = 'attempt' RETURNING value";
        self.prepared(sql)?.query_row([], |row| row.get(0).map(Attempt))
    }

    /// A statement from the cache.
    pub(super) fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }
}
