//! Attempts that ended: the questions of `shiftboss log`.
//!
//! All of them are read along their numbers. Those of one key are a chain from the last one that was handed out, so neither
//! depends on how many attempts are kept.

use shiftboss_actors::store::EndedAttempts;
use shiftboss_actors::store::answers::{Ended, Ends, Log};
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
/// Those that are asked for: $1 of these outcomes only, $2 ended since then, $3 ended before that number, $5 of that fetcher,
/// $6 not below that number.
const WANTED: &str =
    "a.finished IS NOT NULL AND (cardinality($1::text[]) = 0 OR outcome_word(a.outcome, a.exit_code) = ANY ($1))
    AND ($2::int8 IS NULL OR a.finished >= $2) AND ($3::int8 IS NULL OR a.ended < $3)
    AND ($5::text IS NULL OR (SELECT name FROM fetchers f WHERE f.fetcher = a.fetcher) = $5) AND ($6::int8 IS NULL OR a.ended >= $6)";
const ALL: &str = "SELECT a.* FROM ends e CROSS JOIN LATERAL (SELECT * FROM attempts WHERE attempt = e.attempt OFFSET 0) AS a
    WHERE ($3::int8 IS NULL OR e.ended < $3) AND WANTED ORDER BY e.ended DESC";
/// Of a key, $7 with its jitter $8.
const OF_KEY: &str = "WITH RECURSIVE chain AS (
        SELECT a.* FROM attempts a WHERE attempt = (SELECT last FROM keys JOIN log USING (key_id)
            WHERE jitter = $8 AND sha256(key) = sha256($7))
        UNION ALL SELECT a.* FROM chain c CROSS JOIN LATERAL (
            SELECT * FROM attempts WHERE attempt = c.prev_last OFFSET 0) AS a)
    SELECT * FROM chain a WHERE WANTED";
/// The number of the end from which on there are $2 before the number $1, if there are more.
const FLOOR: &str = "SELECT ended FROM ends WHERE ended < coalesce($1::int8, 9223372036854775807)
    ORDER BY ended DESC LIMIT 1 OFFSET $2::int8 - 1";

pub(super) async fn log(snapshot: &Snapshot, asked: &EndedAttempts) -> Result<Log, Error> {
    let count = limit(asked.count.min(LOG_MAX));
    let looked_to = looked_to(snapshot, asked).await?;
    let mut values: Vec<&(dyn ToSql + Sync)> =
        vec![&asked.outcomes, &asked.since, &asked.before, &count, &asked.fetcher, &looked_to];
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
    Ok(Log { attempts: snapshot.rows(&sql, &values, ended).await?, looked_to })
}

/// Those behind the end $1 and up to $2, in order, at most $4. (ENDED counts by $4.)
const BEHIND: &str = "SELECT a.* FROM ends e CROSS JOIN LATERAL (SELECT * FROM attempts WHERE attempt = e.attempt OFFSET 0) AS a
    WHERE e.ended > $1::int8 AND e.ended <= $2::int8 AND $3::bool ORDER BY e.ended";
/// The number up to which all ends are seen: those of transactions before which no other one is open.
const SEEN: &str = "SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::int8 << 16) - 1";
const IS_KEPT: &str = "SELECT EXISTS (SELECT FROM ends WHERE ended = $1)";

pub(super) async fn ends_after(
    snapshot: &Snapshot,
    after: Option<i64>,
    count: usize,
) -> Result<Ends, Error> {
    let seen: i64 = snapshot.client().query_one(SEEN, &[]).await?.get(0);
    let Some(after) = after else {
        return Ok(Ends { attempts: Vec::new(), upto: seen, is_kept: true });
    };
    let count = limit(count.min(LOG_MAX));
    let sql = ENDED.replace("FOUND", BEHIND) + "ended";
    let attempts = snapshot.rows(&sql, &[&after, &seen, &true, &count], ended).await?;
    Ok(Ends {
        upto: attempts.last().map_or(after, |last| last.ended),
        attempts,
        is_kept: snapshot.client().query_one(IS_KEPT, &[&after]).await?.get(0),
    })
}

/// The number of the end from which on as many were looked at as is asked for, if there are more.
async fn looked_to(snapshot: &Snapshot, asked: &EndedAttempts) -> Result<Option<i64>, Error> {
    let Some(among) = asked.among else {
        return Ok(None);
    };
    let number = |row: &Row| row.get(0);
    Ok(snapshot.rows(FLOOR, &[&asked.before, &limit(among)], number).await?.pop())
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
