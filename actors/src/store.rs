//! The port that a queue implements: [`Store`] carries out [operations](Operation) in batches, a [`Reader`] answers
//! questions.
//!
//! The StorageActor owns the one `Store`; connections and commands ask a `Reader`. SQLite implements both in the
//! program; for tests the naive model does, as far as they ask. Every store passes `testing::conformance`. No SQL and no actor here.

mod keys;
mod operations;
mod relays;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use keys::*;
pub use operations::*;
pub use relays::*;
pub use shiftboss_queue::answers::{self, EndedRun, FetcherRecord};
pub use shiftboss_queue::credit::{BUMP_SHARE_MAX, BUMPS_MAX, CREDIT_FIRST, Credit, Turns};
pub use shiftboss_queue::policy::*;
pub use shiftboss_queue::reader::*;

use crate::file_identity::{DirectoryIdentity, Position};
pub use shiftboss_protocol::model::LeaseHolder;
use shiftboss_protocol::model::{Attempt, Key, Row, Run, UnixSeconds};

/// Rows that one operation is to delete at the most, so that a worker's request waits for one such step only;
/// a run counts as a row of its own.
pub const STEP_ROWS: usize = 150;

/// Rows that are added by one operation, for the same reason, unless the [store](Store::step_rows) wants more.
pub const ADDED_ROWS: usize = 250;

/// A queue with one owner. It is opened for one daemon, so nothing here names one: [`Runs`], [`Leases`],
/// [`CountInFlight`], [`AcceptedEntries`] and [`FetcherRecords`] answer what is that daemon's, and rejected files and
/// the input directory are noted of it. All else is the whole queue's. It is not called while a call is under way.
pub trait Store {
    /// Carries out a batch in order, as one transaction, which is durable when this returns; each
    /// operation is answered in its place. One that is rejected spoils no other: all else happens as if it
    /// had not been asked. A batch that [only reads](Operation::only_reads) takes no lock. A store may
    /// merge operations and look ahead in the batch, if the answers do not show it.
    ///
    /// `now` is the StorageActor's clock; a store that keeps time itself does not need it.
    ///
    /// # Errors
    /// Nothing of the batch has happened. `Busy` and `Full` may pass; `Corrupt` and `Fatal` do not.
    fn apply(
        &mut self,
        now: UnixSeconds,
        batch: Vec<Operation>,
    ) -> StoreFuture<'_, Vec<Result<Outcome, Rejected>>>;

    /// Ready when somebody else changed the queue since it last was: what was answered may not hold any more. Else
    /// it has the task woken when that happens, as soon as the store can tell. What comes with time alone, as the end of
    /// a classic lease does, is no change. Polled by the StorageActor while no call is under way.
    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed>;

    /// Whether a call is a trip to a server, which costs as much as many operations, and where other daemons have the same queue.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether daemons are asked, over a broker: the text of an error says which of the two does not answer.
    fn is_relayed(&self) -> bool {
        false
    }

    /// How long workers may wait without a look whether there is work, when there was none: it is [told](Self::poll_changed)
    /// of all else. Zero, or less than the actor's tick: it looks at each.
    fn look_every(&self) -> Duration {
        Duration::ZERO
    }

    /// Rows of a list that are best added at once, when there are so many.
    fn step_rows(&self) -> usize {
        ADDED_ROWS
    }

    /// Jobs that one batch may hand out: where their payloads come in one message, that must not grow too large.
    fn hand_outs_max(&self) -> usize {
        usize::MAX
    }

    /// The attempts whose ends were recorded by batches since this was asked, for what the daemon counts of itself.
    fn take_ends(&mut self) -> Vec<JobEnd> {
        Vec::new()
    }

    /// The wall clock was set by so many seconds, which may be fewer than none: all that is due at a time of it keeps its
    /// distance, and what lies further ahead than its delay comes after that delay. With 0 at the start of each daemon. A
    /// store that keeps time itself sees to that itself.
    ///
    /// # Errors
    /// Nothing has happened, and it is asked again.
    fn follow_clock(&mut self, _now: UnixSeconds, _by: i64) -> StoreResult<()> {
        Ok(())
    }

    /// Called at times, when nothing else is asked: brings the main file up to date and looks whether the
    /// store's files or server are still those that were opened.
    ///
    /// # Errors
    /// `Fatal` when they are not.
    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint>;

    /// The last call: everything is where the next daemon finds it.
    ///
    /// # Errors
    /// What failed; the queue itself is safe.
    fn close(&mut self) -> StoreFuture<'_, ()>;
}

/// What a store's call returns. It stays on the store's thread; a store that blocks does its work before.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = StoreResult<T>> + 'a>>;

/// What somebody else changed; each is more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changed {
    Queue,
    /// The queue, and which attempts are this daemon's: it may have adopted those of a dead one.
    Leases,
    /// Its runs, too, may be another daemon's by now: it was taken for dead, and joined its queue anew.
    Runs,
}

/// Why an operation was rejected, while the store is sound.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{0}")]
pub struct Rejected(pub String);

/// Why a request could not be done. Sorted by consequence: the first three end one request, the others end
/// the process.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Somebody else held the database for longer than the busy timeout, or a server or broker does not answer. The text says
    /// what it is about: a relay has no database.
    #[error("{0}")]
    Busy(String),
    /// The disk is full (or a quota is).
    #[error("no space left for the database: {0}")]
    Full(String),
    /// This one request cannot be done; the store is sound. Never the error of a whole batch.
    #[error("{0}")]
    Rejected(String),
    /// Another process has the name under which this one uses the queue: this one gives way.
    #[error("{0}")]
    Displaced(String),
    /// What is stored is damaged.
    #[error("the database is corrupt: {0}")]
    Corrupt(String),
    /// A server refuses its user: a login, a right. An error of settings at a first start; for who was right once an outage.
    #[error("{0}")]
    Denied(String),
    /// The store cannot go on: an I/O error, a vanished file. The text says what it is about.
    #[error("{0}")]
    Fatal(String),
    /// A newer version made what is stored, and this one may not use it.
    #[error("{0}")]
    Newer(String),
}

impl StoreError {
    /// True when only a new process can help.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Fatal(_) | Self::Corrupt(_) | Self::Displaced(_) | Self::Newer(_))
    }
}

pub type StoreResult<T> = Result<T, StoreError>;

/// Whether the main database file holds everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// A copy of the main file is complete and current.
    Complete,
    /// A reader holds the log back: try again later.
    Partial,
}

/// A fetcher run as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRun {
    pub run: Run,
    /// All its lines are in the store.
    pub complete: bool,
    /// How far its file was read; `None` for a run nothing was read of, and for one taken
    /// over from a database that did not keep positions.
    pub position: Option<Position>,
    /// Rows now queued for it, dispatched ones included.
    pub rows: u64,
    /// A deletion of it was begun and must be gone on with.
    pub deleting: bool,
    /// Its file was read anew since it changed: there may be rows that the file lists no longer.
    pub stale: bool,
}

/// An attempt whose end was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// Its fetcher's name; empty: it was gone.
    pub fetcher: Arc<str>,
    /// `success`, `timeout`, `failure`, `released`, `undone` or `expired`.
    pub outcome: &'static str,
    /// How long it was out, in milliseconds.
    pub took_ms: u64,
    /// From its key's start before to its own; `None`: the key never ran before, or that is not known.
    pub revisit_seconds: Option<u64>,
}

/// What came of making a run known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registered {
    Run(StoredRun),
    /// Another daemon has its fetcher: which one, and how this one gets it, for people.
    Elsewhere(String),
}

/// How rows go on from what was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    #[default]
    Onward,
    /// At the start of the file, since it changed: the run is [stale](StoredRun::stale) from now on.
    Anew,
    /// Likewise, and what is read from here on is the whole list, for [`Prune`].
    Listing,
}

/// Rows of one run that enter the queue together with the position behind them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowBatch {
    /// The run, already registered.
    pub run: Run,
    /// Lines in file order; of a key that occurs twice the last payload counts.
    pub rows: Vec<Row>,
    /// Lines skipped as faulty since the previous batch.
    pub skipped: u64,
    /// The offset from which they are read on: where the run's position is another one, and not the one behind them, the batch is
    /// rejected. So nothing is left out where the queue went back, to a backup, say. `None`: that is not known.
    #[serde(default)]
    pub from: Option<u64>,
    /// Its rows came before it, by their ranges: where none were added to the run since its position moved, the batch is rejected.
    #[serde(default)]
    pub by_range: bool,
    pub position: Position,
    /// These are the last rows: the run is complete from this transaction on. `false` on a
    /// run that was complete makes it a growing one again.
    pub complete: bool,
    pub reading: Reading,
}

impl RowBatch {
    /// Why it is rejected by a store that does not know its run, or not [as far as this](Self::from).
    pub fn unexpected(&self) -> String {
        format!("run {} is not known, or its position is another one by now", self.run)
    }

    /// The same of no rows, and of no faulty lines.
    pub fn without_rows(&self) -> Self {
        Self { rows: Vec::new(), skipped: 0, run: self.run.clone(), ..*self }
    }
}

/// The answer to a request for work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatched {
    /// This job, under this attempt; undo it by the attempt.
    Job(Attempt, Row),
    Nothing,
    /// A deletion in progress must get on before this can be answered.
    Later,
}

/// The answer to what a worker says about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// It is recorded, now or before.
    Recorded,
    /// The job is somebody else's by now, or was given back.
    Stale,
    /// No such attempt, or one that is forgotten.
    Unknown,
}

/// What came of putting back a job that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeued {
    /// It waits again; this attempt at it is over.
    Back(Attempt),
    /// The key is known, but nobody has a job of it.
    NotInFlight,
    Unknown,
}

/// An attempt whose lease expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredLease {
    pub key: Key,
    /// Who held it, as it named itself.
    pub worker: Arc<str>,
    /// It was one too many: the task is dead-lettered.
    pub dead_letter: bool,
    /// It is a single task, not a line of a list.
    pub single: bool,
}

/// How the input directory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputDirectory {
    There(DirectoryIdentity),
    Lost(String),
}

/// What came of a task that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Added {
    Added,
    /// The same payload of the same key waits already, or this very entry was accepted before.
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
