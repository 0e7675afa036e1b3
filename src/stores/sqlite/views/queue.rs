//! What would be handed out next, in order: the question of `shiftboss queue`; and when single tasks are expected
//! to be handed out: what `add` tells.
//!
//! A listing costs as much as so many dispatches, however long the queue is. The keys before a single task's are
//! counted up to a bound that keeps it cheap; `why` counts further.

use std::collections::HashMap;

use rusqlite::{Connection, Result};
use shiftboss_actors::store::answers::{Next, Queue, Turn};
use shiftboss_protocol::model::{Key, UnixSeconds};

use super::order::Order;
use crate::stores::sqlite::candidates::{Candidate, candidates};
use crate::stores::sqlite::query::Query;
use crate::stores::sqlite::records::is_paused;
use crate::stores::views::{COUNTED_MAX, PAYLOADS_MAX_BYTES, QUEUE_MAX, turn};

/// The next `count` jobs in the order in which they would be handed out at the time `now`; one to
/// [`QUEUE_MAX`] of them.
pub(super) fn queue(snapshot: &Connection, count: usize, now: UnixSeconds) -> Result<Queue> {
    let count = count.clamp(1, QUEUE_MAX);
    let order = Order::load(snapshot, now)?;
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let is_all = order.walk(snapshot, |key, bumped| {
        if let Some(next) = job(snapshot, &order, key, bumped)? {
            bytes += next.payload.len();
            keys.push(next);
        }
        Ok(keys.len() < count && bytes < PAYLOADS_MAX_BYTES)
    })?;
    let truncated = !is_all && keys.len() < count;
    Ok(Queue { paused: is_paused(snapshot)?, keys, truncated })
}

/// The job that a key would be handed out as.
fn job(snapshot: &Connection, order: &Order, key: String, bumped: bool) -> Result<Option<Next>> {
    let Some((_, mut rows)) = candidates(snapshot, &key)? else {
        return Ok(None);
    };
    Ok(order.rule().choose(&rows).map(|chosen| {
        let Candidate { fetcher, run_started: run, last_started, again, payload, .. } =
            rows.swap_remove(chosen);
        Next { key, fetcher, run, last_started, again, bumped, payload }
    }))
}

/// The turns of single tasks of these keys at the time `now`, in their order.
pub(super) fn turns(snapshot: &Connection, keys: &[Key], now: UnixSeconds) -> Result<Vec<Turn>> {
    let (places, is_all) = places(snapshot, keys, now)?;
    let turn_of = |key: &Key| {
        let found = places.get(key.as_str()).copied().flatten();
        Ok(turn(found, is_all, tasks_of(snapshot, key)?))
    };
    keys.iter().map(turn_of).collect()
}

/// How many keys come before each of these, where that was counted; and whether there are no more keys.
fn places<'a>(
    snapshot: &Connection,
    keys: &'a [Key],
    now: UnixSeconds,
) -> Result<(HashMap<&'a str, Option<u64>>, bool)> {
    let mut places: HashMap<&str, Option<u64>> =
        keys.iter().map(|key| (key.as_str(), None)).collect();
    let (mut before, mut missing) = (0, places.len());
    let is_all = Order::load(snapshot, now)?.walk(snapshot, |key, _| {
        if let Some(place) = places.get_mut(key.as_str()) {
            *place = Some(before);
            missing -= 1;
        }
        before += 1;
        Ok(missing > 0 && before <= COUNTED_MAX)
    })?;
    Ok((places, is_all))
}

/// Single tasks of a key that wait or are in flight, up to a bound.
fn tasks_of(snapshot: &Connection, key: &Key) -> Result<u64> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM shiftboss_single_tasks
        WHERE attr_path = ?1 AND status = 'waiting' LIMIT ?2)";
    snapshot.value(sql, (key.as_str(), COUNTED_MAX.cast_signed())).map(i64::cast_unsigned)
}
