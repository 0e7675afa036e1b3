//! One handler a message of the StorageActor: each names what it asks of the store, and what the answer
//! means to the StorageActor itself. Those of operators and of workers that wait are in their modules.

use std::time::Duration;

use actix::prelude::*;
use tokio::time::Instant;
use tracing::{debug, info};

use super::StorageActor;
use super::messages::{
    Finish, HandOut, HowAreYou, Next, Perform, Ping, Shutdown, Stepped, TakeJob, Tell, UndoHandOut,
    Work,
};
use super::reply::{Deferred, deferred};
use crate::live::Health;
use crate::store::{
    Ack, Complete, CompleteAttempt, CountInFlight, Dispatch, Dispatched, Each, Heartbeat,
    LeaseHolder, Probe, Release, Request, StoreResult, Undo,
};
use shiftboss_protocol::model::Attempt;
use shiftboss_protocol::wire::session::Word;

/// Delay before an undo that could not be written is tried again.
const UNDO_RETRY: Duration = Duration::from_secs(1);

impl<R: Request> Handler<Perform<R>> for StorageActor {
    type Result = Deferred<StoreResult<R::Answer>>;

    fn handle(&mut self, Perform(request): Perform<R>, ctx: &mut Self::Context) -> Self::Result {
        self.ask(ctx, request, |_, _, answer| answer)
    }
}

impl StorageActor {
    /// A job that was dispatched is guarded from here on: whoever drops it has it undone. Its lease begins.
    pub(super) fn work(
        &mut self,
        ctx: &mut Context<Self>,
        dispatched: Dispatched,
        holder: Option<&LeaseHolder>,
    ) -> Work {
        match dispatched {
            Dispatched::Job(attempt, job) => {
                if let Some(holder) = holder {
                    self.begin_lease(ctx, attempt, holder.lease_seconds);
                }
                Work::Job(HandOut::new(attempt, job, ctx.address().recipient()))
            }
            Dispatched::Nothing => Work::Nothing,
            Dispatched::Later => Work::Later,
        }
    }
}

impl Handler<TakeJob> for StorageActor {
    type Result = Deferred<StoreResult<Work>>;

    fn handle(&mut self, TakeJob { holder }: TakeJob, ctx: &mut Self::Context) -> Self::Result {
        let request = Dispatch { holder: holder.clone() };
        self.ask(ctx, request, move |actor, ctx, dispatched| {
            Ok(actor.work(ctx, dispatched?, holder.as_ref()))
        })
    }
}

impl Handler<Finish> for StorageActor {
    type Result = Deferred<StoreResult<Work>>;

    fn handle(&mut self, finish: Finish, ctx: &mut Self::Context) -> Self::Result {
        let Finish { key, exit_code } = finish;
        let request = (Complete { key, exit_code }, Dispatch { holder: None });
        self.ask(ctx, request, |actor, ctx, answers| {
            let (completed, dispatched) = answers?;
            let work = dispatched.map(|dispatched| actor.work(ctx, dispatched, None));
            completed.and(work)
        })
    }
}

impl Handler<Next> for StorageActor {
    type Result = Deferred<StoreResult<Stepped>>;

    fn handle(&mut self, next: Next, ctx: &mut Self::Context) -> Self::Result {
        let Next { attempt, exit_code, holder } = next;
        let dispatch = Dispatch { holder: Some(holder.clone()) };
        let request = (CompleteAttempt { attempt, exit_code }, dispatch);
        self.ask(ctx, request, move |actor, ctx, answers| {
            let (ack, dispatched) = answers?;
            let work = dispatched.map(|dispatched| actor.work(ctx, dispatched, Some(&holder)));
            let ack = actor.end_lease(attempt, ack)?;
            Ok(Stepped { ack, work: work? })
        })
    }
}

impl Handler<Tell> for StorageActor {
    type Result = Deferred<StoreResult<Ack>>;

    fn handle(&mut self, Tell { attempt, word }: Tell, ctx: &mut Self::Context) -> Self::Result {
        match word {
            Word::Beat => {
                // At once, so that it cannot expire while the store is asked.
                self.leases.extend(attempt, Instant::now());
                self.ask(ctx, Heartbeat(attempt), |_, _, ack| ack)
            }
            Word::Done(exit_code) => {
                let request = CompleteAttempt { attempt, exit_code };
                self.ask(ctx, request, move |actor, _, ack| actor.end_lease(attempt, ack))
            }
            Word::Release => {
                self.ask(ctx, Release(attempt), move |actor, _, ack| actor.end_lease(attempt, ack))
            }
        }
    }
}

impl StorageActor {
    /// What was said of an attempt, if it is recorded, was its last word.
    fn end_lease(&mut self, attempt: Attempt, ack: StoreResult<Ack>) -> StoreResult<Ack> {
        if ack == Ok(Ack::Recorded) {
            self.leases.end(attempt);
        }
        ack
    }
}

impl Handler<UndoHandOut> for StorageActor {
    type Result = ();

    fn handle(&mut self, message: UndoHandOut, ctx: &mut Self::Context) {
        let UndoHandOut { key, attempt } = message.clone();
        self.submit(ctx, Undo { key, attempt }, move |actor, ctx, undone| match undone {
            Ok(true) => {
                actor.leases.end(attempt);
                info!(attempt = attempt.0, "A job that did not arrive is back in the queue.");
            }
            Ok(false) => debug!(attempt = attempt.0, "Nothing to undo."),
            // In flight otherwise until its lease ends: try until it is written.
            Err(_) => drop(ctx.notify_later(message, UNDO_RETRY)),
        });
    }
}

impl Handler<HowAreYou> for StorageActor {
    type Result = Deferred<StoreResult<Health>>;

    fn handle(&mut self, HowAreYou { lock }: HowAreYou, ctx: &mut Self::Context) -> Self::Result {
        // While it has just been seen that nothing can be written there is nothing to try.
        let probes = if lock && !self.outages.is_fresh() { vec![Probe] } else { vec![] };
        let tried = !probes.is_empty();
        self.ask(ctx, (CountInFlight, Each(probes)), move |actor, _, answers| {
            let (in_flight, _) = answers?;
            if tried {
                actor.outages.unlocked();
            }
            let outage = actor.outages.outage(actor.clock.now());
            Ok(Health { in_flight: in_flight?, draining: actor.drain.is_on, outage })
        })
    }
}

impl Handler<Ping> for StorageActor {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Self::Context) {}
}

impl Handler<Shutdown> for StorageActor {
    type Result = Deferred<StoreResult<()>>;

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) -> Self::Result {
        let (result, reply) = deferred();
        self.closing = Some(reply);
        self.flush_later(ctx);
        result
    }
}
