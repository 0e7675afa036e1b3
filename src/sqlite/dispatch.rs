//! The queue's order: which job is next, and its end (spec 2 and 5).
//!
//! `queue.state` is kept by triggers, so the next row is the first of an index in state 1, or in
//! state 2 once the lease of its key's dispatch ran out. Nothing here depends on how many rows
//! there are.

use std::cmp::Ordering;

use rusqlite::{CachedStatement, Row};
use shiftboss_actors::model::{Attempt, Job, Key, UnixSeconds};
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
/// Rows of a key that may be dispatched; the columns of [`Candidate::read`].
const CANDIDATES: &str = "SELECT queue.fetcher_id, queue.fetcher_run_started, queue.payload,
        queue.is_dequeued, fetchers.name, turn.attempt
    FROM queue INDEXED BY queue_attr_path_index
    JOIN fetchers ON fetchers.fetcher_id = queue.fetcher_id
    LEFT JOIN shiftboss_turns AS turn
        ON turn.attr_path = queue.attr_path AND turn.name = fetchers.name
    WHERE queue.attr_path = ?1 AND queue.state > 0";
/// The statements whose cost must not grow with the queue.
#[cfg(test)]
pub(super) const CHOOSING: [&str; 3] = [READY, HELD, CANDIDATES];

/// The place of a row in the order; `None` comes first, as NULL does.
type Place = (Option<i64>, Option<i64>, String, i64);

/// A row that could be dispatched.
struct Candidate {
    fetcher_id: i64,
    run_started: i64,
    payload: String,
    fetcher: String,
    /// It was dispatched before, and lost its lease.
    again: bool,
    /// The attempt in which this fetcher's row of the key was last dispatched.
    turn: Option<i64>,
}

impl Candidate {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            fetcher_id: row.get(0)?,
            run_started: row.get(1)?,
            payload: row.get(2)?,
            again: row.get::<_, i64>(3)? != 0,
            fetcher: row.get(4)?,
            turn: row.get(5)?,
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
        let sql = "SELECT EXISTS (
            SELECT 1 FROM shiftboss_runs AS gone JOIN shiftboss_runs AS older
                ON older.fetcher_id = gone.fetcher_id AND older.run_started < gone.run_started
            WHERE gone.deleting <> 0 AND older.deleting = 0 AND older.pending > 0)";
        self.prepared(sql)?.query_row([], |row| row.get(0))
    }

    fn hand_out(&mut self, key: &str, now: UnixSeconds) -> rusqlite::Result<Dispatch> {
        let mut candidates = self.candidates(key)?;
        candidates.retain(|row| self.slots.allow(row.fetcher_id, row.run_started));
        candidates.sort_by(|a, b| match self.policy {
            Policy::Fair { .. } => a.fair_order(b),
            Policy::Classic => a.fetcher_id.cmp(&b.fetcher_id),
        });
        let Some(chosen) = candidates.into_iter().next() else {
            return Ok(Dispatch::Nothing);
        };
        let attempt = self.next_attempt()?;
        if matches!(self.policy, Policy::Fair { .. }) {
            self.note_flight(key, &chosen, attempt, now)?;
        }
        self.mark_dispatched(key, &chosen, now)?;
        Ok(Dispatch::Job(attempt, Job { key: Key::stored(key), payload: chosen.payload }))
    }

    /// All rows of the key that are not excluded; of the two states only one occurs in a key.
    fn candidates(&self, key: &str) -> rusqlite::Result<Vec<Candidate>> {
        self.prepared(CANDIDATES)?.query_map([key], Candidate::read)?.collect()
    }

    fn next_attempt(&self) -> rusqlite::Result<Attempt> {
        let sql = "UPDATE shiftboss_counters SET value = value + 1 WHERE name = 'attempt' RETURNING value";
        self.prepared(sql)?.query_row([], |row| row.get(0).map(Attempt))
    }

    /// Marks all rows of (fetcher, key), in every run, and the key's log row. Triggers do the rest.
    fn mark_dispatched(
        &self,
        key: &str,
        row: &Candidate,
        now: UnixSeconds,
    ) -> rusqlite::Result<()> {
        let mark = "UPDATE queue SET is_dequeued = 1
            WHERE attr_path = ?1 AND fetcher_id = ?2 AND is_dequeued = 0";
        self.prepared(mark)?.execute((key, row.fetcher_id))?;
        let log = "INSERT INTO log (attr_path, started) VALUES (?1, ?2)
            ON CONFLICT (attr_path) DO UPDATE
            SET started = excluded.started, finished = NULL, exit_code = NULL";
        self.prepared(log)?.execute((key, now))?;
        Ok(())
    }

    /// Keeps what undoing this dispatch must restore, and whose turn it was.
    fn note_flight(
        &self,
        key: &str,
        row: &Candidate,
        attempt: Attempt,
        now: UnixSeconds,
    ) -> rusqlite::Result<()> {
        let stale = "DELETE FROM shiftboss_flights WHERE attr_path = ?1 AND NOT EXISTS (
            SELECT 1 FROM queue WHERE queue.attr_path = ?1
                AND queue.fetcher_id = shiftboss_flights.fetcher_id
                AND queue.fetcher_run_started = shiftboss_flights.run_started)";
        self.prepared(stale)?.execute([key])?;
        let flight = "INSERT INTO shiftboss_flights (attr_path, attempt, fetcher_id, run_started,
                started, tries, prev_started, prev_finished, prev_exit_code, prev_turn, rearm)
            SELECT ?1, ?2, ?3, ?4, ?5,
                1 + iif(?6, (SELECT max(tries) FROM shiftboss_flights
                    WHERE attr_path = ?1 AND fetcher_id = ?3 AND run_started = ?4), 0),
                log.started, log.finished, log.exit_code, ?7,
                (SELECT json_group_array(fetcher_run_started) FROM queue
                    WHERE attr_path = ?1 AND fetcher_id = ?3 AND is_dequeued = 0)
            FROM (SELECT 1) LEFT JOIN log ON log.attr_path = ?1";
        self.prepared(flight)?.execute((
            key,
            attempt.0,
            row.fetcher_id,
            row.run_started,
            now,
            row.again,
            row.turn,
        ))?;
        self.set_turn(key, &row.fetcher, Some(attempt.0))
    }

    pub(super) fn set_turn(
        &self,
        key: &str,
        fetcher: &str,
        turn: Option<i64>,
    ) -> rusqlite::Result<()> {
        let set = "INSERT INTO shiftboss_turns (attr_path, name, attempt) VALUES (?1, ?2, ?3)
            ON CONFLICT (attr_path, name) DO UPDATE SET attempt = excluded.attempt";
        let unset = "DELETE FROM shiftboss_turns WHERE attr_path = ?1 AND name = ?2";
        match turn {
            Some(turn) => self.prepared(set)?.execute((key, fetcher, turn))?,
            None => self.prepared(unset)?.execute((key, fetcher))?,
        };
        Ok(())
    }

    /// Records the end of a key's job; an unknown key changes nothing.
    pub(super) fn end_job(
        &mut self,
        key: &Key,
        exit_code: i64,
        now: UnixSeconds,
    ) -> rusqlite::Result<()> {
        let sql = "UPDATE log SET finished = ?2, exit_code = ?3 WHERE attr_path = ?1";
        self.prepared(sql)?.execute((key.as_str(), now, exit_code))?;
        if self.minute != now / 60 {
            self.minute = now / 60;
            let day = 24 * 60;
            self.prepared("DELETE FROM shiftboss_done WHERE minute < ?1")?
                .execute([self.minute - day])?;
        }
        Ok(())
    }

    /// A statement from the cache.
    pub(super) fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(sql)
    }
}
