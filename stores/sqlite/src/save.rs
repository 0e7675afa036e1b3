//! Writing records: the fixed part as a whole, rows and extras where they changed.

use rusqlite::{CachedStatement, Connection, Result, params};
use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::Key;
use shiftboss_queue::attempt::EndedAttempt;
use shiftboss_queue::place::Place;
use shiftboss_queue::record::{ListRow, Record, SingleEdit};
use shiftboss_queue::records::{Change, KeyId, Stored};
use shiftboss_queue::standing::Listed;

use crate::ask::Prepared;
use crate::code;
use crate::standings::Standings;

/// Tries for a key whose id is taken, which happens only with the same jitter and 2^31 keys in between.
const TRIES_MAX: u32 = 1_000;
/// When fewer attempts are kept from now on, how many surplus ones each batch deletes in addition to the number it
/// adds.
const FORGOTTEN_STEP: i64 = 100;

/// The key is the last column, so that it is not written again: its index would have to be, too.
const INSERT: &str =
    "INSERT OR IGNORE INTO keys (since, started, finished, exit_code, claimed, served, waiting, failed, dead, last_attempt, attempt,
    fetcher, run, worker, lease, started_ms, owner, before, turn, held, extra, failed_at, single_group, routes, id, key)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)";
const UPDATE: &str =
    "UPDATE keys SET since = ?1, started = ?2, finished = ?3, exit_code = ?4, claimed = ?5, served = ?6, waiting = ?7, failed = ?8,
    dead = ?9, last_attempt = ?10, attempt = ?11, fetcher = ?12, run = ?13, worker = ?14, lease = ?15, started_ms = ?16,
    owner = ?17, before = ?18, turn = ?19, held = ?20, extra = ?21, failed_at = ?22, single_group = ?23, routes = ?24
    WHERE id = ?25";

const PUT_ROW: &str =
    "INSERT INTO rows (key, fetcher, run, armed, reading, grp, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT DO UPDATE SET armed = excluded.armed, reading = excluded.reading, grp = excluded.grp, payload = excluded.payload";

macro_rules! put_attempt {
    ($or:literal) => {
        concat!(
            "INSERT OR ",
            $or,
            " INTO attempts (ended, attempt, key, fetcher, run, worker, started_ms, ended_ms, outcome, exit_code, previous, revisit)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
        )
    };
}

/// Writes records on one connection; its statements are prepared once for all that are saved together.
pub(crate) struct Saver<'c> {
    connection: &'c Connection,
    update: Prepared<'c>,
    insert: Prepared<'c>,
    row: Prepared<'c>,
    pub(crate) standings: Standings,
    /// Keys that were ever given an id.
    ids: &'c mut i64,
    ends: &'c mut i64,
    /// The minute of the batch.
    pub(crate) minute: i64,
}

impl<'c> Saver<'c> {
    pub(crate) fn new(connection: &'c Connection, ids: &'c mut i64, ends: &'c mut i64) -> Self {
        let prepared = |sql| Prepared::new(connection, sql);
        let (update, insert, row) = (prepared(UPDATE), prepared(INSERT), prepared(PUT_ROW));
        let standings = Standings::default();
        Self { connection, update, insert, row, standings, ids, ends, minute: 0 }
    }

    /// Writes a key's change; returns its new record, or `None` if nothing is known of it any more.
    pub(crate) fn change(&mut self, change: Change) -> Result<Option<Stored>> {
        let Change { before, key, now } = change;
        match (before, now) {
            (None, None) => Ok(None),
            (Some(before), None) => {
                self.standings.change(
                    self.connection,
                    before.id,
                    &before.place.standings(),
                    &[],
                )?;
                self.forget(before.id).map(|()| None)
            }
            (before, Some((record, place))) => {
                let id = match &before {
                    None => self.insert(&key, &record, &place)?,
                    Some(known) => {
                        let before = fixed_part(&known.record, &known.place);
                        if before != fixed_part(&record, &place) {
                            write(self.update.get()?, known.id.0, None, &record, &place)?;
                        }
                        known.id
                    }
                };
                self.rows(id, before.as_ref().map_or(&[][..], |it| &it.record.rows), &record.rows)?;
                self.extras(id, before.as_deref(), &record, &place)?;
                let stood = before.as_ref().map_or(Vec::new(), |it| it.place.standings());
                self.standings.change(self.connection, id, &stood, &place.standings())?;
                record.singles.edits.iter().try_for_each(|edit| self.edit(id, edit))?;
                Ok(Some(Stored { id, record: record.as_kept(), place, payload: None }))
            }
        }
    }

    fn insert(&mut self, key: &Key, record: &Record, place: &Place) -> Result<KeyId> {
        let insert = self.insert.get()?;
        for _ in 0..TRIES_MAX {
            *self.ids = self.ids.wrapping_add(1);
            let id = code::id(key, *self.ids);
            if write(insert, id.0, Some(key), record, place)? == 1 {
                return Ok(id);
            }
        }
        Err(rusqlite::Error::StatementChangedRows(0))
    }

    fn rows(&mut self, id: KeyId, before: &[ListRow], now: &[ListRow]) -> Result<()> {
        for gone in before.iter().filter(|row| !now.iter().any(|it| it.task() == row.task())) {
            let sql = "DELETE FROM rows WHERE key = ?1 AND fetcher = ?2 AND run = ?3";
            self.connection.prepare_cached(sql)?.execute((id.0, gone.fetcher.0, gone.run))?;
        }
        for row in now {
            let ListRow { fetcher, run, armed, reading, payload, group } = row;
            let group = group.map(|it| it.0);
            match payload {
                Some(payload) => {
                    let values = (id.0, fetcher.0, run, armed.0, reading, group, payload);
                    self.row.get()?.execute(values)?;
                }
                None if !before.contains(row) => {
                    let sql = "UPDATE rows SET armed = ?4, reading = ?5, grp = ?6
                        WHERE key = ?1 AND fetcher = ?2 AND run = ?3";
                    let mut query = self.connection.prepare_cached(sql)?;
                    query.execute((id.0, fetcher.0, run, armed.0, reading, group))?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn extras(
        &self,
        id: KeyId,
        before: Option<&Stored>,
        record: &Record,
        place: &Place,
    ) -> Result<()> {
        let has_extras = has_extras(record, place);
        let of = |place: &Place| (place.lane, place.due, place.group.is_some());
        let known = before.map(|it| (&it.record.extras, of(&it.place)));
        if known == Some((&record.extras, of(place))) || known.is_none() && !has_extras {
            return Ok(());
        }
        if !has_extras {
            let sql = "DELETE FROM extras WHERE key = ?1";
            return self.connection.prepare_cached(sql)?.execute([id.0]).map(drop);
        }
        let sql = "INSERT OR REPLACE INTO extras (key, extras, lane, due, held, backed_off, delayed, stopping, dead, lane_in_group)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let extras = code::json(&record.extras)?;
        let Listed { held, backed_off, delayed, dead } = record.listed();
        let [lane, in_group] = match place.group {
            None => [place.lane, None],
            Some(_) => [None, place.lane],
        };
        let stopping = record.extras.stopping.map(|it| it.0);
        let due = place.due;
        let values = (id.0, extras, lane, due, held, backed_off, delayed, stopping, dead, in_group);
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    fn edit(&self, key: KeyId, edit: &SingleEdit) -> Result<()> {
        let run = |sql, params: &[&dyn rusqlite::ToSql]| {
            self.connection.prepare_cached(sql)?.execute(params).map(drop)
        };
        match edit {
            SingleEdit::Add { number, payload, id } => {
                let sql = "INSERT INTO tasks (number, key, status, checksum, name, payload)
                    VALUES (?1, ?2, 'waiting', ?3, ?4, ?5)";
                let checksum = checksum(payload.as_bytes()).cast_signed();
                run(sql, params![number, key.0, checksum, id.as_deref(), payload])
            }
            SingleEdit::Set { number, status } => {
                if status.is_over() {
                    run("DELETE FROM tasks WHERE number = ?1 AND name IS NULL", params![number])?;
                }
                let sql = "UPDATE tasks SET status = ?2, over = ?3 WHERE number = ?1";
                run(sql, params![number, status.word(), status.is_over().then_some(self.minute)])
            }
            SingleEdit::Name { number, id } => {
                let sql = "UPDATE tasks SET name = ?2 WHERE number = ?1 AND name IS NULL";
                run(sql, params![number, &**id])
            }
        }
    }

    /// Deletes everything known of a key.
    pub(crate) fn forget(&self, id: KeyId) -> Result<()> {
        for sql in [
            "WITH RECURSIVE chain (attempt) AS (
                SELECT last_attempt FROM keys WHERE id = ?1
                UNION SELECT previous FROM chain JOIN attempts USING (attempt) WHERE key = ?1)
             DELETE FROM attempts WHERE attempt IN chain",
            "DELETE FROM rows WHERE key = ?1",
            "DELETE FROM extras WHERE key = ?1",
            "DELETE FROM tasks WHERE key = ?1",
            "DELETE FROM keys WHERE id = ?1",
        ] {
            self.connection.prepare_cached(sql)?.execute([id.0])?;
        }
        Ok(())
    }

    /// Writes ended attempts; a late result replaces what was known of its attempt. `kept`: how many of the last ones
    /// are kept.
    pub(crate) fn ended(
        &mut self,
        ended: &[EndedAttempt],
        kept: i64,
        id: impl Fn(&Key) -> Option<KeyId>,
    ) -> Result<()> {
        let mut insert = self.connection.prepare_cached(put_attempt!("IGNORE"))?;
        for it in ended {
            let Some(key) = id(&it.key) else { continue };
            *self.ends = self.ends.saturating_add(1);
            let (fetcher, run) = code::task(it.task);
            let values = (
                *self.ends,
                it.attempt.0,
                key.0,
                fetcher,
                run,
                it.worker.as_deref(),
                it.started,
                it.ended,
                it.outcome.word(),
                it.exit_code,
                it.previous.0,
                it.revisit,
            );
            // A late result is rare, and replacing is expensive.
            if insert.execute(values)? == 0 {
                self.connection.prepare_cached(put_attempt!("REPLACE"))?.execute(values)?;
            }
        }
        let last = self.ends.saturating_sub(kept);
        if !ended.is_empty() && last > 0 {
            let sql = "DELETE FROM attempts
                WHERE ended <= min(?1, (SELECT min(ended) FROM attempts) + ?2)";
            let step = FORGOTTEN_STEP.saturating_add_unsigned(ended.len() as u64);
            self.connection.prepare_cached(sql)?.execute((last, step))?;
        }
        Ok(())
    }
}

/// The part of a record that is in `keys`, for comparison.
fn fixed_part<'a>(record: &'a Record, place: &'a Place) -> impl PartialEq + use<'a> {
    let Record { since, last, is_claimed, flight, served, failed, singles, last_attempt, .. } =
        record;
    let singles = (singles.waiting, singles.failed, singles.dead, singles.group);
    let place =
        (place.order, place.classic_held, has_extras(record, place), place.group, &place.routes);
    (
        (since, last, is_claimed),
        (flight, served, failed, record.failed_at(), last_attempt),
        singles,
        place,
    )
}

fn has_extras(record: &Record, place: &Place) -> bool {
    !record.extras.is_empty() || place.lane.is_some() || place.due.is_some()
}

fn write(
    statement: &mut CachedStatement<'_>,
    id: i64,
    key: Option<&Key>,
    record: &Record,
    place: &Place,
) -> Result<usize> {
    let last = record.last.as_ref();
    let flight = record.flight.as_ref();
    let task = flight.map(|it| code::task(it.task));
    let holder = flight.and_then(|it| it.holder.as_ref());
    let singles = &record.singles;
    let values = params![
        record.since,
        last.map(|it| it.started),
        last.and_then(|it| it.finished),
        last.and_then(|it| it.exit_code),
        record.is_claimed,
        code::served(record),
        singles.waiting.cast_signed(),
        singles.failed.cast_signed(),
        singles.dead.cast_signed(),
        record.last_attempt.0,
        flight.map(|it| it.attempt.0),
        task.map(|it| it.0),
        task.map(|it| it.1),
        holder.map(|it| &*it.worker),
        holder.map(|it| it.lease_seconds),
        flight.map(|it| it.started),
        flight.and_then(|it| it.owner.as_deref()),
        flight.map(|it| code::json(&it.before)).transpose()?,
        place.order.map(code::turn),
        code::held(place),
        has_extras(record, place),
        record.failed_at(),
        singles.group.map(|it| it.0),
        code::routes(place),
        id,
        key.map(Key::as_str),
    ];
    statement.execute(if key.is_some() { values } else { &values[..values.len() - 1] })
}
