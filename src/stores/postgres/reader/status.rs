//! How a queue stands: the question of `shiftboss status`, for all daemons together. Where one value is asked for, it is that
//! of the daemon that joined last.
//!
//! No row of the queue is counted: what is gone through are runs, kept counts, attempts that are kept, jobs in flight and
//! dead letters.

use shiftboss_actors::store::FetcherRecord;
use shiftboss_actors::store::answers::{
    Done, FetcherStatus, HOLDERS_MAX, Holding, MinuteJobs, NotStopped, QueueStatus, RejectedFile,
    Rows, Waiting,
};
use tokio_postgres::{Error, Row};

use super::daemons::{daemons, relays};
use super::queue::{END, first_that_ran, keys_before};
use super::{Daemon, Snapshot, limit, text};
use crate::stores::options::Durability;
use crate::stores::pace::{ENDS_LOOKED_AT, begin_with, busy_seconds, young_since};
use crate::stores::views::{HOUR_MINUTES, managed};

/// Rows, of those the pending ones, keys in flight, keys that were handed out again; dead letters; single tasks, of those the
/// ones that ended; holds.
const COUNTS: &str = "WITH
    listed AS (SELECT coalesce(sum(rows), 0)::int8 AS rows FROM runs WHERE NOT deleting),
    counted AS (SELECT coalesce(sum(c.rows), 0)::int8 AS rows, coalesce(sum(pending), 0)::int8 AS pending
        FROM counts c JOIN runs USING (run) WHERE NOT deleting),
    open AS MATERIALIZED (SELECT key_id, max(delivery_count) AS times, count(lease) AS leases FROM attempts WHERE finished IS NULL GROUP BY key_id)
    SELECT listed.rows + counted.rows, pending,
        (SELECT count(*) FROM open JOIN log l USING (key_id) WHERE l.started IS NOT NULL AND l.finished IS NULL)
            + (SELECT count(*) FROM unended),
        (SELECT count(*) FROM open WHERE times > 1), (SELECT coalesce(sum(leases), 0)::int8 FROM open),
        (SELECT count(*) FROM queue WHERE dead), single_tasks,
        single_tasks_ended - (SELECT count(*) FROM bumps WHERE due IS NOT NULL AND fetcher = 0), (SELECT count(*) FROM holds WHERE kind = 'hold'),
        (SELECT count(*) FROM bumps WHERE kind = 'bump' AND attempt IS NULL AND due IS NULL),
        (SELECT count(*) FROM holds WHERE kind = 'backoff'), (SELECT count(*) FROM bumps WHERE due IS NOT NULL)
    FROM listed, counted, state";

/// The jobs that are held, from their hand-out until they end or their lease expires, the oldest $1 of them: leased ones;
/// and keys in flight that were started since $2, for a classic job that was handed out before is held no longer. A leased
/// job is found twice.
const HOLDERS: &str = "WITH open AS MATERIALIZED (SELECT * FROM attempts WHERE finished IS NULL)
    SELECT holders.*, d.name FROM (
        (SELECT worker, key, attempt, started_ms / 1000, lease::int8, daemon FROM open JOIN keys USING (key_id)
            WHERE lease IS NOT NULL ORDER BY attempt LIMIT $1::int8)
        UNION (SELECT held.worker, key, held.attempt,
                CASE WHEN held.lease IS NULL THEN l.started ELSE held.started_ms / 1000 END, held.lease::int8, held.daemon
            FROM (SELECT key_id FROM open UNION SELECT key_id FROM unended) AS out JOIN log l USING (key_id)
            JOIN keys USING (key_id) LEFT JOIN attempts held ON held.attempt = l.attempt
            WHERE l.finished IS NULL AND l.started >= $2 ORDER BY l.started, key LIMIT $1)) AS holders LEFT JOIN daemons d USING (daemon)
    ORDER BY 4, 3 NULLS FIRST, 2 LIMIT $1";

/// Each fetcher's newest run, and the single tasks as one. A run's number is usually the time of its start; one that cannot
/// be, before 2000, has no age. $1: now.
const FETCHERS: &str = "SELECT name, run, complete, rows, pending, skipped, older, dead,
        CASE WHEN run BETWEEN 946684800 AND $1::int8 THEN $1 - run END
    FROM (SELECT f.name, r.run_started AS run, r.complete, r.rows, (SELECT coalesce(sum(pending), 0)::int8 FROM counts
                WHERE counts.run = r.run) AS pending, r.skipped, (SELECT count(*) - 1 FROM runs older
                WHERE older.fetcher = f.fetcher AND NOT older.deleting) AS older,
            (SELECT count(*) FROM queue WHERE dead AND queue.fetcher = f.fetcher) AS dead
        FROM fetchers f CROSS JOIN LATERAL (SELECT * FROM runs newest
            WHERE newest.fetcher = f.fetcher AND NOT deleting ORDER BY run_started DESC LIMIT 1) AS r
        WHERE f.fetcher <> 0
        UNION ALL SELECT '@tasks', last.run, true, sum(rows)::int8, sum(pending)::int8, 0, 0,
            (SELECT count(*) FROM queue WHERE dead AND fetcher = 0)
        FROM (SELECT max(run_started) AS run FROM queue WHERE run = 0) AS last, counts
        WHERE counts.run = 0 AND last.run IS NOT NULL GROUP BY last.run) AS shown
    ORDER BY name COLLATE \"C\"";

const MANAGED: &str =
    "SELECT record, lost_since FROM managed_fetchers m JOIN daemons d USING (daemon)
    ORDER BY m.name COLLATE \"C\", d.daemon";
/// What a daemon rejected that is gone may not be there any more. Of relays they are counted.
const REJECTED: &str =
    "SELECT r.name, reason, since, d.name FROM rejected_files r JOIN daemons d USING (daemon)
    WHERE gone_at IS NULL AND to_jsonb(d) ->> 'process' IS NULL ORDER BY r.name COLLATE \"C\", d.daemon";
/// Jobs by exit code, from the counts by minute.
const DONE: &str = "SELECT exit_code, sum(jobs)::int8 FROM completions WHERE minute > $1
    GROUP BY exit_code HAVING sum(jobs) > 0 ORDER BY exit_code";

/// Jobs by minute since $1. What one connection counted another one may have taken back.
const BY_MINUTE: &str = "SELECT minute * 60, sum(jobs)::int8 FROM completions
    WHERE minute > $1 GROUP BY minute HAVING sum(jobs) > 0 ORDER BY minute";

pub(super) async fn status(snapshot: &Snapshot) -> Result<QueueStatus, Error> {
    let (client, now) = (snapshot.client(), &snapshot.now);
    let counts = client.query_one(COUNTS, &[]).await?;
    let (all, pending): (i64, i64) = (counts.get(0), counts.get(1));
    let rows = Rows {
        pending,
        dispatched: all - pending,
        in_flight: counts.get(2),
        redelivered: counts.get(3),
        leased: counts.get(4),
    };
    let daemon = snapshot.daemon.as_ref();
    let minutes = jobs_since_first(snapshot).await?;
    Ok(QueueStatus {
        schema_version: i64::try_from(snapshot.version).unwrap_or(i64::MAX),
        durability: daemon.map(|_| Durability::Power.name().to_owned()),
        policy: daemon.map(|_| "fair".to_owned()),
        lease_seconds: daemon.map(|daemon| daemon.lease),
        paused: snapshot.is_paused,
        moved_to: snapshot.moved_to.clone(),
        rows,
        dead_letters: counts.get(5),
        single_tasks: counts.get(6),
        single_tasks_ended: counts.get(7),
        max_single_tasks: daemon.map(|daemon| daemon.max_tasks),
        held: counts.get(8),
        bumped: counts.get(9),
        backed_off: counts.get(10),
        delayed: counts.get(11),
        holders: snapshot
            .rows(HOLDERS, &[&limit(HOLDERS_MAX), &snapshot.expired()], holding)
            .await?,
        fetchers: snapshot.rows(FETCHERS, &[now], fetcher).await?,
        managed_fetchers: managed_fetchers(snapshot).await?,
        oldest_waiting: keys_before(snapshot, END, 1).await?.pop().map(waiting),
        longest_wait: first_that_ran(snapshot).await?.map(waiting),
        done_last_hour: done_last_hour(snapshot).await?,
        done_since: minutes.first().map(|minute| minute.since),
        busy_seconds: busy_seconds(&minutes, mean_took(snapshot).await?, *now),
        rejected_files: snapshot.rows(REJECTED, &[], rejected).await?,
        directory_lost_since: daemon.and_then(|daemon| daemon.lost_since),
        directory_lost_reason: daemon.and_then(|daemon| daemon.lost_reason.clone()),
        not_stopped: daemon.and_then(not_stopped),
        daemons: daemons(snapshot).await?,
        relays: relays(snapshot).await?,
    })
}

fn not_stopped(daemon: &Daemon) -> Option<NotStopped> {
    let (pid, started) = daemon.pid.zip(daemon.started)?;
    let (pid, last_write) = (u32::try_from(pid).unwrap_or_default(), Some(daemon.beat_at));
    Some(NotStopped { pid, started, last_write })
}

fn holding(row: &Row) -> Holding {
    Holding {
        worker: row.get(0),
        key: text(row.get(1)),
        attempt: row.get(2),
        since: row.get(3),
        lease_seconds: row.get(4),
        daemon: row.get(6),
    }
}

fn fetcher(row: &Row) -> FetcherStatus {
    FetcherStatus {
        name: row.get(0),
        run: row.get(1),
        complete: row.get(2),
        lines: row.get(3),
        pending: row.get(4),
        skipped: row.get(5),
        older_runs: row.get(6),
        dead_letters: row.get(7),
        age_seconds: row.get(8),
    }
}

fn rejected(row: &Row) -> RejectedFile {
    RejectedFile { name: row.get(0), reason: row.get(1), since: row.get(2), daemon: row.get(3) }
}

/// A record that is not understood, since somebody edited it, is left out.
async fn managed_fetchers(snapshot: &Snapshot) -> Result<Vec<FetcherRecord>, Error> {
    let read = |row: &Row| {
        let record = serde_json::from_value(row.get(0)).ok()?;
        Some(managed(record, row.get(1)))
    };
    Ok(snapshot.rows(MANAGED, &[], read).await?.into_iter().flatten().collect())
}

fn waiting((key, last_started): (String, Option<i64>)) -> Waiting {
    Waiting { key, last_started }
}

/// As SQLite's.
const FIRST_END: &str = "SELECT min(finished), count(*) FROM (SELECT outcome, finished FROM ends e
        CROSS JOIN LATERAL (SELECT * FROM attempts WHERE attempt = e.attempt OFFSET 0) AS a
        WHERE a.ended = e.ended ORDER BY e.ended DESC LIMIT $2) AS last
    WHERE outcome = 'done' AND finished >= $1";

pub(super) async fn jobs_since_first(snapshot: &Snapshot) -> Result<Vec<MinuteJobs>, Error> {
    let mut minutes = jobs_by_minute(snapshot).await?;
    if let Some(since) = young_since(&minutes, snapshot.now) {
        let row = snapshot.client().query_one(FIRST_END, &[&since, &ENDS_LOOKED_AT]).await?;
        begin_with(&mut minutes, row.get(0), row.get(1));
    }
    Ok(minutes)
}

/// Seconds that a job took on average, since the hour $1.
const TOOK: &str = "SELECT coalesce(sum(took_ms)::int8 / greatest(sum(jobs)::int8, 1), 0) / 1000
    FROM hours WHERE hour >= $1";

pub(super) async fn mean_took(snapshot: &Snapshot) -> Result<i64, Error> {
    let since = snapshot.now / 3_600 - 1;
    Ok(snapshot.client().query_one(TOOK, &[&since]).await?.get(0))
}

async fn done_last_hour(snapshot: &Snapshot) -> Result<Vec<Done>, Error> {
    let since = snapshot.now / 60 - HOUR_MINUTES;
    let done = |row: &Row| Done { exit_code: row.get(0), jobs: row.get(1) };
    snapshot.rows(DONE, &[&since], done).await
}

pub(super) async fn jobs_by_minute(snapshot: &Snapshot) -> Result<Vec<MinuteJobs>, Error> {
    let since = snapshot.now / 60 - HOUR_MINUTES;
    let minute = |row: &Row| MinuteJobs { since: row.get(0), jobs: row.get(1) };
    snapshot.rows(BY_MINUTE, &[&since], minute).await
}
