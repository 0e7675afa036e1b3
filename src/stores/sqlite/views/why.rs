//! Where a key is, and why it is not the next one: the question of `shiftboss why`.
//!
//! What may be handed out is decided by the dispatcher's own rule, over the same rows. The place in
//! the order is counted, up to a bound; all else costs the same however long the queue is.

use std::cmp::Reverse;
use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Result};
use shiftboss_actors::store::answers::{
    Delivery, KeyRow, KeyState, LastResult, Place, RowState, Why,
};
use shiftboss_protocol::model::UnixSeconds;

use super::order::Order;
use super::queue::PAYLOADS_MAX_BYTES;
use super::status::{HOUR_MINUTES, done_since};
use crate::stores::sqlite::candidates::{Candidate, candidates};
use crate::stores::sqlite::query::{Query, columns};
use crate::stores::sqlite::records::is_paused;
use crate::stores::sqlite::rows::RunId;

/// Keys before a key that are counted; beyond, it is "more than".
const KEYS_BEFORE_MAX: usize = 100_000;
const FIRST_MAX: usize = 5;
/// Fewer ends in the last hour tell nothing of how long turns take.
const JOBS_MIN: i64 = 10;
const ROWS_MAX: usize = 1_000;

columns!(Delivery { worker, attempt, since, lease_seconds, held_until, delivery_count });
columns!(LastResult { started, finished, exit_code });

/// The job of the key ?1 that is out: the attempt whose lease keeps the key from everybody, or the classic job whose end
/// the log does not have; that one is held for ?2 seconds.
const IN_FLIGHT: &str = "SELECT * FROM (
        SELECT worker, attempt, started, lease, NULL, delivery_count FROM shiftboss_deliveries
        WHERE attr_path = ?1 AND lease IS NOT NULL ORDER BY attempt DESC LIMIT 1)
    UNION ALL SELECT NULL, attempt, log.started, NULL,
        min(log.started, 9223372036854775807 - ?2) + ?2, delivery_count
    FROM log LEFT JOIN shiftboss_deliveries AS last ON last.attr_path = ?1 AND attempt = (
        SELECT max(attempt) FROM shiftboss_deliveries WHERE attr_path = ?1)
    WHERE log.attr_path = ?1 AND finished IS NULL LIMIT 1";
/// How a job of the key ?1 ended last: what the log says, or, if a job is out (?2), said before it.
const LAST_RESULT: &str = "SELECT started, finished, exit_code FROM (
        SELECT prev_started AS started, prev_finished AS finished, prev_exit_code AS exit_code, attempt
        FROM shiftboss_deliveries WHERE attr_path = ?1 AND ?2
        UNION ALL SELECT started, finished, exit_code, -1 FROM log WHERE attr_path = ?1
        ORDER BY attempt DESC LIMIT 1)
    WHERE started IS NOT NULL AND finished IS NOT NULL";
/// The rows whose ends are not known, by fetcher and run; the one that was handed out last first.
const OUT: &str = "SELECT fetcher_id, run_started FROM shiftboss_deliveries
    WHERE attr_path = ?1 ORDER BY attempt DESC";

/// Where `key` is at the time `now`; `None`: nobody ever heard of it.
pub(super) fn why(snapshot: &Connection, key: &str, now: UnixSeconds) -> Result<Option<Why>> {
    let order = Order::load(snapshot, now)?;
    let rows = candidates(snapshot, key)?.map_or_else(Vec::new, |(_, rows)| rows);
    let out: Vec<RunId> = snapshot.rows(OUT, [key])?;
    let is_logged = "SELECT EXISTS (SELECT 1 FROM log WHERE attr_path = ?1)";
    if rows.is_empty() && out.is_empty() && !snapshot.value(is_logged, [key])? {
        return Ok(None);
    }
    Asked { snapshot, order, key, out }.answer(rows, now).map(Some)
}

/// With which exit codes rows ended, by fetcher and run; and those that are not there.
struct Ends {
    of_rows: HashMap<RunId, Option<i64>>,
    otherwise: Option<i64>,
}

/// A question about a key, and what is known of it.
struct Asked<'a> {
    snapshot: &'a Connection,
    order: Order,
    key: &'a str,
    /// As [`OUT`].
    out: Vec<RunId>,
}

impl Asked<'_> {
    fn answer(&self, rows: Vec<Candidate>, now: UnixSeconds) -> Result<Why> {
        let (snapshot, key, rule) = (self.snapshot, self.key, self.order.rule());
        // To the second: it is free when that is over.
        let lease = rule.policy.lease() + 1;
        let in_flight: Option<Delivery> = snapshot.row(IN_FLIGHT, (key, lease)).optional()?;
        let lives = |out: &Delivery| out.lease_seconds.is_some() || out.since >= rule.expired;
        let is_held = in_flight.as_ref().is_some_and(lives);
        let is_free = !is_held && rule.choose(&rows).is_some();
        let place = if is_free { self.place()? } else { None };
        let done = done_since(snapshot, now / 60 - HOUR_MINUTES)?;
        let jobs_last_hour = done.iter().map(|done| done.jobs).sum();
        let paused = is_paused(snapshot)?;
        let (rows, truncated) = self.rows(rows, is_held)?;
        let failed = "SELECT count(*) FROM shiftboss_single_tasks
            WHERE attr_path = ?1 AND status = 'failed'";
        Ok(Why {
            key: key.to_owned(),
            state: state(&rows, is_held, is_free),
            paused,
            expected_in_seconds: place
                .as_ref()
                .filter(|_| !paused)
                .and_then(|place| expected(place, jobs_last_hour)),
            place,
            jobs_last_hour,
            last_result: snapshot.row(LAST_RESULT, (key, in_flight.is_some())).optional()?,
            in_flight,
            failed_single_tasks: snapshot.value(failed, [key])?,
            rows,
            truncated,
        })
    }

    /// How the last attempt of each row ended that is kept. The log has the last word on the last of all,
    /// and the only one on a key of which none is kept.
    fn ends(&self) -> Result<Ends> {
        let sql = "SELECT fetcher_id, run_started, exit_code, max(attempt) FROM shiftboss_attempts
            WHERE attr_path = ?1 AND outcome = 'done' GROUP BY fetcher_id, run_started
            ORDER BY max(attempt)";
        let ends: Vec<(i64, i64, Option<i64>)> = self.snapshot.rows(sql, [self.key])?;
        let of_row = |(fetcher_id, started, code)| (RunId { fetcher_id, started }, code);
        let mut ends: Vec<_> = ends.into_iter().map(of_row).collect();
        let sql = "SELECT exit_code FROM log WHERE attr_path = ?1 AND finished IS NOT NULL";
        let logged: Option<i64> = self.snapshot.value(sql, [self.key]).optional()?.flatten();
        if let (Some((_, code)), Some(logged)) = (ends.last_mut(), logged) {
            *code = Some(logged);
        }
        let otherwise = if ends.is_empty() { logged } else { None };
        Ok(Ends { of_rows: ends.into_iter().collect(), otherwise })
    }

    fn place(&self) -> Result<Option<Place>> {
        let mut place = Place { keys_before: 0, exact: true, first: Vec::new() };
        let mut found = false;
        let is_all = self.order.walk(self.snapshot, |(.., key, _)| {
            found = key == self.key;
            if found || place.keys_before == KEYS_BEFORE_MAX {
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

    /// The rows as they are shown, up to a bound, and whether there are more.
    fn rows(&self, mut rows: Vec<Candidate>, is_held: bool) -> Result<(Vec<KeyRow>, bool)> {
        rows.sort_by_cached_key(|row| {
            (row.fetcher.clone(), row.fetcher_id, Reverse(row.run_started))
        });
        let (mut shown, mut bytes, count) = (Vec::new(), 0, rows.len());
        let (mut newer, ends) = (None, self.ends()?);
        for row in rows.into_iter().take(ROWS_MAX) {
            let is_hidden = newer.replace(row.fetcher_id) == Some(row.fetcher_id);
            bytes += row.payload.len();
            let run = row.run();
            let mut row = self.row(row, is_hidden, is_held)?;
            if row.state == RowState::Dispatched {
                row.exit_code = ends.of_rows.get(&run).copied().unwrap_or(ends.otherwise);
            }
            shown.push(row);
            if bytes >= PAYLOADS_MAX_BYTES {
                break;
            }
        }
        let truncated = shown.len() < count;
        Ok((shown, truncated))
    }

    fn row(&self, row: Candidate, is_hidden: bool, is_held: bool) -> Result<KeyRow> {
        let sql = "SELECT is_complete, coalesce(lost.dead_letter, 0)
            FROM fetcher_runs AS run LEFT JOIN shiftboss_expired_leases AS lost
                ON lost.fetcher_id = run.fetcher_id AND lost.run_started = run.run_started
                AND lost.attr_path = ?3
            WHERE run.fetcher_id = ?1 AND run.run_started = ?2";
        let run = (row.fetcher_id, row.run_started, self.key);
        let found: Option<(bool, bool)> = self.snapshot.row(sql, run).optional()?;
        let (complete, dead_letter) = found.unwrap_or_default();
        let state = if !self.order.rule().partitions.allow(row.run()) {
            RowState::Leaving
        } else if is_hidden {
            RowState::Hidden
        } else if dead_letter {
            RowState::DeadLetter
        } else if is_held && self.out.first() == Some(&row.run()) {
            RowState::InFlight
        } else if row.again && !self.out.contains(&row.run()) {
            RowState::Dispatched
        } else {
            RowState::Waiting
        };
        Ok(KeyRow {
            fetcher: row.fetcher,
            run: row.run_started,
            complete,
            state,
            expired_leases: row.expired_leases.unwrap_or(0),
            exit_code: None,
            payload: row.payload,
        })
    }
}

fn state(rows: &[KeyRow], is_held: bool, is_free: bool) -> KeyState {
    let has = |state| rows.iter().any(|row| row.state == state);
    match (is_held, is_free) {
        (true, _) => KeyState::InFlight,
        (_, true) => KeyState::Waiting,
        _ if has(RowState::DeadLetter) => KeyState::DeadLetter,
        _ if has(RowState::Dispatched) => KeyState::Dispatched,
        _ if !rows.is_empty() => KeyState::Leaving,
        _ => KeyState::Unlisted,
    }
}

/// Seconds until a place's turn, at so many jobs an hour, if they are enough to tell; the next one's comes when
/// a worker asks.
fn expected(place: &Place, jobs_last_hour: i64) -> Option<i64> {
    const HOUR_SECONDS: i64 = 3_600;
    if !place.exact || place.keys_before == 0 || jobs_last_hour < JOBS_MIN {
        return None;
    }
    let turns = i64::try_from(place.keys_before).ok()? + 1;
    Some(turns.saturating_mul(HOUR_SECONDS) / jobs_last_hour)
}
