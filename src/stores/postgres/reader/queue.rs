//! What would be handed out next, in order: the question of `shiftboss queue`; and when single tasks are expected to
//! be handed out: what `add` tells.
//!
//! The order is that of the table `ready`, without what a claim would leave alone.

use std::collections::{HashMap, HashSet};

use shiftboss_actors::store::answers::{Next, Queue, Turn};
use shiftboss_actors::store::{Credit, Turns};
use shiftboss_protocol::model::Key;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::{Snapshot, limit, text};
use crate::stores::views::{COUNTED_MAX, PAYLOADS_MAX_BYTES, QUEUE_MAX, WALK_MAX, turn};

/// The keys that can be handed out, in order: those before the place ($1, $2), at most $3 rows of them gone over. $4: runs
/// under deletion; a key whose dispatch is older than $5 has no lease.
pub(super) const WALK: &str = "SELECT r.started, r.place, r.key_id, l.started AS last_started
    FROM (SELECT * FROM ready WHERE (started, place) < ($1::int8, $2::int8) ORDER BY started, place LIMIT $3::int8) r
    JOIN log l USING (key_id)
    WHERE (l.finished IS NOT NULL OR l.started IS NULL OR l.started < $5::int8)
        AND ($4::int4[] = '{}' OR EXISTS (SELECT FROM choose(r.key_id, $4)))
    ORDER BY r.started, r.place";
/// Before all places that there are.
pub(super) const END: (i64, i64) = (i64::MAX, i64::MAX);

/// The first $6 jobs; without the payloads behind those that have $7 bytes.
const NEXT: &str = "SELECT k.key, f.name, c.run_started, w.last_started, c.dispatched,
        CASE WHEN sum(octet_length(c.payload)) OVER (ORDER BY w.started, w.place) - octet_length(c.payload) < $7::int8
            THEN c.payload ELSE '' END
    FROM (WALK LIMIT $6::int8) w CROSS JOIN LATERAL choose(w.key_id, $4) c
    JOIN keys k ON k.key_id = w.key_id JOIN fetchers f USING (fetcher)
    ORDER BY w.started, w.place";
const IS_LONG: &str = "SELECT count(*) >= $1 FROM (SELECT FROM ready LIMIT $1::int8) AS first";

/// The jobs of the first $3 bumped keys that could be handed out, in the order in which they were bumped; without the payloads
/// behind those that have $4 bytes. $1: runs under deletion; a key whose dispatch is older than $2 has no lease.
const BUMPED: &str = "SELECT k.key, f.name, c.run_started, l.started, c.dispatched,
        CASE WHEN sum(octet_length(c.payload)) OVER (ORDER BY b.kind, b.place) - octet_length(c.payload) < $4::int8
            THEN c.payload ELSE '' END
    FROM LANE b JOIN log l USING (key_id) JOIN keys k USING (key_id)
    CROSS JOIN LATERAL choose(b.key_id, $1::int4[]) c JOIN fetchers f ON f.fetcher = c.fetcher
    WHERE is_in_order(b.key_id)
        AND (l.finished IS NOT NULL OR l.started IS NULL OR l.started < $2::int8)
    ORDER BY b.kind, b.place LIMIT $3::int8";
/// As many of the lane as a daemon looks at.
const LANE: &str =
    "(SELECT * FROM bumps WHERE attempt IS NULL AND due IS NULL ORDER BY kind, place LIMIT 1000)";
/// Those keys alone.
const BUMPED_KEYS: &str =
    "SELECT k.key FROM LANE b JOIN log l USING (key_id) JOIN keys k USING (key_id)
    WHERE is_in_order(b.key_id)
        AND ($1::int4[] = '{}' OR EXISTS (SELECT FROM choose(b.key_id, $1)))
        AND (l.finished IS NOT NULL OR l.started IS NULL OR l.started < $2::int8)
    ORDER BY b.kind, b.place";

/// The next `count` jobs in the order in which they would be handed out now; one to [`QUEUE_MAX`] of them.
pub(super) async fn queue(snapshot: &Snapshot, count: usize) -> Result<Queue, Error> {
    let count = count.clamp(1, QUEUE_MAX);
    let sql = NEXT.replace("WALK", WALK);
    let (client, deleting) = (snapshot.client(), &snapshot.deleting);
    let (walked, first, bytes) = (limit(WALK_MAX), limit(count), limit(PAYLOADS_MAX_BYTES));
    let expired = snapshot.expired();
    let found =
        client.query(&sql, &[&END.0, &END.1, &walked, deleting, &expired, &first, &bytes]).await?;
    let (credit, lane) = lane(snapshot).await?;
    let first = first.min(limit(lane.len()));
    let sql = BUMPED.replace("LANE", LANE);
    let before = client.query(&sql, &[deleting, &expired, &first, &bytes]).await?;
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let mut found = in_turn(credit, lane, &found, &before).into_iter().take(count);
    while let Some(next) = found.next().filter(|_| bytes < PAYLOADS_MAX_BYTES) {
        bytes += next.payload.len();
        keys.push(next);
    }
    let is_all = bytes < PAYLOADS_MAX_BYTES;
    let truncated =
        keys.len() < count && (!is_all || client.query_one(IS_LONG, &[&walked]).await?.get(0));
    Ok(Queue { paused: snapshot.is_paused, keys, truncated })
}

/// The jobs of the order and the first ones of the lane, as they would be handed out.
fn in_turn(credit: Credit, lane: Vec<String>, order: &[Row], first: &[Row]) -> Vec<Next> {
    let bumped: HashSet<String> = lane.iter().cloned().collect();
    let all = order.iter().chain(first).map(|row| next(row, &bumped));
    let mut jobs: HashMap<String, Next> = all.map(|next| (next.key.clone(), next)).collect();
    let turns = Turns::new(credit, lane).merge(order.iter().map(|row| text(row.get(0))));
    turns.iter().filter_map(|key| jobs.remove(key)).collect()
}

/// What may go before the order, and which keys of the lane could: none if it gets no share.
pub(super) async fn lane(snapshot: &Snapshot) -> Result<(Credit, Vec<String>), Error> {
    let sql = "SELECT thousandths, share FROM bump_credit";
    let row = snapshot.client().query_one(sql, &[]).await?;
    let credit = Credit::new(row.get::<_, i32>(1).unsigned_abs(), row.get(0));
    if credit.share() == 0 {
        return Ok((credit, Vec::new()));
    }
    let values: [&(dyn ToSql + Sync); 2] = [&snapshot.deleting, &snapshot.expired()];
    let sql = BUMPED_KEYS.replace("LANE", LANE);
    Ok((credit, snapshot.rows(&sql, &values, |row| text(row.get(0))).await?))
}

fn next(row: &Row, bumped: &HashSet<String>) -> Next {
    let key = text(row.get(0));
    Next {
        fetcher: row.get(1),
        run: row.get(2),
        last_started: row.get(3),
        again: row.get(4),
        bumped: bumped.contains(&key),
        payload: text(row.get(5)),
        key,
    }
}

/// A key, and its last start.
type Started = (String, Option<i64>);

/// The keys before a place, the first ones of them.
pub(super) async fn keys_before(
    snapshot: &Snapshot,
    place: (i64, i64),
    count: usize,
) -> Result<Vec<Started>, Error> {
    keys_along(snapshot, WALK, place, count).await
}

/// The first key of those that ran before: only they have a start.
pub(super) async fn first_that_ran(snapshot: &Snapshot) -> Result<Option<Started>, Error> {
    let ran = WALK.replace("FROM ready WHERE", "FROM ready WHERE started >= 0 AND");
    Ok(keys_along(snapshot, &ran, END, 1).await?.pop())
}

async fn keys_along(
    snapshot: &Snapshot,
    walk: &str,
    (started, place): (i64, i64),
    count: usize,
) -> Result<Vec<Started>, Error> {
    let sql = format!(
        "SELECT k.key, w.last_started FROM ({walk} LIMIT $6::int8) w JOIN keys k USING (key_id)
        ORDER BY w.started, w.place"
    );
    let (walked, count, expired) = (limit(WALK_MAX), limit(count), snapshot.expired());
    snapshot
        .rows(&sql, &[&started, &place, &walked, &snapshot.deleting, &expired, &count], |row| {
            (text(row.get(0)), row.get(1))
        })
        .await
}

/// For each key how many of its single tasks wait or are in flight, up to $3.
const TASKS_OF: &str = "SELECT (SELECT count(*) FROM (SELECT FROM keys k JOIN single_tasks s USING (key_id)
        WHERE k.jitter = asked.jitter AND sha256(k.key) = sha256(asked.key) AND s.status = 'waiting' LIMIT $3::int8) AS first)
    FROM unnest($1::bytea[], $2::int4[]) WITH ORDINALITY AS asked (key, jitter, n) ORDER BY asked.n";

/// The turns of single tasks of these keys, in their order.
pub(super) async fn turns(snapshot: &Snapshot, keys: &[Key]) -> Result<Vec<Turn>, Error> {
    let counted = usize::try_from(COUNTED_MAX).unwrap_or(usize::MAX);
    let first = keys_before(snapshot, END, counted + 1).await?;
    let is_all = first.len() <= counted;
    let in_order = first.into_iter().map(|(key, _)| key);
    let (credit, lane) = lane(snapshot).await?;
    let turns = Turns::new(credit, lane).merge(in_order);
    let first = turns.iter().take(counted + 1);
    let places: HashMap<&str, u64> = first.map(String::as_str).zip(0_u64..).collect();
    let bytes: Vec<&[u8]> = keys.iter().map(|key| key.as_str().as_bytes()).collect();
    let jitters: Vec<i32> = keys.iter().map(Key::jitter).collect();
    let tasks: Vec<i64> = snapshot
        .rows(TASKS_OF, &[&bytes, &jitters, &COUNTED_MAX.cast_signed()], |row| row.get(0))
        .await?;
    let turn_of = |(key, tasks): (&Key, i64)| {
        turn(places.get(key.as_str()).copied(), is_all, tasks.cast_unsigned())
    };
    Ok(keys.iter().zip(tasks).map(turn_of).collect())
}
