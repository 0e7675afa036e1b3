//! What can be asked of the StorageActor, and the guard around a job that is handed out.
//!
//! Most is an operation of the store, sent as [`Perform`]. The other messages need more of the StorageActor than
//! the store's answer: those of connections ([`TakeJob`], [`Wait`], [`WaitForStop`], [`UndoHandOut`], [`Pause`],
//! [`HowAreYou`]), of the watcher ([`RunsChanged`]), of services ([`FollowWork`]), and of the tree ([`Ping`],
//! [`Shutdown`]).

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::Notify;

use super::StorageActor;
use shiftboss_protocol::answers::live::Health;
use shiftboss_protocol::model::{About, Attempt, Key, Row};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{Ack, Dispatch, Request};

/// Has the store carry out a request; answered once its result is durable.
#[derive(Debug)]
pub struct Perform<R>(pub R);

impl<R: Request> Message for Perform<R> {
    type Result = StoreResult<R::Answer>;
}

/// How long storage may take for a request before it is asked again.
const PATIENCE: Duration = Duration::from_secs(20);
/// Delay before asking again after storage was busy or full.
pub const STORE_RETRY: Duration = Duration::from_millis(200);

/// Sends a request to storage; the caller repeats it if that fails. No answer in time counts as busy.
pub fn ask<R: Request>(
    storage: &Addr<StorageActor>,
    request: R,
) -> impl Future<Output = StoreResult<R::Answer>> + 'static {
    let answer = storage.send(Perform(request)).timeout(PATIENCE);
    async { answer.await.unwrap_or_else(|error| Err(unanswered(error))) }
}

/// The error if storage is busy for too long, or has ended.
pub fn unanswered(why: MailboxError) -> StoreError {
    StoreError::Busy(format!("the daemon's storage did not answer: {why}"))
}

/// Asks for the next job. The end of a job is recorded before, in the same transaction.
#[derive(Debug)]
pub struct TakeJob<R> {
    pub ended: R,
    pub next: Dispatch,
}

impl<R: Request> Message for TakeJob<R> {
    type Result = StoreResult<(R::Answer, Work)>;
}

/// Waits for the next job; answered with a job or an error. To give up, drop the request.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Work>")]
pub struct Wait(pub Dispatch);

/// Waits until the attempt's job is to stop ([`Ack::Stopping`]), or is over ([`Ack::Stale`]). To give up, drop the
/// request.
#[derive(Debug, Message)]
#[rtype(result = "Ack")]
pub struct WaitForStop(pub Attempt);

/// Answered when this daemon [may have lost runs](crate::store::Changed::Runs) since this was last answered.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunsChanged;

/// From now on, wakes `notify` whenever there may be new work.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct FollowWork(pub Arc<Notify>);

/// Reads the database, and reports the health of storage.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<Health>")]
pub struct HowAreYou {
    /// Takes the lock for writing, too: an error if another process does not release it in time.
    pub lock: bool,
}

/// Hands nothing out from now on, or hands out again; answered with the number of jobs in flight.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<u64>")]
pub struct Pause {
    pub paused: bool,
    /// The daemon stops once none of its jobs is in flight.
    pub drains: bool,
}

/// Undoes a dispatch whose answer did not arrive (spec 5).
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct UndoHandOut {
    pub key: Key,
    pub attempt: Attempt,
}

/// Goes once through the mailbox; answered when everything before it was handled. For the watchdog.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Ping;

/// Commits, closes the store and stops the actor. The last message of its life.
#[derive(Debug, Message)]
#[rtype(result = "StoreResult<()>")]
pub struct Shutdown;

#[derive(Debug)]
pub enum Work {
    Job(HandOut),
    Nothing,
    /// A deletion in progress must make progress first: ask again in a moment.
    Later,
}

/// A dispatched job on its way to a worker. If it is dropped before it is [`settled`](HandOut::settle), by an error, a
/// panic or a timeout anywhere on that way, its dispatch is undone.
#[derive(Debug)]
pub struct HandOut {
    pub(crate) job: Row,
    pub(crate) attempt: Attempt,
    pub(crate) about: About,
    undo: Option<Recipient<UndoHandOut>>,
}

impl HandOut {
    /// Guards `job`, dispatched as `attempt`; `undo` is notified if it does not arrive.
    pub fn new(attempt: Attempt, job: Row, about: About, undo: Recipient<UndoHandOut>) -> Self {
        Self { job, attempt, about, undo: Some(undo) }
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
