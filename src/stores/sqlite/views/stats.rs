//! What ended, summed up: the question of `shiftboss stats`, from what is counted by hour.

use rusqlite::{Connection, Result};
use shiftboss_actors::store::StatsOf;
use shiftboss_actors::store::answers::Stats;

use crate::stores::sqlite::query::{Query, columns};
use crate::stores::views::{SEPARATE_SUMS_MAX, Summed, first_hour, group_hours, summed_up};

columns!(Summed { fetcher, since, outcome, jobs, took_ms, revisits, revisit_seconds });

/// Since the hour ?1, by fetcher if ?2, and by so many hours ?3, if that is not 0.
const HOURS: &str =
    "SELECT iif(?2, fetcher, NULL), iif(?3 > 0, hour / ?3 * ?3 * 3600, NULL), outcome,
        sum(jobs), sum(took_ms), sum(revisits), sum(revisit_seconds)
    FROM shiftboss_hours WHERE hour >= ?1
    GROUP BY 1, 2, 3 HAVING sum(jobs) > 0 ORDER BY 1, 2, 3 LIMIT ?4";

pub(super) fn stats(snapshot: &Connection, asked: &StatsOf) -> Result<Stats> {
    let (by_fetcher, hours) = group_hours(asked.by);
    let sums = snapshot.rows(HOURS, (first_hour(asked), by_fetcher, hours, SEPARATE_SUMS_MAX))?;
    Ok(summed_up(asked, sums))
}
