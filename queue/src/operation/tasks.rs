//! Single tasks: where they come from, and what came of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::Row;

/// What came of a task that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Added {
    /// Its number.
    Added(i64),
    /// The same payload of the same key waits already, its ID is known, or this very entry was accepted before.
    Known,
    /// There are as many single tasks as may be: it was not added.
    Full,
}

/// Which entry of which spool. Another entry may have the same name later: its inode, birth or checksum
/// differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryId {
    /// The spool's identity, which stays the same over restarts.
    pub spool: Arc<str>,
    /// The entry's name, escaped.
    pub name: Arc<str>,
    pub inode: u64,
    /// When its file was made, in nanoseconds since 1970: inodes are used again. 0 where that is not known.
    pub born: i64,
    pub checksum: u64,
}

/// An entry of a spool that is to become a single task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolEntry {
    pub id: EntryId,
    pub task: Row,
}

/// What came of the single tasks of a key that were to be deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    pub deleted: u64,
    /// There are more that are not in flight: to be asked for again.
    pub more: bool,
    /// One is in flight, and stays.
    pub in_flight: bool,
}
