//! Workers that wait for a job (`READY seconds`), in the order in which they came.
//!
//! Used by the StorageActor alone: it serves them after commits that may have brought work.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::prelude::*;
use tokio::time::Instant;

use super::messages::{Wait, Work};
use super::{IDLE_TICK, StorageActor};
use crate::store::{self, Holder, StoreResult};

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

/// Pause before those who wait are served again while a deletion is getting on.
const LATER_PAUSE: Duration = Duration::from_millis(20);
/// The same after an error.
const ERROR_PAUSE: Duration = Duration::from_secs(2);
/// Those who wait are served without a reason at every second tick.
const LOOK_TICKS: u32 = 2;
const _: () = assert!(IDLE_TICK.as_millis() * (LOOK_TICKS as u128) < 1000);

impl StorageActor {
    /// Gives those who wait what there is, the longest waiting first.
    pub(super) fn serve_waiting(&mut self, ctx: &mut Context<Self>) {
        if self.wait_pause.is_some_and(|until| Instant::now() < until) {
            return;
        }
        while self.roused {
            let Some(waiter) = self.waiting.first() else {
                self.roused = false;
                return;
            };
            self.serve(ctx, waiter);
        }
    }

    fn serve(&mut self, ctx: &mut Context<Self>, waiter: Waiter) {
        let taken = self.take_work(ctx, Some(&waiter.holder));
        match taken.peek().map(|taken| &taken.dispatch) {
            Ok(store::Dispatch::Nothing) => {
                self.roused = false;
                self.waiting.put_back(waiter);
            }
            Ok(store::Dispatch::Later) => {
                self.roused = false;
                self.waiting.put_back(waiter);
                self.rouse_later(ctx);
            }
            Err(_) => {
                // A lock or a full disk: the others would wait as long for the same, and storage with
                // them.
                self.roused = false;
                self.waiting.put_back(waiter);
                self.wait_pause = Some(Instant::now() + ERROR_PAUSE);
            }
            Ok(store::Dispatch::Job(..)) => taken.then(move |result| {
                // Who gave up in this very moment drops the job, which undoes itself.
                let _ = waiter.reply.send(result.map(Into::into));
            }),
        }
    }

    fn rouse(&mut self, ctx: &mut Context<Self>) {
        self.rousing = false;
        self.roused = true;
        self.serve_waiting(ctx);
    }

    /// One timer for all who ask for it.
    fn rouse_later(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.rousing, true) {
            ctx.run_later(LATER_PAUSE, Self::rouse);
        }
    }

    /// Others may have written to the database, and leases of classic jobs run out in silence.
    pub(super) fn look_for_waiting(&mut self, ctx: &mut Context<Self>) {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(LOOK_TICKS) {
            // A look alone: a transaction would wait for everybody else's.
            if self.waiting.are_any() && self.store.has_work(self.clock.now()) == Ok(true) {
                self.rouse(ctx);
            }
            self.tell_if_drained();
        }
    }
}

impl Handler<Wait> for StorageActor {
    type Result = Place;

    fn handle(&mut self, Wait { holder }: Wait, ctx: &mut Self::Context) -> Self::Result {
        // Work may have come since the worker was told that there is none.
        ctx.run_later(Duration::ZERO, Self::rouse);
        self.waiting.place(holder)
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
