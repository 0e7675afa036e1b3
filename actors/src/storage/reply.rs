//! Answers that come later than their handler's return. Used by the StorageActor alone.

use std::cell::RefCell;
use std::rc::Rc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::prelude::*;

enum Slot<T> {
    /// The handler has not returned.
    Handled,
    /// It was answered before the handler returned.
    Answered(T),
    Asked(OneshotSender<T>),
    /// The requester no longer waits.
    Closed,
}

/// The result of a handler whose answer is given later, through the [`Reply`] that was made with it.
pub struct Deferred<T>(Rc<RefCell<Slot<T>>>);

pub struct Reply<T>(Rc<RefCell<Slot<T>>>);

/// A handler's result, and what answers it.
pub fn deferred<T>() -> (Deferred<T>, Reply<T>) {
    let slot = Rc::new(RefCell::new(Slot::Handled));
    (Deferred(Rc::clone(&slot)), Reply(slot))
}

impl<T> Reply<T> {
    /// Answers. If the requester no longer waits, the value is dropped, and a job in it undoes itself.
    pub fn send(self, value: T) {
        match self.0.replace(Slot::Closed) {
            Slot::Handled => drop(self.0.replace(Slot::Answered(value))),
            Slot::Asked(sender) => drop(sender.send(value)),
            Slot::Answered(_) | Slot::Closed => {}
        }
    }

    /// The requester has given up.
    pub fn is_closed(&self) -> bool {
        match &*self.0.borrow() {
            Slot::Asked(sender) => sender.is_closed(),
            Slot::Closed => true,
            Slot::Handled | Slot::Answered(_) => false,
        }
    }
}

impl<A: Actor, M: Message> MessageResponse<A, M> for Deferred<M::Result> {
    fn handle(self, _: &mut A::Context, sender: Option<OneshotSender<M::Result>>) {
        let asked = sender.map_or(Slot::Closed, Slot::Asked);
        if let Slot::Answered(value) = self.0.replace(asked) {
            Reply(self.0).send(value);
        }
    }
}
