//! Looks at a queue, each in one read transaction: how it stands ([`queue_status`], here), what is
//! next ([`queue()`]), where a key is ([`why()`]), what ended ([`log`]), which tasks have a status ([`tasks()`]).
//!
//! Called by the commands that show it. Opening is [`reader`](super::reader)'s. All counts of a status
//! are kept ones; the only rows gone through are runs, fetchers of either kind, keys in flight and rows
//! with an expired lease. A database that no shiftboss has taken over keeps no counts: there, and only there, rows
//! are counted.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rusqlite::{Connection, Row};
use shiftboss_protocol::model::UnixSeconds;

#[cfg(test)]
use super::dispatch::{HELD, READY};
use super::file::beside;
use super::managed_fetchers;
use super::reader::ViewError;
use super::schema;
pub use attempts::{Ended, LOG_MAX, Log, Wanted, log};
pub use holders::{HOLDERS_MAX, Holding};
use order::Order;
pub use outcome::in_words;
pub use queue::{Next, QUEUE_MAX, Queue, queue};
pub use report::{
    Done, FetcherStatus, ManagedFetcher, ManagedRun, NotStopped, QueueStatus, RejectedFile, Rows,
    Waiting,
};
use snapshot::{age, read, state};
pub use tasks::{Asked, Task, TaskStatus, Tasks, tasks};
pub use turns::turns;
pub use why::{Delivery, KeyRow, KeyState, LastResult, Place, RowState, Why, why};

mod attempts;
mod holders;
mod order;
mod outcome;
mod queue;
mod report;
pub(super) mod snapshot;
mod tasks;
mod turns;
mod why;

/// Jobs that ended within this many minutes are counted.
const HOUR_MINUTES: i64 = 60;

/// Looks how the queue at `path` stands, at the time `now`.
///
/// # Errors
/// When the database is missing, somebody else's, newer than this program, or cannot be read.
pub fn queue_status(path: &Path, now: UnixSeconds) -> Result<QueueStatus, ViewError> {
    read(path, |snapshot, version| match version {
        schema::VERSION => status_of_current(snapshot, now),
        version => status_of_reference(snapshot, version, now),
    })
}

/// From what the daemon and its triggers keep.
fn status_of_current(snapshot: &Connection, now: UnixSeconds) -> rusqlite::Result<QueueStatus> {
    let lease_seconds = snapshot::lease(snapshot)?;
    let expired = snapshot::policy(snapshot)?.expired(now);
    let directory_lost_since =
        state(snapshot, "directory_lost_since")?.and_then(|text| text.parse().ok());
    Ok(QueueStatus {
        schema_version: schema::VERSION,
        durability: state(snapshot, "durability")?,
        policy: state(snapshot, "policy")?,
        lease_seconds,
        paused: snapshot::is_paused(snapshot)?,
        rows: rows(snapshot)?,
        dead_letters: dead_letters(snapshot)?,
        single_tasks: snapshot.query_row(SINGLE_TASKS, ["single_tasks"], |row| row.get(0))?,
        single_tasks_ended: snapshot
            .query_row(SINGLE_TASKS, ["single_tasks_ended"], |row| row.get(0))?,
        max_single_tasks: state(snapshot, "max_single_tasks")?.and_then(|text| text.parse().ok()),
        holders: holders::holders(snapshot, expired)?,
        fetchers: fetchers(snapshot, FETCHERS, now)?,
        managed_fetchers: managed_fetchers(snapshot, directory_lost_since)?,
        oldest_waiting: oldest_waiting(snapshot, now)?,
        done_last_hour: done_since(snapshot, now / 60 - HOUR_MINUTES)?,
        rejected_files: rejected_files(snapshot)?,
        directory_lost_since,
        directory_lost_reason: state(snapshot, "directory_lost_reason")?,
        not_stopped: not_stopped(snapshot)?,
    })
}

/// A daemon that noted its start, and no clean stop.
fn not_stopped(snapshot: &Connection) -> rusqlite::Result<Option<NotStopped>> {
    let pid = state(snapshot, "pid")?.and_then(|text| text.parse().ok());
    let started = state(snapshot, "started")?.and_then(|text| text.parse().ok());
    Ok(pid.zip(started).map(|(pid, started)| NotStopped {
        pid,
        started,
        last_write: snapshot.path().and_then(|path| last_write(Path::new(path))),
    }))
}

/// When something was written last: the time of the log's file, or of the database's.
fn last_write(path: &Path) -> Option<UnixSeconds> {
    let written = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let last = written(&beside(path, "-wal")).max(written(path))?;
    let since = last.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// The kept counts of all runs, and the keys in flight.
const ROWS: &str = "SELECT coalesce(sum(pending), 0), coalesce(sum(rows - pending), 0),
        (SELECT count(*) FROM log INDEXED BY shiftboss_unfinished WHERE finished IS NULL),
        (SELECT count(DISTINCT attr_path) FROM shiftboss_deliveries WHERE delivery_count > 1)
    FROM shiftboss_runs WHERE deleting = 0";

fn rows(snapshot: &Connection) -> rusqlite::Result<Rows> {
    snapshot.query_row(ROWS, [], |row| {
        Ok(Rows {
            pending: row.get(0)?,
            dispatched: row.get(1)?,
            in_flight: row.get(2)?,
            redelivered: row.get(3)?,
        })
    })
}

/// Each fetcher's newest run, from the kept counts. The runs of single tasks stand beside each other:
/// they are shown as one.
const FETCHERS: &str = "SELECT name, max(run.run_started), is_complete,
        iif(name = '@tasks', sum(rows), rows), iif(name = '@tasks', sum(pending), pending), skipped,
        iif(name = '@tasks', 0, count(*) - 1)
    FROM fetchers JOIN fetcher_runs AS run USING (fetcher_id)
    JOIN shiftboss_runs AS ours ON ours.fetcher_id = run.fetcher_id
        AND ours.run_started = run.run_started
    WHERE deleting = 0 GROUP BY fetchers.fetcher_id ORDER BY name";

fn fetchers(
    snapshot: &Connection,
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
    snapshot.prepare(sql)?.query_map([], read)?.collect()
}

/// Those that the daemon runs itself. A run that was begun since the input directory is lost waits for it.
fn managed_fetchers(
    snapshot: &Connection,
    lost_since: Option<UnixSeconds>,
) -> rusqlite::Result<Vec<ManagedFetcher>> {
    let read = |row: &Row<'_>| {
        let mut fetcher = ManagedFetcher::from(managed_fetchers::read(row)?);
        if lost_since.is_some_and(|lost| fetcher.run_started.is_some_and(|began| began >= lost)) {
            fetcher.run_started = None;
            fetcher.state = fetcher.state.replacen("running", "waiting", 1);
        }
        Ok(fetcher)
    };
    snapshot.prepare(managed_fetchers::ALL)?.query_map([], read)?.collect()
}

/// Dead letters. Few rows have any expired lease.
fn dead_letters(snapshot: &Connection) -> rusqlite::Result<i64> {
    snapshot.query_row(DEAD_LETTERS, [], |row| row.get(0))
}

const DEAD_LETTERS: &str = "SELECT count(*) FROM shiftboss_expired_leases WHERE dead_letter <> 0";

/// A kept count of single tasks, by its name: of all, or of those that ended.
const SINGLE_TASKS: &str = "SELECT coalesce(max(value), 0) FROM shiftboss_counters WHERE name = ?1";

/// The key that the next request would get.
fn oldest_waiting(snapshot: &Connection, now: UnixSeconds) -> rusqlite::Result<Option<Waiting>> {
    let mut first = None;
    Order::load(snapshot, now)?.walk(snapshot, |place| {
        first = Some(Waiting { last_started: place.0, key: place.2 });
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// Jobs by exit code, from the counts by minute.
const DONE: &str = "SELECT exit_code, sum(jobs) FROM shiftboss_completions WHERE minute > ?1
    GROUP BY exit_code HAVING sum(jobs) > 0 ORDER BY exit_code";

fn done_since(snapshot: &Connection, minute: i64) -> rusqlite::Result<Vec<Done>> {
    let read = |row: &Row<'_>| Ok(Done { exit_code: row.get(0)?, jobs: row.get(1)? });
    snapshot.prepare(DONE)?.query_map([minute], read)?.collect()
}

fn rejected_files(snapshot: &Connection) -> rusqlite::Result<Vec<RejectedFile>> {
    let sql = "SELECT name, reason, since FROM shiftboss_rejected_files ORDER BY name";
    let read = |row: &Row<'_>| {
        Ok(RejectedFile { name: row.get(0)?, reason: row.get(1)?, since: row.get(2)? })
    };
    snapshot.prepare(sql)?.query_map([], read)?.collect()
}

/// The statements whose cost must not grow with the queue.
#[cfg(test)]
pub(super) const LOOKING: [&str; 10] = [
    ROWS,
    FETCHERS,
    managed_fetchers::ALL,
    DEAD_LETTERS,
    SINGLE_TASKS,
    holders::LEASED,
    holders::UNFINISHED,
    READY,
    HELD,
    DONE,
];

/// A database that the Python supervisor used last: what is kept may be old, so all is counted.
fn status_of_reference(
    snapshot: &Connection,
    schema_version: i64,
    now: UnixSeconds,
) -> rusqlite::Result<QueueStatus> {
    let sql =
        "SELECT count(*) FILTER (WHERE is_dequeued = 0), count(*) FILTER (WHERE is_dequeued <> 0),
        (SELECT count(*) FROM log WHERE finished IS NULL) FROM queue";
    let rows = snapshot.query_row(sql, [], |row| {
        Ok(Rows {
            pending: row.get(0)?,
            dispatched: row.get(1)?,
            in_flight: row.get(2)?,
            redelivered: 0,
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
        paused: false,
        rows,
        dead_letters: 0,
        single_tasks: 0,
        single_tasks_ended: 0,
        max_single_tasks: None,
        holders: Vec::new(),
        fetchers: fetchers(snapshot, sql, now)?,
        managed_fetchers: Vec::new(),
        oldest_waiting: None,
        done_last_hour: Vec::new(),
        rejected_files: Vec::new(),
        directory_lost_since: None,
        directory_lost_reason: None,
        not_stopped: None,
    })
}
