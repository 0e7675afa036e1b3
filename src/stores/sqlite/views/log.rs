//! Attempts that ended: the question of `shiftboss log`.
//!
//! All of them are read along the index of their ends. Those of one key are a chain, which begins where its fetchers were last
//! served with it; what was taken back is not in the chain, and few. So neither depends on how many attempts are kept.

use rusqlite::{Connection, Result, Row};
use shiftboss_actors::store::EndedAttempts;
use shiftboss_actors::store::answers::{Ended, Log};

use crate::stores::sqlite::query::{FromRow, Query};
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

/// The columns of an [`Ended`], of those that are asked for: ?1 failed ones only, ?2 ended since then, ?3 ended before that number.
macro_rules! ended {
    ($from:literal, $order:literal) => {
        concat!(
            "SELECT kept.ended, kept.attempt, attr_path,
                coalesce(name, iif(kept.fetcher_id = 0, '@tasks', NULL)), run_started, worker, started, finished,
                outcome, exit_code, took_ms FROM ",
            $from,
            " LEFT JOIN fetchers USING (fetcher_id)
            WHERE (NOT ?1 OR (outcome = 'done' AND exit_code <> 0))
                AND (?2 IS NULL OR finished >= ?2) AND (?3 IS NULL OR kept.ended < ?3)
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

pub(super) fn log(snapshot: &Connection, asked: &EndedAttempts) -> Result<Log> {
    let count = i64::try_from(asked.count.min(LOG_MAX)).unwrap_or(i64::MAX);
    let EndedAttempts { failed, since, before, .. } = *asked;
    let attempts = match &asked.key {
        Some(key) => snapshot.rows(OF_KEY, (failed, since, before, count, key))?,
        None => snapshot.rows(ALL, (failed, since, before, count))?,
    };
    Ok(Log { attempts })
}
