//! Leases: each attempt that is out expires unless its worker reports in time. The only report of a classic job is its
//! end.
//!
//! Part of the StorageActor. The ends of leases are kept here, in memory and on the monotonic clock; the store knows
//! which attempts are leased, and what an end means.

use std::collections::HashMap;
use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;
use tracing::{info, warn};

use super::StorageActor;
use super::gathered::{BATCH_OPERATIONS_MAX, is_classic_dispatch};
use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::model::LeaseHolder;
use shiftboss_queue::error::{Rejected, StoreResult};
use shiftboss_queue::operation::{
    Ack, Dispatched, Each, Expire, ExpiredLease, Heartbeat, Leases, Operation, Outcome,
    RelayAnswer, Requeued,
};

/// Delay before the ends of leases that could not be written are tried again.
const EXPIRE_RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct LeaseClock {
    running: HashMap<Attempt, Lease>,
    /// All leases that the store knows are running here; false at the start, and after a batch that failed.
    pub(super) is_complete: bool,
    /// Fires when the first lease ends, or earlier.
    timer: Option<(Instant, SpawnHandle)>,
}

struct Lease {
    end: Instant,
    length: Duration,
    /// It runs on the monotonic clock.
    is_steady: bool,
}

impl Lease {
    fn new(seconds: u32, now: Instant) -> Self {
        let length = Duration::from_secs(seconds.into());
        Self { end: now + length, length, is_steady: true }
    }

    /// It runs on the wall clock: a classic job's, or one that may be.
    fn by_the_clock(self) -> Self {
        Self { is_steady: false, ..self }
    }
}

impl LeaseClock {
    pub(super) fn count(&self) -> u64 {
        self.running.len() as u64
    }

    /// Begins a lease anew, if it runs.
    fn extend(&mut self, attempt: Attempt, now: Instant) {
        if let Some(lease) = self.running.get_mut(&attempt) {
            lease.end = now + lease.length;
        }
    }

    /// A worker's report begins its lease anew.
    pub(super) fn note_beats(&mut self, operations: &[Operation], now: Instant) {
        for operation in operations {
            if let Operation::Heartbeat(Heartbeat(attempt)) = operation {
                self.extend(*attempt, now);
            }
        }
    }

    pub(super) fn end(&mut self, attempt: Attempt) {
        self.running.remove(&attempt);
    }

    /// The wall clock was set: the store knows the new ends of leases that run on it.
    pub(super) fn note_clock_step(&mut self) {
        self.running.retain(|_, lease| lease.is_steady);
        self.is_complete = false;
    }

    fn first_end(&self) -> Option<Instant> {
        self.running.values().map(|lease| lease.end).min()
    }

    /// Leases that have ended, as many as share a batch. They stay running until their ends are written.
    fn ended(&self, now: Instant) -> Vec<Attempt> {
        let ended = self.running.iter().filter(|(_, lease)| lease.end <= now);
        let mut ended: Vec<_> = ended.map(|(attempt, lease)| (lease.end, *attempt)).collect();
        ended.sort_unstable();
        ended.into_iter().map(|(_, attempt)| attempt).take(BATCH_OPERATIONS_MAX).collect()
    }
}

impl StorageActor {
    /// Stops the leases of attempts that have ended, and starts those that came from elsewhere. Wakes heartbeats that
    /// wait.
    pub(super) fn note_leases(
        &mut self,
        ctx: &mut Context<Self>,
        operation: &Operation,
        outcome: &Outcome,
    ) {
        let ended = match (operation, outcome) {
            (Operation::CompleteAttempt(it), Outcome::CompleteAttempt(Ack::Recorded)) => it.attempt,
            (Operation::Release(it), Outcome::Release(Ack::Recorded)) => it.0,
            (Operation::Undo(it), Outcome::Undo(true)) => it.attempt,
            (Operation::Requeue(it), Outcome::Requeue(Requeued::Back(attempt))) => {
                let (key, attempt) = (&it.0, *attempt);
                info!(%key, attempt = attempt.0, "An operator put a job back that was in flight.");
                attempt
            }
            (Operation::Heartbeat(it), Outcome::Heartbeat(Ack::Recorded | Ack::Stopping)) => {
                self.leases.is_complete &= self.leases.running.contains_key(&it.0);
                return;
            }
            (Operation::Stop(_), outcome) => return self.note_stop(outcome),
            (Operation::LoseRelay(_), Outcome::LoseRelay(Some(_))) => {
                self.leases.is_complete = false;
                return;
            }
            (Operation::Relayed(it), Outcome::Relayed(RelayAnswer::Answered(outcomes))) => {
                outcomes.iter().flatten().for_each(|outcome| self.note_stop(outcome));
                return self.begin_relayed_leases(ctx, &it.operations, outcomes);
            }
            _ => return,
        };
        self.end_lease(ended);
    }

    fn end_lease(&mut self, attempt: Attempt) {
        self.leases.end(attempt);
        self.stops.end(attempt, Ack::Stale);
    }

    /// Jobs without leases of their own expire here, whichever relay passed them on.
    fn begin_relayed_leases(
        &mut self,
        ctx: &mut Context<Self>,
        operations: &[Operation],
        outcomes: &[Result<Outcome, Rejected>],
    ) {
        let Some(seconds) = self.classic_lease else { return };
        for (_, outcome) in operations.iter().zip(outcomes).filter(|it| is_classic_dispatch(it.0)) {
            if let Ok(Outcome::Dispatch(Dispatched::Job(attempt, _, _))) = outcome {
                self.begin_lease(ctx, *attempt, Lease::new(seconds, Instant::now()).by_the_clock());
            }
        }
    }

    /// Starts a lease for every attempt that the store knows as leased.
    pub(super) fn begin_missing_leases(&mut self, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.leases.is_complete, true) {
            return;
        }
        self.submit(ctx, Leases, |actor, ctx, leases| match leases {
            Ok(leases) => {
                let now = Instant::now();
                for (attempt, seconds) in leases {
                    let lease = Lease::new(seconds, now).by_the_clock();
                    actor.leases.running.entry(attempt).or_insert(lease);
                }
                actor.set_lease_timer(ctx, now);
            }
            Err(_) => actor.leases.is_complete = false,
        });
    }

    pub(super) fn begin_its_lease(
        &mut self,
        ctx: &mut Context<Self>,
        attempt: Attempt,
        holder: Option<&LeaseHolder>,
    ) {
        let now = Instant::now();
        let classic = || Some(Lease::new(self.classic_lease?, now).by_the_clock());
        let leased = holder.map(|holder| Lease::new(holder.lease_seconds, now));
        if let Some(lease) = leased.or_else(classic) {
            self.begin_lease(ctx, attempt, lease);
        }
    }

    fn begin_lease(&mut self, ctx: &mut Context<Self>, attempt: Attempt, lease: Lease) {
        self.ring_at(ctx, lease.end);
        self.leases.running.insert(attempt, lease);
    }

    /// Sets the timer to the lease that ends first, but not before `earliest`.
    fn set_lease_timer(&mut self, ctx: &mut Context<Self>, earliest: Instant) {
        if let Some(end) = self.leases.first_end() {
            self.ring_at(ctx, end.max(earliest));
        }
    }

    /// Has the timer fire at `end`, or earlier.
    fn ring_at(&mut self, ctx: &mut Context<Self>, end: Instant) {
        match self.leases.timer {
            Some((set, _)) if set <= end => return,
            Some((_, timer)) => ctx.cancel_future(timer),
            None => false,
        };
        let wait = end.saturating_duration_since(Instant::now());
        self.leases.timer = Some((end, ctx.run_later(wait, Self::end_leases)));
    }

    fn end_leases(&mut self, ctx: &mut Context<Self>) {
        self.leases.timer = None;
        let now = Instant::now();
        let ended = self.leases.ended(now);
        if ended.is_empty() {
            return self.set_lease_timer(ctx, now);
        }
        let expire = Each(ended.iter().copied().map(Expire).collect());
        self.submit(ctx, expire, move |actor, ctx, expired| {
            actor.leases_ended(ctx, &ended, expired.unwrap_or_default());
        });
    }

    /// Ends that could not be written are tried again together: the database may be locked. Meanwhile a worker's report
    /// still extends its lease.
    fn leases_ended(
        &mut self,
        ctx: &mut Context<Self>,
        ended: &[Attempt],
        expired: Vec<StoreResult<Option<ExpiredLease>>>,
    ) {
        let mut written = 0;
        for (attempt, expired) in ended.iter().zip(expired) {
            let Ok(expired) = expired else { continue };
            written += 1;
            self.end_lease(*attempt);
            expired.iter().for_each(|lease| warn_of(*attempt, lease));
        }
        let pause = if written == ended.len() { Duration::ZERO } else { EXPIRE_RETRY };
        self.set_lease_timer(ctx, Instant::now() + pause);
    }
}

fn warn_of(attempt: Attempt, lease: &ExpiredLease) {
    let ExpiredLease { key, worker, dead_letter, cancelled, single } = lease;
    let (attempt, worker) = (attempt.0, &**worker);
    match (dead_letter, single) {
        (true, true) => {
            warn!(%key, worker, attempt, "Too many leases expired: the single task is dead-lettered. `shiftboss retry` runs it again, `shiftboss cancel` deletes it.");
        }
        (true, false) => {
            warn!(%key, worker, attempt, "Too many leases expired: the task is dead-lettered. It runs again when its fetcher's next list names it, or by `shiftboss retry`.");
        }
        (false, _) if *cancelled => {
            warn!(%key, worker, attempt, "The lease of a job expired that was to stop: it is cancelled.");
        }
        (false, _) => {
            warn!(%key, worker, attempt, "A lease expired: the task waits again, at its old place.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leases end in the order of their ends, unless they were extended or ended before.
    #[test]
    fn leases_end_in_order() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut leases = LeaseClock::default();
        for (attempt, seconds) in [(1, 10), (2, 5), (3, 5), (4, 7)] {
            leases.running.insert(Attempt(attempt), Lease::new(seconds, start));
        }
        assert_eq!(leases.first_end(), Some(start + second * 5));
        assert_eq!(leases.ended(start + second * 4), []);
        leases.extend(Attempt(2), start + second * 3);
        leases.extend(Attempt(9), start);
        leases.end(Attempt(4));
        assert_eq!(leases.ended(start + second * 20), [3, 2, 1].map(Attempt));
        assert_eq!(leases.ended(start + second * 8), [3, 2].map(Attempt));
        assert_eq!(leases.running.len(), 3);
    }
}
