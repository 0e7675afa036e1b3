//! How a queue stands, for `status`: one consistent look in one read transaction.
//!
//! Opening is [`reader`](super::reader)'s. All counts are kept ones; the only rows gone through are
//! runs, fetchers and keys in flight. A database that no shiftboss has taken over keeps no counts:
//! there, and only there, rows are counted.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row};
use shiftboss_actors::model::UnixSeconds;

use super::reader::{ViewError, open_to_read};
use super::schema;
pub use report::{Aside, Done, FetcherStatus, QueueStatus, Rows, Waiting};

mod report;

/// Jobs that ended within this many minutes are counted.
const HOUR_MINUTES: i64 = 60;

/// Looks how the queue at `path` stands, at the time `now`.
///
/// # Errors
/// When the database is missing, somebody else's, newer than this program, or cannot be read.
pub fn queue_status(path: &Path, now: UnixSeconds) -> Result<QueueStatus, ViewError> {
    let connection = open_to_read(path)?;
    let failed = |source| ViewError::Sqlite { path: path.to_owned(), source };
    let look = connection.unchecked_transaction().map_err(failed)?;
    match schema::version(&look).map_err(failed)? {
        version if version > schema::VERSION => {
            Err(ViewError::Newer { path: path.to_owned(), version })
        }
        schema::VERSION => look_at_ours(&look, now).map_err(failed),
        version => look_at_reference(&look, version, now).map_err(failed),
    }
}

/// From what the daemon and its triggers keep.
fn look_at_ours(look: &Connection, now: UnixSeconds) -> rusqlite::Result<QueueStatus> {
    let number = |name| state(look, name).map(|text| text.and_then(|text| text.parse().ok()));
    let lease_seconds: Option<i64> = number("lease")?;
    let expired = lease_seconds.map(|lease| now.saturating_sub(lease));
    Ok(QueueStatus {
        schema_version: schema::VERSION,
        durability: state(look, "durability")?,
        policy: state(look, "policy")?,
        lease_seconds,
        rows: rows(look)?,
        fetchers: fetchers(look, FETCHERS, now)?,
        oldest_waiting: oldest_waiting(look, expired)?,
        done_last_hour: done_since(look, now / 60 - HOUR_MINUTES)?,
        set_aside: set_aside(look)?,
        directory_lost_since: number("directory_lost_since")?,
    })
}

/// What the last daemon noted of itself.
fn state(look: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM shiftboss_state WHERE name = ?1";
    look.query_row(sql, [name], |row| row.get(0)).optional()
}

/// The kept counts of all runs, and the keys in flight.
const ROWS: &str = "SELECT coalesce(sum(pending), 0), coalesce(sum(rows - pending), 0),
        (SELECT count(*) FROM log INDEXED BY shiftboss_unfinished WHERE finished IS NULL),
        (SELECT count(DISTINCT attr_path) FROM shiftboss_flights WHERE tries > 1)
    FROM shiftboss_runs WHERE deleting = 0";

fn rows(look: &Connection) -> rusqlite::Result<Rows> {
    look.query_row(ROWS, [], |row| {
        Ok(Rows {
            pending: row.get(0)?,
            dispatched: row.get(1)?,
            in_flight: row.get(2)?,
            in_flight_again: row.get(3)?,
        })
    })
}

/// Each fetcher's newest run, from the kept counts.
const FETCHERS: &str = "SELECT name, max(run.run_started), is_complete, rows, pending, skipped,
        count(*) - 1
    FROM fetchers JOIN fetcher_runs AS run USING (fetcher_id)
    JOIN shiftboss_runs AS ours ON ours.fetcher_id = run.fetcher_id
        AND ours.run_started = run.run_started
    WHERE deleting = 0 GROUP BY fetchers.fetcher_id ORDER BY name";

fn fetchers(
    look: &Connection,
    sql: &str,
    now: UnixSeconds,
) -> rusqlite::Result<Vec<FetcherStatus>> {
    let read = |row: &Row<'_>| {
        let run = row.get(1)?;
        Ok(FetcherStatus {
            name: row.get(0)?,
            run,
            complete: row.get::<_, i64>(2)? != 0,
            lines: row.get(3)?,
            pending: row.get(4)?,
            skipped: row.get(5)?,
            older_runs: row.get(6)?,
            age_seconds: age(run, now),
        })
    };
    look.prepare(sql)?.query_map([], read)?.collect()
}

/// A run's number is usually the time of its start; one that cannot be has no age.
fn age(run: i64, now: UnixSeconds) -> Option<i64> {
    const YEAR_2000: i64 = 946_684_800;
    (YEAR_2000..=now).contains(&run).then(|| now - run)
}

/// The parts of the order.
const SLOTS: &str = "SELECT DISTINCT slot FROM shiftboss_runs WHERE deleting = 0 UNION SELECT 0";
/// The first row of one of them in a state (1: ready, 2: its key is in flight), of the runs that
/// stay; the order is that of dispatch.
const FIRST: &str = "SELECT attr_path, last_started, order_jitter
    FROM queue INDEXED BY shiftboss_ready WHERE slot = ?1 AND state = ?2 AND state > 0
        AND NOT EXISTS (SELECT 1 FROM shiftboss_runs AS run
            WHERE run.fetcher_id = queue.fetcher_id
                AND run.run_started = queue.fetcher_run_started AND run.deleting <> 0)
    ORDER BY last_started, order_jitter, attr_path LIMIT 1";

/// A row's place in the order of dispatch: `None` comes first, as NULL does.
type Place = (Option<i64>, Option<i64>, String);

/// The row that the next request would get: the first of all slots that is ready, or whose key was
/// started before `expired` and so lost its lease.
fn oldest_waiting(
    look: &Connection,
    expired: Option<UnixSeconds>,
) -> rusqlite::Result<Option<Waiting>> {
    let slots: Vec<i64> =
        look.prepare(SLOTS)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut first = None;
    for slot in slots {
        // Of the keys in flight the first was started first: it tells for all.
        let held = first_place(look, slot, 2)?.filter(|place| place.0 < expired);
        first = [first, first_place(look, slot, 1)?, held].into_iter().flatten().min();
    }
    Ok(first.map(|(last_started, _, key)| Waiting { key, last_started }))
}

fn first_place(look: &Connection, slot: i64, state: i64) -> rusqlite::Result<Option<Place>> {
    let place = |row: &Row<'_>| Ok((row.get(1)?, row.get(2)?, row.get(0)?));
    look.prepare_cached(FIRST)?.query_row([slot, state], place).optional()
}

/// Jobs by exit code, from the counts by minute.
const DONE: &str = "SELECT exit_code, sum(jobs) FROM shiftboss_done WHERE minute > ?1
    GROUP BY exit_code HAVING sum(jobs) > 0 ORDER BY exit_code";

fn done_since(look: &Connection, minute: i64) -> rusqlite::Result<Vec<Done>> {
    let read = |row: &Row<'_>| Ok(Done { exit_code: row.get(0)?, jobs: row.get(1)? });
    look.prepare(DONE)?.query_map([minute], read)?.collect()
}

fn set_aside(look: &Connection) -> rusqlite::Result<Vec<Aside>> {
    let sql = "SELECT name, reason, since FROM shiftboss_aside ORDER BY name";
    let read =
        |row: &Row<'_>| Ok(Aside { name: row.get(0)?, reason: row.get(1)?, since: row.get(2)? });
    look.prepare(sql)?.query_map([], read)?.collect()
}

/// The statements whose cost must not grow with the queue.
#[cfg(test)]
pub(super) const LOOKING: [&str; 5] = [ROWS, FETCHERS, SLOTS, FIRST, DONE];

/// A database that the Python supervisor used last: what is kept may be old, so all is counted.
fn look_at_reference(
    look: &Connection,
    schema_version: i64,
    now: UnixSeconds,
) -> rusqlite::Result<QueueStatus> {
    let sql =
        "SELECT count(*) FILTER (WHERE is_dequeued = 0), count(*) FILTER (WHERE is_dequeued <> 0),
        (SELECT count(*) FROM log WHERE finished IS NULL) FROM queue";
    let rows = look.query_row(sql, [], |row| {
        Ok(Rows {
            pending: row.get(0)?,
            dispatched: row.get(1)?,
            in_flight: row.get(2)?,
            in_flight_again: 0,
        })
    })?;
    let sql = "SELECT name, max(run_started), is_complete,
            (SELECT count(*) FROM queue WHERE queue.fetcher_id = run.fetcher_id
                AND fetcher_run_started = run_started),
            (SELECT count(*) FROM queue WHERE queue.fetcher_id = run.fetcher_id
                AND fetcher_run_started = run_started AND is_dequeued = 0), 0, count(*) - 1
        FROM fetchers JOIN fetcher_runs AS run USING (fetcher_id) GROUP BY fetcher_id ORDER BY name";
    Ok(QueueStatus {
        schema_version,
        durability: None,
        policy: None,
        lease_seconds: None,
        rows,
        fetchers: fetchers(look, sql, now)?,
        oldest_waiting: None,
        done_last_hour: Vec::new(),
        set_aside: Vec::new(),
        directory_lost_since: None,
    })
}
