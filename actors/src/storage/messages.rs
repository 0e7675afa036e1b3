//! What can be asked of the StorageActor, and the guard around a job that is handed out.
//!
//! Most is an operation of the store, sent as [`Perform`]. The other messages mean something to the
//! StorageActor itself: those of connections ([`TakeJob`], [`Finish`], [`UndoHandOut`]; of protocol 2 also
//! [`Wait`], [`Tell`], [`Next`] and [`Change`]), and of the tree ([`Ping`], [`Shutdown`]).

use std::time::Duration;

use actix::prelude::*;

use super::StorageActor;
use crate::live::Health;
use crate::store::{Ack, Cancelled, LeaseHolder, Request, Requeued, StoreError, StoreResult};
use shiftboss_protocol::model::{Attempt, Key, Row};
use shiftboss_protocol::wire::session::{Control, Word};

/// Has the store carry out a request; answered once that is durable.
#[derive(Debug)]
pub struct Perform<R>(pub R);

impl<R: Request> Message for Perform<R> {
    type Result = StoreResult<R::Answer>;
}

/// How long storage may take for a request before it is asked again.
const PATIENCE: Duration = Duration::from_secs(20);
/// Delay before storage is asked again that was busy or full.
pub(crate) const STORE_RETRY: Duration = Duration::from_millis(200);

/// Sends a request to storage, to be asked again if that fails. No answer in time is a store that is busy.
pub(crate) fn ask<R: Request>(
    storage: &Addr<StorageActor>,
    request: R,
) -> impl Future<Output = StoreResult<R::Answer>> + 'static {
    let answer = storage.send(Perform(request)).timeout(PATIENCE);
    async { answer.await.unwrap_or_else(|error| Err(StoreError::Busy(error.to_string()))) }
}

/// Asks for the next job.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Work>")]
pub struct TakeJob {
    /// To whom it will be leased; `None`: to a classic worker.
    pub holder: Option<LeaseHolder>,
}

/// Waits for the next job; answered with a job or an error. Who gives up drops the request.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Work>")]
pub struct Wait {
    /// To whom it will be leased.
    pub holder: LeaseHolder,
}

/// Says something about a leased attempt; a beat is never [`Ack::Unknown`].
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Ack>")]
pub struct Tell {
    pub attempt: Attempt,
    pub word: Word,
}

/// Records the end of a leased attempt and takes the next job, in one transaction.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Stepped>")]
pub struct Next {
    pub attempt: Attempt,
    pub exit_code: i64,
    /// To whom the next job will be leased.
    pub holder: LeaseHolder,
}

/// What came of a [`Next`].
#[derive(Debug)]
pub struct Stepped {
    pub ack: Ack,
    pub work: Work,
}

/// Reads the database, and tells how storage is.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Health>")]
pub struct HowAreYou {
    /// Takes the lock for writing, too: an error if another process does not give it free in time.
    pub lock: bool,
}

/// Changes what the queue does, for an operator; answered with what to say.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Controlled>")]
pub struct Change(pub Control);

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
    pub exit_code: i64,
}

/// Makes a dispatch undone whose answer did not arrive (spec 5).
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct UndoHandOut {
    /// The key that was handed out.
    pub key: Key,
    pub attempt: Attempt,
}

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
    Nothing,
    /// A deletion in progress must get on first: ask again in a moment.
    Later,
}

/// A dispatched job on its way to a worker. Dropped before it is [`settled`](HandOut::settle),
/// by an error, a panic or a timeout anywhere on that way, it makes its dispatch undone.
#[derive(Debug)]
pub struct HandOut {
    job: Row,
    attempt: Attempt,
    undo: Option<Recipient<UndoHandOut>>,
}

impl HandOut {
    /// Guards `job`, dispatched as `attempt`; `undo` is notified if it does not arrive.
    pub fn new(attempt: Attempt, job: Row, undo: Recipient<UndoHandOut>) -> Self {
        Self { job, attempt, undo: Some(undo) }
    }

    /// Which attempt at it this is.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The job to be written.
    pub fn job(&self) -> &Row {
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
            undo.do_send(UndoHandOut { key: self.job.key.clone(), attempt: self.attempt });
        }
    }
}
