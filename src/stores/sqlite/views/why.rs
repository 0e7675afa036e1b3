//! Where a key is, and why it is not the next one: the question of `shiftboss why`.
//!
//! What may be handed out is decided by the dispatcher's own rule, over the same rows. The place in
//! the order is counted, up to a bound; all else costs the same however long the queue is.

use rusqlite::{Connection, OptionalExtension, Result, Row};
use shiftboss_actors::store::answers::{
    Delivery, Hold, KeyRow, LastResult, Place, Retry, RowState, Why,
};
use shiftboss_protocol::model::UnixSeconds;

use super::order::Order;
use super::status::{jobs_since_first, mean_took};
use crate::stores::pace::{Pace, busy_seconds};
use crate::stores::sqlite::candidates::{Candidate, candidates};
use crate::stores::sqlite::query::{FromRow, Query, columns};
use crate::stores::sqlite::records::is_paused;
use crate::stores::sqlite::rows::RunId;
use crate::stores::views::{FIRST_MAX, ROWS_MAX, key_state, that_fit};

columns!(Delivery { worker, attempt, since, lease_seconds, held_until, delivery_count });
columns!(LastResult { started, finished, exit_code });

/// The job of the key ?1 that is out: the attempt whose lease keeps the key from everybody, or the classic job whose end
/// the log does not have; that one is held for ?2 seconds.
const IN_FLIGHT: &str = "SELECT * FROM (
        SELECT worker, attempt, started, lease, NULL, delivery_count FROM shiftboss_in_flight
        WHERE attr_path = ?1 AND lease IS NOT NULL ORDER BY attempt DESC LIMIT 1)
    UNION ALL SELECT NULL, attempt, log.started, NULL,
        min(log.started, 9223372036854775807 - ?2) + ?2, delivery_count
    FROM log LEFT JOIN shiftboss_in_flight AS last ON last.attr_path = ?1 AND attempt = (
        SELECT max(attempt) FROM shiftboss_in_flight WHERE attr_path = ?1)
    WHERE log.attr_path = ?1 AND finished IS NULL LIMIT 1";
/// How a job of the key ?1 ended last: what the log says, or, if a job is out (?2), said before it.
const LAST_RESULT: &str = "SELECT started, finished, exit_code FROM (
        SELECT prev_started AS started, prev_finished AS finished, prev_exit_code AS exit_code, attempt
        FROM shiftboss_in_flight WHERE attr_path = ?1 AND ?2
        UNION ALL SELECT started, finished, exit_code, -1 FROM log WHERE attr_path = ?1
        ORDER BY attempt DESC LIMIT 1)
    WHERE started IS NOT NULL AND finished IS NOT NULL";
/// Why the key ?1 is not handed out, whatever else is known of it.
/// An operator's comes first.
const HOLD: &str = "SELECT since, until, reason, by, kind FROM shiftboss_holds WHERE attr_path = ?1
    ORDER BY kind DESC LIMIT 1";
/// Who bumped the key ?1, if it waits for its turn.
const BUMP: &str = "SELECT since, by FROM shiftboss_bumps
    WHERE attr_path = ?1 AND attempt IS NULL AND due IS NULL";
/// The task of the key ?1 that is delayed.
const RETRY: &str = "SELECT due, retries, fetcher_id, run_started FROM shiftboss_delayed_tasks
    WHERE attr_path = ?1";

/// The task that is delayed.
struct Delayed {
    retry: Retry,
    task: RunId,
}

impl FromRow for Delayed {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let task = RunId { fetcher_id: row.get(2)?, started: row.get(3)? };
        Ok(Self { retry: Retry { due: row.get(0)?, retries: row.get(1)? }, task })
    }
}

/// The rows whose ends are not known, by fetcher and run; the one that was handed out last first.
const OUT: &str = "SELECT fetcher_id, run_started FROM shiftboss_in_flight
    WHERE attr_path = ?1 ORDER BY attempt DESC";

/// The rows of the key ?1 by fetcher, newer runs first, at most ?2 of them; with how the last attempt of each ended that
/// is kept. The log has the last word on the last of all, and the only one on a key of which none is kept.
const ROWS: &str = "WITH
    ended AS MATERIALIZED (
        SELECT fetcher_id, run_started, exit_code, max(attempt) AS attempt FROM shiftboss_attempts
        WHERE attr_path = ?1 AND outcome = 'done' GROUP BY fetcher_id, run_started),
    logged AS (SELECT exit_code FROM log WHERE attr_path = ?1 AND finished IS NOT NULL)
    SELECT queue.fetcher_id, fetcher_run_started, is_dequeued, coalesce(dead_letter, 0),
        coalesce(name, '') AS fetcher, coalesce(is_complete, 0), coalesce(expired_leases, 0),
        iif(coalesce(ended.attempt, 0) = (SELECT coalesce(max(attempt), 0) FROM ended),
            coalesce((SELECT exit_code FROM logged), ended.exit_code), ended.exit_code),
        payload
    FROM queue INDEXED BY queue_attr_path_index
    LEFT JOIN fetchers ON fetchers.fetcher_id = queue.fetcher_id
    LEFT JOIN fetcher_runs AS run
        ON run.fetcher_id = queue.fetcher_id AND run.run_started = fetcher_run_started
    LEFT JOIN shiftboss_expired_leases AS lost ON lost.fetcher_id = queue.fetcher_id
        AND lost.run_started = fetcher_run_started AND lost.attr_path = ?1
    LEFT JOIN ended
        ON ended.fetcher_id = queue.fetcher_id AND ended.run_started = fetcher_run_started
    WHERE queue.attr_path = ?1
    ORDER BY fetcher, queue.fetcher_id, fetcher_run_started DESC LIMIT ?2";

/// Where `key` is at the time `now`; `None`: nobody ever heard of it.
pub(super) fn why(
    snapshot: &Connection,
    key: &str,
    now: UnixSeconds,
    count_max: usize,
) -> Result<Option<Why>> {
    let order = Order::load(snapshot, now)?;
    let rows = candidates(snapshot, key)?.map_or_else(Vec::new, |(_, rows)| rows);
    let out: Vec<RunId> = snapshot.rows(OUT, [key])?;
    let is_logged = "SELECT EXISTS (SELECT 1 FROM log WHERE attr_path = ?1)
        OR EXISTS (SELECT 1 FROM shiftboss_holds WHERE attr_path = ?1)";
    if rows.is_empty() && out.is_empty() && !snapshot.value(is_logged, [key])? {
        return Ok(None);
    }
    Asked { snapshot, order, key, out, count_max }.answer(&rows, now).map(Some)
}

/// A question about a key, and what is known of it.
struct Asked<'a> {
    snapshot: &'a Connection,
    order: Order,
    key: &'a str,
    /// As [`OUT`].
    out: Vec<RunId>,
    /// Keys before it that are counted.
    count_max: usize,
}

impl Asked<'_> {
    fn answer(&self, rows: &[Candidate], now: UnixSeconds) -> Result<Why> {
        let (snapshot, key, rule) = (self.snapshot, self.key, self.order.rule());
        // To the second: it is free when that is over.
        let lease = rule.policy.lease() + 1;
        let in_flight: Option<Delivery> = snapshot.row(IN_FLIGHT, (key, lease)).optional()?;
        let lives = |out: &Delivery| out.lease_seconds.is_some() || out.since >= rule.expired;
        let is_in_flight = in_flight.as_ref().is_some_and(lives);
        let hold: Option<Hold> = snapshot.row(HOLD, [key]).optional()?;
        let is_free = !is_in_flight && self.may_be_chosen(rows, hold.is_some());
        let place = if is_free && hold.is_none() { self.place()? } else { None };
        let minutes = jobs_since_first(snapshot, now)?;
        let jobs_last_hour = minutes.iter().map(|minute| minute.jobs).sum();
        let busy_seconds = busy_seconds(&minutes, mean_took(snapshot, now)?, now);
        let paused = is_paused(snapshot)?;
        let delayed: Option<Delayed> = snapshot.row(RETRY, [key]).optional()?;
        let shown = self.rows(is_in_flight, delayed.as_ref())?;
        let failed = "SELECT count(*) FROM shiftboss_single_tasks AS single
            WHERE attr_path = ?1 AND status = 'failed' AND NOT EXISTS (SELECT 1 FROM shiftboss_bumps AS retry
                WHERE retry.attr_path = ?1 AND fetcher_id = 0 AND run_started = task AND due IS NOT NULL)";
        Ok(Why {
            key: key.to_owned(),
            state: key_state(&shown, is_in_flight, is_free, hold.is_some()),
            paused,
            expected_in_seconds: place
                .as_ref()
                .filter(|_| !paused)
                .and_then(|place| Pace::new(jobs_last_hour, busy_seconds).expected(place)),
            place,
            jobs_last_hour,
            jobs_since: minutes.first().map(|minute| minute.since),
            busy_seconds,
            hold,
            bump: snapshot.row(BUMP, [key]).optional()?,
            retry: delayed.map(|delayed| delayed.retry),
            last_result: snapshot.row(LAST_RESULT, (key, in_flight.is_some())).optional()?,
            in_flight,
            failed_single_tasks: snapshot.value(failed, [key])?,
            truncated: shown.len() < rows.len(),
            rows: shown,
        })
    }

    /// Whether a row may be handed out, if the key is not in flight. The state of a row whose key is on hold says nothing of it.
    fn may_be_chosen(&self, rows: &[Candidate], is_on_hold: bool) -> bool {
        let rule = self.order.rule();
        if !is_on_hold {
            return rule.choose(rows).is_some();
        }
        let is_newest = |row: &Candidate| {
            let of_fetcher = |other: &&Candidate| other.fetcher_id == row.fetcher_id;
            !rows.iter().filter(of_fetcher).any(|other| other.run_started > row.run_started)
        };
        let waits = |row: &Candidate| !row.again || self.out.contains(&row.run());
        rows.iter().any(|row| is_newest(row) && waits(row) && rule.partitions.allow(row.run()))
    }

    fn place(&self) -> Result<Option<Place>> {
        let mut place = Place { keys_before: 0, exact: true, first: Vec::new() };
        let mut found = false;
        let is_all = self.order.walk(self.snapshot, |key, _| {
            found = key == self.key;
            if found || place.keys_before == self.count_max {
                return Ok(false);
            }
            place.keys_before += 1;
            if place.first.len() < FIRST_MAX {
                place.first.push(key);
            }
            Ok(true)
        })?;
        place.exact = found;
        Ok((found || !is_all).then_some(place))
    }

    /// The rows as they are shown, up to a bound.
    fn rows(&self, is_in_flight: bool, delayed: Option<&Delayed>) -> Result<Vec<KeyRow>> {
        let mut newer = None;
        let shown = self.snapshot.map(ROWS, (self.key, ROWS_MAX), |row| {
            let run = RunId { fetcher_id: row.get(0)?, started: row.get(1)? };
            let is_hidden = newer.replace(run.fetcher_id) == Some(run.fetcher_id);
            let state = if !self.order.rule().partitions.allow(run) {
                RowState::Leaving
            } else if is_hidden {
                RowState::Hidden
            } else if row.get(3)? {
                RowState::DeadLetter
            } else if is_in_flight && self.out.first() == Some(&run) {
                RowState::InFlight
            } else if row.get(2)? && !self.out.contains(&run) {
                match delayed.is_some_and(|delayed| delayed.task == run) {
                    true => RowState::Delayed,
                    false => RowState::Dispatched,
                }
            } else {
                RowState::Waiting
            };
            Ok(KeyRow {
                fetcher: row.get(4)?,
                run: run.started,
                complete: row.get(5)?,
                state,
                expired_leases: row.get(6)?,
                exit_code: match state {
                    RowState::Dispatched | RowState::Delayed => row.get(7)?,
                    _ => None,
                },
                payload: row.get(8)?,
            })
        })?;
        Ok(that_fit(shown))
    }
}
