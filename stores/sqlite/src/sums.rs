//! Writing sums of what ended: changes are added. SQLite turns a sum that overflows into a float, and this back into
//! the largest integer.

use rusqlite::{Connection, Result};
use shiftboss_queue::sums::{OVER_STEP, Oldest, Sums};

pub(crate) fn add(connection: &Connection, sums: &Sums) -> Result<()> {
    for ((hour, fetcher, outcome), it) in &sums.hours {
        let sql =
            "INSERT INTO hours (hour, fetcher, outcome, jobs, took_ms, revisits, revisit_seconds)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT DO UPDATE SET jobs = CAST(jobs + excluded.jobs AS INTEGER),
                took_ms = CAST(took_ms + excluded.took_ms AS INTEGER),
                revisits = CAST(revisits + excluded.revisits AS INTEGER),
                revisit_seconds = CAST(revisit_seconds + excluded.revisit_seconds AS INTEGER)";
        connection.prepare_cached(sql)?.execute((
            hour,
            fetcher.0,
            outcome.word(),
            it.jobs,
            it.took_ms,
            it.revisits,
            it.revisit_seconds,
        ))?;
    }
    for ((minute, exit_code), jobs) in &sums.minutes {
        let sql = "INSERT INTO minutes (minute, exit_code, jobs) VALUES (?1, ?2, ?3)
            ON CONFLICT DO UPDATE SET jobs = CAST(jobs + excluded.jobs AS INTEGER)";
        connection.prepare_cached(sql)?.execute((minute, exit_code, jobs))?;
    }
    Ok(())
}

pub(crate) fn drop_older(connection: &Connection, oldest: Oldest) -> Result<()> {
    connection.prepare_cached("DELETE FROM hours WHERE hour < ?1")?.execute([oldest.hour])?;
    let sql = "DELETE FROM minutes WHERE minute < ?1";
    connection.prepare_cached(sql)?.execute([oldest.minute])?;
    let sql =
        "DELETE FROM tasks WHERE number IN (SELECT number FROM tasks WHERE over < ?1 LIMIT ?2)";
    connection.prepare_cached(sql)?.execute([oldest.over, OVER_STEP]).map(drop)
}
