//! Attempts that ended: the questions of `shiftboss log`.
//!
//! All of them are read along the index of their ends. Those of one key are a chain, which begins where its fetchers were last
//! served with it; what was taken back is not in the chain, and few. So neither depends on how many attempts are kept.

use rusqlite::{Connection, Result, Row};
use shiftboss_actors::store::EndedAttempts;
use shiftboss_actors::store::answers::{Ended, Ends, Log};

use crate::stores::sqlite::query::{FromRow, Query, json_list};
use crate::stores::views::{LOG_MAX, outcome};

impl FromRow for Ended {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let (started, finished): (i64, i64) = (row.get(6)?, row.get(7)?);
        let exit_code = row.get(9)?;
        Ok(Self {
            ended: row.get(0)?,
            attempt: row.get(1)?,
            key: row.get(2)?,
            fetcher: row.get(3)?,
            run: row.get(4)?,
            worker: row.get(5)?,
            started,
            finished,
            duration_seconds: finished.saturating_sub(started).max(0),
            took_ms: row.get(10)?,
            outcome: outcome(row.get(8)?, exit_code),
            exit_code,
            output: None,
        })
    }
}

/// The columns of an [`Ended`], of those that are asked for: ?1 of these outcomes only, ?2 ended since then, ?3 ended before
/// that number, ?6 of that fetcher, ?7 not below that number.
macro_rules! ended {
    ($from:literal, $order:literal) => {
        concat!(
            "SELECT kept.ended, kept.attempt, attr_path,
                coalesce(name, iif(kept.fetcher_id = 0, '@tasks', NULL)), run_started, worker, started, finished,
                outcome, exit_code, took_ms FROM ",
            $from,
            " LEFT JOIN fetchers USING (fetcher_id)
            WHERE (?1 IS NULL OR CASE WHEN outcome <> 'done' THEN outcome WHEN exit_code = 0 THEN 'success'
                    WHEN exit_code = 124 THEN 'timeout' ELSE 'failure' END IN (SELECT value FROM json_each(?1)))
                AND (?6 IS NULL OR coalesce(name, iif(kept.fetcher_id = 0, '@tasks', NULL)) = ?6)
                AND (?7 IS NULL OR kept.ended >= ?7) AND (?2 IS NULL OR finished >= ?2) AND (?3 IS NULL OR kept.ended < ?3)
            ORDER BY ",
            $order,
            " DESC LIMIT ?4"
        )
    };
}

pub(in crate::stores::sqlite) const ALL: &str =
    ended!("shiftboss_attempts AS kept INDEXED BY shiftboss_ends", "kept.ended");
/// Of the key ?5: the chain, the attempt that was handed out last first, and those that were taken back.
pub(in crate::stores::sqlite) const OF_KEY: &str = ended!(
    "(WITH RECURSIVE chain(attempt) AS (
        SELECT attempt FROM (SELECT last_served AS attempt FROM queue INDEXED BY queue_attr_path_index
                WHERE attr_path = ?5 AND last_served IS NOT NULL
            UNION SELECT prev_last_served FROM queue INDEXED BY queue_attr_path_index
                WHERE attr_path = ?5 AND state = -2 AND prev_last_served IS NOT NULL
            UNION SELECT prev_last_served FROM shiftboss_deliveries WHERE attr_path = ?5 AND prev_last_served IS NOT NULL
            UNION SELECT attempt FROM shiftboss_last_served WHERE attr_path = ?5)
        UNION SELECT previous FROM chain JOIN shiftboss_attempts USING (attempt) WHERE previous IS NOT NULL
        ORDER BY 1 DESC)
    SELECT attempt FROM chain
    UNION SELECT attempt FROM shiftboss_attempts INDEXED BY shiftboss_returned_attempts
        WHERE attr_path = ?5 AND outcome IN ('released', 'expired')) AS own
    CROSS JOIN shiftboss_attempts AS kept ON kept.attempt = own.attempt AND kept.attr_path = ?5",
    "kept.attempt"
);

/// The number of the end from which on there are ?2 before the number ?1, if there are more.
pub(in crate::stores::sqlite) const FLOOR: &str =
    "SELECT ended FROM shiftboss_attempts INDEXED BY shiftboss_ends WHERE ended < coalesce(?1, 9223372036854775807)
    ORDER BY ended DESC LIMIT 1 OFFSET ?2 - 1";

pub(super) fn log(snapshot: &Connection, asked: &EndedAttempts) -> Result<Log> {
    let count = i64::try_from(asked.count.min(LOG_MAX)).unwrap_or(i64::MAX);
    let EndedAttempts { since, before, among, .. } = *asked;
    let looked_to: Option<i64> = match among.map(i64::try_from) {
        Some(Ok(among)) => snapshot.values(FLOOR, (before, among))?.pop(),
        _ => None,
    };
    let sql = if asked.key.is_some() { OF_KEY } else { ALL };
    let outcomes = json_list(&asked.outcomes);
    let values = (outcomes, since, before, count, &asked.key, &asked.fetcher, looked_to);
    Ok(Log { attempts: snapshot.rows(sql, values)?, looked_to })
}

/// Those behind the end ?1, in order, at most ?2.
pub(in crate::stores::sqlite) const BEHIND: &str = "SELECT kept.ended, kept.attempt, attr_path,
        coalesce(name, iif(kept.fetcher_id = 0, '@tasks', NULL)), run_started, worker, started, finished,
        outcome, exit_code, took_ms
    FROM shiftboss_attempts AS kept INDEXED BY shiftboss_ends LEFT JOIN fetchers USING (fetcher_id)
    WHERE kept.ended > ?1 ORDER BY kept.ended LIMIT ?2";
/// The number of the last end, forgotten or not.
const LAST: &str = "SELECT max((SELECT coalesce(max(ended), 0) FROM shiftboss_attempts),
    (SELECT coalesce(max(value), 0) FROM shiftboss_counters WHERE name = 'ended'))";

pub(super) fn ends_after(snapshot: &Connection, after: Option<i64>, count: usize) -> Result<Ends> {
    let Some(after) = after else {
        return Ok(Ends { attempts: Vec::new(), upto: snapshot.value(LAST, [])?, is_kept: true });
    };
    let count = i64::try_from(count.min(LOG_MAX)).unwrap_or(i64::MAX);
    let attempts: Vec<Ended> = snapshot.rows(BEHIND, (after, count))?;
    let kept = "SELECT EXISTS (SELECT 1 FROM shiftboss_attempts WHERE ended = ?1)";
    Ok(Ends {
        upto: attempts.last().map_or(after, |last| last.ended),
        attempts,
        is_kept: snapshot.value(kept, [after])?,
    })
}
