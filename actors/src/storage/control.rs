//! Operators' orders, and the drain that one of them begins: nothing is handed out any more, and the daemon
//! stops when no job is in flight.
//!
//! Part of the StorageActor; what a pause means for workers is the store's.

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::info;

use super::StorageActor;
use super::messages::{Change, Controlled};
use super::reply::Deferred;
use crate::store::{CancelTasks, CountInFlight, Requeue, Requeued, Retry, SetPaused, StoreResult};
use shiftboss_protocol::wire::session::Control;

/// Whether a drain is asked for, and who is notified of its end.
pub(super) struct Drain {
    pub(super) is_on: bool,
    drained: Option<oneshot::Sender<()>>,
}

impl Drain {
    pub(super) fn new(drained: oneshot::Sender<()>) -> Self {
        Self { is_on: false, drained: Some(drained) }
    }

    /// So many jobs are in flight.
    fn note(&mut self, in_flight: u64) {
        if self.is_on
            && in_flight == 0
            && let Some(drained) = self.drained.take()
        {
            info!("No job is in flight any more: stopping, as asked.");
            // A tree that is stopping already need not be notified.
            let _ = drained.send(());
        }
    }
}

impl StorageActor {
    pub(super) fn look_whether_drained(&mut self, ctx: &mut Context<Self>) {
        if self.drain.is_on {
            self.submit(ctx, CountInFlight, |actor, _, in_flight| {
                in_flight.into_iter().for_each(|in_flight| actor.drain.note(in_flight));
            });
        }
    }

    /// To resume ends a drain, too.
    fn set_paused(
        &mut self,
        ctx: &mut Context<Self>,
        paused: bool,
        drains: bool,
    ) -> Deferred<StoreResult<Controlled>> {
        let goes_on = paused && self.drain.is_on;
        info!(paused, drains = drains || goes_on, "An operator's order.");
        self.ask(ctx, SetPaused(paused), move |actor, _, set| {
            let in_flight = set?;
            if drains {
                actor.drain.is_on = true;
                actor.drain.note(in_flight);
                return Ok(Controlled::Draining(in_flight));
            }
            actor.drain.is_on &= paused;
            Ok(Controlled::Paused(paused))
        })
    }
}

impl Handler<Change> for StorageActor {
    type Result = Deferred<StoreResult<Controlled>>;

    fn handle(&mut self, Change(control): Change, ctx: &mut Self::Context) -> Self::Result {
        match control {
            Control::Retry(key, fetcher) => {
                let request = Retry { key, fetcher: fetcher.map(Into::into) };
                self.ask(ctx, request, |_, _, rows| rows.map(Controlled::Retried))
            }
            Control::Requeue(key) => {
                self.ask(ctx, Requeue(key.clone()), move |actor, _, requeued| {
                    if let Ok(Requeued::Back(attempt)) = requeued {
                        info!(%key, attempt = attempt.0, "An operator put a job back that was in flight.");
                        actor.leases.end(attempt);
                    }
                    requeued.map(Controlled::Requeued)
                })
            }
            Control::Cancel(key) => {
                self.ask(ctx, CancelTasks(key), |_, _, tasks| tasks.map(Controlled::Cancelled))
            }
            Control::Pause => self.set_paused(ctx, true, false),
            Control::Resume => self.set_paused(ctx, false, false),
            Control::Drain => self.set_paused(ctx, true, true),
        }
    }
}
