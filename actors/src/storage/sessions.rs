//! What the StorageActor does for protocol 2: leases that run, workers that wait, operators'
//! changes.
//!
//! Handlers of [`Wait`], [`Tell`] and [`Change`], and the timers behind them. What a word means is the
//! store's; when a lease ends is [`Leases`](super::leases::Leases)'.

use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;
use tracing::{info, warn};

use super::messages::{Change, Controlled, Next, Tell, Wait};
use super::reply::{Deferred, Dispatched};
use super::waiting::{Place, Waiter};
use super::{IDLE_TICK, StorageActor};
use crate::model::Attempt;
use crate::store::{self, Holder, Lost, StoreResult, Told};
use crate::wire::session::{Control, Word};

/// Delay before an end of a lease that could not be written is tried again.
const EXPIRE_RETRY: Duration = Duration::from_secs(1);
/// Pause before those who wait are served again while a deletion is getting on.
const LATER_PAUSE: Duration = Duration::from_millis(20);

impl StorageActor {
    /// Has a lease run for every attempt that the store knows as leased: after a restart, and after a
    /// transaction that failed, whose ends did not happen.
    pub(super) fn begin_missing_leases(&mut self, ctx: &mut Context<Self>) {
        if !self.leases_unsure {
            return;
        }
        match self.store.leases() {
            Ok(leases) => {
                self.leases_unsure = false;
                let now = Instant::now();
                for (attempt, seconds) in leases {
                    let length = Duration::from_secs(seconds.into());
                    self.leases.begin_missing(attempt, length, now);
                }
                self.set_lease_timer(ctx);
            }
            Err(error) => {
                self.noted(error);
            }
        }
    }

    pub(super) fn begin_lease(
        &mut self,
        ctx: &mut Context<Self>,
        attempt: Option<Attempt>,
        holder: &Holder,
    ) {
        if let Some(attempt) = attempt {
            let length = Duration::from_secs(holder.lease_seconds.into());
            self.leases.begin(attempt, length, Instant::now());
            self.set_lease_timer(ctx);
        }
    }

    /// Has the timer ring for the lease that ends first. One that rings too early does no harm.
    fn set_lease_timer(&mut self, ctx: &mut Context<Self>) {
        let Some(end) = self.leases.first_end() else {
            return;
        };
        match self.lease_timer {
            Some((set, _)) if set <= end => return,
            Some((_, timer)) => ctx.cancel_future(timer),
            None => false,
        };
        let wait = end.saturating_duration_since(Instant::now());
        self.lease_timer = Some((end, ctx.run_later(wait, Self::end_leases)));
    }

    fn end_leases(&mut self, ctx: &mut Context<Self>) {
        self.lease_timer = None;
        let now = Instant::now();
        while let Some(attempt) = self.leases.take_ended(now) {
            self.end_lease(ctx, attempt);
        }
        self.set_lease_timer(ctx);
    }

    fn end_lease(&mut self, ctx: &mut Context<Self>, attempt: Attempt) {
        let (now, this) = (self.clock.now(), ctx.address());
        let expired = self.mutate(ctx, |store| store.expire(attempt, now));
        expired.then(move |result| match result {
            Ok(Some(lost)) => tell_of(attempt, &lost),
            Ok(None) => {}
            // Tried until it is written: the key is excluded as long.
            Err(_) => this.do_send(Unexpired(attempt)),
        });
    }

    /// Gives those who wait what there is, the longest waiting first.
    pub(super) fn serve_waiting(&mut self, ctx: &mut Context<Self>) {
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
                ctx.run_later(LATER_PAUSE, Self::rouse);
            }
            Ok(store::Dispatch::Job(..)) | Err(_) => taken.then(move |result| {
                // Who gave up in this very moment drops the job, which undoes itself.
                let _ = waiter.reply.send(result.map(Into::into));
            }),
        }
    }

    fn rouse(&mut self, ctx: &mut Context<Self>) {
        self.roused = true;
        self.serve_waiting(ctx);
    }

    /// Others may have written to the database, and leases of classic jobs run out in silence.
    pub(super) fn look_for_waiting(&mut self, ctx: &mut Context<Self>) {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(LOOK_TICKS) {
            if self.waiting.are_any() {
                self.rouse(ctx);
            }
            self.tell_if_drained();
        }
    }

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

/// Those who wait are served without a reason at every second tick.
const LOOK_TICKS: u32 = 2;
const _: () = assert!(IDLE_TICK.as_millis() * (LOOK_TICKS as u128) < 1000);

fn tell_of(attempt: Attempt, lost: &Lost) {
    let Lost { key, worker, parked } = lost;
    let (attempt, worker) = (attempt.0, &**worker);
    if *parked {
        warn!(%key, worker, attempt, "A lease ran out once too often: the job is parked until its fetcher's next run, or `shiftboss retry`.");
    } else {
        warn!(%key, worker, attempt, "A lease ran out: the job is back in the queue.");
    }
}

/// The end of a lease could not be written.
#[derive(Message)]
#[rtype(result = "()")]
struct Unexpired(Attempt);

impl Handler<Unexpired> for StorageActor {
    type Result = ();

    fn handle(&mut self, Unexpired(attempt): Unexpired, ctx: &mut Self::Context) {
        self.leases.begin(attempt, EXPIRE_RETRY, Instant::now());
        self.set_lease_timer(ctx);
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
                self.leases.extend(attempt, Instant::now());
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

    fn drain(&mut self, ctx: &mut Context<Self>) -> Deferred<Controlled> {
        self.draining = true;
        info!(
            "An operator's order: nothing is handed out, and the daemon stops when no job is out."
        );
        let now = self.clock.now();
        self.mutate(ctx, |store| {
            store.set_paused(true)?;
            store.in_flight(now).map(Controlled::Draining)
        })
    }
}

impl Handler<Change> for StorageActor {
    type Result = Deferred<Controlled>;

    fn handle(&mut self, Change(control): Change, ctx: &mut Self::Context) -> Self::Result {
        match control {
            Control::Retry(key) => {
                self.mutate(ctx, |store| store.retry(&key).map(Controlled::Retried))
            }
            Control::Pause => self.set_paused(ctx, true),
            Control::Resume => {
                self.draining = false;
                self.set_paused(ctx, false)
            }
            Control::Drain => self.drain(ctx),
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
