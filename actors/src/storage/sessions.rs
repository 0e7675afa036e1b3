//! What the StorageActor does for protocol 2: words about attempts, operators' changes, its health.
//!
//! Handlers of [`Tell`], [`Next`], [`WhyIdle`], [`Change`] and [`HowAreYou`]; that of `Wait` is in [`waiting`](super::waiting), the
//! leases' timers in [`expiry`](super::expiry). What a word means is the store's.

use actix::prelude::*;
use tokio::time::Instant;
use tracing::info;

use super::StorageActor;
use super::messages::{Change, Controlled, HowAreYou, Next, Tell, WhyIdle};
use super::reply::{Deferred, Dispatched};
use crate::live::Health;
use crate::model::{Attempt, Key};
use crate::store::StoreError;
use crate::store::{Requeued, StoreResult, Told};
use crate::wire::session::{Control, Word};

impl StorageActor {
    /// The last job is back, and somebody waits for that.
    pub(super) fn tell_if_drained(&mut self) {
        if !self.draining || self.opened.is_some() {
            return;
        }
        match self.store.in_flight(self.clock.now()) {
            Ok(0) => {
                if let Some(drained) = self.drained.take() {
                    info!("No job is out any more: stopping, as asked.");
                    // A tree that is stopping already need not be told.
                    let _ = drained.send(());
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.noted(error);
            }
        }
    }
}

impl Handler<Tell> for StorageActor {
    type Result = Deferred<Told>;

    fn handle(&mut self, Tell { attempt, word }: Tell, ctx: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        let told = match word {
            Word::Beat => return Deferred::now(self.beat(attempt)),
            Word::Done(code) => self.mutate(ctx, |store| store.finish_attempt(attempt, code, now)),
            Word::Release => self.mutate(ctx, |store| store.release(attempt, now)),
        };
        if told.peek() == Ok(&Told::Recorded) {
            self.leases.end(attempt);
        }
        told
    }
}

impl Handler<Next> for StorageActor {
    type Result = Deferred<(Told, Dispatched)>;

    fn handle(&mut self, next: Next, ctx: &mut Self::Context) -> Self::Result {
        let Next { attempt, exit_code, holder } = next;
        let (now, undo) = (self.clock.now(), ctx.address().recipient());
        let taken = self.mutate(ctx, |store| {
            let told = store.finish_attempt(attempt, exit_code, now)?;
            let dispatch = store.dispatch(now, Some(&holder))?;
            Ok((told, Dispatched { dispatch, undo }))
        });
        if let Ok((told, dispatched)) = taken.peek() {
            let next = dispatched.attempt();
            if *told == Told::Recorded {
                self.leases.end(attempt);
            }
            self.begin_lease(ctx, next, &holder);
        }
        taken
    }
}

impl StorageActor {
    fn beat(&mut self, attempt: Attempt) -> StoreResult<Told> {
        match self.store.is_held(attempt) {
            Ok(true) => {
                // One that has no timer gets one at the next tick.
                self.leases_unsure |= !self.leases.extend(attempt, Instant::now());
                Ok(Told::Recorded)
            }
            Ok(false) => Ok(Told::Stale),
            Err(error) => Err(self.noted(error)),
        }
    }

    fn set_paused(&mut self, ctx: &mut Context<Self>, paused: bool) -> Deferred<Controlled> {
        info!(paused, "An operator's order.");
        self.mutate(ctx, |store| store.set_paused(paused).map(|()| Controlled::Paused(paused)))
    }

    fn requeue(&mut self, ctx: &mut Context<Self>, key: &Key) -> Deferred<Controlled> {
        let now = self.clock.now();
        let requeued = self.mutate(ctx, |store| store.requeue(key, now).map(Controlled::Requeued));
        if let Ok(Controlled::Requeued(Requeued::Back(attempt))) = requeued.peek() {
            info!(%key, attempt = attempt.0, "An operator put a job back that was in flight.");
            self.leases.end(*attempt);
        }
        requeued
    }

    /// Once it is certain: nobody must be told that it failed, and then see it happen.
    fn drain_after_commit(&mut self, ctx: &mut Context<Self>, draining: bool) {
        let this = ctx.address();
        self.held.push(move |committed| {
            if committed.is_ok() {
                this.do_send(SetDraining(draining));
            }
        });
    }

    fn drain(&mut self, ctx: &mut Context<Self>) -> Deferred<Controlled> {
        info!(
            "An operator's order: nothing is handed out, and the daemon stops when no job is out."
        );
        let now = self.clock.now();
        let begun = self.mutate(ctx, |store| {
            store.set_paused(true)?;
            store.in_flight(now).map(Controlled::Draining)
        });
        if begun.peek().is_ok() {
            self.drain_after_commit(ctx, true);
        }
        begun
    }
}

impl Handler<Change> for StorageActor {
    type Result = Deferred<Controlled>;

    fn handle(&mut self, Change(control): Change, ctx: &mut Self::Context) -> Self::Result {
        match control {
            Control::Retry(key, fetcher) => self.mutate(ctx, |store| {
                store.retry(&key, fetcher.as_deref()).map(Controlled::Retried)
            }),
            Control::Requeue(key) => self.requeue(ctx, &key),
            Control::Pause => self.set_paused(ctx, true),
            Control::Resume => {
                let resumed = self.set_paused(ctx, false);
                if resumed.peek().is_ok() {
                    self.drain_after_commit(ctx, false);
                }
                resumed
            }
            Control::Drain => self.drain(ctx),
            Control::Cancel(key) => {
                let now = self.clock.now();
                self.mutate(ctx, |store| store.cancel_tasks(&key, now).map(Controlled::Cancelled))
            }
        }
    }
}

impl Handler<WhyIdle> for StorageActor {
    type Result = MessageResult<WhyIdle>;

    fn handle(&mut self, _: WhyIdle, _: &mut Self::Context) -> Self::Result {
        let idle = self.store.why_idle(self.clock.now());
        MessageResult(idle.map_err(|error| self.noted(error)))
    }
}

impl Handler<HowAreYou> for StorageActor {
    type Result = MessageResult<HowAreYou>;

    fn handle(&mut self, HowAreYou { lock }: HowAreYou, ctx: &mut Self::Context) -> Self::Result {
        let now = self.clock.now();
        let is_known = self.complaints.outage(now).is_some();
        if lock
            && !is_known
            && let Err(error) = self.take_lock(ctx)
        {
            return MessageResult(Err(error));
        }
        let read = self.store.in_flight(now).map_err(|error| self.noted(error));
        MessageResult(read.map(|in_flight| Health {
            in_flight,
            draining: self.draining,
            outage: self.complaints.outage(now),
        }))
    }
}

impl StorageActor {
    /// Whether a request could write now. It writes nothing, so nothing is synced, and neither a full disk
    /// that was met nor one that others meet is judged by it.
    fn take_lock(&mut self, ctx: &mut Context<Self>) -> StoreResult<()> {
        match self.open_transaction(ctx) {
            // Nobody's request failed.
            Err(error @ StoreError::Busy(_)) => Err(error),
            taken => taken.map_err(|error| self.noted(error)),
        }
    }
}

/// A drain began, or ended.
#[derive(Message)]
#[rtype(result = "()")]
struct SetDraining(bool);

impl Handler<SetDraining> for StorageActor {
    type Result = ();

    fn handle(&mut self, SetDraining(draining): SetDraining, _: &mut Self::Context) {
        self.draining = draining;
        self.tell_if_drained();
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
