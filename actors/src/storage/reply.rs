//! Replies that wait for a commit. Used by the StorageActor alone.

use std::cell::RefCell;
use std::rc::Rc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::prelude::*;

use super::messages::{HandOut, Stepped, Undo, Work};
use crate::model::Attempt;
use crate::store::{self, StoreError, StoreResult, Told};

type Release = Box<dyn FnOnce(&StoreResult<()>)>;

/// The replies of one open transaction.
#[derive(Clone, Default)]
pub struct Held(Rc<RefCell<Vec<Release>>>);

impl Held {
    /// Keeps `reply` until the transaction ended one way or the other.
    pub fn push(&self, reply: impl FnOnce(&StoreResult<()>) + 'static) {
        self.0.borrow_mut().push(Box::new(reply));
    }

    /// Answers everybody with what came of the transaction.
    pub fn release(&self, result: &StoreResult<()>) {
        let replies = std::mem::take(&mut *self.0.borrow_mut());
        for reply in replies {
            reply(result);
        }
    }
}

/// The result of a handler whose reply is sent after the commit.
pub struct Deferred<T> {
    result: StoreResult<T>,
    held: Option<Held>,
}

impl<T> Deferred<T> {
    /// A reply that needs no commit.
    pub fn now(result: StoreResult<T>) -> Self {
        Self { result, held: None }
    }

    /// A reply that holds only once the commit succeeded.
    pub fn after_commit(value: T, held: &Held) -> Self {
        Self { result: Ok(value), held: Some(held.clone()) }
    }

    /// What the operation said, to look at, before the commit.
    pub fn peek(&self) -> Result<&T, &StoreError> {
        self.result.as_ref()
    }

    /// What the operation said, before the commit.
    pub fn into_result(self) -> StoreResult<T> {
        self.result
    }
}

impl From<(Told, Dispatched)> for Stepped {
    fn from((told, dispatched): (Told, Dispatched)) -> Self {
        Self { told, work: dispatched.into() }
    }
}

impl Dispatched {
    /// The attempt under which a job was taken.
    pub fn attempt(&self) -> Option<Attempt> {
        match &self.dispatch {
            store::Dispatch::Job(attempt, _) => Some(*attempt),
            store::Dispatch::Nothing | store::Dispatch::Later => None,
        }
    }
}

impl<T: 'static> Deferred<T> {
    /// Calls `act` with the result when it is certain.
    pub fn then(self, act: impl FnOnce(StoreResult<T>) + 'static) {
        match (self.result, self.held) {
            (Ok(value), Some(held)) => {
                held.push(move |committed| act(committed.clone().map(|()| value)));
            }
            (result, _) => act(result),
        }
    }
}

/// The value becomes the message's answer only after the commit: a job must not be guarded, and
/// so undone, before it is certain that it was dispatched.
impl<A, M, T, U> MessageResponse<A, M> for Deferred<T>
where
    A: Actor,
    M: Message<Result = StoreResult<U>>,
    T: Into<U> + 'static,
    U: 'static,
{
    fn handle(self, _: &mut A::Context, reply: Option<OneshotSender<M::Result>>) {
        self.then(move |result| {
            if let Some(reply) = reply {
                // A sender that gave up drops the value, and a job in it undoes itself.
                let _ = reply.send(result.map(Into::into));
            }
        });
    }
}

/// The store's answer, to be guarded as soon as it is committed.
pub struct Dispatched {
    /// What the store answered.
    pub dispatch: store::Dispatch,
    /// Whom a job's guard tells when the job does not arrive.
    pub undo: Recipient<Undo>,
}

impl From<Dispatched> for Work {
    fn from(Dispatched { dispatch, undo }: Dispatched) -> Self {
        match dispatch {
            store::Dispatch::Job(attempt, job) => Self::Job(HandOut::new(attempt, job, undo)),
            store::Dispatch::Nothing => Self::Nothing,
            store::Dispatch::Later => Self::Later,
        }
    }
}
