//! Workers that wait for a job (`READY seconds`), in the order in which they came.
//!
//! Part of the StorageActor: it serves them after batches that may have brought work.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;

use super::StorageActor;
use super::messages::{Wait, Work};
use super::reply::{Deferred, Reply, deferred};
use shiftboss_protocol::model::LeaseHolder;
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::operation::{Dispatch, Dispatched, HasWork};

/// Pause before those who wait are served again after an error: a lock or a full disk. The others would wait
/// as long for the same.
const ERROR_PAUSE: Duration = Duration::from_secs(2);
/// Workers that are served with one batch at most; the first batch serves one.
const SERVED_AT_ONCE_MAX: usize = 64;

struct Waiter {
    holder: LeaseHolder,
    /// Closed when the worker gave up.
    reply: Reply<StoreResult<Work>>,
}

#[derive(Default)]
pub(super) struct WaitQueue {
    /// By number: who waits longest has the least one.
    waiters: BTreeMap<u64, Waiter>,
    last: u64,
    pub(super) awake: bool,
    serving: usize,
    /// So many were given a job since one was answered that there is nothing.
    served: usize,
    pause: Option<Instant>,
    /// When it is to be looked for work that nobody told of; `None`: soon.
    next_look: Option<Instant>,
}

impl WaitQueue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// There was nothing for this one, or it could not be answered: it stays where it was.
    fn put_back(&mut self, number: u64, waiter: Waiter) {
        self.waiters.insert(number, waiter);
        (self.awake, self.served, self.next_look) = (false, 0, None);
    }

    /// Whether it is time for a look, or will be within `early`. Work that was found and not handed out yet is looked for again.
    pub(super) fn is_look_due(&self, early: Duration) -> bool {
        self.awake || self.next_look.is_none_or(|at| at <= Instant::now() + early)
    }

    /// Drops those who gave up; whether anybody is left.
    fn are_any(&mut self) -> bool {
        self.waiters.retain(|_, waiter| !waiter.reply.is_closed());
        !self.waiters.is_empty()
    }

    /// Those who are to be served now: more at once the more were given a job.
    fn take(&mut self) -> Vec<(u64, Waiter)> {
        let is_paused = self.pause.is_some_and(|until| Instant::now() < until);
        if !self.awake || self.serving > 0 || is_paused {
            return Vec::new();
        }
        let wanted = (2 * self.served).clamp(1, SERVED_AT_ONCE_MAX);
        let mut taken = Vec::new();
        while taken.len() < wanted
            && let Some((number, waiter)) = self.waiters.pop_first()
        {
            if !waiter.reply.is_closed() {
                taken.push((number, waiter));
            }
        }
        self.awake = !taken.is_empty();
        (self.serving, self.served) = (taken.len(), 0);
        taken
    }
}

impl StorageActor {
    /// Gives those who wait what there is, the longest waiting first.
    pub(super) fn serve_waiting(&mut self, ctx: &mut Context<Self>) {
        for (number, waiter) in self.waiting.take() {
            let request = Dispatch { holder: Some(waiter.holder.clone()), fetchers: None };
            self.submit(ctx, request, move |actor, ctx, dispatched| {
                actor.waiting.serving -= 1;
                actor.served(ctx, number, waiter, dispatched);
            });
        }
    }

    fn served(
        &mut self,
        ctx: &mut Context<Self>,
        number: u64,
        waiter: Waiter,
        dispatched: StoreResult<Dispatched>,
    ) {
        match dispatched {
            Ok(dispatched @ Dispatched::Job(..)) => {
                self.waiting.served += 1;
                let work = self.work(ctx, dispatched, Some(&waiter.holder));
                // Who gave up in this very moment drops the job, which undoes itself.
                waiter.reply.send(Ok(work));
            }
            // The next step of the deletion that is to get on first wakes them.
            Ok(Dispatched::Nothing | Dispatched::Later) => self.waiting.put_back(number, waiter),
            Err(_) => {
                self.waiting.put_back(number, waiter);
                self.waiting.pause = Some(Instant::now() + ERROR_PAUSE);
            }
        }
    }

    /// Whether there is work by now for those who wait.
    pub(super) fn look_for_waiting(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.are_any() {
            self.look_for_work(ctx);
        }
    }

    /// A look alone: a transaction would wait for everybody else's.
    pub(super) fn look_for_work(&mut self, ctx: &mut Context<Self>) {
        self.submit(ctx, HasWork, |actor, _, has_work| {
            actor.waiting.awake |= has_work == Ok(true);
            let store = actor.store.as_ref().filter(|_| has_work.is_ok());
            actor.waiting.next_look = store.map(|store| Instant::now() + store.look_every());
        });
    }
}

impl Handler<Wait> for StorageActor {
    type Result = Deferred<StoreResult<Work>>;

    fn handle(&mut self, Wait { holder }: Wait, ctx: &mut Self::Context) -> Self::Result {
        let (result, reply) = deferred();
        let queue = &mut self.waiting;
        queue.last += 1;
        queue.waiters.insert(queue.last, Waiter { holder, reply });
        // Work may have come since the worker was answered that there is none.
        self.look_for_work(ctx);
        result
    }
}
