//! Jobs that a program without leases left in flight: the Python supervisor, or `serve --classic`.
//!
//! Such a job has an unfinished log row and no recorded dispatch, so nothing would ever hand it out
//! again. At the first start with leases it gets a dispatch as if a classic worker held it: its lease
//! counts from its start. Called by `open`, while the triggers are on.

use rusqlite::{Connection, Result};
use tracing::info;

use super::query::Query;
use super::records::state;

/// The log does not say which fetcher's row was handed out. The Python supervisor takes the fetcher with
/// the smallest id first, so the last one is taken for it. A dead letter stays one.
const RECORD: &str = "INSERT INTO shiftboss_deliveries
        (attr_path, attempt, fetcher_id, run_started, started, delivery_count, marked_runs)
    SELECT attr_path, counter.value + row_number() OVER (ORDER BY started, attr_path),
        fetcher_id, run_started, started, 1, json_array(run_started)
    FROM (
        SELECT log.attr_path, log.started, max(queue.fetcher_id) AS fetcher_id,
            queue.fetcher_run_started AS run_started
        FROM log INDEXED BY shiftboss_unfinished
        JOIN queue ON queue.attr_path = log.attr_path AND queue.is_dequeued <> 0
        WHERE log.finished IS NULL
            AND NOT EXISTS (SELECT 1 FROM shiftboss_in_flight AS known
                WHERE known.attr_path = log.attr_path)
            AND NOT EXISTS (SELECT 1 FROM queue AS newer
                WHERE newer.attr_path = queue.attr_path AND +newer.fetcher_id = queue.fetcher_id
                    AND +newer.fetcher_run_started > queue.fetcher_run_started)
            AND NOT EXISTS (SELECT 1 FROM shiftboss_expired_leases AS lost
                WHERE lost.fetcher_id = queue.fetcher_id AND lost.attr_path = queue.attr_path
                    AND lost.run_started = queue.fetcher_run_started AND lost.dead_letter <> 0)
        GROUP BY log.attr_path
    ) JOIN shiftboss_counters AS counter ON counter.name = 'attempt'";

/// Of a single task it is known.
const RECORD_TASKS: &str = "INSERT INTO shiftboss_deliveries
        (attr_path, attempt, fetcher_id, run_started, started, delivery_count, marked_runs)
    SELECT single.attr_path, counter.value + row_number() OVER (ORDER BY task),
        0, task, single.started, 1, json_array(task)
    FROM shiftboss_single_tasks AS single INDEXED BY shiftboss_unrecorded_tasks
    JOIN log ON log.attr_path = single.attr_path AND log.started = single.started
    JOIN shiftboss_counters AS counter ON counter.name = 'attempt'
    WHERE single.started IS NOT NULL AND single.exit_code IS NULL AND status = 'waiting'
        AND log.finished IS NULL
        AND NOT EXISTS (SELECT 1 FROM shiftboss_deliveries AS known
            WHERE known.attr_path = single.attr_path)";
/// Whatever is not out and did not end has no lease.
const FORGET_TASKS: &str = "UPDATE shiftboss_single_tasks SET started = NULL
    WHERE started IS NOT NULL AND exit_code IS NULL";

/// Records a dispatch for each job that is in flight without one, if the last program kept no leases. Call
/// it before this one's policy is noted.
pub(super) fn record_dispatches(connection: &Connection) -> Result<()> {
    if state(connection, "policy")?.as_deref() != Some("fair") {
        record(connection, RECORD_TASKS)?;
        record(connection, RECORD)?;
    }
    connection.run(FORGET_TASKS, [])
}

fn record(connection: &Connection, dispatches: &str) -> Result<()> {
    let jobs = connection.execute(dispatches, [])?;
    if jobs == 0 {
        return Ok(());
    }
    let sql =
        "UPDATE shiftboss_counters SET value = (SELECT max(attempt) FROM shiftboss_deliveries)
        WHERE name = 'attempt'";
    connection.run(sql, [])?;
    info!(
        jobs,
        "Jobs were in flight without a lease: they get the lease of classic jobs, counted from \
         their start."
    );
    Ok(())
}
