//! What the StorageActor does about leases: their timer, and their ends.
//!
//! When a lease ends is the [`LeaseClock`](super::leases::LeaseClock)'s; what that means is the store's.

use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;
use tracing::warn;

use super::StorageActor;
use crate::store::{Dispatched, Expire, ExpiredLease, LeaseHolder, Leases, StoreResult};
use shiftboss_protocol::model::Attempt;

/// Delay before an end of a lease that could not be written is tried again, and others with it.
const EXPIRE_RETRY: Duration = Duration::from_secs(1);

impl StorageActor {
    /// Has a lease run for every attempt that the store knows as leased: after a restart, and after a
    /// batch that failed, whose ends did not happen.
    pub(super) fn begin_missing_leases(&mut self, ctx: &mut Context<Self>) {
        if !self.leases.take_unsure() {
            return;
        }
        self.submit(ctx, Leases, |actor, _, leases| match leases {
            Ok(leases) => {
                let now = Instant::now();
                for (attempt, seconds) in leases {
                    actor.leases.begin_missing(attempt, seconds_long(seconds), now);
                }
            }
            Err(_) => actor.leases.unsure(),
        });
    }

    /// A job was handed out to somebody who speaks protocol 2.
    pub(super) fn begin_lease(&mut self, dispatched: &Dispatched, holder: &LeaseHolder) {
        if let Dispatched::Job(attempt, _) = dispatched {
            self.leases.begin(*attempt, seconds_long(holder.lease_seconds), Instant::now());
        }
    }

    /// Has the timer ring for the lease that ends first. One that rings too early does no harm.
    pub(super) fn set_lease_timer(&mut self, ctx: &mut Context<Self>) {
        let Some(end) = self.leases.next_end() else {
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
        while let Some((attempt, length)) = self.leases.take_ended(now) {
            self.submit(ctx, Expire(attempt), move |actor, _, expired| {
                actor.lease_ended(attempt, length, expired);
            });
        }
        self.set_lease_timer(ctx);
    }

    /// One whose end cannot be written is tried again: its key is excluded as long.
    fn lease_ended(
        &mut self,
        attempt: Attempt,
        length: Duration,
        expired: StoreResult<Option<ExpiredLease>>,
    ) {
        match expired {
            Ok(Some(lease)) => warn_of(attempt, &lease),
            Ok(None) => {}
            Err(_) => {
                let later = Instant::now() + EXPIRE_RETRY;
                self.leases.postpone(attempt, length, later);
                self.leases.pause(later);
            }
        }
    }
}

fn seconds_long(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Tells the log who lost what.
fn warn_of(attempt: Attempt, lease: &ExpiredLease) {
    let ExpiredLease { key, worker, dead_letter, single } = lease;
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
