//! Attempts that ended: the question of `shiftboss log`.
//!
//! All of them are read along their numbers. Those of one key are a chain from the last one that was handed out, so neither
//! depends on how many attempts are kept.

use shiftboss_actors::store::EndedAttempts;
use shiftboss_actors::store::answers::{Ended, Log};
use shiftboss_protocol::model::jitter;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::{Snapshot, limit, text};
use crate::stores::views::{LOG_MAX, outcome};

/// The columns of an [`Ended`], in an order.
const ENDED: &str = "SELECT a.ended, a.attempt, k.key, f.name, a.run_started, a.worker, a.started_ms / 1000, a.finished,
        a.outcome, a.exit_code, a.took_ms
    FROM (FOUND LIMIT $4) AS a JOIN keys k USING (key_id) LEFT JOIN fetchers f USING (fetcher)
    ORDER BY a.";
/// Those that are asked for: $1 failed ones only, $2 ended since then, $3 ended before that number.
const WANTED: &str =
    "a.finished IS NOT NULL AND (NOT $1 OR (a.outcome = 'done' AND a.exit_code <> 0))
    AND ($2::int8 IS NULL OR a.finished >= $2) AND ($3::int8 IS NULL OR a.ended < $3)";
const ALL: &str = "SELECT a.* FROM ends e CROSS JOIN LATERAL (SELECT * FROM attempts WHERE attempt = e.attempt OFFSET 0) AS a
    WHERE ($3::int8 IS NULL OR e.ended < $3) AND WANTED ORDER BY e.ended DESC";
/// Of a key, $5 with its jitter $6.
const OF_KEY: &str = "WITH RECURSIVE chain AS (
        SELECT a.* FROM attempts a WHERE attempt = (SELECT last FROM keys JOIN log USING (key_id)
            WHERE jitter = $6 AND sha256(key) = sha256($5))
        UNION ALL SELECT a.* FROM chain c CROSS JOIN LATERAL (
            SELECT * FROM attempts WHERE attempt = c.prev_last OFFSET 0) AS a)
    SELECT * FROM chain a WHERE WANTED";

pub(super) async fn log(snapshot: &Snapshot<'_>, asked: &EndedAttempts) -> Result<Log, Error> {
    let count = limit(asked.count.min(LOG_MAX));
    let mut values: Vec<&(dyn ToSql + Sync)> =
        vec![&asked.failed, &asked.since, &asked.before, &count];
    let key = asked.key.as_deref().unwrap_or_default();
    let (bytes, place) = (key.as_bytes(), jitter(key));
    let (found, order) = match &asked.key {
        None => (ALL, "ended DESC"),
        Some(_) => {
            values.extend([&bytes as &(dyn ToSql + Sync), &place]);
            (OF_KEY, "attempt DESC")
        }
    };
    let sql = ENDED.replace("FOUND", &found.replace("WANTED", WANTED)) + order;
    Ok(Log { attempts: snapshot.rows(&sql, &values, ended).await? })
}

fn ended(row: &Row) -> Ended {
    let (started, finished): (i64, i64) = (row.get(6), row.get(7));
    let exit_code = row.get(9);
    Ended {
        ended: row.get(0),
        attempt: row.get(1),
        key: text(row.get(2)),
        fetcher: row.get(3),
        run: row.get(4),
        worker: row.get(5),
        started,
        finished,
        duration_seconds: finished.saturating_sub(started).max(0),
        took_ms: row.get(10),
        outcome: outcome(row.get(8), exit_code),
        exit_code,
        output: None,
    }
}
