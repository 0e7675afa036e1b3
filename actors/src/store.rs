//! The port that a queue implements: [`Store`] carries out [operations](Operation) in batches, a [reader](shiftboss_queue::reader) answers
//! questions.
//!
//! The StorageActor owns the one `Store`; connections and commands ask a `Reader`. Each `Store` of the program is the queue's engine
//! over records of its own, and so is that of the tests (`testing`), over records in memory. No SQL and no actor here.

use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use shiftboss_queue::error::{Rejected, StoreResult};
use shiftboss_queue::operation::{JobEnd, Operation, Outcome};
use shiftboss_queue::record::Millis;

/// Most rows that one operation deletes, so that a worker's request waits for only one such step; a run counts as a row
/// of its own.
pub const STEP_ROWS: usize = 150;

/// Most rows that one operation adds, for the same reason, unless the [store](Store::step_rows) wants more.
pub const ADDED_ROWS: usize = 250;

/// A queue with one owner. It is opened for one daemon, so nothing here names one: operations on runs, leases, jobs in
/// flight, accepted entries, fetchers, rejected files and the input directory concern that daemon's. All others concern
/// the whole queue. It is not called while a call is under way.
pub trait Store {
    /// Carries out a batch in order, as one transaction, which is durable when this returns; each
    /// operation is answered in its place. A rejected operation spoils no other: the rest happens as if it had not been
    /// asked. A batch that [only reads](Operation::only_reads) takes no lock. A store may merge operations and look
    /// ahead in the batch, if the answers do not show it.
    ///
    /// `now` is by the StorageActor's clock; a store that keeps time itself does not need it.
    ///
    /// # Errors
    /// Nothing of the batch has happened. `Busy` and `Full` may pass; `Corrupt` and `Fatal` do not.
    fn apply(
        &mut self,
        now: Millis,
        batch: Vec<Operation>,
    ) -> StoreFuture<'_, Vec<Result<Outcome, Rejected>>>;

    /// Ready if another process has changed the queue since it was last ready: earlier answers may no longer hold.
    /// Otherwise the task is woken when that happens, as soon as the store can tell. What time alone brings, such as
    /// the end of a classic lease, is not a change. Polled by the StorageActor while no call is under way.
    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed>;

    /// Whether a call is a round trip to a server, which costs as much as many operations, and where other daemons use
    /// the same queue.
    fn is_remote(&self) -> bool {
        false
    }

    /// How long workers may wait, after a look found no work, before the next look; [changes](Self::poll_changed) are
    /// noticed at once. If less than the actor's tick, it looks at each tick.
    fn look_every(&self) -> Duration {
        Duration::ZERO
    }

    /// How many rows of a long list are best added at once.
    fn step_rows(&self) -> usize {
        ADDED_ROWS
    }

    /// Most jobs that one batch may hand out: their payloads may come in one message, which must not grow too large.
    fn hand_outs_max(&self) -> usize {
        usize::MAX
    }

    /// The attempts whose ends batches have recorded since the last call, for the daemon's own metrics.
    fn take_ends(&mut self) -> Vec<JobEnd> {
        Vec::new()
    }

    /// The lease, in seconds, of a classic job, whose worker reports nothing before its end; the StorageActor then has
    /// it expire. `None`: the StorageActor does not expire such jobs.
    fn classic_lease(&self) -> Option<u32> {
        None
    }

    /// The wall clock was set by `by`, which may be negative: everything that is due at a wall-clock time keeps its
    /// distance, and what lies further ahead than its delay is due after that delay. Called with 0 at the start of each
    /// daemon. A store that keeps time itself does all this itself.
    ///
    /// # Errors
    /// Not everything has followed. It is called again, with the whole change since the clock was last followed.
    fn follow_clock(&mut self, _now: Millis, _by: Millis) -> StoreFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Called now and then, when nothing else is asked: brings the main file up to date, and checks that the store's
    /// files or server are still those that were opened.
    ///
    /// # Errors
    /// `Fatal` when they are not.
    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        Box::pin(ready(Ok(Checkpoint::Complete)))
    }

    /// The last call: everything is where the next daemon finds it.
    ///
    /// # Errors
    /// What failed; the queue itself is safe.
    fn close(&mut self) -> StoreFuture<'_, ()>;
}

/// What a store's call returns. It stays on the store's thread; a store that blocks does its work before it returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = StoreResult<T>> + 'a>>;

/// What another process has changed; each includes the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Changed {
    Queue,
    /// The queue, and which attempts are this daemon's: it may have adopted those of a dead daemon.
    Leases,
    /// This daemon's runs, too, may belong to another by now: it was taken for dead, and has joined its queue anew.
    Runs,
}

/// How often a store that other processes also change is [asked for work](Store::look_every) while workers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polls {
    pub alone: Duration,
    pub notified: Duration,
}

impl Default for Polls {
    fn default() -> Self {
        Self { alone: Duration::from_secs(1), notified: Duration::from_secs(30) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// A copy of the main file is complete and current.
    Complete,
    /// A reader holds the log back: try again later.
    Partial,
}
