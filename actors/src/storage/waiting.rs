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

/// Pause before waiting workers are served again after an error, such as a lock or a full disk: each would only wait
/// for the same.
const ERROR_PAUSE: Duration = Duration::from_secs(2);
/// Most workers that one batch serves; the first batch serves one.
const SERVED_AT_ONCE_MAX: usize = 64;

struct Waiter {
    holder: LeaseHolder,
    /// Closed when the worker gave up.
    reply: Reply<StoreResult<Work>>,
}

#[derive(Default)]
pub(super) struct WaitQueue {
    /// By number: the worker that has waited longest has the lowest.
    waiters: BTreeMap<u64, Waiter>,
    last: u64,
    pub(super) awake: bool,
    serving: usize,
    /// How many workers got a job since there was last none for one.
    served: usize,
    pause: Option<Instant>,
    /// When to look for work that no change announced; `None`: soon.
    next_look: Option<Instant>,
}

impl WaitQueue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// There was no job for this worker, or an error: it keeps its place.
    fn put_back(&mut self, number: u64, waiter: Waiter) {
        self.waiters.insert(number, waiter);
        (self.awake, self.served, self.next_look) = (false, 0, None);
    }

    /// Whether it is time for a look, or will be within `early`. As long as found work was not handed out, it is always
    /// time.
    pub(super) fn is_look_due(&self, early: Duration) -> bool {
        self.awake || self.next_look.is_none_or(|at| at <= Instant::now() + early)
    }

    /// Drops workers that gave up; returns whether any are left.
    fn are_any(&mut self) -> bool {
        self.waiters.retain(|_, waiter| !waiter.reply.is_closed());
        !self.waiters.is_empty()
    }

    /// The workers to serve now: the more of the last ones got a job, the more at once.
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
    /// Hands out jobs to waiting workers, the longest waiting first.
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
                // If the worker has just given up, the job is dropped, and so undone.
                waiter.reply.send(Ok(work));
            }
            // With `Later` a deletion must make progress first; its next step wakes the workers.
            Ok(Dispatched::Nothing | Dispatched::Later) => self.waiting.put_back(number, waiter),
            Err(_) => {
                self.waiting.put_back(number, waiter);
                self.waiting.pause = Some(Instant::now() + ERROR_PAUSE);
            }
        }
    }

    /// Looks whether there is work by now for waiting workers.
    pub(super) fn look_for_waiting(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.are_any() {
            self.look_for_work(ctx);
        }
    }

    /// Only a look: a writing transaction would wait for all others.
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
        // Work may have come since the worker's request found none.
        self.look_for_work(ctx);
        result
    }
}
