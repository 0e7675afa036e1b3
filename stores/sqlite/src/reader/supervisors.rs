//! The status of a queue that the Python supervisor keeps, or kept last: the only question that can be asked before it
//! is taken over.
//!
//! The supervisor keeps no counts, so rows are counted. What it does not know is left out.

use rusqlite::{Connection, Result};
use shiftboss_protocol::answers::{FetcherStatus, QueueStatus, Rows};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::look::age;

use crate::ask::Ask;

const ROWS: &str =
    "SELECT count(*) FILTER (WHERE is_dequeued = 0), count(*) FILTER (WHERE is_dequeued <> 0),
        (SELECT count(*) FROM log WHERE finished IS NULL)
    FROM queue";
const FETCHERS: &str = "SELECT name, max(run_started), is_complete,
        (SELECT count(*) FROM queue WHERE queue.fetcher_id = run.fetcher_id AND fetcher_run_started = run_started),
        (SELECT count(*) FROM queue WHERE queue.fetcher_id = run.fetcher_id AND fetcher_run_started = run_started
            AND is_dequeued = 0),
        count(*) - 1
    FROM fetchers JOIN fetcher_runs AS run USING (fetcher_id) GROUP BY fetcher_id ORDER BY name";

pub(super) fn status(connection: &Connection, now: UnixSeconds) -> Result<QueueStatus> {
    let rows = connection.first(ROWS, (), |row| {
        let (pending, dispatched, in_flight) = row.try_into()?;
        Ok(Rows { pending, dispatched, in_flight, ..Rows::default() })
    });
    let fetchers = connection.rows(FETCHERS, (), |row| {
        let (name, run, complete, lines, pending, older_runs) = row.try_into()?;
        let age_seconds = age(run, now);
        Ok(FetcherStatus {
            name,
            run,
            complete,
            lines,
            pending,
            older_runs,
            age_seconds,
            skipped: 0,
            dead_letters: 0,
            failed: 0,
        })
    });
    Ok(QueueStatus {
        schema_version: connection.value("PRAGMA user_version", ())?,
        rows: rows?.unwrap_or_default(),
        fetchers: fetchers?,
        ..QueueStatus::default()
    })
}
