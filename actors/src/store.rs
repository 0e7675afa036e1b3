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

/// Rows that one operation is to delete at most, so that a worker's request waits for one such step only;
/// a run counts as a row of its own.
pub const STEP_ROWS: usize = 150;

/// Rows that are added by one operation, for the same reason, unless the [store](Store::step_rows) wants more.
pub const ADDED_ROWS: usize = 250;

/// A queue with one owner. It is opened for one daemon, so nothing here names one: operations that ask for runs, leases, jobs in flight,
/// accepted entries and fetchers answer what is that daemon's, and rejected files and the input directory are noted of it. All else is
/// the whole queue's. It is not called while a call is under way.
pub trait Store {
    /// Carries out a batch in order, as one transaction, which is durable when this returns; each
    /// operation is answered in its place. One that is rejected spoils no other: all else happens as if it
    /// had not been asked. A batch that [only reads](Operation::only_reads) takes no lock. A store may
    /// merge operations and look ahead in the batch, if the answers do not show it.
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

    /// Ready when somebody else changed the queue since it last was: what was answered may not hold any more. Else
    /// it has the task woken when that happens, as soon as the store can tell. What comes with time alone, as the end of
    /// a classic lease does, is no change. Polled by the StorageActor while no call is under way.
    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed>;

    /// Whether a call is a trip to a server, which costs as much as many operations, and where other daemons have the same queue.
    fn is_remote(&self) -> bool {
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

    /// How long, in seconds, a job may be out whose worker says nothing of it until it ends (a classic one), and which the
    /// StorageActor then has expire. `None`: that is nobody's business here.
    fn classic_lease(&self) -> Option<u32> {
        None
    }

    /// The wall clock was set by so much, which may be less than nothing: all that is due at a time of it keeps its
    /// distance, and what lies further ahead than its delay comes after that delay. With 0 at the start of each daemon. A
    /// store that keeps time itself sees to that itself.
    ///
    /// # Errors
    /// Not all has followed, and it is asked again, with all by which the clock was set since it was followed last.
    fn follow_clock(&mut self, _now: Millis, _by: Millis) -> StoreFuture<'_, ()> {
        Box::pin(ready(Ok(())))
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

/// How often a store that others change, too, is [asked for work](Store::look_every) while workers wait.
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
