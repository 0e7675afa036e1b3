//! Attempts that ended: the question of `shiftboss log`.

use shiftboss_actors::store::EndedAttempts;
use shiftboss_actors::store::answers::{Ended, Log};
use shiftboss_protocol::model::jitter;
use tokio_postgres::{Error, Row};

use super::{Snapshot, limit, text};
use crate::stores::views::{LOG_MAX, outcome};

const ENDED: &str = "SELECT a.attempt, k.key, f.name, a.run_started, a.worker, a.started_ms / 1000, a.finished,
        a.outcome, a.exit_code, a.took_ms
    FROM attempts a JOIN keys k USING (key_id) LEFT JOIN fetchers f USING (fetcher)
    WHERE a.finished IS NOT NULL
        AND ($1::bytea IS NULL OR a.key_id = (SELECT key_id FROM keys WHERE jitter = $2 AND sha256(key) = sha256($1)))
        AND (NOT $3 OR (outcome = 'done' AND exit_code <> 0))
        AND ($4::int8 IS NULL OR finished >= $4)
    ORDER BY a.attempt DESC LIMIT $5";

/// The one that was handed out last first. At most those that are kept are gone through.
pub(super) async fn log(snapshot: &Snapshot<'_>, asked: &EndedAttempts) -> Result<Log, Error> {
    let key = asked.key.as_deref();
    let (bytes, place) = (key.map(str::as_bytes), key.map_or(0, jitter));
    let count = limit(asked.count.min(LOG_MAX));
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&bytes, &place, &asked.failed, &asked.since, &count];
    Ok(Log { attempts: snapshot.rows(ENDED, &values, ended).await? })
}

fn ended(row: &Row) -> Ended {
    let (started, finished): (i64, i64) = (row.get(5), row.get(6));
    let exit_code = row.get(8);
    Ended {
        attempt: row.get(0),
        key: text(row.get(1)),
        fetcher: row.get(2),
        run: row.get(3),
        worker: row.get(4),
        started,
        finished,
        duration_seconds: finished.saturating_sub(started).max(0),
        took_ms: row.get(9),
        outcome: outcome(row.get(7), exit_code),
        exit_code,
        output: None,
    }
}
