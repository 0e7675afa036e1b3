//! Tasks by status, with the reason: the question of `shiftboss tasks`, and what `retry --failed` puts back.
//!
//! Few rows are dead letters or in flight; what waits is walked in its order; failed keys have an index, and
//! the attempts that are kept, at most 100,000, and the single tasks, which have a limit, are gone through.
//! So what it costs does not depend on how long the queue is.

use rusqlite::{Connection, Result, Row};
use shiftboss_actors::store::TasksWith;
use shiftboss_actors::store::answers::{Retry, Task, TaskStatus, Tasks};
use shiftboss_protocol::model::UnixSeconds;

use super::queue::queue;
use crate::stores::sqlite::query::{Query, columns};
use crate::stores::sqlite::snapshot::policy;
use crate::stores::views::{cut, delayed, failure, waiting, waiting_count};

columns!(Task { key, fetcher, run, since, reason, due });

/// Rows whose own last attempt failed, and that wait for their fetcher's next list; then single tasks. The
/// key's log row tells of its last attempt, and of rows of which none is kept. Whether a row is in flight is looked up
/// by its key in both places: of the view over them SQLite would make a table first.
pub(in crate::stores::sqlite) const FAILED: &str = "WITH
    ended AS MATERIALIZED (
        SELECT attr_path, fetcher_id, run_started, started, finished, exit_code,
            max(attempt) AS attempt
        FROM shiftboss_attempts WHERE outcome = 'done' GROUP BY attr_path, fetcher_id, run_started),
    latest AS MATERIALIZED (
        SELECT attr_path, started, max(attempt) AS attempt FROM ended GROUP BY attr_path),
    own AS (
        SELECT attr_path, fetcher_id, run_started, ended.finished,
            iif(log.finished IS NULL OR ended.attempt <> latest.attempt, ended.exit_code, log.exit_code)
                AS exit_code
        FROM ended JOIN latest USING (attr_path) LEFT JOIN log USING (attr_path)
        UNION ALL
        SELECT log.attr_path, queue.fetcher_id, fetcher_run_started, log.finished, log.exit_code
        FROM log INDEXED BY shiftboss_failed CROSS JOIN queue ON queue.attr_path = log.attr_path
        LEFT JOIN latest ON latest.attr_path = log.attr_path
        LEFT JOIN ended ON ended.attr_path = log.attr_path AND ended.run_started = fetcher_run_started
            AND ended.fetcher_id = queue.fetcher_id
        WHERE log.exit_code <> 0 AND log.finished IS NOT NULL AND ended.attempt IS NULL
            AND (latest.attempt IS NULL OR latest.started < log.started))
    SELECT * FROM (
    SELECT own.attr_path, name, run_started, finished, exit_code
    FROM own
    CROSS JOIN queue ON queue.attr_path = own.attr_path AND queue.fetcher_id = own.fetcher_id
        AND fetcher_run_started = run_started AND is_dequeued <> 0 AND queue.fetcher_id <> 0
    JOIN fetchers ON fetchers.fetcher_id = queue.fetcher_id
    WHERE exit_code <> 0 AND finished >= ?3 AND (?2 IS NULL OR name = ?2)
        AND NOT EXISTS (SELECT 1 FROM shiftboss_deliveries AS delivery
            WHERE delivery.attr_path = own.attr_path AND delivery.fetcher_id = own.fetcher_id)
        AND NOT EXISTS (SELECT 1 FROM shiftboss_row_deliveries AS delivery
            WHERE delivery.attr_path = own.attr_path AND delivery.fetcher_id = own.fetcher_id)
        AND NOT EXISTS (SELECT 1 FROM shiftboss_expired_leases AS lost
            WHERE lost.fetcher_id = own.fetcher_id AND lost.attr_path = own.attr_path
                AND lost.run_started = own.run_started AND lost.dead_letter <> 0)
        AND NOT EXISTS (SELECT 1 FROM queue AS newer
            WHERE newer.attr_path = own.attr_path AND +newer.fetcher_id = own.fetcher_id
                AND +newer.fetcher_run_started > own.run_started)
        AND NOT EXISTS (SELECT 1 FROM shiftboss_bumps AS retry
            WHERE retry.attr_path = own.attr_path AND retry.due IS NOT NULL
                AND (retry.fetcher_id, retry.run_started) = (own.fetcher_id, own.run_started))
    ORDER BY finished DESC, own.attr_path, name, run_started)
    UNION ALL SELECT * FROM (
    SELECT single.attr_path, '@tasks', task, coalesce(own.finished, log.finished),
        coalesce(own.exit_code, log.exit_code)
    FROM shiftboss_single_tasks AS single
    LEFT JOIN ended AS own
        ON own.attr_path = single.attr_path AND own.fetcher_id = 0 AND own.run_started = task
    LEFT JOIN log ON log.attr_path = single.attr_path
    WHERE single.status = 'failed' AND coalesce(own.finished, log.finished, 0) >= ?3
        AND (?2 IS NULL OR ?2 = '@tasks')
        AND NOT EXISTS (SELECT 1 FROM shiftboss_bumps AS retry
            WHERE retry.attr_path = single.attr_path AND retry.due IS NOT NULL
                AND (retry.fetcher_id, retry.run_started) = (0, task))
    ORDER BY task)
    LIMIT ?1";
/// Failed tasks that are tried again, if nothing has replaced them by now; the one that is due first comes first.
const DELAYED: &str = "SELECT retry.attr_path, coalesce(name, '-'), run_started, since, log.exit_code, due, retries
    FROM shiftboss_delayed_tasks AS retry
    LEFT JOIN fetchers ON fetchers.fetcher_id = retry.fetcher_id LEFT JOIN log ON log.attr_path = retry.attr_path
    WHERE since >= ?3 AND (?2 IS NULL OR name = ?2) ORDER BY due, retry.attr_path LIMIT ?1";
const DEAD_LETTERS: &str = "SELECT lost.attr_path, name, lost.run_started, NULL,
        lost.expired_leases || ' leases expired', NULL
    FROM shiftboss_expired_leases AS lost JOIN fetchers ON fetchers.fetcher_id = lost.fetcher_id
    WHERE dead_letter <> 0 AND lost.fetcher_id <> 0 AND (?2 IS NULL OR name = ?2)
    UNION ALL SELECT attr_path, '@tasks', task, NULL, 'too many leases expired', NULL
    FROM shiftboss_single_tasks
    WHERE status = 'dead_letter' AND (?2 IS NULL OR ?2 = '@tasks') LIMIT ?1";
const IN_FLIGHT: &str = "SELECT attr_path, coalesce(name, '-'), run_started, started,
        coalesce(worker, 'a classic worker') || ', attempt ' || attempt, NULL
    FROM shiftboss_in_flight AS delivery
    LEFT JOIN fetchers ON fetchers.fetcher_id = delivery.fetcher_id
    WHERE (lease IS NOT NULL OR started >= ?4) AND (?2 IS NULL OR name = ?2) AND started >= ?3
    ORDER BY started, attempt LIMIT ?1";

/// The tasks that are asked for, at the time `now`: failed ones newest first, those in flight oldest first,
/// waiting ones in the order of their turns.
pub(super) fn tasks(snapshot: &Connection, asked: &TasksWith, now: UnixSeconds) -> Result<Tasks> {
    // One more tells that there are more.
    let limit = i64::try_from(asked.count).unwrap_or(i64::MAX - 1) + 1;
    let since = asked.since.unwrap_or(i64::MIN);
    let tasks = match asked.status {
        TaskStatus::Delayed => {
            snapshot.map(DELAYED, (limit, &asked.fetcher, since), |row| delayed_task(row, now))?
        }
        TaskStatus::Waiting => waiting(queue(snapshot, waiting_count(asked), now)?, asked),
        TaskStatus::Failed => snapshot.map(FAILED, (limit, &asked.fetcher, since), failed)?,
        TaskStatus::DeadLetter => snapshot.rows(DEAD_LETTERS, (limit, &asked.fetcher))?,
        TaskStatus::InFlight => {
            let expired = policy(snapshot)?.expired(now);
            snapshot.rows(IN_FLIGHT, (limit, &asked.fetcher, since, expired))?
        }
    };
    Ok(cut(asked.status, tasks, asked.count))
}

fn delayed_task(row: &Row<'_>, now: UnixSeconds) -> Result<Task> {
    let (key, fetcher, run, since) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    let retry = Retry { due: row.get(5)?, retries: row.get(6)? };
    let (due, reason) = (Some(retry.due), delayed(row.get(4)?, retry, now));
    Ok(Task { key, fetcher, run, since, reason, due })
}

fn failed(row: &Row<'_>) -> Result<Task> {
    let (key, fetcher, run, since) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    Ok(Task { key, fetcher, run, since, reason: failure(row.get(4)?), due: None })
}
