//! A database of the Python supervisor becomes one of ours, in its place (spec 6). One transaction does it: if the
//! process is killed in between, the supervisor's database is unchanged.
//!
//! Its rows and its log are read once, sorted by jitter and key; everything with the same key becomes one record, which
//! is written like any new record. SQLite sorts in files, beside the database, so that memory is bounded. Called when a
//! database is opened whose tables are [the supervisor's](crate::Whose::Supervisors).

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::functions::FunctionFlags;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, Row, Statement, TransactionBehavior};
use shiftboss_protocol::model::{Attempt, Key, TASKS_FETCHER, jitter};
use shiftboss_queue::context::{Context, Settings};
use shiftboss_queue::counts::Tally;
use shiftboss_queue::documents::{PLACES, Policy};
use shiftboss_queue::record::{Before, FetcherId, Flight, LastRun, ListRow, Millis, Record};
use shiftboss_queue::records::{Change, Header, StoreError, StoreResult};
use shiftboss_queue::rules::{clocks, edits};

use crate::error::classify;
use crate::header::{self, Kept};
use crate::save::Saver;
use crate::{documents, schema};

/// The required space, in halves of the file: for the new tables, for sorting, and for a rollback.
const SPACE_HALVES: u64 = 7;
/// SQLite's memory meanwhile, for pages and for sorting, in KiB each.
const CACHE_KIB: i64 = 16 * 1024;
/// After how many rows progress is reported.
const PROGRESS_ROWS: u64 = 100_000;
/// The attempt that served a fetcher whose row was dispatched. Other rows are armed by the last attempt.
const SERVED: Attempt = Attempt(1);

/// Everything, in the order in which it is written. Rows of the log have no fetcher, and come first.
const SORTED: &str = "
    SELECT shiftboss_jitter(attr_path), attr_path, fetcher_id, fetcher_run_started, is_dequeued, payload, NULL, NULL, NULL
    FROM queue
    UNION ALL
    SELECT shiftboss_jitter(attr_path), attr_path, NULL, NULL, NULL, NULL, started, finished, exit_code FROM log
    ORDER BY 1, 2, 3, 4";
const SET_ASIDE: &str =
    "INSERT INTO set_aside (why, attr_path, fetcher_id, run, payload, started, finished, exit_code)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub doing: &'static str,
    /// So many rows of all.
    pub rows: u64,
    pub of: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenOver {
    pub keys: u64,
    /// Rows of `queue` and `log`.
    pub rows: u64,
    /// Keys that the supervisor handed out, and that have not ended.
    pub in_flight: u64,
    /// Rows that cannot be read: they are in the table `set_aside`, each with its reason.
    pub set_aside: u64,
}

/// Takes a database of the supervisor over, for a daemon with these settings.
/// With an error the database is as it was.
pub fn take_over(
    connection: &mut Connection,
    settings: &Settings,
    now: Millis,
    progress: impl FnMut(Progress),
) -> StoreResult<TakenOver> {
    let path = connection.path().filter(|path| !path.is_empty()).map(ToOwned::to_owned);
    let path = path.as_deref().map(Path::new);
    if let Some(path) = path {
        let size = std::fs::metadata(path).map_err(|error| unknown_space(path, &error))?.size();
        require_space(path, "taking over", size.saturating_mul(SPACE_HALVES) / 2)?;
    }
    let cache: i64 = pragma(connection, "cache_size").map_err(classify)?;
    let keys: i64 = pragma(connection, "foreign_keys").map_err(classify)?;
    let beside = path.and_then(Path::parent).and_then(Path::to_str).unwrap_or_default();
    let taken = prepare(connection, beside)
        .and_then(|()| in_transaction(connection, settings, now, progress))
        .map_err(classify);
    // There is no sorting here afterwards.
    let _ = connection.pragma_update(None, "temp_store_directory", "");
    connection.pragma_update(None, "cache_size", cache).map_err(classify)?;
    connection.pragma_update(None, "foreign_keys", keys).map_err(classify)?;
    taken
}

/// Requires that `needed` bytes are free in the directory of a database, for `doing`.
pub fn require_space(path: &Path, doing: &str, needed: u64) -> StoreResult<()> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let space = rustix::fs::statvfs(parent).map_err(|error| unknown_space(path, &error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < needed {
        let path = path.display();
        return Err(StoreError::Full(format!(
            "{doing} {path} needs {needed} bytes in its directory, and {free} are free; nothing was changed"
        )));
    }
    Ok(())
}

fn unknown_space(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Fatal(format!("the space beside {} cannot be told: {error}", path.display()))
}

fn pragma(connection: &Connection, name: &str) -> Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Settings that cannot be changed within a transaction.
fn prepare(connection: &Connection, beside: &str) -> Result<()> {
    connection.pragma_update(None, "temp_store_directory", beside)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Dropping a table would look for its rows' children one by one.
    connection.pragma_update(None, "foreign_keys", false)?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("shiftboss_jitter", 1, flags, |context| {
        Ok(context.get_raw(0).as_str().map_or(0, jitter))
    })
}

fn in_transaction(
    connection: &mut Connection,
    settings: &Settings,
    now: Millis,
    mut progress: impl FnMut(Progress),
) -> Result<TakenOver> {
    // There must be no readers: pages that do not fit into memory are written before the end.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    let number = |sql| transaction.query_row(sql, [], |row| row.get::<_, i64>(0));
    let of = number("SELECT (SELECT count(*) FROM queue) + (SELECT count(*) FROM log)")?;
    let of = of.unsigned_abs();
    let mut tell = |doing, rows| progress(Progress { doing, rows, of });
    tell("sorting rows", 0);
    schema::make_tables(&transaction)?;
    let mut kept = Kept::default();
    kept.header.last_attempt =
        SERVED.0 + number("SELECT count(*) FROM log WHERE finished IS NULL")?;
    load_runs(&transaction, &mut kept.header)?;
    let context = Context {
        now,
        settings: Arc::new(settings.clone()),
        last_attempt: Attempt(kept.header.last_attempt),
        last_bump: 0,
        clock: 0,
        going: Arc::default(),
        routed: Arc::default(),
        fetchers: Arc::default(),
        holds: Arc::default(),
    };
    let taken = write_records(&transaction, &mut kept, context, &mut tell)?;
    header::save_all(&transaction, &kept)?;
    let policy = if settings.is_fair { Policy::Fair } else { Policy::Classic };
    documents::write(&transaction, PLACES.name(), Some(&PLACES.text(&policy)))?;
    tell("making indexes", of);
    schema::make_indexes(&transaction)?;
    tell("dropping the old tables", of);
    for table in schema::REFERENCE_TABLES {
        transaction.execute_batch(&format!("DROP TABLE {table}"))?;
    }
    schema::make_reference(&transaction)?;
    transaction.commit()?;
    Ok(taken)
}

/// Fetchers and runs. A fetcher whose name cannot have lists is unknown from here on.
fn load_runs(connection: &Connection, header: &mut Header) -> Result<()> {
    let mut query = connection.prepare("SELECT fetcher_id, name FROM fetchers")?;
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        if let (id @ 1.., Ok(name)) = (row.get(0)?, row.get_ref(1)?.as_str())
            && name != TASKS_FETCHER
        {
            header.name_fetcher(FetcherId(id), name.into());
        }
    }
    let sql = "SELECT fetcher_id, run_started, is_complete <> 0 FROM fetcher_runs";
    let mut query = connection.prepare(sql)?;
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        let (fetcher, run, complete) = row.try_into()?;
        if header.fetchers.contains_key(&FetcherId(fetcher)) {
            header.runs.change((FetcherId(fetcher), run)).complete = complete;
        }
    }
    Ok(())
}

fn write_records(
    connection: &Connection,
    kept: &mut Kept,
    context: Context,
    tell: &mut impl FnMut(&'static str, u64),
) -> Result<TakenOver> {
    let Kept { header, ids, ends } = kept;
    let mut writer = Writer {
        saver: Saver::new(connection, ids, ends),
        set_aside: connection.prepare(SET_ASIDE)?,
        header,
        context,
        record: None,
        taken: TakenOver::default(),
    };
    let mut query = connection.prepare(SORTED)?;
    let mut found = query.query([])?;
    while let Some(row) = found.next()? {
        writer.add(row)?;
        if writer.taken.rows.is_multiple_of(PROGRESS_ROWS) {
            tell("writing rows", writer.taken.rows);
        }
    }
    writer.save()?;
    Ok(writer.taken)
}

/// Makes records from ordered rows, and writes them.
struct Writer<'a> {
    saver: Saver<'a>,
    set_aside: Statement<'a>,
    header: &'a mut Header,
    context: Context,
    /// The record of the key whose rows are coming.
    record: Option<Record>,
    taken: TakenOver,
}

impl Writer<'_> {
    fn add(&mut self, row: &Row<'_>) -> Result<()> {
        self.taken.rows += 1;
        let Ok(key) = row.get_ref(1)?.as_str() else {
            return self.set_aside(row, "its key is no UTF-8");
        };
        if self.record.as_ref().is_none_or(|it| it.key.as_str() != key) {
            self.save()?;
            self.record = Some(Record { since: Some(0), ..Record::new(Key::stored(key)) });
        }
        let is_log = row.get_ref(2)? == ValueRef::Null;
        let added = if is_log { self.add_last(row) } else { self.add_row(row) };
        added.or_else(|why| self.set_aside(row, why))
    }

    fn add_last(&mut self, row: &Row<'_>) -> std::result::Result<(), &'static str> {
        let last =
            || Ok(LastRun { started: row.get(6)?, finished: row.get(7)?, exit_code: row.get(8)? });
        let last = last().map_err(|_: rusqlite::Error| "its times are no numbers")?;
        if !edits::is_time(last) {
            return Err("its times are not of the years 0 to 9999");
        }
        if let Some(record) = &mut self.record {
            (record.last, record.is_claimed) = (Some(last), last.finished.is_none());
        }
        Ok(())
    }

    fn add_row(&mut self, row: &Row<'_>) -> std::result::Result<(), &'static str> {
        let columns = || Ok((FetcherId(row.get(2)?), row.get(3)?, row.get::<_, i64>(4)? != 0));
        let (fetcher, run, is_served) =
            columns().map_err(|_: rusqlite::Error| "its columns are no numbers")?;
        if !self.header.fetchers.contains_key(&fetcher) {
            return Err("it is of no known fetcher");
        }
        let payload = row.get_ref(5).and_then(|it| Ok(it.as_str()?.to_owned()));
        let payload = payload.map_err(|_| "its payload is no text")?;
        // If the row's run is gone, it is made; the daemon deletes it if there is no file of it.
        self.header.runs.change((fetcher, run));
        let Some(record) = &mut self.record else { return Ok(()) };
        let armed = if is_served { Attempt(0) } else { self.context.last_attempt };
        if is_served {
            record.served.insert(fetcher, SERVED);
        }
        record.rows.push(ListRow {
            fetcher,
            run,
            armed,
            reading: 0,
            group: None,
            payload: Some(payload),
        });
        Ok(())
    }

    /// Writes the record whose rows have come.
    fn save(&mut self) -> Result<()> {
        let is_something = |it: &Record| it.last.is_some() || !it.rows.is_empty();
        let Some(mut record) = self.record.take().filter(is_something) else { return Ok(()) };
        if let Some(LastRun { exit_code: Some(code), .. }) = record.last {
            record.set_last_failed(code != 0);
        }
        if record.is_claimed {
            self.taken.in_flight += 1;
            let attempt = Attempt(SERVED.0 + self.taken.in_flight.cast_signed());
            go_out(&mut record, attempt);
        }
        self.taken.keys += 1;
        let mut counts = Tally::default();
        counts.change(&Record::new(record.key.clone()), &record);
        self.header.counts.merge(&counts);
        clocks::look(&mut record, &self.context);
        let (key, place) = (record.key.clone(), record.place(&self.context));
        let change = Change { before: None, key, now: Some((Box::new(record), place)) };
        self.saver.change(change).map(drop)
    }

    fn set_aside(&mut self, row: &Row<'_>, why: &str) -> Result<()> {
        self.taken.set_aside += 1;
        let columns = [1, 2, 3, 5, 6, 7, 8].map(|at| row.get_ref(at));
        let mut at = 1;
        self.set_aside.raw_bind_parameter(at, why)?;
        for column in columns {
            at += 1;
            self.set_aside.raw_bind_parameter(at, ToSqlOutput::Borrowed(column?))?;
        }
        self.set_aside.raw_execute().map(drop)
    }
}

/// The supervisor handed the key out, and it has not ended: its job has a classic lease, from its start. The log does
/// not say whose row it was; the supervisor takes the fetcher with the smallest id first, so the last one is assumed. A
/// key without such a row is still recorded as out. What was before the start is not known, so a take-back leaves the
/// start.
fn go_out(record: &mut Record, attempt: Attempt) {
    let Some(last) = record.last else { return };
    let out = record.newest_rows().filter(|row| !record.is_armed(row)).last();
    let Some(task) = out.map(ListRow::task) else { return };
    record.served.insert(task.fetcher(), attempt);
    let before_it = Some(LastRun::over_by(last.started));
    let (served, bump, ahead, group, clock) = (None, None, None, None, 0);
    let before = Before { last: before_it, served, bump, ahead, group, clock };
    let started = last.started.saturating_mul(1_000);
    record.flight = Some(Flight { attempt, task, holder: None, started, owner: None, before });
    record.is_claimed = false;
}
