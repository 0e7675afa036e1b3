//! What can be asked of the StorageActor, and the guard around a job that is handed out.
//!
//! Sent by connections ([`Dispatch`], [`Finish`], [`Undo`]; of protocol 2 also [`Wait`], [`Tell`] and
//! [`Change`]), by the watcher and its tails (the
//! runs and rows), by the tree's guests (entries of a spool, the
//! daemon's own fetchers), and by the tree ([`Ping`], [`Shutdown`]).

use std::sync::Arc;

use actix::prelude::*;

use crate::live::Health;
use crate::model::{Attempt, Idle, Job, Key, Row, Run};
use crate::store::{
    Added, Batch, Cancelled, EntryId, FetcherRecord, Holder, InputDirectory, Requeued, SpoolEntry,
    StoreResult, StoredRun, Told,
};
use crate::wire::session::{Control, Word};

/// Asks for the next job.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Work>")]
pub struct Dispatch {
    /// To whom it will be leased; `None`: to a classic worker.
    pub holder: Option<Holder>,
}

/// Waits for the next job; answered with a job or an error. Who gives up drops the request.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Work>")]
pub struct Wait {
    /// To whom it will be leased.
    pub holder: Holder,
}

/// Asks why there is no job at present.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Idle>")]
pub struct WhyIdle;

/// Says something about a leased attempt; a beat is never [`Told::Unknown`].
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Told>")]
pub struct Tell {
    /// Which attempt.
    pub attempt: Attempt,
    /// What of it.
    pub word: Word,
}

/// Records the end of a leased attempt and takes the next job, in one transaction.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Stepped>")]
pub struct Next {
    /// Which attempt.
    pub attempt: Attempt,
    /// How it ended.
    pub exit_code: i64,
    /// To whom the next job will be leased.
    pub holder: Holder,
}

/// What came of a [`Next`].
#[derive(Debug)]
pub struct Stepped {
    /// Of the end.
    pub told: Told,
    /// The next job.
    pub work: Work,
}

/// Reads the database, and tells how storage is.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Health>")]
pub struct HowAreYou {
    /// Takes the lock for writing, too: an error if another process does not give it free in time.
    pub lock: bool,
}

/// Changes what the queue does, for an operator; answered with what is to be told.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Controlled>")]
pub struct Change(
    /// The change.
    pub Control,
);

/// What came of a [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controlled {
    /// So many rows of the key wait again; `None`: there is no such key.
    Retried(Option<u64>),
    /// Of a job that was in flight.
    Requeued(Requeued),
    /// Whether nothing is handed out now.
    Paused(bool),
    /// Nothing is handed out, and so many jobs are out.
    Draining(u64),
    /// What came of a key's single tasks.
    Cancelled(Cancelled),
}

/// Records the end of a job and asks for the next one, in one transaction.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Work>")]
pub struct Finish {
    /// The key whose job ended.
    pub key: Key,
    /// How it ended.
    pub exit_code: i64,
}

/// Makes a dispatch undone whose answer did not arrive (spec 5).
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Undo {
    /// The key that was handed out.
    pub key: Key,
    /// Which dispatch.
    pub attempt: Attempt,
}

/// Asks for every run in the store.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Vec<StoredRun>>")]
pub struct KnownRuns;

/// Makes runs known and tells how each stands, or why it is rejected; the others are known all the
/// same. Any other error may leave some of them known: registering again does no harm.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Vec<StoreResult<StoredRun>>>")]
pub struct RegisterRuns {
    /// The runs, in the order of the answer.
    pub runs: Vec<Run>,
}

/// Adds a batch of a run's rows.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct AddRows(
    /// The rows and the position behind them.
    pub Batch,
);

/// Deletes some of the rows that a run's file lists no longer ([`crate::store::Store::prune`]); answered
/// whether there may be more.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<bool>")]
pub struct PruneRun {
    /// Which run.
    pub run: Run,
}

/// Deletes a run and its rows, in steps; answered when it is gone.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct DeleteRun {
    /// Which run.
    pub run: Run,
}

/// Adds single tasks; answered in their order.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Vec<Added>>")]
pub struct AddTasks(
    /// The tasks.
    pub Vec<Row>,
);

/// Accepts entries of a spool as single tasks, whatever the durability on the disk when that is answered;
/// in their order. One that is `Full` is not accepted, and may be asked for again.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Vec<Added>>")]
pub struct AcceptEntries(
    /// The entries, each with its task.
    pub Vec<SpoolEntry>,
);

/// Asks which accepted entries are remembered.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Vec<EntryId>>")]
pub struct KnownAccepted;

/// Forgets accepted entries whose removal from their spool is durable.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct ForgetAccepted(
    /// Which.
    pub Vec<EntryId>,
);

/// Notes how a fetcher is that the daemon runs itself.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct NoteFetcher(
    /// How it is.
    pub FetcherRecord,
);

/// Asks what was noted of the daemon's own fetchers.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Vec<FetcherRecord>>")]
pub struct KnownFetchers;

/// A fetcher is run no more.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct ForgetFetcher(
    /// Its name.
    pub Arc<str>,
);

/// Notes that an input file is left out.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct SetAside {
    /// The file's name, escaped.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Takes the note about an input file back.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct ClearAside {
    /// The file's name, escaped.
    pub name: String,
}

/// Notes how the input directory is.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct NoteInput(
    /// It is there, or lost.
    pub InputDirectory,
);

/// Goes once through the mailbox; answered when all before it was handled. For the watchdog.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Ping;

/// Commits, closes the store and stops the actor. The last message of its life.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct Shutdown;

/// The answer to a request for work.
#[derive(Debug)]
pub enum Work {
    /// A job, to be written to a worker.
    Job(HandOut),
    /// Nothing is eligible.
    Nothing,
    /// A deletion in progress must get on first: ask again in a moment.
    Later,
}

/// A dispatched job on its way to a worker. Dropped before it is [`settled`](HandOut::settle),
/// by an error, a panic or a timeout anywhere on that way, it makes its dispatch undone.
#[derive(Debug)]
pub struct HandOut {
    job: Job,
    attempt: Attempt,
    undo: Option<Recipient<Undo>>,
}

impl HandOut {
    /// Guards `job`, dispatched as `attempt`; `undo` is told if it does not arrive.
    #[must_use]
    pub fn new(attempt: Attempt, job: Job, undo: Recipient<Undo>) -> Self {
        Self { job, attempt, undo: Some(undo) }
    }

    /// Which attempt at it this is.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The job to be written.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The peer has read the answer: the dispatch stands.
    pub fn settle(mut self) {
        self.undo = None;
    }
}

impl Drop for HandOut {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take() {
            // A mailbox that is closed means the process ends; the lease frees the job then.
            undo.do_send(Undo { key: self.job.key.clone(), attempt: self.attempt });
        }
    }
}
