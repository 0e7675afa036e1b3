//! Jobs that a program without leases left in flight: the Python supervisor, or `serve --classic`.
//!
//! Such a job has an unfinished log row and no recorded dispatch, so nothing would ever hand it out
//! again. At the first start with leases it gets a dispatch as if a classic worker held it: its lease
//! counts from its start. Called by `open`, while the triggers are on.

use rusqlite::{Connection, OptionalExtension};
use tracing::info;

/// The log does not say which fetcher's row was handed out. The Python supervisor takes the fetcher with
/// the smallest id first, so the last one is taken for it. A row that is parked stays parked.
const RECORD: &str = "INSERT INTO shiftboss_flights
        (attr_path, attempt, fetcher_id, run_started, started, tries, rearm)
    SELECT attr_path, counter.value + row_number() OVER (ORDER BY started, attr_path),
        fetcher_id, run_started, started, 1, json_array(run_started)
    FROM (
        SELECT log.attr_path, log.started, max(queue.fetcher_id) AS fetcher_id,
            queue.fetcher_run_started AS run_started
        FROM log INDEXED BY shiftboss_unfinished
        JOIN queue ON queue.attr_path = log.attr_path AND queue.is_dequeued <> 0
        WHERE log.finished IS NULL
            AND NOT EXISTS (SELECT 1 FROM shiftboss_flights AS known
                WHERE known.attr_path = log.attr_path)
            AND NOT EXISTS (SELECT 1 FROM queue AS newer
                WHERE newer.attr_path = queue.attr_path AND +newer.fetcher_id = queue.fetcher_id
                    AND +newer.fetcher_run_started > queue.fetcher_run_started)
            AND NOT EXISTS (SELECT 1 FROM shiftboss_tries AS lost
                WHERE lost.fetcher_id = queue.fetcher_id AND lost.attr_path = queue.attr_path
                    AND lost.run_started = queue.fetcher_run_started AND lost.dead <> 0)
        GROUP BY log.attr_path
    ) JOIN shiftboss_counters AS counter ON counter.name = 'attempt'";

/// Records a dispatch for each job that is in flight without one, if the last program kept no leases. Call
/// it before this one's policy is noted.
pub(super) fn record_dispatches(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT value FROM shiftboss_state WHERE name = 'policy'";
    let policy: Option<String> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    if policy.as_deref() == Some("fair") {
        return Ok(());
    }
    let jobs = connection.execute(RECORD, [])?;
    if jobs > 0 {
        let sql =
            "UPDATE shiftboss_counters SET value = (SELECT max(attempt) FROM shiftboss_flights)
            WHERE name = 'attempt'";
        connection.execute(sql, [])?;
        info!(
            jobs,
            "Jobs were in flight without a lease: they get the lease of classic jobs, counted from \
             their start."
        );
    }
    Ok(())
}
