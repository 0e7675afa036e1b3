//! How a queue stands: the question of `shiftboss status`, whose JSON object is made of the answer (docs/json.md).
//!
//! All counts are kept ones; the only rows gone through are runs, fetchers of either kind, keys in flight and rows
//! with an expired lease. A database that no shiftboss has taken over keeps no counts: there, and only there, rows
//! are counted. Times are in seconds since 1970.

use std::path::Path;
use std::time::UNIX_EPOCH;

use rusqlite::{Connection, Result};
use shiftboss_actors::store::answers::{
    Done, FetcherStatus, HOLDERS_MAX, Holding, MinuteJobs, NotStopped, QueueStatus, RejectedFile,
    Rows, Waiting,
};
use shiftboss_protocol::model::UnixSeconds;

use super::order::Order;
use super::relays;
use crate::stores::pace::{ENDS_LOOKED_AT, begin_with, busy_seconds, young_since};
use crate::stores::sqlite::dispatch::QueuePosition;
use crate::stores::sqlite::file::beside;
use crate::stores::sqlite::query::{Query, columns};
use crate::stores::sqlite::records::{MANAGED_FETCHERS, is_paused, state};
use crate::stores::sqlite::schema;
use crate::stores::sqlite::snapshot;
use crate::stores::sqlite::transfer::moved_to;
use crate::stores::sqlite::{bumps, failures, holds, retries};
use crate::stores::views::{HOUR_MINUTES, managed};

columns!(Rows { pending, dispatched, in_flight, leased, redelivered });
columns!(Holding { worker, key, attempt, since, lease_seconds; daemon: None });
columns!(FetcherStatus {
    name,
    run,
    complete,
    lines,
    pending,
    skipped,
    older_runs,
    dead_letters,
    age_seconds
});
columns!(Done { exit_code, jobs });
columns!(MinuteJobs { since, jobs });
columns!(RejectedFile { name, reason, since; daemon: None });

/// How the queue stands at the time `now`: from what the daemon and its triggers keep.
pub(super) fn queue_status(
    snapshot: &Connection,
    version: i64,
    now: UnixSeconds,
) -> Result<QueueStatus> {
    if version < schema::VERSION {
        return status_of_reference(snapshot, version, now);
    }
    let number = |name| -> Result<Option<i64>> {
        Ok(state(snapshot, name)?.and_then(|text| text.parse().ok()))
    };
    let directory_lost_since = number("directory_lost_since")?;
    let policy = snapshot::policy(snapshot)?;
    let holders_max = i64::try_from(HOLDERS_MAX).unwrap_or(i64::MAX);
    let rejected = "SELECT name, reason, since FROM shiftboss_rejected_files ORDER BY name";
    let minutes = jobs_since_first(snapshot, now)?;
    Ok(QueueStatus {
        schema_version: schema::VERSION,
        durability: state(snapshot, "durability")?,
        policy: state(snapshot, "policy")?,
        lease_seconds: number("lease")?,
        paused: is_paused(snapshot)?,
        moved_to: moved_to(snapshot)?,
        rows: snapshot.row(ROWS, [])?,
        dead_letters: snapshot.value(DEAD_LETTERS, [])?,
        single_tasks: snapshot.value(SINGLE_TASKS, ["single_tasks"])?,
        single_tasks_ended: snapshot.value::<i64>(SINGLE_TASKS, ["single_tasks_ended"])?
            - snapshot.value::<i64>(retries::COUNT_SINGLE, [])?,
        max_single_tasks: number("max_single_tasks")?,
        held: snapshot.value(holds::COUNT, [])?,
        backed_off: snapshot.value(failures::COUNT, [])?,
        delayed: snapshot.value(retries::COUNT, [])?,
        bumped: snapshot.value(bumps::COUNT, [])?,
        holders: snapshot.rows(HOLDERS, (holders_max, policy.expired(now)))?,
        fetchers: snapshot.rows(FETCHERS, [now])?,
        managed_fetchers: snapshot
            .rows(MANAGED_FETCHERS, [])?
            .into_iter()
            .map(|fetcher| managed(fetcher, directory_lost_since))
            .collect(),
        oldest_waiting: oldest_waiting(snapshot, now)?,
        longest_wait: Order::load(snapshot, now)?.first_that_ran(snapshot)?.map(waiting),
        done_last_hour: done_since(snapshot, now / 60 - HOUR_MINUTES)?,
        done_since: minutes.first().map(|minute| minute.since),
        busy_seconds: busy_seconds(&minutes, mean_took(snapshot, now)?, now),
        rejected_files: snapshot.rows(rejected, [])?,
        directory_lost_since,
        directory_lost_reason: state(snapshot, "directory_lost_reason")?,
        daemons: Vec::new(),
        relays: relays::relays(snapshot)?,
        not_stopped: number("pid")?.zip(number("started")?).map(|(pid, started)| NotStopped {
            pid: u32::try_from(pid).unwrap_or_default(),
            started,
            last_write: snapshot.path().and_then(|path| last_write(Path::new(path))),
        }),
    })
}

/// The time of the log's file, or of the database's.
fn last_write(path: &Path) -> Option<UnixSeconds> {
    let written = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let last = written(&beside(path, "-wal")).max(written(path))?;
    i64::try_from(last.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// The kept counts of all runs, and the keys in flight.
const ROWS: &str = "SELECT coalesce(sum(pending), 0), coalesce(sum(rows - pending), 0),
        (SELECT count(*) FROM log INDEXED BY shiftboss_unfinished WHERE finished IS NULL),
        (SELECT count(*) FROM shiftboss_deliveries INDEXED BY shiftboss_leased WHERE lease IS NOT NULL),
        (SELECT count(DISTINCT attr_path) FROM shiftboss_deliveries WHERE delivery_count > 1)
    FROM shiftboss_runs WHERE deleting = 0";
/// Few rows have any expired lease.
const DEAD_LETTERS: &str = "SELECT count(*) FROM shiftboss_expired_leases WHERE dead_letter <> 0";
/// A kept count of single tasks, by its name: of all, or of those that ended.
const SINGLE_TASKS: &str = "SELECT coalesce(max(value), 0) FROM shiftboss_counters WHERE name = ?1";
/// The jobs that are held, from their hand-out until they end or their lease expires, the oldest ?1 of them: leased
/// ones; and keys in flight that were started since ?2, for a classic job that was handed out before is held no longer. A
/// leased job is found twice. The oldest of each are the oldest of all.
const HOLDERS: &str = "SELECT * FROM (
        SELECT worker, attr_path, attempt, started, lease
        FROM shiftboss_deliveries INDEXED BY shiftboss_leased
        WHERE lease IS NOT NULL ORDER BY attempt LIMIT ?1)
    UNION SELECT * FROM (
        SELECT held.worker, log.attr_path, coalesce(held.attempt, plain.last_served),
            iif(held.lease IS NULL, log.started, held.started), held.lease
        FROM log INDEXED BY shiftboss_unfinished
        LEFT JOIN shiftboss_deliveries AS held ON held.attr_path = log.attr_path AND held.attempt = (
            SELECT max(attempt) FROM shiftboss_deliveries AS last WHERE last.attr_path = log.attr_path)
        LEFT JOIN queue AS plain ON plain.attr_path = log.attr_path AND plain.state = -2
        WHERE finished IS NULL AND log.started >= ?2 ORDER BY log.started LIMIT ?1)
    ORDER BY 4, 3, 2 LIMIT ?1";

/// Each fetcher's newest run, from the kept counts, at the time ?1. The runs of single tasks stand beside each other:
/// they are shown as one. A run's number is usually the time of its start; one that cannot be, before 2000, has no age.
const FETCHERS: &str = "SELECT name, max(run.run_started), is_complete,
        iif(name = '@tasks', sum(rows), rows), iif(name = '@tasks', sum(pending), pending), skipped,
        iif(name = '@tasks', 0, count(*) - 1),
        (SELECT count(*) FROM shiftboss_expired_leases AS lost
            WHERE lost.fetcher_id = fetchers.fetcher_id AND dead_letter <> 0),
        iif(max(run.run_started) BETWEEN 946684800 AND ?1, ?1 - max(run.run_started), NULL)
    FROM fetchers JOIN fetcher_runs AS run USING (fetcher_id)
    JOIN shiftboss_runs AS ours ON ours.fetcher_id = run.fetcher_id
        AND ours.run_started = run.run_started
    WHERE deleting = 0 GROUP BY fetchers.fetcher_id ORDER BY name";

fn waiting(position: QueuePosition) -> Waiting {
    Waiting { last_started: position.0, key: position.2 }
}

fn oldest_waiting(snapshot: &Connection, now: UnixSeconds) -> Result<Option<Waiting>> {
    let mut first = None;
    Order::load(snapshot, now)?.walk_in_order(snapshot, |position| {
        first = Some(waiting(position));
        Ok(false)
    })?;
    Ok(first)
}

/// Jobs by exit code, from the counts by minute.
const DONE: &str = "SELECT exit_code, sum(jobs) FROM shiftboss_completions WHERE minute > ?1
    GROUP BY exit_code HAVING sum(jobs) > 0 ORDER BY exit_code";

/// Jobs by minute since ?1.
const BY_MINUTE: &str = "SELECT minute * 60, sum(jobs) FROM shiftboss_completions
    WHERE minute > ?1 AND jobs > 0 GROUP BY minute ORDER BY minute";

pub(super) fn jobs_by_minute(snapshot: &Connection, now: UnixSeconds) -> Result<Vec<MinuteJobs>> {
    snapshot.rows(BY_MINUTE, [now / 60 - HOUR_MINUTES])
}

/// The first of the last ?2 ends that is not before ?1, and how many there are.
const FIRST_END: &str = "SELECT min(finished), count(*) FROM (SELECT outcome, finished
        FROM shiftboss_attempts INDEXED BY shiftboss_ends ORDER BY ended DESC LIMIT ?2)
    WHERE outcome = 'done' AND finished >= ?1";

/// The same, for what is foretold: in a young queue the first minute begins with the first end.
pub(super) fn jobs_since_first(snapshot: &Connection, now: UnixSeconds) -> Result<Vec<MinuteJobs>> {
    let mut minutes = jobs_by_minute(snapshot, now)?;
    if let Some(since) = young_since(&minutes, now) {
        let (first, ends) = snapshot.row(FIRST_END, (since, ENDS_LOOKED_AT))?;
        begin_with(&mut minutes, first, ends);
    }
    Ok(minutes)
}

/// Seconds that a job took on average, since the hour ?1.
const TOOK: &str = "SELECT coalesce(sum(took_ms) / max(sum(jobs), 1), 0) / 1000
    FROM (SELECT took_ms, jobs FROM shiftboss_hours WHERE hour >= ?1 LIMIT 1000)";

pub(super) fn mean_took(snapshot: &Connection, now: UnixSeconds) -> Result<i64> {
    snapshot.value(TOOK, [now / 3_600 - 1])
}

fn done_since(snapshot: &Connection, minute: i64) -> Result<Vec<Done>> {
    snapshot.rows(DONE, [minute])
}

/// The statements whose cost must not grow with the queue.
#[cfg(test)]
pub(in crate::stores::sqlite) const LOOKING: [&str; 11] = [
    relays::RELAYS,
    relays::LISTS,
    ROWS,
    FETCHERS,
    MANAGED_FETCHERS,
    DEAD_LETTERS,
    SINGLE_TASKS,
    HOLDERS,
    DONE,
    BY_MINUTE,
    TOOK,
];

/// A database that the Python supervisor used last: what is kept may be old, so all is counted.
fn status_of_reference(
    snapshot: &Connection,
    schema_version: i64,
    now: UnixSeconds,
) -> Result<QueueStatus> {
    let rows = "SELECT count(*) FILTER (WHERE is_dequeued = 0),
            count(*) FILTER (WHERE is_dequeued <> 0),
            (SELECT count(*) FROM log WHERE finished IS NULL), 0, 0 FROM queue";
    let sql = "SELECT name, max(run_started), is_complete,
            (SELECT count(*) FROM queue WHERE queue.fetcher_id = run.fetcher_id
                AND fetcher_run_started = run_started),
            (SELECT count(*) FROM queue WHERE queue.fetcher_id = run.fetcher_id
                AND fetcher_run_started = run_started AND is_dequeued = 0), 0, count(*) - 1, 0,
            iif(max(run_started) BETWEEN 946684800 AND ?1, ?1 - max(run_started), NULL)
        FROM fetchers JOIN fetcher_runs AS run USING (fetcher_id) GROUP BY fetcher_id ORDER BY name";
    Ok(QueueStatus {
        schema_version,
        rows: snapshot.row(rows, [])?,
        fetchers: snapshot.rows(sql, [now])?,
        ..QueueStatus::default()
    })
}
