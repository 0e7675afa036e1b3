//! Who holds which job: a part of `shiftboss status`.
//!
//! A job is held from its hand-out until it ends or its lease runs out. Two indexes tell, each from
//! the job that is out for longest on; what it costs does not depend on how many are out.

use rusqlite::{Connection, Row};
use serde::Serialize;
use shiftboss_protocol::model::UnixSeconds;

/// Jobs that are shown at the most.
pub const HOLDERS_MAX: usize = 1_000;

/// A job that is out, and who holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// The worker's name; `None`: a classic worker, which has none.
    pub worker: Option<String>,
    /// The key.
    pub key: String,
    /// The attempt; `None`: a daemon under `--classic` keeps none.
    pub attempt: Option<i64>,
    /// When it was handed out, in seconds since 1970.
    pub since: UnixSeconds,
    /// How long the worker may be silent; `None`: classic jobs have the daemon's lease.
    pub lease_seconds: Option<i64>,
}

/// Leased attempts, the first one first, at most ?1.
pub(super) const LEASED: &str = "SELECT worker, attr_path, attempt, started, lease
    FROM shiftboss_deliveries INDEXED BY shiftboss_leased
    WHERE lease IS NOT NULL ORDER BY attempt LIMIT ?1";
/// Keys in flight that were started since ?2, the first one first, at most ?1; leased ones as well.
pub(super) const UNFINISHED: &str = "SELECT held.worker, log.attr_path, held.attempt,
        iif(held.lease IS NULL, log.started, held.started), held.lease
    FROM log INDEXED BY shiftboss_unfinished
    LEFT JOIN shiftboss_deliveries AS held ON held.attr_path = log.attr_path AND held.attempt = (
        SELECT max(attempt) FROM shiftboss_deliveries AS last WHERE last.attr_path = log.attr_path)
    WHERE finished IS NULL AND log.started >= ?2 ORDER BY log.started LIMIT ?1";

/// The jobs that are held, the one that is out for longest first, at most [`HOLDERS_MAX`]. A classic
/// job that was handed out before `expired` is held no longer.
pub(super) fn holders(
    snapshot: &Connection,
    expired: UnixSeconds,
) -> rusqlite::Result<Vec<Holding>> {
    let limit = i64::try_from(HOLDERS_MAX).unwrap_or(i64::MAX);
    let mut found: Vec<Holding> =
        snapshot.prepare(LEASED)?.query_map([limit], read)?.collect::<rusqlite::Result<_>>()?;
    let mut statement = snapshot.prepare(UNFINISHED)?;
    for holding in statement.query_map([limit, expired], read)? {
        found.push(holding?);
    }
    // The oldest of each are the oldest of all. A leased job was found twice.
    found.sort_by(|a, b| (a.since, a.attempt, &a.key).cmp(&(b.since, b.attempt, &b.key)));
    found.dedup();
    found.truncate(HOLDERS_MAX);
    Ok(found)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Holding> {
    Ok(Holding {
        worker: row.get(0)?,
        key: row.get(1)?,
        attempt: row.get(2)?,
        since: row.get(3)?,
        lease_seconds: row.get(4)?,
    })
}
