//! What ended, summed up: the question of `shiftboss stats`, from what is counted by hour.

use shiftboss_actors::store::StatsOf;
use shiftboss_actors::store::answers::Stats;
use tokio_postgres::{Error, Row};

use super::Snapshot;
use crate::stores::views::{SEPARATE_SUMS_MAX, Summed, first_hour, group_hours, summed_up};

/// Since the hour $1, of the fetchers $5 (none: of all), by fetcher if $2, and by so many hours $3, if that is not 0.
const HOURS: &str = "SELECT * FROM (SELECT CASE WHEN $2 THEN fetcher END AS fetcher,
        CASE WHEN $3::int8 > 0 THEN hour / nullif($3, 0) * $3 * 3600 END AS since, outcome, sum(jobs)::int8,
        sum(took_ms)::int8, sum(revisits)::int8, sum(revisit_seconds)::int8
    FROM hours WHERE hour >= $1 AND (cardinality($5::text[]) = 0 OR fetcher = ANY ($5)) GROUP BY 1, 2, 3 HAVING sum(jobs) > 0) AS summed
    ORDER BY fetcher COLLATE \"C\", since, outcome COLLATE \"C\" LIMIT $4";

pub(super) async fn stats(snapshot: &Snapshot, asked: &StatsOf) -> Result<Stats, Error> {
    let (by_fetcher, hours) = group_hours(asked.by);
    let sums = snapshot
        .rows(
            HOURS,
            &[&first_hour(asked), &by_fetcher, &hours, &SEPARATE_SUMS_MAX, &asked.fetchers],
            summed,
        )
        .await?;
    Ok(summed_up(asked, sums))
}

fn summed(row: &Row) -> Summed {
    Summed {
        fetcher: row.get(0),
        since: row.get(1),
        outcome: row.get(2),
        jobs: row.get(3),
        took_ms: row.get(4),
        revisits: row.get(5),
        revisit_seconds: row.get(6),
    }
}
