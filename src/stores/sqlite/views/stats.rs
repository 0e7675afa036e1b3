//! What ended, summed up: the question of `shiftboss stats`, from what is counted by hour.

use rusqlite::{Connection, Result};
use shiftboss_actors::store::StatsOf;
use shiftboss_actors::store::answers::Stats;

use crate::stores::sqlite::query::{Query, columns, json_list};
use crate::stores::views::{SEPARATE_SUMS_MAX, Summed, first_hour, group_hours, summed_up};

columns!(Summed { fetcher, since, outcome, jobs, took_ms, revisits, revisit_seconds });

/// Since the hour ?1, by fetcher if ?2, and by so many hours ?3, if that is not 0.
macro_rules! hours {
    ($from:literal) => {
        concat!(
            "SELECT iif(?2, fetcher, NULL), iif(?3 > 0, hour / ?3 * ?3 * 3600, NULL), outcome,
                sum(jobs), sum(took_ms), sum(revisits), sum(revisit_seconds) FROM ",
            $from,
            " GROUP BY 1, 2, 3 HAVING sum(jobs) > 0 ORDER BY 1, 2, 3 LIMIT ?4"
        )
    };
}

const OF_ALL: &str = hours!("shiftboss_hours WHERE hour >= ?1");
/// Of the fetchers ?5: hour by hour, however many others there are.
pub(in crate::stores::sqlite) const OF_FETCHERS: &str = hours!(
    "(WITH RECURSIVE asked(hour) AS (
        SELECT max(?1, (SELECT min(hour) FROM shiftboss_hours))
        UNION ALL SELECT hour + 1 FROM asked WHERE hour < (SELECT max(hour) FROM shiftboss_hours))
    SELECT kept.* FROM asked CROSS JOIN json_each(?5) AS named
    CROSS JOIN shiftboss_hours AS kept ON kept.hour = asked.hour AND kept.fetcher = named.value)"
);

pub(super) fn stats(snapshot: &Connection, asked: &StatsOf) -> Result<Stats> {
    let (by_fetcher, hours) = group_hours(asked.by);
    let values = (first_hour(asked), by_fetcher, hours, SEPARATE_SUMS_MAX);
    let sums = match json_list(&asked.fetchers) {
        None => snapshot.rows(OF_ALL, values)?,
        Some(names) => {
            snapshot.rows(OF_FETCHERS, (values.0, values.1, values.2, values.3, names))?
        }
    };
    Ok(summed_up(asked, sums))
}
