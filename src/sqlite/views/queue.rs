//! What would be handed out next, in order: the question of `shiftboss queue`.
//!
//! It costs as much as so many dispatches, however long the queue is.

use std::ops::ControlFlow;
use std::path::Path;

use rusqlite::Connection;
use serde::Serialize;
use shiftboss_protocol::model::UnixSeconds;

use super::order::{Order, Walked};
use super::snapshot::{is_paused, read_current};
use crate::sqlite::dispatch::candidates;
use crate::sqlite::reader::ViewError;

/// Keys that can be asked for at once.
pub const QUEUE_MAX: usize = 10_000;
/// A listing ends once its payloads have so many bytes: it is held in memory.
pub(super) const PAYLOADS_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The next keys in order; the JSON object of `queue` (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// Nothing is handed out at present.
    pub paused: bool,
    /// The next keys, the first one first.
    pub keys: Vec<Next>,
    /// The listing ended before the number that was asked for, though there is more.
    pub truncated: bool,
}

/// A job that would be handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    /// Its key.
    pub key: String,
    /// The fetcher whose row it is.
    pub fetcher: String,
    /// That fetcher's run.
    pub run: i64,
    /// When the key was last started, in seconds since 1970; `None`: never.
    pub last_started: Option<UnixSeconds>,
    /// The row was handed out before, and its lease expired.
    pub again: bool,
    /// What the worker is told.
    pub payload: String,
}

/// The next `count` jobs in the order in which they would be handed out at the time `now`; one to
/// [`QUEUE_MAX`] of them.
///
/// # Errors
/// When the database is missing, not ours or cannot be read.
pub fn queue(path: &Path, count: usize, now: UnixSeconds) -> Result<Queue, ViewError> {
    read_current(path, |snapshot| list(snapshot, count.clamp(1, QUEUE_MAX), now))
}

pub(super) fn list(
    snapshot: &Connection,
    count: usize,
    now: UnixSeconds,
) -> rusqlite::Result<Queue> {
    let order = Order::load(snapshot, now)?;
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let walked = order.walk(snapshot, |place| {
        if let Some(next) = job(snapshot, &order, place.2)? {
            bytes += next.payload.len();
            keys.push(next);
        }
        let enough = keys.len() >= count || bytes >= PAYLOADS_MAX_BYTES;
        Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    let truncated = walked != Walked::ToTheEnd && keys.len() < count;
    Ok(Queue { paused: is_paused(snapshot)?, keys, truncated })
}

/// The job that a key would be handed out as.
fn job(snapshot: &Connection, order: &Order, key: String) -> rusqlite::Result<Option<Next>> {
    let Some((_, mut rows)) = candidates(snapshot, &key)? else {
        return Ok(None);
    };
    Ok(order.rule().choose(&rows).map(|chosen| {
        let row = rows.swap_remove(chosen);
        Next {
            key,
            fetcher: row.fetcher,
            run: row.run_started,
            last_started: row.last_started,
            again: row.again,
            payload: row.payload,
        }
    }))
}
