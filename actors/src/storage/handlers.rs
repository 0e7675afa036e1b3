//! One handler for each message of the StorageActor: it names what it asks of the store, and what the answer means to
//! the StorageActor itself. Those for waiting workers are in their own module.

use std::time::Duration;

use actix::prelude::*;
use tracing::{debug, info};

use super::StorageActor;
use super::messages::{
    FollowWork, HandOut, HowAreYou, Pause, Perform, Ping, RunsChanged, Shutdown, TakeJob,
    UndoHandOut, Work,
};
use super::reply::{Deferred, deferred};
use shiftboss_protocol::answers::live::Health;
use shiftboss_protocol::model::LeaseHolder;
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::operation::{
    CountInFlight, Dispatched, Drain, Each, Probe, Request, SetPaused, Undo,
};

/// Delay before an undo that could not be written is tried again.
const UNDO_RETRY: Duration = Duration::from_secs(1);

/// The operator's word for it.
fn order(paused: bool, drains: bool) -> &'static str {
    match (paused, drains) {
        (_, true) => "drain",
        (true, false) => "pause",
        (false, false) => "resume",
    }
}

impl<R: Request> Handler<Perform<R>> for StorageActor {
    type Result = Deferred<StoreResult<R::Answer>>;

    fn handle(&mut self, Perform(request): Perform<R>, ctx: &mut Self::Context) -> Self::Result {
        self.ask(ctx, request, |_, _, answer| answer)
    }
}

impl StorageActor {
    /// Guards a dispatched job from here on: if the guard is dropped, the job is undone. Its lease begins.
    pub(super) fn work(
        &mut self,
        ctx: &mut Context<Self>,
        dispatched: Dispatched,
        holder: Option<&LeaseHolder>,
    ) -> Work {
        match dispatched {
            Dispatched::Job(attempt, job, about) => {
                self.begin_its_lease(ctx, attempt, holder);
                Work::Job(HandOut::new(attempt, job, about, ctx.address().recipient()))
            }
            Dispatched::Nothing => Work::Nothing,
            Dispatched::Later => Work::Later,
        }
    }

    /// If the daemon drains, checks whether the last job has ended.
    pub(super) fn look_whether_drained(&mut self, ctx: &mut Context<Self>) {
        if self.drains {
            self.submit(ctx, CountInFlight, |actor, _, in_flight| {
                in_flight.into_iter().for_each(|in_flight| actor.note_in_flight(in_flight));
            });
        }
    }

    fn note_in_flight(&mut self, in_flight: u64) {
        if self.drains && in_flight == 0 && self.end.is_some() {
            info!("No job is in flight any more: stopping, as asked.");
            self.tell_end(Ok(()));
        }
    }
}

impl<R: Request> Handler<TakeJob<R>> for StorageActor {
    type Result = Deferred<StoreResult<(R::Answer, Work)>>;

    fn handle(&mut self, message: TakeJob<R>, ctx: &mut Self::Context) -> Self::Result {
        let TakeJob { ended, next } = message;
        let holder = next.holder.clone();
        let request = (ended, next);
        self.ask(ctx, request, move |actor, ctx, answers| {
            let (ended, dispatched) = answers?;
            let work = dispatched.map(|dispatched| actor.work(ctx, dispatched, holder.as_ref()));
            Ok((ended?, work?))
        })
    }
}

impl Handler<UndoHandOut> for StorageActor {
    type Result = ();

    fn handle(&mut self, message: UndoHandOut, ctx: &mut Self::Context) {
        let UndoHandOut { key, attempt } = message.clone();
        self.submit(ctx, Undo { key, attempt }, move |_, ctx, undone| match undone {
            Ok(true) => {
                info!(attempt = attempt.0, "A job that did not arrive is back in the queue.");
            }
            Ok(false) => debug!(attempt = attempt.0, "Nothing to undo."),
            // Otherwise the job would be in flight until its lease ends: retry until it is written.
            Err(_) => drop(ctx.notify_later(message, UNDO_RETRY)),
        });
    }
}

impl Handler<Pause> for StorageActor {
    type Result = Deferred<StoreResult<u64>>;

    /// Resuming ends a drain, too.
    fn handle(&mut self, message: Pause, ctx: &mut Self::Context) -> Self::Result {
        let Pause { paused, drains } = message;
        let obeyed = move |actor: &mut Self, _: &mut Context<Self>, in_flight: StoreResult<u64>| {
            let in_flight = in_flight?;
            actor.drains = drains || (paused && actor.drains);
            info!(order = order(paused, drains), "An operator's order.");
            actor.note_in_flight(in_flight);
            Ok(in_flight)
        };
        match drains {
            true => self.ask(ctx, Drain, obeyed),
            false => self.ask(ctx, SetPaused(paused), obeyed),
        }
    }
}

impl Handler<HowAreYou> for StorageActor {
    type Result = Deferred<StoreResult<Health>>;

    fn handle(&mut self, HowAreYou { lock }: HowAreYou, ctx: &mut Self::Context) -> Self::Result {
        // A server that is away is not asked: the answer would be as late as its own.
        if let Some(outage) = self.outages.outage(self.clock.now()).filter(|_| self.is_remote) {
            let (in_flight, draining) = (self.leases.count(), self.drains);
            let health = Health { in_flight, draining, outage: Some(outage) };
            let (result, reply) = deferred();
            reply.send(Ok(health));
            return result;
        }
        // If a write has only just failed, there is no point in another try.
        let probes = if lock && !self.outages.is_fresh() { vec![Probe] } else { vec![] };
        let tried = !probes.is_empty();
        self.ask(ctx, (CountInFlight, Each(probes)), move |actor, _, answers| {
            if tried && answers.is_ok() {
                actor.outages.unlocked();
            }
            let outage = actor.outages.outage(actor.clock.now());
            let in_flight = match answers {
                Ok((in_flight, _)) => in_flight?,
                // The store cannot be asked, but the leases are known without it.
                Err(_) if outage.is_some() => actor.leases.count(),
                Err(error) => return Err(error),
            };
            Ok(Health { in_flight, draining: actor.drains, outage })
        })
    }
}

impl Handler<RunsChanged> for StorageActor {
    type Result = Deferred<()>;

    /// Answered once the result is in place.
    fn handle(&mut self, _: RunsChanged, _: &mut Self::Context) -> Self::Result {
        let (result, reply) = deferred();
        self.runs_changed.asked = Some(reply);
        self.runs_changed.tell();
        result
    }
}

impl Handler<FollowWork> for StorageActor {
    type Result = ();

    fn handle(&mut self, FollowWork(notify): FollowWork, _: &mut Self::Context) {
        self.work_followers.push(notify);
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
