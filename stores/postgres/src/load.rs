//! Reading records: by key, by attempt, by run, and the next ones in order. Each is locked, so that the batch can
//! change it.
//!
//! `FOR UPDATE` waits for another daemon, and then rereads only the row of `keys`: what the same statement reads of
//! other tables is as old as the statement. Every change to those also writes the row in `keys`. So if that row is
//! newer than the statement's beginning, the record is not [whole](Found::is_whole).

use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, Key, LeaseHolder};
use shiftboss_queue::attempt::{EndedAttempt, Outcome};
use shiftboss_queue::code;
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::listings::{End, behind};
use shiftboss_queue::place::{Line, Place};
use shiftboss_queue::record::{FetcherId, Flight, LastRun, ListRow, Millis, Record, Singles, Task};
use shiftboss_queue::records::{From, InFlight, KeyId, Name, Opens, Payload, StoreResult, Stored};
use shiftboss_queue::rules::groups::Group;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::error::{classify, odd};
use crate::front::{At, FIRST};
use crate::wire::{Ask, ask};

/// What is read of a record, in the order in which [`one`] takes it. Payloads are for those only that may be handed out.
macro_rules! select {
    ($payload:literal, $from:literal, $rest:expr) => {
        concat!(
            "SELECT k.id, k.key, k.since, k.started, k.finished, k.exit_code, k.claimed, k.served, k.waiting, k.failed, k.dead,
                k.last_attempt, k.attempt, k.fetcher, k.run, k.worker, k.lease, k.started_ms, k.before, k.turn, k.held,
                e.extras, coalesce(e.lane, e.lane_in_group), e.due, r.fetchers, r.runs, r.armed, r.readings, r.payloads, t.number, t.payload,
                k.ctid = (SELECT v.ctid FROM keys v WHERE v.id = k.id), k.owner, k.single_group, k.routes, r.groups
             FROM ", $from, "
             LEFT JOIN extras e ON k.extra AND e.key = k.id
             LEFT JOIN LATERAL (
                SELECT array_agg(fetcher) AS fetchers, array_agg(run) AS runs, array_agg(armed) AS armed,
                    array_agg(reading) AS readings, array_agg(", $payload, ") AS payloads, array_agg(grp) AS groups
                FROM (SELECT * FROM rows WHERE rows.key = k.id ORDER BY fetcher, run) o) r ON true
             LEFT JOIN LATERAL (
                SELECT number, ", $payload, " AS payload FROM tasks
                WHERE k.waiting > 0 AND tasks.key = k.id AND tasks.status = 'waiting' ORDER BY number LIMIT 1) t ON true
             ", $rest
        )
    };
}
/// Likewise, at most $1. Those that somebody has locked are passed by; and, second, waited for. Where $lock begins with the row that leads to the key, a key that has left it meanwhile is passed by unlocked: it is
/// another daemon's job by now, and the end of that would wait.
macro_rules! next {
    ($from:literal, $of:literal, $order:literal, $lock:literal) => {
        [
            next!(@ $from, $of, $order, concat!(" FOR UPDATE OF ", $lock, " SKIP LOCKED")),
            next!(@ $from, $of, $order, concat!(" FOR UPDATE OF ", $lock)),
        ]
    };
    (@ $from:literal, $of:literal, $order:literal, $locked:expr) => {
        select!(
            "payload",
            $from,
            concat!(
                "WHERE ", $of, " ORDER BY ", $order, " LIMIT $1::int8", $locked
            )
        )
    };
}

/// $1: keys. $2: attempts, out or ended. All at once, so that no two daemons wait for each other. Each attempt is looked up
/// by itself: else the planner, who knows that few are out, goes over all places of the kind, and while a snapshot is open those that
/// were left long ago are among them.
const NAMED: &str = select!(
    "NULL::bytea",
    "keys k",
    "WHERE k.id = ANY (ARRAY(
        SELECT n.id FROM unnest($1::bytea[]) AS x (key) JOIN keys n ON sha256(n.key) = sha256(x.key)
        UNION SELECT (SELECT p.key FROM places p WHERE p.kind = 3 AND p.at = x.attempt) FROM unnest($2::int8[]) AS x (attempt)
        UNION SELECT a.key FROM attempts a WHERE a.attempt = ANY ($2)))
     ORDER BY k.id FOR UPDATE OF k"
);
pub(crate) const BY_IDS: &str =
    select!("NULL::bytea", "keys k", "WHERE k.id = ANY ($1::int8[]) ORDER BY k.id FOR UPDATE OF k");
/// For readers, which lock nothing.
pub(crate) const LOOK_AT_IDS: &str =
    select!("NULL::bytea", "keys k", "WHERE k.id = ANY ($1::int8[])");
pub(crate) const LOOK_AT_KEYS: &str = select!(
    "NULL::bytea",
    "keys k",
    "WHERE k.id = ANY (ARRAY(SELECT n.id FROM unnest($1::bytea[]) AS x (key) JOIN keys n ON sha256(n.key) = sha256(x.key)))"
);
/// Attempts that ended, as [`end`] reads them.
macro_rules! ends {
    ($from:literal, $order:literal) => {
        concat!(
            "SELECT a.ended, a.key, a.attempt, k.key, a.fetcher, a.run, a.worker, a.started_ms, a.ended_ms, a.outcome, a.exit_code,
                a.previous, a.revisit
             FROM (", $from, ") AS a JOIN keys k ON k.id = a.key ", $order
        )
    };
}
pub(crate) use ends;
pub(crate) const END: &str = ends!("SELECT * FROM attempts WHERE attempt = $1", "");
/// $1: attempts. $2: tasks' IDs. Finds their keys.
const OF_OTHERS: &str =
    "SELECT attempt, NULL::text AS name, key FROM attempts WHERE attempt = ANY ($1::int8[])
    UNION ALL SELECT NULL, name, key FROM tasks WHERE name = ANY ($2::text[])";
/// Those that have a single task that waits.
pub(crate) const OF_TASKS: &str = select!(
    "NULL::bytea",
    "(SELECT DISTINCT key FROM tasks WHERE status = 'waiting' AND key > $1 ORDER BY key LIMIT $2::int8) o
        JOIN keys k ON k.id = o.key",
    "ORDER BY k.id FOR UPDATE OF k"
);
pub(crate) const OF_RUN: &str = select!(
    "NULL::bytea",
    "rows o JOIN keys k ON k.id = o.key",
    "WHERE o.fetcher = $1 AND o.run = $2 AND o.key > $3 ORDER BY o.key LIMIT $4::int8 FOR UPDATE OF k"
);

/// $2: of the order, or those that somebody has. Behind the turn $3 of the key $4.
const IN_ORDER: [&str; 2] = next!(
    "places p JOIN keys k ON k.id = p.key",
    "p.kind = $2::int2 AND (p.at, p.key) > ($3::int8, $4::int8)",
    "p.at, p.key",
    "p, k"
);
/// Of the order, in groups or not.
const LATER: [&str; 2] = next!(
    "places p JOIN keys k ON k.id = p.key",
    "p.kind IN (1, 6) AND (p.at, p.key) > ($2::int8, $3::int8)",
    "p.at, p.key",
    "p, k"
);
/// Of the group $2, in the line $3, behind the key $5 at $4.
const STANDING: [&str; 2] = next!(
    "stands s JOIN keys k ON k.id = s.key",
    "s.grp = $2::int8 AND s.line = $3::int8 AND (s.at, s.key) > ($4::int8, $5::int8)",
    "s.at, s.key",
    "s, k"
);
/// The first ones of open groups, in the line $2. Whoever changes a group waits for others that do, not those who look.
const HEADS: [&str; 2] = next!(
    "heads h JOIN keys k ON k.id = h.key",
    "h.line = $2::int8 AND h.open AND (h.at, h.key) > ($3::int8, $4::int8)",
    "h.at, h.key",
    "k"
);
const ANY_HEAD: &str = "SELECT FROM heads
    WHERE line = $1::int8 AND open AND (at, key) > ($2::int8, $3::int8) LIMIT 1";
const ANY_STANDING: &str = "SELECT FROM stands
    WHERE grp = $1::int8 AND line = $2::int8 AND (at, key) > ($3::int8, $4::int8) LIMIT 1";
/// Groups are locked one after the other by all.
pub(crate) const GROUPS: &str = "SELECT state, in_flight, waiting, tasks, grp FROM groups WHERE grp = ANY ($1::int8[]) ORDER BY grp FOR UPDATE";
pub(crate) const OPENING: &str = "SELECT state, in_flight, waiting, tasks, grp, opens FROM groups
    WHERE opens <= $3::int8 AND (opens, grp) > ($1::int8, $2::int8) ORDER BY opens, grp LIMIT $4::int8
    FOR UPDATE SKIP LOCKED";
const ANY: &str =
    "SELECT FROM places WHERE kind = $1::int2 AND (at, key) > ($2::int8, $3::int8) LIMIT 1";
/// The first key behind a place that has something but rows of lists that go; or the last one of $4, and how many these are. Each is looked
/// at by itself: a limit keeps the server from reading all rows of all lists in place of that.
const LEAVING: &str = "
    WITH few AS NOT MATERIALIZED (SELECT at, key FROM places WHERE kind = $1::int2 AND (at, key) > ($2::int8, $3::int8)
        ORDER BY at, key LIMIT $4::int8)
    (SELECT at, few.key, NULL::int8 FROM few
        LEFT JOIN LATERAL (SELECT true AS has FROM tasks WHERE tasks.key = few.key AND status = 'waiting' LIMIT 1) t ON true
        LEFT JOIN LATERAL (SELECT true AS has FROM rows JOIN runs USING (fetcher, run)
            WHERE rows.key = few.key AND NOT deleting LIMIT 1) r ON true
        WHERE t.has OR r.has LIMIT 1)
    UNION ALL (SELECT at, key, (SELECT count(*) FROM few) FROM few ORDER BY at DESC, key DESC LIMIT 1) LIMIT 1";
const IN_LANE: [&str; 2] = next!(
    "extras x JOIN keys k ON k.id = x.key",
    "x.lane IS NOT NULL AND (x.lane, x.key) > ($2::int8, $3::int8)",
    "x.lane, x.key",
    "k"
);
/// $2: up to when.
const DUE: [&str; 2] = next!(
    "extras x JOIN keys k ON k.id = x.key",
    "x.due <= $2::int8 AND (x.due, x.key) > ($3::int8, $4::int8)",
    "x.due, x.key",
    "k"
);
/// All keys with something due, by their ids.
const DUES: [&str; 2] = next!(
    "extras x JOIN keys k ON k.id = x.key",
    "x.due IS NOT NULL AND x.key > $2::int8",
    "x.key",
    "k"
);
/// All, by their ids.
const ALL: [&str; 2] = next!("keys k", "k.id > $2::int8", "k.id", "k");
pub(crate) const FLIGHTS: &str =
    "SELECT k.attempt, k.started_ms, k.lease, k.owner FROM places p JOIN keys k ON k.id = p.key
    WHERE p.kind = 3 ORDER BY p.at";

/// Identifies this database and its server. A restored dump is another database; a replica, even a promoted one, is
/// not. Without the right to identify the server, databases of two servers may seem to be one.
pub(crate) const PLACE: &str = "SELECT system_identifier || '/' || oid FROM pg_control_system(), pg_database WHERE datname = current_database()";
pub(crate) const PLACE_OF_DATABASE: &str =
    "SELECT '0/' || oid FROM pg_database WHERE datname = current_database()";
const DOCUMENTS: &str =
    "SELECT name, value FROM documents WHERE name >= $1 AND name < $2 ORDER BY name";

pub(crate) struct Found {
    pub(crate) stored: Stored,
    /// It was not changed while we waited for its lock.
    pub(crate) is_whole: bool,
    /// Payloads of its tasks, if they were asked for.
    pub(crate) payloads: Vec<(Task, Payload)>,
}

pub(crate) fn named(names: &[Name]) -> Ask {
    let keys = names.iter().filter_map(|name| match name {
        Name::Key(key) => Some(key.as_str().as_bytes().to_vec()),
        _ => None,
    });
    let attempts = names.iter().filter_map(|name| match name {
        Name::Attempt(attempt) => Some(attempt.0),
        _ => None,
    });
    ask!(NAMED, keys.collect::<Vec<_>>(), attempts.collect::<Vec<_>>())
}

/// Asks for the keys of ended attempts and of tasks.
pub(crate) fn of_others(names: &[&Name]) -> Ask {
    let attempts = names.iter().filter_map(|name| match name {
        Name::Attempt(attempt) => Some(attempt.0),
        _ => None,
    });
    let tasks = names.iter().filter_map(|name| match name {
        Name::TaskId(id) => Some(id.to_string()),
        _ => None,
    });
    ask!(OF_OTHERS, attempts.collect::<Vec<_>>(), tasks.collect::<Vec<_>>())
}

/// Reads the answer to [`of_others`].
pub(crate) fn other(row: &Row) -> StoreResult<(Name, KeyId)> {
    let id = KeyId(get(row, 2)?);
    Ok(match get::<Option<i64>>(row, 0)? {
        Some(attempt) => (Name::Attempt(Attempt(attempt)), id),
        None => (Name::TaskId(get::<String>(row, 1)?.into()), id),
    })
}

/// The next keys of a kind after a place, in the order also after `front`. `waits`: includes those that others have
/// locked.
pub(crate) fn next(from: From, behind: Option<&Stored>, front: At, count: i64, waits: bool) -> Ask {
    let which = usize::from(waits);
    let (turn, id) = place(behind);
    match from {
        From::Line(Line::ORDER) => {
            let (turn, id) = (turn, id).max(front);
            ask!(IN_ORDER[which], count, READY, turn, id)
        }
        From::ClassicHeld => ask!(IN_ORDER[which], count, HELD, turn, id),
        From::Later(bound) => {
            let (turn, id) = (code::turn(bound), i64::MAX).max((turn, id));
            ask!(LATER[which], count, turn, id)
        }
        From::Line(Line::LANE) => ask!(IN_LANE[which], count, at_in(Line::LANE, behind), id),
        From::Line(line) => {
            ask!(STANDING[which], count, 0_i64, code::line(line), at_in(line, behind), id)
        }
        From::Group(group, line) => {
            ask!(STANDING[which], count, group.0, code::line(line), at_in(line, behind), id)
        }
        From::Heads(line) => ask!(HEADS[which], count, code::line(line), at_in(line, behind), id),
        From::Due(until) => {
            let due = behind.and_then(|it| it.place.due).unwrap_or(i64::MIN);
            ask!(DUE[which], count, until, due, id)
        }
        From::Dues => ask!(DUES[which], count, id),
        From::All => ask!(ALL[which], count, id),
    }
}

/// Asks which keys at the front have only rows of lists under deletion.
pub(crate) fn leaving(front: At, count: i64) -> Ask {
    ask!(LEAVING, READY, front.0, front.1, count)
}

/// The last place of these, and whether there may be more.
pub(crate) fn last_leaving(row: &Row, count: i64) -> StoreResult<(At, bool)> {
    let (at, key, found): (i64, i64, Option<i64>) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
    let last = if found.is_some() { key } else { key.saturating_sub(1) };
    Ok(((at, last), found == Some(count)))
}

/// Asks whether there is any key after this one, of those from which jobs are handed out; `None`: of others.
pub(crate) fn any(from: From, behind: Option<&Stored>) -> Option<Ask> {
    let (turn, id) = place(behind);
    Some(match from {
        From::Line(Line::ORDER) => ask!(ANY, READY, turn, id),
        From::Line(line) if !line.is_lane => {
            ask!(ANY_STANDING, 0_i64, code::line(line), turn, id)
        }
        From::Heads(line) => ask!(ANY_HEAD, code::line(line), at_in(line, behind), id),
        _ => return None,
    })
}

/// Where a key stands in a line.
fn at_in(line: Line, key: Option<&Stored>) -> i64 {
    let turn = |it: &Stored| it.place.order.map(code::turn);
    let at = key.and_then(|it| if line.is_lane { it.place.lane } else { turn(it) });
    at.unwrap_or(i64::MIN)
}

pub(crate) fn group(row: &Row) -> StoreResult<(GroupId, Group)> {
    let group: Group = json(get(row, 0)?)?;
    let (in_flight, waiting, tasks) = (get(row, 1)?, get(row, 2)?, get(row, 3)?);
    Ok((GroupId(get(row, 4)?), Group { in_flight, waiting, tasks, ..group }))
}

pub(crate) fn opening(row: &Row) -> StoreResult<(Opens, Group)> {
    let (id, group) = self::group(row)?;
    Ok(((get(row, 5)?, id), group))
}

pub(crate) fn place(key: Option<&Stored>) -> At {
    let turn = key.and_then(|it| it.place.order).map_or(FIRST.0, code::turn);
    (turn, key.map_or(FIRST.1, |it| it.id.0))
}

/// Reads the answer to [`FLIGHTS`].
pub(crate) fn in_flight(row: &Row) -> StoreResult<InFlight> {
    let (attempt, started) = (Attempt(get(row, 0)?), get(row, 1)?);
    let lease_seconds = get::<Option<i64>>(row, 2)?.map(code::lease);
    Ok(InFlight { attempt, started, lease_seconds, owner: owner(row, 3)? })
}

fn owner(row: &Row, at: usize) -> StoreResult<Option<Arc<str>>> {
    Ok(get::<Option<&str>>(row, at)?.map(Arc::from))
}

pub(crate) const READY: i16 = 1;
pub(crate) const HELD: i16 = 2;
pub(crate) const IN_FLIGHT: i16 = 3;
pub(crate) const FAILED: i16 = 4;
pub(crate) const CLAIMED: i16 = 5;
pub(crate) const GROUPED: i16 = 6;

fn get<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> StoreResult<T> {
    row.try_get(at).map_err(classify)
}

pub(crate) fn payload(bytes: &[u8]) -> Payload {
    match std::str::from_utf8(bytes) {
        Ok(text) => Payload::Text(text.to_owned()),
        Err(_) => Payload::Damaged,
    }
}

/// A key.
pub(crate) fn text(bytes: &[u8]) -> StoreResult<&str> {
    std::str::from_utf8(bytes).map_err(|error| odd(error.to_string()))
}

pub(crate) fn found(rows: &[Row]) -> StoreResult<Vec<Found>> {
    rows.iter().map(one).collect()
}

fn one(row: &Row) -> StoreResult<Found> {
    let number = |at: usize| get::<i64>(row, at).map(i64::unsigned_abs);
    let last = match get(row, 3)? {
        None => None,
        Some(started) => Some(LastRun { started, finished: get(row, 4)?, exit_code: get(row, 5)? }),
    };
    let (served, failed) = code::served_of(get(row, 7)?).ok_or_else(|| odd("keys.served"))?;
    let first: Option<i64> = get(row, 29)?;
    let record = Record {
        since: get(row, 2)?,
        last,
        is_claimed: get(row, 6)?,
        flight: flight(row)?,
        rows: rows_of(row)?,
        served,
        failed,
        singles: Singles {
            waiting: number(8)?,
            failed: number(9)?,
            dead: number(10)?,
            first,
            group: get::<Option<i64>>(row, 33)?.map(GroupId),
            edits: Vec::new(),
        },
        extras: get::<Option<&str>>(row, 21)?.map(json).transpose()?.unwrap_or_default(),
        last_attempt: Attempt(get(row, 11)?),
        ..Record::new(Key::stored(text(get(row, 1)?)?))
    };
    let routes = get::<Option<&str>>(row, 34)?
        .map(|text| code::routes_of(text).ok_or_else(|| odd("keys.routes")));
    let (group, routes) = routes.transpose()?.unwrap_or_default();
    let place = Place {
        group,
        routes,
        order: get::<Option<i64>>(row, 19)?.map(code::turn_of),
        classic_held: get::<i64>(row, 20)? == code::HELD,
        lane: get(row, 22)?,
        due: get::<Option<Millis>>(row, 23)?,
    };
    let payloads = payloads(row, &record.rows, first)?;
    let stored = Stored { id: KeyId(get(row, 0)?), record, place, payload: None };
    Ok(Found { stored, is_whole: get(row, 31)?, payloads })
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|error| odd(error.to_string()))
}

fn flight(row: &Row) -> StoreResult<Option<Flight>> {
    let Some(attempt) = get(row, 12)? else {
        return Ok(None);
    };
    let (worker, lease): (Option<String>, Option<i64>) = (get(row, 15)?, get(row, 16)?);
    let holder = worker.zip(lease).map(|(worker, lease)| LeaseHolder {
        worker: worker.into(),
        lease_seconds: code::lease(lease),
    });
    Ok(Some(Flight {
        attempt: Attempt(attempt),
        task: code::task_of((get(row, 13)?, get(row, 14)?)),
        holder,
        started: get(row, 17)?,
        owner: owner(row, 32)?,
        before: json(get(row, 18)?)?,
    }))
}

fn rows_of(row: &Row) -> StoreResult<Vec<ListRow>> {
    let column = |at: usize| get::<Option<Vec<i64>>>(row, at).map(Option::unwrap_or_default);
    let (fetchers, runs, armed, readings) = (column(24)?, column(25)?, column(26)?, column(27)?);
    let groups = get::<Option<Vec<Option<i64>>>>(row, 35)?.unwrap_or_default();
    let rows = fetchers.into_iter().zip(runs).zip(armed.into_iter().zip(readings)).zip(groups);
    let row = |(((fetcher, run), (armed, reading)), group): (_, Option<i64>)| ListRow {
        fetcher: FetcherId(fetcher),
        run,
        armed: Attempt(armed),
        reading,
        group: group.map(GroupId),
        payload: None,
    };
    Ok(rows.map(row).collect())
}

fn payloads(row: &Row, rows: &[ListRow], first: Option<i64>) -> StoreResult<Vec<(Task, Payload)>> {
    let of_rows: Option<Vec<Option<&[u8]>>> = get(row, 28)?;
    let of_rows = rows.iter().map(ListRow::task).zip(of_rows.unwrap_or_default());
    let of_single = first.map(|number| Task::Single { number }).zip(get(row, 30)?);
    let all = of_rows.chain(of_single.map(|(task, payload)| (task, Some(payload))));
    Ok(all.filter_map(|(task, payload)| Some((task, self::payload(payload?)))).collect())
}

pub(crate) fn end(row: &Row) -> StoreResult<End> {
    let attempt = EndedAttempt {
        attempt: Attempt(get(row, 2)?),
        key: Key::stored(text(get(row, 3)?)?),
        task: code::task_of((get(row, 4)?, get(row, 5)?)),
        worker: get::<Option<&str>>(row, 6)?.map(Arc::from),
        started: get(row, 7)?,
        ended: get(row, 8)?,
        outcome: outcome(row, 9)?,
        exit_code: get(row, 10)?,
        previous: Attempt(get(row, 11)?),
        revisit: get(row, 12)?,
    };
    Ok(End { number: get(row, 0)?, key: KeyId(get(row, 1)?), attempt })
}

/// An invalid word was damaged: that is no reason to fail for all other ends.
pub(crate) fn outcome(row: &Row, at: usize) -> StoreResult<Outcome> {
    Ok(Outcome::of_word(get(row, at)?).unwrap_or(Outcome::Failure))
}

/// Documents whose names have this prefix.
pub(crate) fn documents(prefix: &str) -> Ask {
    ask!(DOCUMENTS, prefix.to_owned(), behind(prefix).unwrap_or_default())
}

/// A document's name and its text.
pub(crate) fn both(row: &Row) -> StoreResult<(String, String)> {
    row.try_get(0).and_then(|name| Ok((name, row.try_get(1)?))).map_err(classify)
}
