//! Workers that wait for a job (`READY seconds`), in the order in which they came.
//!
//! Part of the StorageActor: it serves them after batches that may have brought work.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;

use super::StorageActor;
use super::messages::{Wait, Work};
use super::reply::{Deferred, Reply, deferred};
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::operation::{Dispatch, Dispatched, HasWork, NextOpening};

/// Pause before waiting workers are served again after an error, such as a lock or a full disk: each would only wait
/// for the same.
const ERROR_PAUSE: Duration = Duration::from_secs(2);
/// What opens later is found by the looks that are made anyway.
const OPENING_SOON: Duration = Duration::from_secs(3_600);
/// When to look again if a group is open by now, and there was still no job.
const OPENED: Duration = Duration::from_millis(250);
/// How soon a worker is served again after [`Dispatched::Later`], in milliseconds.
const LATER_MS: u64 = 20;
/// Most workers that one batch serves; the first batch serves one.
const SERVED_AT_ONCE_MAX: usize = 64;

struct Waiter {
    next: Dispatch,
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
    /// Of which fetchers there was no job since the store was last asked for work; `None`: for those who take all.
    idle: HashSet<Option<Vec<Arc<str>>>>,
    pause: Option<Instant>,
    /// Looks again when time opens a group.
    opening: Option<SpawnHandle>,
    /// When to look for work that no change announced; `None`: soon.
    next_look: Option<Instant>,
}

impl WaitQueue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// There was no job for this worker, or an error: it keeps its place.
    fn put_back(&mut self, number: u64, waiter: Waiter) {
        self.idle.insert(waiter.next.fetchers.clone());
        self.waiters.insert(number, waiter);
        (self.served, self.next_look) = (0, None);
        self.awake &= self.waiters.values().any(|it| !self.is_idle(it));
    }

    /// Whether there is no job for it, as far as it is known.
    fn is_idle(&self, waiter: &Waiter) -> bool {
        self.idle.contains(&waiter.next.fetchers)
    }

    /// There may be work.
    pub(super) fn wake(&mut self) {
        self.awake = true;
        self.idle.clear();
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
        self.waiters.retain(|_, waiter| !waiter.reply.is_closed());
        let waits = self.waiters.iter().filter(|(_, waiter)| !self.is_idle(waiter));
        let next: Vec<u64> = waits.map(|(number, _)| *number).take(wanted).collect();
        let taken = next.into_iter().filter_map(|it| self.waiters.remove_entry(&it));
        let taken: Vec<_> = taken.collect();
        self.awake = !taken.is_empty();
        (self.serving, self.served) = (taken.len(), 0);
        taken
    }
}

impl StorageActor {
    /// Hands out jobs to waiting workers, the longest waiting first.
    pub(super) fn serve_waiting(&mut self, ctx: &mut Context<Self>) {
        for (number, waiter) in self.waiting.take() {
            // If there is no job, it may be that a group is closed since it was last asked when the next one opens.
            let request = (waiter.next.clone(), NextOpening);
            self.submit(ctx, request, move |actor, ctx, answered| {
                let (dispatched, opens) = match answered {
                    Ok((dispatched, opens)) => (dispatched, opens.ok().flatten()),
                    Err(error) => (Err(error), None),
                };
                actor.waiting.serving -= 1;
                if dispatched == Ok(Dispatched::Nothing) && opens.is_some() {
                    actor.look_when_opened(ctx, opens);
                }
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
                let work = self.work(ctx, dispatched, waiter.next.holder.as_ref());
                // If the worker has just given up, the job is dropped, and so undone.
                waiter.reply.send(Ok(work));
            }
            Ok(Dispatched::Nothing) => self.waiting.put_back(number, waiter),
            // A deletion must make progress first, or more groups may be due than one batch opens.
            Ok(Dispatched::Later) => {
                self.waiting.put_back(number, waiter);
                self.look_when_opened(ctx, Some(LATER_MS));
            }
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
        self.submit(ctx, (HasWork, NextOpening), |actor, ctx, looked| {
            let (has_work, opens) = match looked {
                Ok((has_work, opens)) => (has_work, opens.ok().flatten()),
                Err(error) => (Err(error), None),
            };
            if has_work == Ok(true) {
                actor.waiting.wake();
            }
            let store = actor.store.as_ref().filter(|_| has_work.is_ok());
            actor.waiting.next_look = store.map(|store| Instant::now() + store.look_every());
            actor.look_when_opened(ctx, opens);
        });
    }

    /// Time opens a group then: there may be work for waiting workers at once.
    fn look_when_opened(&mut self, ctx: &mut Context<Self>, opens: Option<u64>) {
        if let Some(timer) = self.waiting.opening.take() {
            ctx.cancel_future(timer);
        }
        // One that is open already was of no use to them.
        let soon = opens.map(|it| if it == 0 { OPENED } else { Duration::from_millis(it) });
        self.waiting.opening = soon.filter(|it| *it < OPENING_SOON).map(|soon| {
            ctx.run_later(soon, |actor, ctx| {
                actor.waiting.opening = None;
                if actor.waiting.are_any() {
                    actor.waiting.wake();
                    actor.serve_waiting(ctx);
                }
            })
        });
    }
}

impl Handler<Wait> for StorageActor {
    type Result = Deferred<StoreResult<Work>>;

    fn handle(&mut self, Wait(next): Wait, ctx: &mut Self::Context) -> Self::Result {
        let (result, reply) = deferred();
        let queue = &mut self.waiting;
        queue.last += 1;
        queue.waiters.insert(queue.last, Waiter { next, reply });
        // Work may have come since the worker's request found none.
        self.look_for_work(ctx);
        result
    }
}
