//! The port of a store: where records are kept. It finds, loads and saves them, in one transaction a batch, and decides nothing.
//!
//! Called by the [engine](crate::engine) alone. Memory, SQLite and PostgreSQL implement it. Its functions are async and statically
//! dispatched; a store that blocks has futures that are ready at once.

use shiftboss_protocol::model::{Attempt, Key};
use thiserror::Error;

use crate::attempt::EndedAttempt;
pub use crate::header::{Header, RunState};
pub use crate::operation::Name;
use crate::operation::Operation;
use crate::place::{Place, Turn};
use crate::record::{FetcherId, Millis, Record, SingleStatus, Task};
use crate::rules::dispatch::Scope;
use crate::sums::{Oldest, Sums};

/// A key by its number in a store: in the order of jitter, as far as the store can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub i64);

/// A record that a store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub id: KeyId,
    pub record: Record,
    pub place: Place,
    /// What the worker of its one row is given, where the store had it at hand.
    pub payload: Option<String>,
}

/// Where the next ones are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum From {
    /// In order; not those that somebody has.
    Order,
    /// In the lane.
    Lane,
    /// What is due up to this time.
    Due(Millis),
    /// Whatever has something due, by their ids.
    Dues,
    /// Turns that lie in the future: of a clock that was ahead.
    Later(Turn),
    /// Only with `--classic`: those that somebody has, the first start first.
    ClassicHeld,
}

/// What a task's worker is given, as a store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    Text(String),
    /// The task is not there.
    Missing,
    /// It is no UTF-8 any more.
    Damaged,
}

/// A job that is out, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    pub attempt: Attempt,
    pub started: Millis,
    /// `None`: a classic one.
    pub lease_seconds: Option<u32>,
}

/// What a batch changed.
#[derive(Debug)]
pub struct Changes {
    /// Records with their places; `None` in place of a record: all that is known of the key goes. The record's edits of single
    /// tasks and payloads of rows are to be carried out.
    pub records: Vec<Change>,
    pub ended: Vec<EndedAttempt>,
    pub header: Header,
    /// By what the sums change.
    pub sums: Sums,
    /// What is older goes; said now and then.
    pub oldest: Option<Oldest>,
}

/// What became of one key.
#[derive(Debug)]
pub struct Change {
    /// As the store has it. `None`: the key is new.
    pub before: Option<Stored>,
    pub key: Key,
    pub now: Option<(Record, Place)>,
}

/// What a batch is going to ask for. A store on a server finds and locks that at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outset {
    pub names: Vec<Name>,
    /// So many of the next keys may be handed out.
    pub next: usize,
    /// It changes what is no key's, or puts new keys into the queue, or says whether there is work: no other daemon's batch goes on
    /// beside it.
    pub is_alone: bool,
}

/// What a store says when a batch begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Begun {
    /// `None`: it is still what this engine saved last.
    pub header: Option<Header>,
    /// The time of a store that has a clock for all daemons, read when the keys were locked. `None`: the caller's counts.
    pub now: Option<Millis>,
}

/// Why a batch was not carried out. Sorted by consequence: the first two may pass.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error("{0}")]
    Busy(String),
    #[error("no space left for the database: {0}")]
    Full(String),
    #[error("the database is corrupt: {0}")]
    Corrupt(String),
    #[error("{0}")]
    Fatal(String),
}

pub type StoreResult<T> = Result<T, StoreError>;

/// See the module. What a batch reads is of one transaction, which [`begin`](Self::begin) opens.
#[allow(async_fn_in_trait)]
pub trait Records {
    /// Opens the transaction of a batch.
    async fn begin(&mut self, outset: &Outset) -> StoreResult<Begun>;

    /// The number of the attempt that is handed out now; `last` is the last one that this engine had. It is higher than all that
    /// the batch's keys have. `None`: there is none left.
    async fn number(&mut self, last: Attempt) -> StoreResult<Option<Attempt>> {
        Ok(last.0.checked_add(1).map(Attempt))
    }

    /// What other programs wrote into the store since, some `count` at a time, to be carried out in this transaction. None of
    /// it comes again once that is committed.
    async fn edits(&mut self, _count: usize) -> StoreResult<Vec<Operation>> {
        Ok(Vec::new())
    }

    /// The records of keys, in one step; `None`: it has none.
    async fn load(&mut self, names: &[Name]) -> StoreResult<Vec<Option<Stored>>>;

    /// The next ones that have a task of `scope`, behind one of them, at most `count`.
    async fn next(
        &mut self,
        from: From,
        behind: Option<&Stored>,
        scope: &Scope,
        count: usize,
    ) -> StoreResult<Vec<Stored>>;

    /// All that is out, by attempt.
    async fn flights(&mut self) -> StoreResult<Vec<InFlight>>;

    /// Keys of a run, behind a key, at most `count`.
    async fn of_run(
        &mut self,
        run: (FetcherId, i64),
        behind: Option<KeyId>,
        count: usize,
    ) -> StoreResult<Vec<Stored>>;

    /// What a task's worker is given.
    async fn payload(&mut self, id: KeyId, task: Task) -> StoreResult<Payload>;

    /// How a single task is, if it is kept.
    async fn single(&mut self, number: i64) -> StoreResult<Option<SingleStatus>>;

    /// Whether a single task of the key waits with this payload.
    async fn has_single(&mut self, id: KeyId, payload: &str) -> StoreResult<bool>;

    /// An attempt that ended, if it is kept still.
    async fn ended(&mut self, attempt: Attempt) -> StoreResult<Option<EndedAttempt>>;

    /// Writes what changed. May be called more than once in a transaction.
    async fn save(&mut self, changes: Changes) -> StoreResult<()>;

    /// What was saved is durable when this returns.
    async fn commit(&mut self) -> StoreResult<()>;

    /// Nothing of the batch has happened.
    async fn roll_back(&mut self);
}
