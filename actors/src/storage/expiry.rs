//! What the StorageActor does about leases: their timers, and their ends.
//!
//! When a lease ends is [`Leases`](super::leases::Leases)'; what that means is the store's.

use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;
use tracing::warn;

use super::StorageActor;
use crate::model::Attempt;
use crate::store::{Holder, Lost};

/// Delay before an end of a lease that could not be written is tried again, and others with it.
const EXPIRE_RETRY: Duration = Duration::from_secs(1);

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
        let Some(first) = self.leases.first_end() else {
            return;
        };
        let end = first.max(self.lease_pause.unwrap_or(first));
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
        while let Some((attempt, length)) = self.leases.take_ended(now) {
            if !self.end_lease(ctx, attempt, length) {
                // The others would fail as well, each after a wait: they are due again with this one.
                break;
            }
        }
        self.set_lease_timer(ctx);
    }

    /// Ends a lease; one whose end cannot be written is tried again: its key is excluded as long.
    /// False: it failed already.
    fn end_lease(&mut self, ctx: &mut Context<Self>, attempt: Attempt, length: Duration) -> bool {
        let (now, this) = (self.clock.now(), ctx.address());
        let expired = self.mutate(ctx, |store| store.expire(attempt, now));
        let is_done = expired.peek().is_ok();
        expired.then(move |result| match result {
            Ok(Some(lost)) => warn_of(attempt, &lost),
            Ok(None) => {}
            Err(_) => this.do_send(Unexpired { attempt, length }),
        });
        is_done
    }
}

/// Tells the log who lost what.
fn warn_of(attempt: Attempt, lost: &Lost) {
    let Lost { key, worker, dead_letter, single } = lost;
    let (attempt, worker) = (attempt.0, &**worker);
    match (dead_letter, single) {
        (true, true) => {
            warn!(%key, worker, attempt, "Too many leases expired: the single task is dead-lettered. `shiftboss retry` runs it again, `shiftboss cancel` deletes it.");
        }
        (true, false) => {
            warn!(%key, worker, attempt, "Too many leases expired: the task is dead-lettered. It runs again when its fetcher's next list names it, or by `shiftboss retry`.");
        }
        (false, _) => {
            warn!(%key, worker, attempt, "A lease expired: the task waits again, at its old place.");
        }
    }
}

/// The end of a lease could not be written.
#[derive(Message)]
#[rtype(result = "()")]
struct Unexpired {
    attempt: Attempt,
    /// The lease's.
    length: Duration,
}

impl Handler<Unexpired> for StorageActor {
    type Result = ();

    fn handle(&mut self, unexpired: Unexpired, ctx: &mut Self::Context) {
        let Unexpired { attempt, length } = unexpired;
        let later = Instant::now() + EXPIRE_RETRY;
        self.leases.postpone(attempt, length, later);
        self.lease_pause = Some(later);
        if let Some((_, timer)) = self.lease_timer.take() {
            ctx.cancel_future(timer);
        }
        self.set_lease_timer(ctx);
    }
}
