//! Heartbeats that wait (`BEAT attempt seconds`): each is answered when its job is to stop, or is the worker's no
//! longer.
//!
//! Part of the StorageActor. What happens here is noticed at once. What happens elsewhere is looked for after the store
//! has reported a change, and for beats that have just begun to wait, because it may have happened since they were
//! recorded; once a [`LOOK_TICK`](super::LOOK_TICK) at most, however much changes.

use std::collections::HashMap;

use actix::prelude::*;

use super::StorageActor;
use super::messages::WaitForStop;
use super::reply::{Deferred, Reply, deferred};
use shiftboss_protocol::model::Attempt;
use shiftboss_queue::operation::{Ack, Outcome, Stopped, Stops};

#[derive(Default)]
pub(super) struct StopWaits {
    /// Closed when the worker gave up.
    waiting: HashMap<Attempt, Reply<Ack>>,
    pub(super) is_look_due: bool,
}

impl StopWaits {
    fn begin(&mut self, attempt: Attempt, reply: Reply<Ack>) {
        self.is_look_due = true;
        // Its worker waits anew, over another connection.
        if let Some(before) = self.waiting.insert(attempt, reply) {
            before.send(Ack::Recorded);
        }
    }

    pub(super) fn end(&mut self, attempt: Attempt, answer: Ack) {
        if let Some(reply) = self.waiting.remove(&attempt) {
            reply.send(answer);
        }
    }

    /// Whether to look; drops workers that gave up.
    fn take_look(&mut self) -> bool {
        self.waiting.retain(|_, reply| !reply.is_closed());
        std::mem::take(&mut self.is_look_due) && !self.waiting.is_empty()
    }
}

impl StorageActor {
    /// Has a job's worker stop it, and daemons and relays look for theirs.
    pub(super) fn note_stop(&mut self, outcome: &Outcome) {
        if let Outcome::Stop(Stopped::Asked { attempt, .. }) = outcome {
            self.stops.end(*attempt, Ack::Stopping);
            self.tell_followers();
        }
    }

    pub(super) fn look_for_stops(&mut self, ctx: &mut Context<Self>) {
        if self.stops.take_look() {
            self.submit(ctx, Stops, |actor, _, found| match found {
                Ok(stops) => stops.into_iter().for_each(|it| actor.stops.end(it, Ack::Stopping)),
                Err(_) => actor.stops.is_look_due = true,
            });
        }
    }
}

impl Handler<WaitForStop> for StorageActor {
    type Result = Deferred<Ack>;

    fn handle(&mut self, WaitForStop(attempt): WaitForStop, _: &mut Context<Self>) -> Self::Result {
        let (result, reply) = deferred();
        self.stops.begin(attempt, reply);
        result
    }
}
