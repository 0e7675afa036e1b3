//! Where a key is, and why it is not the next one: the question of `shiftboss why`.
//!
//! What may be handed out is decided by the dispatcher's own rule, over the same rows. The place in
//! the order is counted, up to a bound; all else costs the same however long the queue is.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row};
use shiftboss_protocol::model::UnixSeconds;

use super::order::{Order, Walked};
use super::queue::PAYLOADS_MAX_BYTES;
use super::snapshot::{is_paused, read_current};
use super::{HOUR_MINUTES, done_since};
use crate::sqlite::dispatch::{Candidate, candidates};
use crate::sqlite::reader::ViewError;
pub use report::{Delivery, KeyRow, KeyState, LastResult, Place, RowState, Why};

mod report;

/// Keys before a key that are counted; beyond, it is "more than".
const KEYS_BEFORE_MAX: usize = 100_000;
/// Keys before a key that are named.
const FIRST_MAX: usize = 5;
/// Fewer ends in the last hour tell nothing of how long turns take.
const JOBS_MIN: i64 = 10;
/// Rows of a key that are shown.
const ROWS_MAX: usize = 1_000;

/// Where `key` is at the time `now`; `None`: nobody ever heard of it.
///
/// # Errors
/// When the database is missing, not ours or cannot be read.
pub fn why(path: &Path, key: &str, now: UnixSeconds) -> Result<Option<Why>, ViewError> {
    read_current(path, |snapshot| {
        let order = Order::load(snapshot, now)?;
        let rows = candidates(snapshot, key)?.map_or_else(Vec::new, |(_, rows)| rows);
        let asked = Asked {
            snapshot,
            order,
            key,
            log: log_row(snapshot, key)?,
            outs: outs(snapshot, key)?,
        };
        if rows.is_empty() && asked.log.is_none() && asked.outs.is_empty() {
            return Ok(None);
        }
        asked.answer(rows, now).map(Some)
    })
}

/// A key's log row.
struct LogRow {
    started: UnixSeconds,
    finished: Option<UnixSeconds>,
    exit_code: Option<i64>,
}

impl LogRow {
    /// As a result, if it is one.
    fn result(&self) -> Option<LastResult> {
        let LogRow { started, finished, exit_code } = *self;
        finished.map(|finished| LastResult { started, finished, exit_code })
    }
}

/// An attempt whose end is not known.
struct Out {
    worker: Option<String>,
    attempt: i64,
    started: UnixSeconds,
    lease: Option<i64>,
    delivery_count: i64,
    fetcher_id: i64,
    run: i64,
    /// The key's log row before it.
    before: Option<LogRow>,
}

fn log_row(snapshot: &Connection, key: &str) -> rusqlite::Result<Option<LogRow>> {
    let sql = "SELECT started, finished, exit_code FROM log WHERE attr_path = ?1";
    let read = |row: &Row<'_>| {
        Ok(LogRow { started: row.get(0)?, finished: row.get(1)?, exit_code: row.get(2)? })
    };
    snapshot.query_row(sql, [key], read).optional()
}

/// A key's attempts whose end is not known, the last one first.
fn outs(snapshot: &Connection, key: &str) -> rusqlite::Result<Vec<Out>> {
    let sql = "SELECT worker, attempt, started, lease, delivery_count, fetcher_id, run_started,
            prev_started, prev_finished, prev_exit_code
        FROM shiftboss_deliveries WHERE attr_path = ?1 ORDER BY attempt DESC";
    let read = |row: &Row<'_>| {
        let (finished, exit_code) = (row.get(8)?, row.get(9)?);
        let before: Option<i64> = row.get(7)?;
        Ok(Out {
            worker: row.get(0)?,
            attempt: row.get(1)?,
            started: row.get(2)?,
            lease: row.get(3)?,
            delivery_count: row.get(4)?,
            fetcher_id: row.get(5)?,
            run: row.get(6)?,
            before: before.map(|started| LogRow { started, finished, exit_code }),
        })
    };
    snapshot.prepare(sql)?.query_map([key], read)?.collect()
}

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
    fn answer(&self, rows: Vec<Candidate>, now: UnixSeconds) -> rusqlite::Result<Why> {
        let (in_flight, is_held) = (self.delivery(), self.is_held());
        let is_free = !is_held && self.order.rule().choose(&rows).is_some();
        let place = if is_free { self.place()? } else { None };
        let done = done_since(self.snapshot, now / 60 - HOUR_MINUTES)?;
        let jobs_last_hour = done.iter().map(|done| done.jobs).sum();
        let paused = is_paused(self.snapshot)?;
        let (rows, truncated) = self.rows(rows, is_held)?;
        let sql = "SELECT count(*) FROM shiftboss_single_tasks
            WHERE attr_path = ?1 AND status = 'failed'";
        let failed_single_tasks = self.snapshot.query_row(sql, [self.key], |row| row.get(0))?;
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
    fn ends(&self) -> rusqlite::Result<Ends> {
        let sql = "SELECT fetcher_id, run_started, exit_code, max(attempt) FROM shiftboss_attempts
            WHERE attr_path = ?1 AND outcome = 'done' GROUP BY fetcher_id, run_started
            ORDER BY max(attempt)";
        let read = |row: &Row<'_>| Ok(((row.get(0)?, row.get(1)?), row.get(2)?));
        let mut ends: Vec<_> = self
            .snapshot
            .prepare(sql)?
            .query_map([self.key], read)?
            .collect::<rusqlite::Result<_>>()?;
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
        match self.outs.first() {
            Some(out) if is_out => out.before.as_ref().and_then(LogRow::result),
            _ => self.log.as_ref().and_then(LogRow::result),
        }
    }

    /// Counts the keys before this one.
    fn place(&self) -> rusqlite::Result<Option<Place>> {
        let mut place = Place { keys_before: 0, exact: true, first: Vec::new() };
        let mut found = false;
        let walked = self.order.walk(self.snapshot, |(.., key, _)| {
            found = key == self.key;
            if found || place.keys_before == KEYS_BEFORE_MAX {
                return Ok(ControlFlow::Break(()));
            }
            place.keys_before += 1;
            if place.first.len() < FIRST_MAX {
                place.first.push(key);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        place.exact = found;
        Ok((found || walked != Walked::ToTheEnd).then_some(place))
    }

    /// The rows as they are shown, up to a bound, and whether there are more.
    fn rows(
        &self,
        mut rows: Vec<Candidate>,
        is_held: bool,
    ) -> rusqlite::Result<(Vec<KeyRow>, bool)> {
        rows.sort_by(|a, b| {
            (&a.fetcher, a.fetcher_id, b.run_started).cmp(&(
                &b.fetcher,
                b.fetcher_id,
                a.run_started,
            ))
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

    fn row(&self, row: Candidate, is_hidden: bool, is_held: bool) -> rusqlite::Result<KeyRow> {
        let sql = "SELECT is_complete, coalesce(lost.dead_letter, 0)
            FROM fetcher_runs AS run LEFT JOIN shiftboss_expired_leases AS lost
                ON lost.fetcher_id = run.fetcher_id AND lost.run_started = run.run_started
                AND lost.attr_path = ?3
            WHERE run.fetcher_id = ?1 AND run.run_started = ?2";
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? != 0, row.get::<_, i64>(1)? != 0));
        let run = (row.fetcher_id, row.run_started, self.key);
        let found = self.snapshot.prepare_cached(sql)?.query_row(run, read).optional()?;
        let (complete, dead_letter) = found.unwrap_or_default();
        let is_of = |out: &&Out| (out.fetcher_id, out.run) == (row.fetcher_id, row.run_started);
        let state = if !self.order.rule().partitions.allow(row.fetcher_id, row.run_started) {
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
