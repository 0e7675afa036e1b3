//! Single tasks: the part of the store that keeps tasks which no list names, until a job of them succeeds.
//!
//! Called by the StorageActor for whoever adds them: connections (`ADD`, `CANCEL`) and those who accept
//! entries of a spool. Nothing here knows either of them. What a worker does to a single task
//! is what it does to any other: the store's other operations.

use std::sync::Arc;

use super::StoreResult;
use crate::model::{Key, Row, UnixSeconds};

/// What came of a task that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It waits now.
    Added,
    /// The same payload of the same key waits already, or this very entry was accepted before.
    Known,
    /// There are as many single tasks as may be: it was not added.
    Full,
}

/// Which entry of which spool. Another entry may have the same name later: its inode, birth or checksum
/// differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The spool's identity, which stays the same over restarts.
    pub spool: Arc<str>,
    /// The entry's name, escaped.
    pub name: Arc<str>,
    /// The inode of its file.
    pub inode: u64,
    /// When its file was made, in nanoseconds since 1970: inodes are used again. 0 where that is not known.
    pub born: i64,
    /// A checksum of what the file says.
    pub checksum: u64,
}

/// An entry of a spool that is to become a single task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolEntry {
    /// Which one.
    pub id: EntryId,
    /// What it says.
    pub task: Row,
}

/// What came of the single tasks of a key that were to be deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// So many are gone.
    pub deleted: u64,
    /// There are more that are not in flight: to be asked for again.
    pub more: bool,
    /// One is in flight, and stays.
    pub in_flight: bool,
}

/// What a store does with single tasks.
pub trait Tasks {
    /// Adds a task, behind those of its key that wait.
    ///
    /// # Errors
    /// As any mutation.
    fn add_task(&mut self, task: &Row, now: UnixSeconds) -> StoreResult<Added>;

    /// Deletes the single tasks of a key, the newest first, a bounded number in one call; that in flight
    /// stays.
    ///
    /// # Errors
    /// As any mutation.
    fn cancel_tasks(&mut self, key: &Key, now: UnixSeconds) -> StoreResult<Cancelled>;

    /// Accepts entries of a spool: adds the task of each, and remembers which entry it came from, in one
    /// transaction of its own. It is on the disk when this returns, whatever the durability: the entry
    /// is removed then. One that is remembered is `Known`, whatever became of its task. One that is `Full`
    /// is not remembered. Called outside a transaction.
    ///
    /// # Errors
    /// As `begin` and `commit`: nothing is accepted then.
    fn accept(&mut self, entries: &[SpoolEntry], now: UnixSeconds) -> StoreResult<Vec<Added>>;

    /// The accepted entries that are remembered, in order. Needs no transaction.
    ///
    /// # Errors
    /// As any read.
    fn accepted(&mut self) -> StoreResult<Vec<EntryId>>;

    /// Forgets an accepted entry, once its removal from the spool is durable; an unknown one changes
    /// nothing.
    ///
    /// # Errors
    /// As any mutation.
    fn forget_accepted(&mut self, id: &EntryId) -> StoreResult<()>;
}
