//! The drain that an operator begins: nothing is handed out any more, and the daemon stops when no job is in
//! flight.
//!
//! Part of the StorageActor; what a pause means for workers is the store's.

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::info;

use super::StorageActor;
use super::messages::Pause;
use super::reply::Deferred;
use crate::store::{CountInFlight, SetPaused, StoreResult};

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
}

impl Handler<Pause> for StorageActor {
    type Result = Deferred<StoreResult<u64>>;

    /// To resume ends a drain, too.
    fn handle(&mut self, message: Pause, ctx: &mut Self::Context) -> Self::Result {
        let Pause { paused, drains } = message;
        info!(paused, drains = drains || (paused && self.drain.is_on), "An operator's order.");
        self.ask(ctx, SetPaused(paused), move |actor, _, set| {
            let in_flight = set?;
            actor.drain.is_on = drains || (paused && actor.drain.is_on);
            actor.drain.note(in_flight);
            Ok(in_flight)
        })
    }
}
