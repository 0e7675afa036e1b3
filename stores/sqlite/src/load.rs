//! Reading records: by key, by attempt, by a task's ID, by run, the next ones in order, and those that are out.

use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row};
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder};
use shiftboss_queue::attempt::{EndedAttempt, Outcome};
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::listings::End;
use shiftboss_queue::place::{Line, Place};
use shiftboss_queue::record::{
    Extras, FetcherId, Flight, LastRun, ListRow, Millis, Record, Singles, Task,
};
use shiftboss_queue::records::{From, KeyId, Name, Payload, Stored};

use crate::ask::{Ask, Prepared};
use crate::code;

/// What is read of a record, in the order in which [`Parts::stored`] takes it.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM keys ", $rest)
    };
}
macro_rules! columns {
    () => {
        "id, key, since, started, finished, exit_code, claimed, served, waiting, failed, dead,
             last_attempt, attempt, fetcher, run, worker, lease, started_ms, owner, before, turn, held, extra, single_group, routes"
    };
}

const BY_ID: &str = select!("WHERE id = ?1");
const BY_KEY: &str = select!("WHERE key = ?1");
const BY_FLIGHT: &str = select!("WHERE attempt = ?1");
const ROWS: &str = "SELECT fetcher, run, armed, reading, payload, grp FROM rows WHERE key = ?1";
/// The next ones of a line and group.
const STANDING: &str =
    "SELECT key FROM stands WHERE grp = ?1 AND line = ?2 AND (at, key) > (?3, ?4)
    ORDER BY at, key LIMIT ?5";
/// The first ones of open groups.
const HEADS: &str = "SELECT key FROM heads INDEXED BY open_heads
    WHERE line = ?1 AND open = 1 AND (at, key) > (?2, ?3) ORDER BY at, key LIMIT ?4";
/// Those that have a turn, or have it and somebody has them, behind one: of its turn, and of later ones. Of two columns that are compared
/// together SQLite would look for the first one alone.
const OF_TURN: &str =
    select!("INDEXED BY in_order WHERE held = ?1 AND turn = ?2 AND id > ?3 ORDER BY id LIMIT ?4");
const LATER: &str =
    select!("INDEXED BY in_order WHERE held = ?1 AND turn > ?2 ORDER BY turn, id LIMIT ?3");
/// Those in order behind one, and whether each has nothing but rows of runs that are being deleted.
macro_rules! leaving {
    ($behind:literal) => {
        concat!(
            "SELECT * FROM (SELECT id, waiting = 0 AND NOT EXISTS (
                SELECT 1 FROM rows WHERE rows.key = id AND (rows.fetcher, rows.run) NOT IN (
                    SELECT fetcher, run FROM runs WHERE deleting = 1)
                    AND (rows.fetcher, rows.run) IS NOT (?4, ?5))
             FROM keys INDEXED BY in_order WHERE held = 0 AND ",
            $behind,
            " LIMIT ?3)"
        )
    };
}
const LEAVING: &str = concat!(
    leaving!("turn = ?1 AND id > ?2 ORDER BY id"),
    " UNION ALL ",
    leaving!("turn > ?1 ORDER BY turn, id"),
    " LIMIT ?3"
);
/// Turns and ids alone of those behind one.
macro_rules! turns {
    ($held:literal) => {
        concat!(
            "SELECT * FROM (SELECT turn, id FROM keys INDEXED BY in_order WHERE held = ",
            $held,
            " AND turn = ?1 AND id > ?2 ORDER BY id LIMIT ?3)
            UNION ALL SELECT * FROM (SELECT turn, id FROM keys INDEXED BY in_order WHERE held = ",
            $held,
            " AND turn > ?1 ORDER BY turn, id LIMIT ?3) LIMIT ?3"
        )
    };
}
pub(crate) const TURNS: &str = turns!(0);
pub(crate) const TURNS_IN_GROUPS: &str = turns!(2);
pub(crate) const TURNS_HELD: &str = turns!(1);
const ALL: &str = select!("WHERE id > ?1 ORDER BY id LIMIT ?2");

/// Attempts that ended, as [`end`] reads them.
macro_rules! ends {
    ($rest:literal) => {
        concat!(
            "SELECT ended, attempts.key, attempts.attempt, keys.key, attempts.fetcher, attempts.run, attempts.worker,
                attempts.started_ms, ended_ms, outcome, attempts.exit_code, previous, revisit
             FROM attempts CROSS JOIN keys ON keys.id = attempts.key ",
            $rest
        )
    };
}
pub(crate) use ends;
pub(crate) const END: &str = ends!("WHERE attempts.attempt = ?1");

/// For how many records memory is reserved at once, before it is known how many there are.
const ROOM_MAX: usize = 1_024;

/// Reads records on one connection; its statements are prepared once for all that are asked together.
pub(crate) struct Loader<'c> {
    connection: &'c Connection,
    by_id: Prepared<'c>,
    by_key: Prepared<'c>,
    parts: Parts<'c>,
}

/// The parts of a record that are not in `keys`.
struct Parts<'c> {
    connection: &'c Connection,
    rows: Prepared<'c>,
}

struct Served(code::Served);

impl FromSql for Served {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        code::served_of(value.as_str()?).map(Self)
    }
}

impl<'c> Loader<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        let prepared = |sql| Prepared::new(connection, sql);
        let parts = Parts { connection, rows: prepared(ROWS) };
        Self { connection, by_id: prepared(BY_ID), by_key: prepared(BY_KEY), parts }
    }

    /// The record of a name, if there is any.
    pub(crate) fn named(&mut self, name: &Name) -> Result<Option<Stored>> {
        match name {
            Name::Key(key) => one(&mut self.by_key, &mut self.parts, [key.as_str()]),
            Name::Attempt(attempt) => match self.all(BY_FLIGHT, [attempt.0], 1)?.pop() {
                None => {
                    let sql = "SELECT key FROM attempts WHERE attempt = ?1";
                    self.of_id_in(sql, [attempt.0])
                }
                out => Ok(out),
            },
            Name::TaskId(id) => self.of_id_in("SELECT key FROM tasks WHERE name = ?1", [&**id]),
        }
    }

    pub(crate) fn by_id(&mut self, id: KeyId) -> Result<Option<Stored>> {
        one(&mut self.by_id, &mut self.parts, [id.0])
    }

    /// The record with the id that a query returns.
    fn of_id_in(&mut self, sql: &str, params: impl Params) -> Result<Option<Stored>> {
        let mut query = self.connection.prepared(sql)?;
        let id: Option<i64> = query.query_row(params, |row| row.get(0)).optional()?;
        id.map_or(Ok(None), |id| self.by_id(KeyId(id)))
    }

    /// The records with the ids that a query returns, in its order.
    pub(crate) fn of_ids(&mut self, sql: &str, params: impl Params) -> Result<Vec<Stored>> {
        let mut query = self.connection.prepared(sql)?;
        let ids: Vec<i64> = query.query_map(params, |row| row.get(0))?.collect::<Result<_>>()?;
        let records = ids.into_iter().map(|id| self.by_id(KeyId(id)));
        records.filter_map(Result::transpose).collect()
    }

    /// The next keys of a kind after a place.
    pub(crate) fn next(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        count: usize,
    ) -> Result<Vec<Stored>> {
        let (limit, room) = limit(count);
        let id = behind.map_or(i64::MIN, |it| it.id.0);
        let turn = behind.and_then(|it| it.place.order).map_or(i64::MIN, code::turn);
        match from {
            From::Line(Line::ORDER) => self.in_order(code::FREE, (turn, id), count),
            From::ClassicHeld => self.in_order(code::HELD, (turn, id), count),
            From::All => self.all(ALL, (id, limit), room),
            From::Later(bound) => {
                let bound = (code::turn(bound), i64::MAX).max((turn, id));
                let mut next = self.in_order(code::FREE, bound, count)?;
                next.extend(self.in_order(code::GROUPED, bound, count)?);
                next.sort_by_key(|it| (it.place.order, it.id));
                next.truncate(count);
                Ok(next)
            }
            From::Line(line) if line != Line::LANE => {
                let values = (0, code::line(line), at_in(line, behind), id, limit);
                self.of_ids(STANDING, values)
            }
            From::Group(group, line) => {
                let values = (group.0, code::line(line), at_in(line, behind), id, limit);
                self.of_ids(STANDING, values)
            }
            From::Heads(line) => {
                self.of_ids(HEADS, (code::line(line), at_in(line, behind), id, limit))
            }
            From::Line(_) => {
                let lane = behind.and_then(|it| it.place.lane).unwrap_or(i64::MIN);
                let sql = "SELECT key FROM extras WHERE lane > ?1 ORDER BY lane LIMIT ?2";
                self.of_ids(sql, (lane, limit))
            }
            From::Dues => {
                let sql = "SELECT key FROM extras NOT INDEXED WHERE due IS NOT NULL AND key > ?1
                    ORDER BY key LIMIT ?2";
                self.of_ids(sql, (id, limit))
            }
            From::Due(until) => {
                let due = behind.and_then(|it| it.place.due).unwrap_or(i64::MIN);
                let sql = "SELECT key FROM extras WHERE due <= ?1 AND (due, key) > (?2, ?3)
                    ORDER BY due, key LIMIT ?4";
                self.of_ids(sql, (until, due, id, limit))
            }
        }
    }

    /// Keys that have a turn after a place; held: those that are out.
    fn in_order(&mut self, held: i64, (turn, id): (i64, i64), count: usize) -> Result<Vec<Stored>> {
        let mut next = Vec::with_capacity(limit(count).1);
        // No key's turn is the lowest number.
        if turn > i64::MIN {
            self.find(&mut next, OF_TURN, (held, turn, id, limit(count).0))?;
        }
        let left = count - next.len();
        if left > 0 {
            self.find(&mut next, LATER, (held, turn, limit(left).0))?;
        }
        Ok(next)
    }

    pub(crate) fn leaving(
        &mut self,
        behind: Option<&Stored>,
        also: Option<(FetcherId, i64)>,
        count: usize,
    ) -> Result<(Option<Stored>, bool)> {
        let id = behind.map_or(i64::MIN, |it| it.id.0);
        let turn = behind.and_then(|it| it.place.order).map_or(i64::MIN, code::turn);
        let (mut last, mut left) = (None, count);
        let mut query = self.connection.prepare_cached(LEAVING)?;
        let mut found = query.query((
            turn,
            id,
            limit(count).0,
            also.map(|(fetcher, _)| fetcher.0),
            also.map(|(_, run)| run),
        ))?;
        while let Some(row) = found.next()? {
            if !row.get::<_, bool>(1)? {
                break;
            }
            last = Some(KeyId(row.get(0)?));
            left -= 1;
        }
        let last = last.map(|id| self.by_id(id)).transpose()?.flatten();
        Ok((last, left == 0))
    }

    pub(crate) fn of_run(
        &mut self,
        (fetcher, run): (FetcherId, i64),
        behind: Option<KeyId>,
        count: usize,
    ) -> Result<Vec<Stored>> {
        let behind = behind.map_or(i64::MIN, |id| id.0);
        if fetcher == FetcherId::TASKS {
            let sql = "SELECT DISTINCT key FROM tasks INDEXED BY tasks_of_key
                WHERE key > ?1 AND status = 'waiting' ORDER BY key LIMIT ?2";
            return self.of_ids(sql, (behind, i64::try_from(count).unwrap_or(i64::MAX)));
        }
        let sql = "SELECT key FROM rows INDEXED BY rows_by_run
            WHERE fetcher = ?1 AND run = ?2 AND key > ?3 ORDER BY key LIMIT ?4";
        self.of_ids(sql, (fetcher.0, run, behind, i64::try_from(count).unwrap_or(i64::MAX)))
    }

    pub(crate) fn payload(&self, id: KeyId, task: Task) -> Result<Payload> {
        let payload = |row: &Row<'_>| match row.get_ref(0)? {
            ValueRef::Text(text) => Ok(match String::from_utf8(text.to_vec()) {
                Ok(text) => Payload::Text(text),
                Err(_) => Payload::Damaged,
            }),
            _ => Ok(Payload::Damaged),
        };
        let found = match task {
            Task::Single { number } => {
                let sql = "SELECT payload FROM tasks WHERE number = ?1";
                self.connection.prepared(sql)?.query_row([number], payload)
            }
            Task::Row { fetcher, run } => {
                let sql = "SELECT payload FROM rows WHERE key = ?1 AND fetcher = ?2 AND run = ?3";
                let mut query = self.connection.prepared(sql)?;
                query.query_row((id.0, fetcher.0, run), payload)
            }
        };
        Ok(found.optional()?.unwrap_or(Payload::Missing))
    }

    fn all(&mut self, sql: &str, params: impl Params, room: usize) -> Result<Vec<Stored>> {
        let mut all = Vec::with_capacity(room);
        self.find(&mut all, sql, params)?;
        Ok(all)
    }

    fn find(&mut self, all: &mut Vec<Stored>, sql: &str, params: impl Params) -> Result<()> {
        let mut query = self.connection.prepared(sql)?;
        let mut found = query.query(params)?;
        while let Some(row) = found.next()? {
            all.push(self.parts.stored(row)?);
        }
        Ok(())
    }
}

/// Where a key stands in a line.
fn at_in(line: Line, key: Option<&Stored>) -> i64 {
    let turn = |it: &Stored| it.place.order.map(code::turn);
    let at = key.and_then(|it| if line.is_lane { it.place.lane } else { turn(it) });
    at.unwrap_or(i64::MIN)
}

/// A limit for a statement, and for how many to reserve memory.
fn limit(count: usize) -> (i64, usize) {
    (i64::try_from(count).unwrap_or(i64::MAX), count.min(ROOM_MAX))
}

fn one(
    query: &mut Prepared<'_>,
    parts: &mut Parts<'_>,
    params: impl Params,
) -> Result<Option<Stored>> {
    let mut found = query.get()?.query(params)?;
    found.next()?.map(|row| parts.stored(row)).transpose()
}

impl Parts<'_> {
    fn stored(&mut self, row: &Row<'_>) -> Result<Stored> {
        let id: i64 = row.get(0)?;
        let started: Option<i64> = row.get(3)?;
        let turn: Option<i64> = row.get(20)?;
        let mut place = Place {
            order: turn.map(code::turn_of),
            classic_held: row.get::<_, i64>(21)? == code::HELD,
            ..Place::default()
        };
        if let Some(routes) = row.get_ref(24)?.as_str_or_null()? {
            (place.group, place.routes) = code::routes_of(routes)?;
        }
        let waiting: i64 = row.get(8)?;
        let number = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
        let (rows, payload) = self.rows(id)?;
        let Served((served, failed)) = row.get(7)?;
        let mut record = Record {
            since: row.get(2)?,
            last: match started {
                Some(started) => {
                    Some(LastRun { started, finished: row.get(4)?, exit_code: row.get(5)? })
                }
                None => None,
            },
            is_claimed: row.get(6)?,
            flight: flight(row)?,
            rows,
            served,
            failed,
            singles: Singles {
                waiting: waiting.unsigned_abs(),
                failed: number(9)?,
                dead: number(10)?,
                first: if waiting > 0 { self.first_single(id)? } else { None },
                group: row.get::<_, Option<i64>>(23)?.map(GroupId),
                edits: Vec::new(),
            },
            last_attempt: Attempt(row.get(11)?),
            ..Record::new(Key::stored(row.get_ref(1)?.as_str()?))
        };
        if row.get(22)? {
            (record.extras, place.lane, place.due) = self.extras(id)?;
        }
        Ok(Stored { id: KeyId(id), record, place, payload })
    }

    /// Its rows, and the payload if there is only one; otherwise a dispatch reads the payload again.
    fn rows(&mut self, id: i64) -> Result<(Vec<ListRow>, Option<String>)> {
        let mut found = self.rows.get()?.query([id])?;
        let (mut rows, mut payload) = (Vec::new(), None);
        while let Some(row) = found.next()? {
            rows.push(ListRow {
                fetcher: FetcherId(row.get(0)?),
                run: row.get(1)?,
                armed: Attempt(row.get(2)?),
                reading: row.get(3)?,
                group: row.get::<_, Option<i64>>(5)?.map(GroupId),
                payload: None,
            });
            // If it cannot be read, that is noticed when it is asked for.
            payload = match rows.len() {
                1 => row.get_ref(4)?.as_str().ok().map(str::to_owned),
                _ => None,
            };
        }
        Ok((rows, payload))
    }

    fn first_single(&self, id: i64) -> Result<Option<i64>> {
        let sql = "SELECT min(number) FROM tasks WHERE key = ?1 AND status = 'waiting'";
        self.connection.prepared(sql)?.query_row([id], |row| row.get(0))
    }

    fn extras(&self, id: i64) -> Result<(Extras, Option<i64>, Option<Millis>)> {
        let sql = "SELECT extras, coalesce(lane, lane_in_group), due FROM extras WHERE key = ?1";
        let mut query = self.connection.prepared(sql)?;
        query.query_row([id], |row| Ok((code::json_of(row.get_ref(0)?)?, row.get(1)?, row.get(2)?)))
    }
}

pub(crate) fn end(row: &Row<'_>) -> Result<End> {
    let worker = row.get_ref(6)?.as_bytes_or_null()?.map(String::from_utf8_lossy);
    let attempt = EndedAttempt {
        attempt: Attempt(row.get(2)?),
        key: Key::stored(row.get_ref(3)?.as_str()?),
        task: code::task_of((row.get(4)?, row.get(5)?)),
        worker: worker.map(|it| it.as_ref().into()),
        started: row.get(7)?,
        ended: row.get(8)?,
        outcome: outcome(row, 9)?,
        exit_code: row.get(10)?,
        previous: Attempt(row.get(11)?),
        revisit: row.get(12)?,
    };
    Ok(End { number: row.get(0)?, key: KeyId(row.get(1)?), attempt })
}

/// An invalid word was damaged: that is no reason to fail for all other ends.
pub(crate) fn outcome(row: &Row<'_>, column: usize) -> Result<Outcome> {
    let word = row.get_ref(column)?.as_str().unwrap_or_default();
    Ok(Outcome::of_word(word).unwrap_or(Outcome::Failure))
}

fn flight(row: &Row<'_>) -> Result<Option<Flight>> {
    let Some(attempt) = row.get(12)? else {
        return Ok(None);
    };
    let worker: Option<String> = row.get(15)?;
    let lease = row.get::<_, Option<i64>>(16)?.map(code::lease);
    let holder = match (worker, lease) {
        (Some(worker), Some(lease_seconds)) => {
            Some(LeaseHolder { worker: worker.into(), lease_seconds })
        }
        _ => None,
    };
    Ok(Some(Flight {
        attempt: Attempt(attempt),
        task: code::task_of((row.get(13)?, row.get(14)?)),
        holder,
        started: row.get(17)?,
        owner: row.get::<_, Option<String>>(18)?.map(Into::into),
        before: code::json_of(row.get_ref(19)?)?,
    }))
}
