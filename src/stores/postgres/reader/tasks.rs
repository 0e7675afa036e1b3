//! Tasks by status, with the reason: the question of `shiftboss tasks`, and what `retry --failed` puts back.
//!
//! Few rows are dead letters or in flight; what waits is walked in its order; the attempts that are kept, the keys whose
//! failure is older than those, and the single tasks, which have a limit, are gone through.

use shiftboss_actors::store::TasksWith;
use shiftboss_actors::store::answers::{Retry, Task, TaskStatus, Tasks};
use shiftboss_protocol::model::UnixSeconds;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::queue::queue;
use super::{Snapshot, limit, text};
use crate::stores::views::{cut, delayed, failure, waiting, waiting_count};

/// What is joined here is as large as what is kept; the other settings are for finding one key among millions.
const SETTINGS: &str = "SET LOCAL enable_hashjoin = on; SET LOCAL enable_material = on";

/// Rows whose own last attempt failed, and that wait for their fetcher's next list; then single tasks. The key's log row
/// tells of its last attempt, and of rows of which none is kept. In all of these: $1 tasks at the most, of the fetcher $2.
const FAILED: &str = "WITH
    ended AS MATERIALIZED (SELECT *, attempt = max(attempt) OVER (PARTITION BY key_id) AS is_latest
        FROM (SELECT DISTINCT ON (key_id, fetcher, run_started) key_id, fetcher, run_started, started_ms / 1000 AS started,
                finished, exit_code, attempt
            FROM attempts WHERE outcome = 'done' ORDER BY key_id, fetcher, run_started, attempt DESC) AS last),
    own AS (
        SELECT e.key_id, e.fetcher, e.run_started, e.finished,
            CASE WHEN l.finished IS NULL OR NOT is_latest THEN e.exit_code ELSE l.exit_code END AS exit_code
        FROM ended e JOIN log l USING (key_id)
        UNION ALL SELECT l.key_id, q.fetcher, q.run_started, l.finished, l.exit_code
        FROM failures JOIN log l USING (key_id) JOIN queue q USING (key_id)
        LEFT JOIN ended latest ON latest.key_id = l.key_id AND latest.is_latest
        LEFT JOIN ended e ON e.key_id = l.key_id AND e.fetcher = q.fetcher AND e.run_started = q.run_started
        WHERE l.exit_code <> 0 AND l.finished IS NOT NULL AND e.attempt IS NULL
            AND (latest.attempt IS NULL OR latest.started < l.started)),
    failed AS (
        SELECT key_id, f.name, q.run_started, own.finished AS since, own.exit_code, -own.finished AS rank, 0 AS part
        FROM own JOIN queue q USING (key_id, fetcher, run_started) JOIN fetchers f USING (fetcher)
        WHERE q.dispatched AND q.fetcher <> 0 AND own.exit_code <> 0 AND own.finished >= $3::int8 AND NOT q.dead
            AND NOT EXISTS (SELECT FROM deliveries(q.key_id) d WHERE d.fetcher = q.fetcher)
            AND NOT EXISTS (SELECT FROM queue newer WHERE newer.key_id = q.key_id AND newer.fetcher = q.fetcher
                AND newer.run_started > q.run_started)
            AND NOT EXISTS (SELECT FROM bumps b WHERE b.key_id = q.key_id AND b.due IS NOT NULL
                AND b.fetcher = q.fetcher AND b.run_started = q.run_started)
        UNION ALL SELECT s.key_id, '@tasks', task, coalesce(own.finished, l.finished),
            coalesce(own.exit_code, l.exit_code), task, 1
        FROM single_tasks s JOIN log l USING (key_id)
        LEFT JOIN ended own ON own.key_id = s.key_id AND own.fetcher = 0 AND own.run_started = task
        WHERE s.status = 'failed' AND coalesce(own.finished, l.finished, 0) >= $3
            AND NOT EXISTS (SELECT FROM bumps b WHERE b.key_id = s.key_id AND b.due IS NOT NULL
                AND b.fetcher = 0 AND b.run_started = task))
    SELECT key, name, run_started, since, exit_code FROM failed JOIN keys USING (key_id)
    WHERE $2::bytea IS NULL OR convert_to(name, 'UTF8') = $2
    ORDER BY part, rank, key, name COLLATE \"C\", run_started LIMIT $1::int8";
/// Failed tasks that are tried again, if nothing has replaced them by now; the one that is due first comes first.
const DELAYED: &str = "SELECT key, coalesce(name, '-'), b.run_started, since, l.exit_code, due, retries
    FROM bumps b JOIN keys USING (key_id) JOIN log l USING (key_id) LEFT JOIN fetchers f USING (fetcher)
    WHERE due IS NOT NULL AND since >= $3::int8 AND ($2::bytea IS NULL OR convert_to(name, 'UTF8') = $2)
        AND has_failed(b.key_id, b.fetcher, b.run_started)
    ORDER BY due, key LIMIT $1::int8";
const DEAD_LETTERS: &str = "SELECT key, name, run, NULL::int8, reason FROM (
        SELECT 0 AS part, q.fetcher, f.name, q.run_started AS run, q.key_id, expired || ' leases expired' AS reason
        FROM queue q JOIN fetchers f USING (fetcher) WHERE q.dead AND q.fetcher <> 0
        UNION ALL SELECT 1, 0, '@tasks', task, key_id, 'too many leases expired'
        FROM single_tasks WHERE status = 'dead_letter') AS dead JOIN keys USING (key_id)
    WHERE $2::bytea IS NULL OR convert_to(name, 'UTF8') = $2
    ORDER BY part, fetcher, run, key LIMIT $1::int8";
/// $4: a classic job that was handed out before is held no longer.
const IN_FLIGHT: &str = "SELECT key, coalesce(name, '-'), run_started, started_ms / 1000,
        coalesce(worker, 'a classic worker') || ', attempt ' || attempt
    FROM attempts JOIN keys USING (key_id) LEFT JOIN fetchers USING (fetcher)
    WHERE finished IS NULL AND (lease IS NOT NULL OR started_ms / 1000 >= $4::int8)
        AND ($2::bytea IS NULL OR convert_to(name, 'UTF8') = $2) AND started_ms / 1000 >= $3::int8
    ORDER BY started_ms / 1000, attempt LIMIT $1::int8";

/// The tasks that are asked for: failed ones newest first, those in flight oldest first, waiting ones in the order of
/// their turns.
pub(super) async fn tasks(snapshot: &Snapshot, asked: &TasksWith) -> Result<Tasks, Error> {
    // One more tells that there are more.
    let count = limit(asked.count).saturating_add(1);
    let since = asked.since.unwrap_or(i64::MIN);
    let fetcher = asked.fetcher.as_ref().map(|name| name.as_bytes());
    let [count, fetcher, since]: [&(dyn ToSql + Sync); 3] = [&count, &fetcher, &since];
    snapshot.client().batch_execute(SETTINGS).await?;
    let found = match asked.status {
        TaskStatus::Delayed => {
            let now = snapshot.now;
            snapshot.rows(DELAYED, &[count, fetcher, since], |row| delayed_task(row, now)).await?
        }
        TaskStatus::Waiting => waiting(queue(snapshot, waiting_count(asked)).await?, asked),
        TaskStatus::Failed => {
            snapshot
                .rows(FAILED, &[count, fetcher, since], |row| task(row, failure(row.get(4))))
                .await?
        }
        TaskStatus::DeadLetter => {
            snapshot.rows(DEAD_LETTERS, &[count, fetcher], |row| task(row, row.get(4))).await?
        }
        TaskStatus::InFlight => {
            let values = [count, fetcher, since, &snapshot.expired()];
            snapshot.rows(IN_FLIGHT, &values, |row| task(row, row.get(4))).await?
        }
    };
    Ok(cut(asked.status, found, asked.count))
}

fn delayed_task(row: &Row, now: UnixSeconds) -> Task {
    let (due, retries) = (row.get(5), row.get::<_, i32>(6).unsigned_abs());
    let reason = delayed(row.get(4), Retry { due, retries }, now);
    Task { due: Some(due), ..task(row, reason) }
}

fn task(row: &Row, reason: String) -> Task {
    let (key, fetcher, run, since) = (text(row.get(0)), row.get(1), row.get(2), row.get(3));
    Task { key, fetcher, run, since, reason, due: None }
}
