//! What ended, summed up: by hour, for `stats`; and by minute, for how fast jobs end.

use rusqlite::{Result, Row};
use shiftboss_queue::answers::{Done, MinuteJobs, Stats};
use shiftboss_queue::pace::{ENDS_LOOKED_AT, begin_with, busy_seconds, young_since};
use shiftboss_queue::reader::StatsOf;
use shiftboss_queue::record::FetcherId;
use shiftboss_queue::views::{
    HOUR_MINUTES, SEPARATE_SUMS_MAX, Summed, first_hour, group_hours, summed_up,
};

use super::Look;
use crate::ask::Ask;

/// Since the hour ?1, by fetcher if ?2, and by so many hours ?3, if that is not 0.
macro_rules! hours {
    ($from:literal) => {
        concat!(
            "SELECT iif(?2, coalesce(name, '@tasks'), NULL), iif(?3 > 0, hour / ?3 * ?3 * 3600, NULL), outcome,
                sum(jobs), sum(took_ms), sum(revisits), sum(revisit_seconds) FROM ",
            $from,
            " LEFT JOIN names USING (fetcher)
            GROUP BY 1, 2, 3 HAVING sum(jobs) > 0 ORDER BY 1, 2, 3 LIMIT ?4"
        )
    };
}

const OF_ALL: &str = hours!("(SELECT * FROM hours WHERE hour >= ?1)");
/// Of the fetchers ?5: hour by hour, however many others there are.
const OF_FETCHERS: &str = hours!(
    "(WITH RECURSIVE asked (hour) AS (
        SELECT max(?1, (SELECT min(hour) FROM hours))
        UNION ALL SELECT hour + 1 FROM asked WHERE hour < (SELECT max(hour) FROM hours))
    SELECT kept.* FROM asked CROSS JOIN json_each(?5) AS wanted
    CROSS JOIN hours AS kept ON kept.hour = asked.hour AND kept.fetcher = wanted.value)"
);
/// Jobs by exit code, from the counts by minute. An end that somebody wrote may count less than nothing: it was in no sum before.
const BY_CODE: &str = "SELECT exit_code, sum(jobs) FROM minutes
    WHERE minute > ?1 AND minute <= ?1 + 60 AND jobs > 0 GROUP BY exit_code ORDER BY exit_code";
const BY_MINUTE: &str = "SELECT minute * 60, sum(jobs) FROM minutes
    WHERE minute > ?1 AND minute <= ?1 + 60 AND jobs > 0 GROUP BY minute ORDER BY minute";
/// The first end of a job behind the number ?2 that is not before ?1, and how many there are.
const FIRST_END: &str = "SELECT min(ended_ms), count(*) FROM attempts
    WHERE ended > ?2 AND exit_code IS NOT NULL AND ended_ms >= ?1 * 1000";
/// Seconds that a job took on average, since the hour ?1.
const TOOK: &str = "SELECT coalesce(sum(took_ms) / max(sum(jobs), 1), 0) / 1000
    FROM (SELECT took_ms, jobs FROM hours WHERE hour >= ?1 LIMIT 1000)";

/// How fast jobs ended within the last hour.
pub(super) struct Pace {
    /// The minutes in which any ended; in a young queue the first one begins with the first end.
    pub(super) minutes: Vec<MinuteJobs>,
    pub(super) busy_seconds: Option<i64>,
}

fn summed(row: &Row<'_>) -> Result<Summed> {
    Ok(Summed {
        fetcher: row.get(0)?,
        since: row.get(1)?,
        outcome: row.get(2)?,
        jobs: row.get(3)?,
        took_ms: row.get(4)?,
        revisits: row.get(5)?,
        revisit_seconds: row.get(6)?,
    })
}

impl Look<'_> {
    pub(super) fn stats(&self, asked: &StatsOf) -> Result<Stats> {
        let (by_fetcher, hours) = group_hours(asked.by);
        let (first, most) = (first_hour(asked), SEPARATE_SUMS_MAX);
        let sums = if asked.fetchers.is_empty() {
            self.connection.rows(OF_ALL, (first, by_fetcher, hours, most), summed)?
        } else {
            let ids = asked.fetchers.iter().filter_map(|name| self.fetcher(name));
            let ids: Vec<i64> = ids.map(|FetcherId(id)| id).collect();
            let ids = crate::code::json(&ids)?;
            self.connection.rows(OF_FETCHERS, (first, by_fetcher, hours, most, ids), summed)?
        };
        Ok(summed_up(asked, sums))
    }

    /// The minute behind which the last hour lies.
    fn hour_ago(&self) -> i64 {
        self.context.seconds().div_euclid(60) - HOUR_MINUTES
    }

    pub(super) fn jobs_by_minute(&self) -> Result<Vec<MinuteJobs>> {
        self.connection.rows(BY_MINUTE, [self.hour_ago()], |row| {
            Ok(MinuteJobs { since: row.get(0)?, jobs: row.get(1)? })
        })
    }

    pub(super) fn done_last_hour(&self) -> Result<Vec<Done>> {
        self.connection.rows(BY_CODE, [self.hour_ago()], |row| {
            Ok(Done { exit_code: row.get(0)?, jobs: row.get(1)? })
        })
    }

    pub(super) fn pace(&self) -> Result<Pace> {
        let now = self.context.seconds();
        let mut minutes = self.jobs_by_minute()?;
        if let Some(since) = young_since(&minutes, now) {
            let values = (since, self.kept.ends - ENDS_LOOKED_AT);
            let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get(1)?));
            let (first, ends) = self.connection.first(FIRST_END, values, read)?.unwrap_or_default();
            begin_with(&mut minutes, first.map(super::seconds), ends);
        }
        let took = self.connection.value(TOOK, [now.div_euclid(3_600) - 1])?;
        let busy_seconds = busy_seconds(&minutes, took, now);
        Ok(Pace { minutes, busy_seconds })
    }
}
