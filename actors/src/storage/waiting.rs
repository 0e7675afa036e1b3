//! Workers that wait for a job (`READY seconds`), in the order in which they came.
//!
//! Used by the StorageActor alone: it serves them after commits that may have brought work.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use actix::dev::{MessageResponse, OneshotSender};
use actix::prelude::*;

use super::messages::{Wait, Work};
use crate::store::{Holder, StoreResult};

/// A worker that waits.
pub struct Waiter {
    /// To whom the job will be leased.
    pub holder: Holder,
    /// Where it is awaited; closed when the worker gave up.
    pub reply: OneshotSender<StoreResult<Work>>,
}

/// Those who wait; clones share them.
#[derive(Clone, Default)]
pub struct Waiting(Rc<RefCell<VecDeque<Waiter>>>);

impl Waiting {
    /// Whoever has waited longest and still does.
    pub fn first(&self) -> Option<Waiter> {
        let mut waiting = self.0.borrow_mut();
        while let Some(waiter) = waiting.pop_front() {
            if !waiter.reply.is_closed() {
                return Some(waiter);
            }
        }
        None
    }

    /// There was nothing for this one: it stays the first.
    pub fn put_back(&self, waiter: Waiter) {
        self.0.borrow_mut().push_front(waiter);
    }

    /// Drops those who gave up; whether anybody is left.
    pub fn are_any(&self) -> bool {
        let mut waiting = self.0.borrow_mut();
        waiting.retain(|waiter| !waiter.reply.is_closed());
        !waiting.is_empty()
    }

    /// A place at the end, as a handler's result.
    pub fn place(&self, holder: Holder) -> Place {
        Place { holder, waiting: self.clone() }
    }
}

/// The result of a handler whose reply comes when there is work.
pub struct Place {
    holder: Holder,
    waiting: Waiting,
}

impl<A: Actor> MessageResponse<A, Wait> for Place {
    fn handle(self, _: &mut A::Context, reply: Option<OneshotSender<StoreResult<Work>>>) {
        if let Some(reply) = reply {
            self.waiting.0.borrow_mut().push_back(Waiter { holder: self.holder, reply });
        }
    }
}
