//! Where a key is, and why it is not the next one: the question of `shiftboss why`.
//!
//! What may be handed out is decided by the dispatcher's own rule. The place in the order is counted, up to a bound; all
//! else costs the same however long the queue is.

use shiftboss_actors::store::Turns;
use shiftboss_actors::store::answers::{
    Bump, Delivery, Hold, KeyRow, LastResult, Place, Retry, RowState, Why,
};
use shiftboss_protocol::model::{UnixSeconds, jitter};
use tokio_postgres::{Error, Row};

use super::keys::{TaskOf, bump, hold, retry};
use super::queue::{keys_before, lane};
use super::status::{jobs_since_first, mean_took};
use super::{Snapshot, limit, text};
use crate::stores::pace::{Pace, busy_seconds};
use crate::stores::views::{FIRST_MAX, PAYLOADS_MAX_BYTES, ROWS_MAX, key_state, that_fit};

/// The key $2, of jitter $1; $3: runs under deletion.
const KEY: &str = "SELECT key_id, place, l.started, l.finished, l.exit_code,
        (SELECT count(*) FROM queue q WHERE q.key_id = k.key_id), EXISTS (SELECT FROM choose(k.key_id, $3::int4[])),
        (SELECT count(*) FROM single_tasks s WHERE s.key_id = k.key_id AND status = 'failed' AND NOT EXISTS (SELECT FROM bumps b
            WHERE b.key_id = k.key_id AND b.fetcher = 0 AND b.run_started = s.task AND due IS NOT NULL)),
        EXISTS (SELECT FROM ready r WHERE r.key_id = k.key_id AND r.place = k.place AND r.started = coalesce(l.started, -1))
    FROM keys k JOIN log l USING (key_id) WHERE jitter = $1 AND sha256(key) = sha256($2::bytea)";
/// Its dispatches whose end is not known, the last one first.
const OUT: &str = "SELECT worker, attempt, started_ms / 1000, lease::int8, delivery_count::int8, fetcher, run_started,
        prev_started, prev_finished, prev_exit_code
    FROM deliveries($1) ORDER BY attempt DESC";
/// Its rows by fetcher, newer runs first, at most $2 of them, without the payloads behind those that have $3 bytes; with how
/// the last attempt of each ended that is kept. The log has the last word on the last of all, and the only one on a key
/// of which none is kept.
const ROWS: &str = "WITH
    ended AS MATERIALIZED (SELECT DISTINCT ON (fetcher, run_started) fetcher, run_started, exit_code, attempt
        FROM attempts WHERE key_id = $1 AND outcome = 'done' ORDER BY fetcher, run_started, attempt DESC),
    logged AS (SELECT exit_code FROM log WHERE key_id = $1 AND finished IS NOT NULL)
    SELECT q.fetcher, q.run_started, r.deleting, q.dead, q.dispatched, f.name, r.complete, q.expired::int8,
        CASE WHEN coalesce(e.attempt, 0) = (SELECT coalesce(max(attempt), 0) FROM ended)
            THEN coalesce((SELECT exit_code FROM logged), e.exit_code) ELSE e.exit_code END,
        CASE WHEN sum(octet_length(payload)) OVER (ORDER BY f.name COLLATE \"C\", q.run_started DESC)
            - octet_length(payload) < $3::int8 THEN payload ELSE '' END
    FROM queue q JOIN fetchers f ON f.fetcher = q.fetcher JOIN runs r ON r.run = q.run
    LEFT JOIN ended e ON e.fetcher = q.fetcher AND e.run_started = q.run_started
    WHERE q.key_id = $1 ORDER BY f.name COLLATE \"C\", q.run_started DESC LIMIT $2::int8";

/// A key, and its row in the log.
struct Known {
    key_id: i64,
    place: i64,
    started: Option<UnixSeconds>,
    finished: Option<UnixSeconds>,
    exit_code: Option<i64>,
    rows: i64,
    has_choice: bool,
    failed_single_tasks: i64,
    is_ready: bool,
    /// Asked for apart.
    hold: Option<Hold>,
    bump: Option<Bump>,
    /// The task that is delayed.
    retry: Option<(Retry, TaskOf)>,
}

/// A dispatch whose end is not known.
struct Out {
    delivery: Delivery,
    run: (i32, i64),
    before: Option<LastResult>,
}

/// Where `key` is; `None`: nobody ever heard of it.
pub(super) async fn why(
    snapshot: &Snapshot,
    key: &str,
    count_max: usize,
) -> Result<Option<Why>, Error> {
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&jitter(key), &key.as_bytes(), &snapshot.deleting];
    let Some(known) = snapshot.client().query_opt(KEY, &values).await?.map(|row| known(&row))
    else {
        return Ok(None);
    };
    let out = snapshot.rows(OUT, &[&known.key_id], out).await?;
    let hold = hold(snapshot, known.key_id).await?;
    let bump = bump(snapshot, known.key_id).await?;
    let retry = retry(snapshot, known.key_id).await?;
    if known.rows == 0 && out.is_empty() && known.started.is_none() && hold.is_none() {
        return Ok(None);
    }
    answer(snapshot, key, &Known { hold, bump, retry, ..known }, &out, count_max).await.map(Some)
}

async fn answer(
    snapshot: &Snapshot,
    key: &str,
    known: &Known,
    out: &[Out],
    count_max: usize,
) -> Result<Why, Error> {
    let in_flight = in_flight(snapshot, known, out);
    let lives = |out: &Delivery| out.lease_seconds.is_some() || out.since >= snapshot.expired();
    let is_in_flight = in_flight.as_ref().is_some_and(lives);
    let (is_free, is_on_hold) = (!is_in_flight && known.has_choice, known.hold.is_some());
    let is_waiting = is_free && known.is_ready;
    let place = if is_waiting { Some(place(snapshot, key, known, count_max).await?) } else { None };
    let minutes = jobs_since_first(snapshot).await?;
    let jobs_last_hour = minutes.iter().map(|minute| minute.jobs).sum();
    let busy_seconds = busy_seconds(&minutes, mean_took(snapshot).await?, snapshot.now);
    let rows = rows(snapshot, known, out, is_in_flight).await?;
    Ok(Why {
        key: key.to_owned(),
        state: key_state(&rows, is_in_flight, is_free, is_on_hold),
        paused: snapshot.is_paused,
        expected_in_seconds: place
            .as_ref()
            .filter(|_| !snapshot.is_paused)
            .and_then(|place| Pace::new(jobs_last_hour, busy_seconds).expected(place)),
        place,
        jobs_last_hour,
        jobs_since: minutes.first().map(|minute| minute.since),
        busy_seconds,
        hold: known.hold.clone(),
        bump: known.bump.clone(),
        retry: known.retry.map(|(retry, _)| retry),
        last_result: last_result(known, out, in_flight.is_some()),
        in_flight,
        failed_single_tasks: known.failed_single_tasks,
        truncated: limit(rows.len()) < known.rows,
        rows,
    })
}

/// The attempt whose lease keeps the key from everybody, or the classic job whose end the log does not have.
fn in_flight(snapshot: &Snapshot, known: &Known, out: &[Out]) -> Option<Delivery> {
    let leased = out.iter().find(|out| out.delivery.lease_seconds.is_some());
    if let Some(leased) = leased {
        return Some(leased.delivery.clone());
    }
    let since = known.started.filter(|_| known.finished.is_none())?;
    let last = out.first().map(|out| &out.delivery);
    Some(Delivery {
        worker: None,
        attempt: last.and_then(|last| last.attempt),
        since,
        lease_seconds: None,
        // To the second: it is free when that is over.
        held_until: Some(since.saturating_add(snapshot.lease() + 1)),
        delivery_count: last.and_then(|last| last.delivery_count),
    })
}

/// How a job of the key ended last: what the log says, or, if a job is out, said before it.
fn last_result(known: &Known, out: &[Out], is_out: bool) -> Option<LastResult> {
    match out.first().filter(|_| is_out) {
        Some(last) => last.before,
        None => result(known.started, known.finished, known.exit_code),
    }
}

fn result(
    started: Option<UnixSeconds>,
    finished: Option<UnixSeconds>,
    exit_code: Option<i64>,
) -> Option<LastResult> {
    let (started, finished) = started.zip(finished)?;
    Some(LastResult { started, finished, exit_code })
}

async fn place(
    snapshot: &Snapshot,
    key: &str,
    known: &Known,
    count_max: usize,
) -> Result<Place, Error> {
    let at = (known.started.unwrap_or(-1), known.place);
    let before = keys_before(snapshot, at, count_max + 1).await?;
    let own = (before.len() <= count_max).then(|| key.to_owned());
    let in_order = before.into_iter().map(|(key, _)| key).chain(own);
    let (credit, lane) = lane(snapshot).await?;
    let mut turns = Turns::new(credit, lane).merge(in_order);
    let found = turns.iter().position(|other| other == key).filter(|place| *place <= count_max);
    let keys_before = found.unwrap_or(count_max);
    turns.truncate(FIRST_MAX.min(keys_before));
    Ok(Place { keys_before, exact: found.is_some(), first: turns })
}

/// The rows as they are shown, up to a bound.
async fn rows(
    snapshot: &Snapshot,
    known: &Known,
    out: &[Out],
    is_in_flight: bool,
) -> Result<Vec<KeyRow>, Error> {
    let mut newer = None;
    let shown = snapshot
        .rows(ROWS, &[&known.key_id, &ROWS_MAX, &limit(PAYLOADS_MAX_BYTES)], |row| {
            let run: (i32, i64) = (row.get(0), row.get(1));
            let (is_leaving, is_hidden): (bool, _) = (row.get(2), newer == Some(run.0));
            newer = newer.filter(|_| is_hidden).or((!is_leaving).then_some(run.0));
            let state = if is_leaving {
                RowState::Leaving
            } else if is_hidden {
                RowState::Hidden
            } else if row.get(3) {
                RowState::DeadLetter
            } else if is_in_flight && out.first().is_some_and(|out| out.run == run) {
                RowState::InFlight
            } else if row.get(4) && !out.iter().any(|out| out.run == run) {
                match known.retry.is_some_and(|(_, task)| task == run) {
                    true => RowState::Delayed,
                    false => RowState::Dispatched,
                }
            } else {
                RowState::Waiting
            };
            key_row(row, state)
        })
        .await?;
    Ok(that_fit(shown))
}

fn key_row(row: &Row, state: RowState) -> KeyRow {
    KeyRow {
        fetcher: row.get(5),
        run: row.get(1),
        complete: row.get(6),
        state,
        expired_leases: row.get(7),
        exit_code: match state {
            RowState::Dispatched | RowState::Delayed => row.get(8),
            _ => None,
        },
        payload: text(row.get(9)),
    }
}

fn known(row: &Row) -> Known {
    Known {
        key_id: row.get(0),
        place: row.get(1),
        started: row.get(2),
        finished: row.get(3),
        exit_code: row.get(4),
        rows: row.get(5),
        has_choice: row.get(6),
        failed_single_tasks: row.get(7),
        is_ready: row.get(8),
        hold: None,
        bump: None,
        retry: None,
    }
}

fn out(row: &Row) -> Out {
    Out {
        delivery: Delivery {
            worker: row.get(0),
            attempt: row.get(1),
            since: row.get(2),
            lease_seconds: row.get(3),
            held_until: None,
            delivery_count: row.get(4),
        },
        run: (row.get(5), row.get(6)),
        before: result(row.get(7), row.get(8), row.get(9)),
    }
}
