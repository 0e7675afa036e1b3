//! Entries of a spool in the queue: the part of the store that knows which entry is which run.
//!
//! Each entry is a run of its own of the fetcher [`SPOOL_FETCHER`](crate::model::SPOOL_FETCHER).
//! Called by the StorageActor for whoever takes entries out of the spool; nothing here knows one.

use std::sync::Arc;

use super::StoreResult;
use crate::model::{Key, Row, UnixSeconds};

/// An entry that is to enter the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the spool, escaped.
    pub name: Arc<str>,
    /// The task that its metadata says.
    pub row: Row,
}

/// What came of an entry that was to enter the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It is in the queue now.
    Added,
    /// It was in the queue before.
    Known,
    /// Another entry with its key is in the queue: it is not, and may be offered again.
    Waits,
}

/// How an entry stands that is in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryState {
    /// Its name in the spool, escaped.
    pub name: Arc<str>,
    /// Its key.
    pub key: Key,
    /// Its job was done.
    pub done: bool,
}

/// What a store knows of a spool's entries.
pub trait Entries {
    /// Puts an entry into the queue, once: a name that is known with the same line changes nothing.
    /// One that is known with another line is another entry under an old name, and takes its place.
    ///
    /// # Errors
    /// As any mutation.
    fn enter(&mut self, entry: &Entry, now: UnixSeconds) -> StoreResult<Entered>;

    /// All entries that are in the queue, by name. Needs no transaction.
    ///
    /// # Errors
    /// As any read.
    fn entries(&mut self) -> StoreResult<Vec<EntryState>>;

    /// Takes an entry out of the queue; an unknown one changes nothing.
    ///
    /// # Errors
    /// As any mutation.
    fn forget_entry(&mut self, name: &str) -> StoreResult<()>;

    /// Takes an entry out of the queue unless its job was handed out, and is not parked. Whether it is
    /// not in the queue any more.
    ///
    /// # Errors
    /// As any mutation.
    fn withdraw_entry(&mut self, name: &str) -> StoreResult<bool>;
}
