//! Answers that come later than their handler's return. Used by the StorageActor alone.

use std::cell::RefCell;
use std::rc::Rc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::prelude::*;

type Slot<T> = Rc<RefCell<Option<OneshotSender<T>>>>;

/// The result of a handler whose answer is given later, through the [`Reply`] that was made with it.
pub struct Deferred<T>(Slot<T>);

pub struct Reply<T>(Slot<T>);

/// A handler's result, and what answers it.
pub fn deferred<T>() -> (Deferred<T>, Reply<T>) {
    let slot = Slot::default();
    (Deferred(Rc::clone(&slot)), Reply(slot))
}

impl<T> Reply<T> {
    /// Answers. If nobody waits any longer the value is dropped, and a job in it undoes itself.
    pub fn send(self, value: T) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(value);
        }
    }

    /// Whoever asked has given up.
    pub fn is_closed(&self) -> bool {
        self.0.borrow().as_ref().is_none_or(OneshotSender::is_closed)
    }
}

impl<A: Actor, M: Message> MessageResponse<A, M> for Deferred<M::Result> {
    fn handle(self, _: &mut A::Context, sender: Option<OneshotSender<M::Result>>) {
        *self.0.borrow_mut() = sender;
    }
}
