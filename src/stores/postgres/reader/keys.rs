//! Keys that are looked for by how they begin, and how long keys wait: what a page asks beside `why` and `queue`.
//!
//! Neither costs more where a queue is longer: keys are found along the index of their beginnings, and of a long queue so many
//! are looked at.

use shiftboss_actors::store::SAMPLE_MAX;
use shiftboss_actors::store::answers::{
    Bump, Found, HeldKey, HeldKeys, Hold, HoldKind, KnownKey, LastStarts, Retry,
};
use tokio_postgres::{Error, Row};

use super::{Snapshot, limit, text};
use crate::stores::views::{HELD_MAX, SEARCH_MAX, behind, found, held_keys};

/// The keys from $1 on and before $2, at most $3 of those that are listed or ran. An index entry has no room for more than the
/// beginning of a key.
const SEARCH: &str = "SELECT key, l.started, CASE WHEN l.finished IS NOT NULL THEN l.exit_code END
    FROM keys k JOIN log l USING (key_id)
    WHERE substr(key, 1, 64) >= substr($1::bytea, 1, 64) AND ($2::bytea IS NULL OR substr(key, 1, 64) <= substr($2, 1, 64))
        AND key >= $1 AND ($2 IS NULL OR key < $2)
        AND (l.started IS NOT NULL OR EXISTS (SELECT FROM queue q WHERE q.key_id = k.key_id))
    ORDER BY substr(key, 1, 64), key LIMIT $3";

/// At most $1: operators' come first.
const HELD: &str =
    "SELECT since, until, reason, held_by, kind, key FROM holds JOIN keys USING (key_id)
    ORDER BY kind DESC, since DESC, key DESC LIMIT $1";
/// Why the key $1 is not handed out, whatever else is known of it. An operator's hold comes first.
const HOLD: &str = "SELECT since, until, reason, held_by, kind FROM holds WHERE key_id = $1 ORDER BY kind DESC LIMIT 1";

const LENGTH: &str = "SELECT ((SELECT coalesce(sum(rows), 0) FROM runs WHERE NOT deleting)
    + (SELECT coalesce(sum(rows), 0) FROM counts WHERE run = 0))::int8";
/// When the keys of rows in the newest runs were last started; $1: runs under deletion.
const ALL: &str = "SELECT started FROM queue q JOIN log USING (key_id) WHERE NEWEST";
/// A row is in the newest run of its fetcher.
const NEWEST: &str =
    "NOT run = ANY ($1::int4[]) AND (run = 0 OR run_started = (SELECT max(run_started) FROM runs r
    WHERE r.fetcher = q.fetcher AND NOT deleting))";
/// The same of one key each of $2 equal parts of all jitters, chosen by chance; they have nothing to do with when keys ran.
const SAMPLE: &str = "SELECT started FROM generate_series(0, $2::int8 - 1) AS part
    CROSS JOIN LATERAL (SELECT ((part + random()) * (4294967296 / $2) - 2147483648)::int8 AS point OFFSET 0) AS chance
    CROSS JOIN LATERAL (SELECT key_id FROM keys WHERE jitter >= least(chance.point, 2147483647)::int4
        ORDER BY jitter, sha256(key) LIMIT 1) AS chosen
    JOIN log USING (key_id)
    CROSS JOIN LATERAL (SELECT FROM queue q WHERE q.key_id = chosen.key_id AND NEWEST) AS listed";

pub(super) async fn search(
    snapshot: &Snapshot,
    prefix: &str,
    count: usize,
) -> Result<Found, Error> {
    let count = count.min(SEARCH_MAX);
    let behind = behind(prefix);
    let behind = behind.as_deref().map(str::as_bytes);
    let keys =
        snapshot.rows(SEARCH, &[&prefix.as_bytes(), &behind, &limit(count + 1)], known).await?;
    Ok(found(keys, count))
}

fn known(row: &Row) -> KnownKey {
    KnownKey { key: text(row.get(0)), last_started: row.get(1), exit_code: row.get(2) }
}

pub(super) async fn held(snapshot: &Snapshot, count: usize) -> Result<HeldKeys, Error> {
    let count = count.min(HELD_MAX);
    let read = |row: &Row| HeldKey { key: text(row.get(5)), hold: read_hold(row) };
    Ok(held_keys(snapshot.rows(HELD, &[&limit(count + 1)], read).await?, count))
}

pub(super) async fn hold(snapshot: &Snapshot, key_id: i64) -> Result<Option<Hold>, Error> {
    Ok(snapshot.client().query_opt(HOLD, &[&key_id]).await?.map(|row| read_hold(&row)))
}

/// Who bumped a key that waits for its turn.
const BUMP: &str = "SELECT since, bumped_by FROM bumps
    WHERE key_id = $1 AND attempt IS NULL AND due IS NULL";

pub(super) async fn bump(snapshot: &Snapshot, key_id: i64) -> Result<Option<Bump>, Error> {
    let bump = |row: Row| Bump { since: row.get(0), by: row.get(1) };
    Ok(snapshot.client().query_opt(BUMP, &[&key_id]).await?.map(bump))
}

/// The task of the key $1 that is delayed.
const RETRY: &str = "SELECT due, retries, fetcher, run_started FROM bumps
    WHERE key_id = $1 AND due IS NOT NULL AND has_failed(key_id, fetcher, run_started)";

/// The fetcher and the run of a task.
pub(super) type TaskOf = (i32, i64);

pub(super) async fn retry(
    snapshot: &Snapshot,
    key_id: i64,
) -> Result<Option<(Retry, TaskOf)>, Error> {
    let retry = |row: Row| {
        let retries = row.get::<_, i32>(1).unsigned_abs();
        (Retry { due: row.get(0), retries }, (row.get(2), row.get(3)))
    };
    Ok(snapshot.client().query_opt(RETRY, &[&key_id]).await?.map(retry))
}

fn read_hold(row: &Row) -> Hold {
    let kind = HoldKind::named(row.get(4));
    Hold { kind, since: row.get(0), until: row.get(1), reason: row.get(2), by: row.get(3) }
}

pub(super) async fn last_starts(snapshot: &Snapshot) -> Result<LastStarts, Error> {
    let length: i64 = snapshot.client().query_one(LENGTH, &[]).await?.get(0);
    let is_all = length <= limit(SAMPLE_MAX);
    let started = |row: &Row| row.get(0);
    let started = if is_all {
        snapshot.rows(&ALL.replace("NEWEST", NEWEST), &[&snapshot.deleting], started).await?
    } else {
        let sql = SAMPLE.replace("NEWEST", NEWEST);
        snapshot.rows(&sql, &[&snapshot.deleting, &limit(SAMPLE_MAX)], started).await?
    };
    Ok(LastStarts { started, is_all })
}
