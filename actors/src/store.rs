//! What the tree needs of a queue: the trait [`Store`], its answers and its errors.
//!
//! `StorageActor` owns the one `Store` and calls it; SQLite implements it in the program,
//! mocks implement it in the actors' tests. No SQL, no actor and no clock here: `now` is
//! always an argument.

mod care;
mod fetcher_runs;
mod tasks;

use std::sync::Arc;

use thiserror::Error;

pub use care::Checkpoint;
pub use fetcher_runs::{EndedRun, FetcherRecord, FetcherRuns};
pub use tasks::{Added, Cancelled, EntryId, SpoolEntry, Tasks};

use crate::model::{Attempt, DirectoryIdentity, Idle, Job, Key, Position, Row, Run, UnixSeconds};

/// Why the store could not do what it was asked. Sorted by consequence: the first three end
/// one request, the others end the process.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Somebody else held the database for longer than the busy timeout.
    #[error("the database is locked by another process: {0}")]
    Busy(String),
    /// The disk is full (or a quota is).
    #[error("no space left for the database: {0}")]
    Full(String),
    /// This one request cannot be done; the store is sound.
    #[error("{0}")]
    Rejected(String),
    /// What is stored is damaged.
    #[error("the database is corrupt: {0}")]
    Corrupt(String),
    /// The store cannot go on: an I/O error, a vanished file.
    #[error("the database cannot be used any longer: {0}")]
    Fatal(String),
}

impl StoreError {
    /// True when only a new process can help.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Fatal(_) | Self::Corrupt(_))
    }
}

/// What a store call returns.
pub type StoreResult<T> = Result<T, StoreError>;

/// A fetcher run as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRun {
    /// Which run.
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

/// How a batch goes on from what was read before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    /// Behind it.
    #[default]
    Onward,
    /// At the start of the file, since it changed: the run is [stale](StoredRun::stale) from now on.
    Anew,
    /// Likewise, and what is read from here on is the whole list, for [`Store::prune`].
    Listing,
}

/// Rows of one run that enter the queue together with the position behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The run, already registered.
    pub run: Run,
    /// Lines in file order; of a key that occurs twice the last payload counts.
    pub rows: Vec<Row>,
    /// Lines skipped as faulty since the previous batch.
    pub skipped: u64,
    /// Where the file stands behind these rows.
    pub position: Position,
    /// These are the last rows: the run is complete from this transaction on. `false` on a
    /// run that was complete makes it a growing one again.
    pub complete: bool,
    /// Where it begins.
    pub reading: Reading,
}

/// The answer to a request for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dispatch {
    /// This job, under this attempt; undo it by the attempt.
    Job(Attempt, Job),
    /// Nothing is eligible.
    Nothing,
    /// A deletion in progress must get on before this can be answered.
    Later,
}

/// A worker that speaks protocol 2: whom a job is leased to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// As it named itself.
    pub worker: Arc<str>,
    /// How long it may be silent before its job is taken away.
    pub lease_seconds: u32,
}

/// What became of a word about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It is recorded, now or before.
    Recorded,
    /// The job is somebody else's by now, or was given back.
    Stale,
    /// No such attempt, or one that is forgotten.
    Unknown,
}

/// What came of putting back a job that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeued {
    /// It waits again; this attempt at it is over.
    Back(Attempt),
    /// The key is known, but nobody has a job of it.
    NotInFlight,
    /// No such key.
    Unknown,
}

/// An attempt whose lease ran out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// What it was about.
    pub key: Key,
    /// Who held it, as it named itself.
    pub worker: Arc<str>,
    /// It was one too many: the task is dead-lettered.
    pub dead_letter: bool,
    /// It is a single task, not a line of a list.
    pub single: bool,
}

/// How the input directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputDirectory {
    /// It is there, and it is this one.
    There(DirectoryIdentity),
    /// It is lost, and why.
    Lost(String),
}

/// A queue with one owner. Mutations happen between [`begin`](Store::begin) and
/// [`commit`](Store::commit), and what they share is the transaction. One that fails before it changed
/// anything leaves its neighbours alone. One that fails half-way takes the transaction with it:
/// [`in_transaction`](Store::in_transaction) is false then, nothing since `begin` has happened, and
/// everybody in it is told of an error and asks again.
pub trait Store: FetcherRuns + Tasks {
    /// Opens the transaction that the next mutations share. Takes the write lock at once.
    ///
    /// # Errors
    /// `Busy` when another process keeps the lock.
    fn begin(&mut self) -> StoreResult<()>;

    /// Makes everything since `begin` durable. On an error nothing of it is in the queue and no
    /// transaction is open.
    ///
    /// # Errors
    /// `Full`, `Busy` or `Fatal`.
    fn commit(&mut self) -> StoreResult<()>;

    /// Whether a transaction is open. An error inside a mutation can end it (a full disk does).
    fn in_transaction(&self) -> bool;

    /// Every run the store knows. Needs no transaction.
    ///
    /// # Errors
    /// As any read.
    fn runs(&mut self) -> StoreResult<Vec<StoredRun>>;

    /// Makes `run` known, empty and growing; a known one is left as it is. Returns how it stands.
    /// A run under deletion is `Rejected`.
    ///
    /// # Errors
    /// As any mutation.
    fn register_run(&mut self, run: &Run) -> StoreResult<StoredRun>;

    /// Adds rows, position and completion of a registered run. Re-adding a row keeps its
    /// dispatched state and takes the new payload.
    ///
    /// # Errors
    /// `Rejected` for an unknown run or one under deletion; as any mutation.
    fn add_rows(&mut self, batch: &Batch) -> StoreResult<()>;

    /// Deletes rows of `run` that were not read since its last [listing](Reading::Listing) began, after a
    /// look at `limit` rows at the most. Returns whether it is to be called again; when not, the run is
    /// stale no longer. Without a listing it does nothing.
    ///
    /// # Errors
    /// As any mutation.
    fn prune(&mut self, run: &Run, limit: usize) -> StoreResult<bool>;

    /// Marks `run` for its deletion: no row of it is dispatched from now on. An unknown run is left
    /// alone.
    ///
    /// # Errors
    /// As any mutation.
    fn begin_deletion(&mut self, run: &Run) -> StoreResult<()>;

    /// Deletes rows of `runs`, one run after the other, and each run with its last row, until
    /// `limit` rows and runs are gone. Returns how many of the first runs are gone; one that was
    /// not known counts.
    ///
    /// # Errors
    /// As any mutation.
    fn delete_runs(&mut self, runs: &[Run], limit: usize) -> StoreResult<usize>;

    /// Takes the next job (spec 2, 5) and marks it dispatched at `now`; to a `holder` it is leased,
    /// and its key excluded until the attempt ends. Nothing while [paused](Store::set_paused).
    ///
    /// # Errors
    /// As any mutation.
    fn dispatch(&mut self, now: UnixSeconds, holder: Option<&Holder>) -> StoreResult<Dispatch>;

    /// Records the end of `key`'s job, by key alone; an unknown key changes nothing.
    ///
    /// # Errors
    /// As any mutation.
    fn finish(&mut self, key: &Key, exit_code: i64, now: UnixSeconds) -> StoreResult<()>;

    /// [`finish`](Self::finish) and then [`dispatch`](Self::dispatch), both or neither: a worker that
    /// is told of an error says the end again.
    ///
    /// # Errors
    /// As any mutation.
    fn finish_and_dispatch(
        &mut self,
        key: &Key,
        exit_code: i64,
        now: UnixSeconds,
    ) -> StoreResult<Dispatch>;

    /// Makes a dispatch of `key` undone, order included, if the key's log row is still that dispatch's.
    /// Returns whether it was.
    ///
    /// # Errors
    /// As any mutation.
    fn undo(&mut self, key: &Key, attempt: Attempt) -> StoreResult<bool>;

    /// Records the end of a leased attempt. Said again, the first one stands. One whose lease ran out
    /// still counts as long as its key was not handed out again.
    ///
    /// # Errors
    /// As any mutation.
    fn finish_attempt(
        &mut self,
        attempt: Attempt,
        exit_code: i64,
        now: UnixSeconds,
    ) -> StoreResult<Told>;

    /// Gives a leased attempt's job back to its old place in the order.
    ///
    /// # Errors
    /// As any mutation.
    fn release(&mut self, attempt: Attempt, now: UnixSeconds) -> StoreResult<Told>;

    /// The lease of an attempt ran out: its job goes back to its old place, or, after too many such
    /// ends, is parked until its fetcher's next run or [`retry`](Store::retry). `None`: the
    /// attempt had ended already.
    ///
    /// # Errors
    /// As any mutation.
    fn expire(&mut self, attempt: Attempt, now: UnixSeconds) -> StoreResult<Option<Lost>>;

    /// Whether a dispatch would find a job. Needs no transaction, so nobody's lock is in the way.
    fn has_work(&mut self, now: UnixSeconds) -> StoreResult<bool>;

    /// Whether an attempt is leased still. Needs no transaction.
    fn is_held(&mut self, attempt: Attempt) -> StoreResult<bool>;

    /// All leased attempts with their leases in seconds. Needs no transaction.
    fn leases(&mut self) -> StoreResult<Vec<(Attempt, u32)>>;

    /// Jobs that are out and not given up. Needs no transaction.
    fn in_flight(&mut self, now: UnixSeconds) -> StoreResult<u64>;

    /// Why there may be nothing to hand out. Needs no transaction, and takes no longer the larger the
    /// queue is.
    ///
    /// # Errors
    /// As any read.
    fn why_idle(&mut self, now: UnixSeconds) -> StoreResult<Idle>;

    /// Puts the dispatched rows of a key back in the queue, parked ones too, but for those in flight; of one
    /// fetcher only, if one is named.
    /// Returns how many; `None`: no row has that key.
    ///
    /// # Errors
    /// As any mutation.
    fn retry(&mut self, key: &Key, fetcher: Option<&str>) -> StoreResult<Option<u64>>;

    /// Gives the job of a key that is in flight back to its old place, whoever has it: as
    /// [`release`](Store::release), for classic jobs, too.
    ///
    /// # Errors
    /// As any mutation.
    fn requeue(&mut self, key: &Key, now: UnixSeconds) -> StoreResult<Requeued>;

    /// From now on, and after a restart, nothing is handed out; or the end of that.
    ///
    /// # Errors
    /// As any mutation.
    fn set_paused(&mut self, paused: bool) -> StoreResult<()>;

    /// Notes that the input file `name` is left out, for status. An earlier note keeps its time, and
    /// gets the new reason.
    ///
    /// # Errors
    /// As any mutation.
    fn set_aside(&mut self, name: &str, reason: &str, now: UnixSeconds) -> StoreResult<()>;

    /// Takes the note about `name` back.
    ///
    /// # Errors
    /// As any mutation.
    fn clear_aside(&mut self, name: &str) -> StoreResult<()>;

    /// Notes how the input directory is. A loss that goes on keeps its time, and gets the new reason.
    ///
    /// # Errors
    /// As any mutation.
    fn note_input(&mut self, input: &InputDirectory, now: UnixSeconds) -> StoreResult<()>;

    /// Called outside a transaction when no request came for a while: brings the main file up to
    /// date and looks whether the files are still the ones that were opened.
    ///
    /// # Errors
    /// `Fatal` when the files have vanished or were replaced.
    fn idle(&mut self) -> StoreResult<Checkpoint>;

    /// Called when a call was answered with `Corrupt`: leaves a note, which outlives the process, that the
    /// queue is not to be used again.
    fn note_corrupt(&mut self, _fault: &str) {}

    /// The last call: commits nothing, brings everything into the main file, leaves WAL mode.
    ///
    /// # Errors
    /// What failed; the queue itself is safe.
    fn close(&mut self) -> StoreResult<()>;
}
