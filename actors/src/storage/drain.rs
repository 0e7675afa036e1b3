//! A drain: nothing is handed out any more, and the daemon stops when no job is in flight.
//!
//! Part of the StorageActor; what a drain means for workers is the store's pause.

use actix::prelude::*;
use tokio::sync::oneshot;
use tracing::info;

use super::StorageActor;
use crate::store::CountInFlight;

/// Whether one is asked for, and who is notified of its end.
pub(super) struct Drain {
    pub(super) is_on: bool,
    drained: Option<oneshot::Sender<()>>,
}

impl Drain {
    pub(super) fn new(drained: oneshot::Sender<()>) -> Self {
        Self { is_on: false, drained: Some(drained) }
    }

    /// So many jobs are in flight.
    pub(super) fn note(&mut self, in_flight: u64) {
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
