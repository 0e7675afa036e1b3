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
use crate::stores::sqlite::dispatch::{Candidate, candidates};
use crate::stores::sqlite::query::{Query, columns};
use crate::stores::sqlite::records::is_paused;

/// Keys before a key that are counted; beyond, it is "more than".
const KEYS_BEFORE_MAX: usize = 100_000;
const FIRST_MAX: usize = 5;
/// Fewer ends in the last hour tell nothing of how long turns take.
const JOBS_MIN: i64 = 10;
const ROWS_MAX: usize = 1_000;

/// Where `key` is at the time `now`; `None`: nobody ever heard of it.
pub(super) fn why(snapshot: &Connection, key: &str, now: UnixSeconds) -> Result<Option<Why>> {
    let order = Order::load(snapshot, now)?;
    let rows = candidates(snapshot, key)?.map_or_else(Vec::new, |(_, rows)| rows);
    let log = snapshot.row(LOG_ROW, [key]).optional()?;
    let asked = Asked { snapshot, order, key, log, outs: snapshot.rows(OUTS, [key])? };
    if rows.is_empty() && asked.log.is_none() && asked.outs.is_empty() {
        return Ok(None);
    }
    asked.answer(rows, now).map(Some)
}

const LOG_ROW: &str = "SELECT started, finished, exit_code FROM log WHERE attr_path = ?1";

struct LogRow {
    started: UnixSeconds,
    finished: Option<UnixSeconds>,
    exit_code: Option<i64>,
}

columns!(LogRow { started, finished, exit_code });

/// An attempt whose end is not known, and the key's log row before it.
struct Out {
    worker: Option<String>,
    attempt: i64,
    started: UnixSeconds,
    lease: Option<i64>,
    delivery_count: i64,
    fetcher_id: i64,
    run: i64,
    prev_started: Option<UnixSeconds>,
    prev_finished: Option<UnixSeconds>,
    prev_exit_code: Option<i64>,
}

columns!(Out {
    worker,
    attempt,
    started,
    lease,
    delivery_count,
    fetcher_id,
    run,
    prev_started,
    prev_finished,
    prev_exit_code
});

/// A key's attempts whose end is not known, the last one first.
const OUTS: &str =
    "SELECT worker, attempt, started, lease, delivery_count, fetcher_id, run_started,
        prev_started, prev_finished, prev_exit_code
    FROM shiftboss_deliveries WHERE attr_path = ?1 ORDER BY attempt DESC";

/// With which exit codes rows ended, by fetcher and run; and those that are not there.
struct Ends {
    of_rows: HashMap<(i64, UnixSeconds), Option<i64>>,
    otherwise: Option<i64>,
}

/// A question about a key, and what is known of it.
struct Asked<'a> {
    snapshot: &'a Connection,
    order: Order,
    key: &'a str,
    log: Option<LogRow>,
    outs: Vec<Out>,
}

impl Asked<'_> {
    fn answer(&self, rows: Vec<Candidate>, now: UnixSeconds) -> Result<Why> {
        let (in_flight, is_held) = (self.delivery(), self.is_held());
        let is_free = !is_held && self.order.rule().choose(&rows).is_some();
        let place = if is_free { self.place()? } else { None };
        let done = done_since(self.snapshot, now / 60 - HOUR_MINUTES)?;
        let jobs_last_hour = done.iter().map(|done| done.jobs).sum();
        let paused = is_paused(self.snapshot)?;
        let (rows, truncated) = self.rows(rows, is_held)?;
        let sql = "SELECT count(*) FROM shiftboss_single_tasks
            WHERE attr_path = ?1 AND status = 'failed'";
        let failed_single_tasks = self.snapshot.value(sql, [self.key])?;
        Ok(Why {
            key: self.key.to_owned(),
            state: state(&rows, is_held, is_free),
            paused,
            expected_in_seconds: place
                .as_ref()
                .filter(|_| !paused)
                .and_then(|place| expected(place, jobs_last_hour)),
            place,
            jobs_last_hour,
            last_result: self.last_result(in_flight.is_some()),
            in_flight,
            failed_single_tasks,
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
        let of_row = |(fetcher_id, run, code)| ((fetcher_id, run), code);
        let mut ends: Vec<_> = ends.into_iter().map(of_row).collect();
        let logged = self.log.as_ref().filter(|log| log.finished.is_some());
        let logged = logged.and_then(|log| log.exit_code);
        if let (Some((_, code)), Some(logged)) = (ends.last_mut(), logged) {
            *code = Some(logged);
        }
        let otherwise = if ends.is_empty() { logged } else { None };
        Ok(Ends { of_rows: ends.into_iter().collect(), otherwise })
    }

    /// The attempt whose lease keeps the key from everybody.
    fn leased(&self) -> Option<&Out> {
        self.outs.iter().find(|out| out.lease.is_some())
    }

    /// The classic job that is out, if there is one: the log tells.
    fn unfinished(&self) -> Option<&LogRow> {
        self.log.as_ref().filter(|log| log.finished.is_none())
    }

    /// The key's job is out, and its lease lives.
    fn is_held(&self) -> bool {
        let expired = self.order.rule().expired;
        self.leased().is_some() || self.unfinished().is_some_and(|log| log.started >= expired)
    }

    fn delivery(&self) -> Option<Delivery> {
        if let Some(out) = self.leased() {
            return Some(Delivery {
                worker: out.worker.clone(),
                attempt: Some(out.attempt),
                since: out.started,
                lease_seconds: out.lease,
                held_until: None,
                delivery_count: Some(out.delivery_count),
            });
        }
        self.unfinished().map(|log| Delivery {
            worker: None,
            attempt: self.outs.first().map(|out| out.attempt),
            since: log.started,
            lease_seconds: None,
            held_until: Some(log.started.saturating_add(self.order.rule().policy.lease() + 1)),
            delivery_count: self.outs.first().map(|out| out.delivery_count),
        })
    }

    /// What the log says, or said before the job that is out.
    fn last_result(&self, is_out: bool) -> Option<LastResult> {
        let (started, finished, exit_code) = match (self.outs.first(), &self.log) {
            (Some(out), _) if is_out => (out.prev_started?, out.prev_finished, out.prev_exit_code),
            (_, Some(log)) => (log.started, log.finished, log.exit_code),
            _ => return None,
        };
        finished.map(|finished| LastResult { started, finished, exit_code })
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
            let run = (row.fetcher_id, row.run_started);
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
        let is_of = |out: &&Out| (out.fetcher_id, out.run) == (row.fetcher_id, row.run_started);
        let state = if !self.order.rule().partitions.allow(row.run()) {
            RowState::Leaving
        } else if is_hidden {
            RowState::Hidden
        } else if dead_letter {
            RowState::DeadLetter
        } else if is_held && self.outs.first().is_some_and(|out| is_of(&out)) {
            RowState::InFlight
        } else if row.again && !self.outs.iter().any(|out| is_of(&out)) {
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
