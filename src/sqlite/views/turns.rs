//! When single tasks are expected to be handed out: what `add` tells.
//!
//! The keys before theirs are counted, up to a bound that keeps it cheap; `why` counts further.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::Connection;
use shiftboss_actors::reports::Turn;
use shiftboss_protocol::model::{Key, UnixSeconds};

use super::order::{Order, Walked};
use super::snapshot::read_current;
use crate::sqlite::reader::ViewError;

/// Keys before a key that are counted; and other single tasks of the key.
const COUNTED_MAX: u64 = 1_000;

/// The turns of single tasks of these keys at the time `now`, in their order.
///
/// # Errors
/// When the database is missing, not ours or cannot be read.
pub fn turns(path: &Path, keys: &[Key], now: UnixSeconds) -> Result<Vec<Turn>, ViewError> {
    read_current(path, |snapshot| {
        let (places, walked) = places(snapshot, keys, now)?;
        let turn = |key: &Key| {
            let found = places.get(key.as_str()).copied().flatten();
            let is_further = found.is_none() && walked != Walked::ToTheEnd;
            Ok(Turn {
                keys_before: found.or(is_further.then_some(COUNTED_MAX)),
                exact: found.is_some(),
                tasks_before: tasks_of(snapshot, key)?.saturating_sub(1),
            })
        };
        keys.iter().map(turn).collect()
    })
}

/// How many keys come before each of these, where that was counted.
fn places<'a>(
    snapshot: &Connection,
    keys: &'a [Key],
    now: UnixSeconds,
) -> rusqlite::Result<(HashMap<&'a str, Option<u64>>, Walked)> {
    let mut places: HashMap<&str, Option<u64>> =
        keys.iter().map(|key| (key.as_str(), None)).collect();
    let (mut before, mut missing) = (0, places.len());
    let walked = Order::load(snapshot, now)?.walk(snapshot, |(.., key, _)| {
        if let Some(place) = places.get_mut(key.as_str()) {
            *place = Some(before);
            missing -= 1;
        }
        before += 1;
        let is_enough = missing == 0 || before > COUNTED_MAX;
        Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok((places, walked))
}

/// Single tasks of a key that wait or are in flight, up to a bound.
fn tasks_of(snapshot: &Connection, key: &Key) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM shiftboss_single_tasks
        WHERE attr_path = ?1 AND status = 'waiting' LIMIT ?2)";
    let most = COUNTED_MAX.cast_signed();
    snapshot
        .prepare_cached(sql)?
        .query_row((key.as_str(), most), |row| row.get(0))
        .map(i64::cast_unsigned)
}
