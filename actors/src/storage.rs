//! StorageActor: owns the one [`Store`], serializes every mutation, commits in groups.
//!
//! It lives alone on its own Arbiter, or on the main thread if the store waits for a server. Connections, the watcher
//! and the tails send it messages; it sends none. Requests are [gathered] until the mailbox is empty, or while a batch
//! is under way. Then the store carries them out as one transaction, and only when that is durable are they answered:
//! *a reply means it is on disk*. A store that blocks blocks right here, and the mailbox gathers meanwhile.
//!
//! It knows no SQL and no socket. The messages are in [`messages`].

mod company;
mod due_times;
mod gathered;
mod handlers;
mod housekeeping;
mod leases;
pub mod messages;
mod outages;
mod reply;
#[cfg(test)]
mod session_tests;
mod stops;
#[cfg(test)]
mod tests;
mod waiting;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use actix::prelude::*;
use shiftboss_protocol::answers::live::Failing;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::store::{Changed, Checkpoint, Store};
use company::Company;
use due_times::ClockSteps;
use gathered::{Gathered, Replies};
use housekeeping::Housekeeping;
use leases::LeaseClock;
use outages::Outages;
use reply::{Deferred, Reply, deferred};
use shiftboss_queue::error::{Rejected, StoreResult};
use shiftboss_queue::operation::{Dispatched, Outcome, Request};
use stops::StopWaits;
use waiting::WaitQueue;

const IDLE_TICK: Duration = Duration::from_millis(250);
/// How often to look whether time alone has brought work: leases of classic jobs expire in silence, and holds end.
/// Documented as one second.
const LOOK_TICK: Duration = Duration::from_millis(800);

pub struct StorageActor {
    store: Option<Box<dyn Store>>,
    /// The store is on a server, where other daemons use the same queue.
    is_remote: bool,
    clock: Box<dyn Clock>,
    clock_steps: ClockSteps,
    gathered: Gathered,
    company: Company,
    metrics: Arc<Metrics>,
    flushing: bool,
    /// A delayed flush is scheduled.
    lingering: bool,
    housekeeping: Housekeeping,
    outages: Outages,
    leases: LeaseClock,
    /// The lease of [jobs without one of their own](Store::classic_lease).
    classic_lease: Option<u32>,
    waiting: WaitQueue,
    stops: StopWaits,
    runs_changed: RunsChange,
    work_followers: Vec<Arc<Notify>>,
    /// An operator has asked the daemon to stop once none of its jobs is in flight.
    drains: bool,
    /// Set when asked to close; answered when the store is closed.
    closing: Option<Reply<StoreResult<()>>>,
    /// Sent once: the error that ends the process, or that a drain is over because no job is in flight.
    end: Option<oneshot::Sender<StoreResult<()>>>,
}

/// Whether runs may belong to another daemon by now; reset once the watcher knows.
#[derive(Default)]
struct RunsChange {
    happened: bool,
    /// The watcher's request, answered when it happens.
    asked: Option<Reply<()>>,
}

impl StorageActor {
    /// Takes the store over. `end` is sent when the store cannot go on, and when a drain is over: no job is in flight.
    pub fn new(
        store: Box<dyn Store>,
        clock: Box<dyn Clock>,
        metrics: Arc<Metrics>,
        end: oneshot::Sender<StoreResult<()>>,
    ) -> Self {
        Self {
            is_remote: store.is_remote(),
            clock,
            clock_steps: ClockSteps::default(),
            gathered: Gathered::default(),
            company: Company::default(),
            metrics,
            flushing: false,
            lingering: false,
            housekeeping: Housekeeping::new(),
            outages: Outages::new(),
            leases: LeaseClock::default(),
            classic_lease: store.classic_lease(),
            waiting: WaitQueue::default(),
            stops: StopWaits::default(),
            runs_changed: RunsChange::default(),
            work_followers: Vec::new(),
            drains: false,
            closing: None,
            end: Some(end),
            store: Some(store),
        }
    }

    /// Reports that the actor's work is over, or cannot go on. Only the first call counts.
    fn tell_end(&mut self, end: StoreResult<()>) {
        if let Some(told) = self.end.take() {
            // A tree that is stopping already need not be notified.
            let _ = told.send(end);
        }
    }

    /// Adds a request to the next batch; `then` gets its answer once that is durable.
    fn submit<R: Request>(
        &mut self,
        ctx: &mut Context<Self>,
        request: R,
        then: impl FnOnce(&mut Self, &mut Context<Self>, StoreResult<R::Answer>) + 'static,
    ) {
        let reply = move |actor: &mut Self, ctx: &mut Context<Self>, outcomes: StoreResult<_>| {
            // If the batch failed as a whole, the caller has noted that once.
            let answer = outcomes.and_then(|mut outcomes| {
                R::answer(&mut outcomes).inspect_err(|error| actor.note(error))
            });
            then(actor, ctx, answer);
        };
        let mut operations = Vec::new();
        request.push(&mut operations);
        // At once: a lease cannot expire while the store is asked about its beat.
        self.leases.note_beats(&operations, Instant::now());
        self.gathered.push(operations, Box::new(reply));
        self.flush_later(ctx);
    }

    /// Asks the store on behalf of a message; `answer` turns the store's answer into the message's.
    fn ask<R: Request, T: 'static>(
        &mut self,
        ctx: &mut Context<Self>,
        request: R,
        answer: impl FnOnce(&mut Self, &mut Context<Self>, StoreResult<R::Answer>) -> T + 'static,
    ) -> Deferred<T> {
        let (result, reply) = deferred();
        self.submit(ctx, request, move |actor, ctx, answered| {
            let value = answer(actor, ctx, answered);
            reply.send(value);
        });
        result
    }

    /// Has the store called when the mailbox is empty: all that is queued by then shares the batch.
    fn flush_later(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.flushing, true) {
            ctx.spawn(fut::ready(()).map(|(), actor: &mut Self, ctx| {
                actor.flushing = false;
                actor.flush(ctx);
            }));
        }
    }

    fn flush(&mut self, ctx: &mut Context<Self>) {
        let Some(hand_outs_max) = self.store.as_ref().map(|store| store.hand_outs_max()) else {
            return; // The call under way flushes again when it ends.
        };
        if self.gathered.is_empty() {
            return self.close(ctx);
        }
        if self.waits_for_company(ctx) {
            return;
        }
        let now = self.clock.millis();
        let (batch, replies) = self.gathered.take(hand_outs_max);
        // A batch that only reads does not wait for the lock that following the clock may need. At the start (a step of
        // 0) it needs one only once.
        let step = self.clock_step().filter(|step| replies.writes || step.by == 0);
        let begun = Instant::now();
        let apply = async move |store: &mut dyn Store| {
            let followed = match step {
                Some(step) => {
                    Some((step, store.follow_clock(now, step.by.saturating_mul(1_000)).await))
                }
                None => None,
            };
            let outcomes = match &followed {
                // Due times would be compared with a clock that the store does not follow yet.
                Some((_, Err(error))) => Err(error.clone()),
                _ => store.apply(now, batch).await,
            };
            (followed, outcomes, store.take_ends())
        };
        self.call(ctx, apply, move |actor, ctx, (followed, outcomes, ends)| {
            followed.into_iter().for_each(|(step, followed)| actor.note_step(ctx, step, followed));
            ends.iter().for_each(|end| actor.leases.end(end.attempt));
            if let Ok(outcomes) = &outcomes
                && replies.writes
            {
                let now = now.div_euclid(1_000);
                for it in actor.metrics.committed(outcomes, &ends, begun.elapsed(), now) {
                    let Failing { kind, name, jobs } = it;
                    warn!(
                        ?kind,
                        name,
                        "The last {jobs} jobs failed: something that they need may be broken."
                    );
                }
            }
            actor.applied(ctx, replies, outcomes);
        });
    }

    fn expect_company(&mut self, outcomes: &StoreResult<Vec<Result<Outcome, Rejected>>>) {
        if self.is_remote {
            let is_job = |outcome: &&Result<Outcome, Rejected>| {
                matches!(outcome, Ok(Outcome::Dispatch(Dispatched::Job(..))))
            };
            let jobs = outcomes.iter().flatten().filter(is_job).count();
            let gathered = self.gathered.requests().unwrap_or_default();
            self.company.answered(jobs, gathered, Instant::now());
        }
    }

    /// Whether the next batch waits for more requests; each request, and the end of the wait, calls
    /// [`flush`](Self::flush) again.
    fn waits_for_company(&mut self, ctx: &mut Context<Self>) -> bool {
        let is_small = self.gathered.requests().filter(|_| self.closing.is_none());
        let wait = is_small.and_then(|requests| self.company.wait(requests, Instant::now()));
        if let Some(wait) = wait.filter(|_| !std::mem::replace(&mut self.lingering, true)) {
            ctx.run_later(wait, |actor, ctx| {
                actor.lingering = false;
                actor.flush(ctx);
            });
        }
        wait.is_some()
    }

    /// Has the store do something. Nothing else is asked of the store before `then`.
    fn call<T: 'static>(
        &mut self,
        ctx: &mut Context<Self>,
        work: impl AsyncFnOnce(&mut dyn Store) -> T + 'static,
        then: impl FnOnce(&mut Self, &mut Context<Self>, T) + 'static,
    ) {
        let Some(mut store) = self.store.take() else {
            return;
        };
        let worked = async move {
            let result = work(&mut *store).await;
            (store, result)
        };
        ctx.spawn(worked.into_actor(self).map(|(store, result), actor, ctx| {
            actor.store = Some(store);
            then(actor, ctx, result);
        }));
    }

    fn close(&mut self, ctx: &mut Context<Self>) {
        if let Some(reply) = self.closing.take() {
            self.call(
                ctx,
                async |store| store.close().await,
                |_, ctx, closed| {
                    reply.send(closed);
                    ctx.stop();
                },
            );
        }
    }

    /// A batch is durable, or nothing of it has happened.
    fn applied(
        &mut self,
        ctx: &mut Context<Self>,
        replies: Replies,
        outcomes: StoreResult<Vec<Result<Outcome, Rejected>>>,
    ) {
        debug!(messages = replies.len(), ok = outcomes.is_ok(), "Committed.");
        // A file can be read even if it cannot be written; a server that does not answer a read is away.
        let shows_outages = replies.writes || self.is_remote;
        if let Err(error) = &outcomes {
            self.leases.is_complete = false;
            // A failed batch of reads alone is not an outage of a file.
            if shows_outages || error.is_fatal() {
                self.note(error);
            }
        } else if shows_outages {
            self.housekeeping.committed();
            self.outages.succeeded();
        }
        let makes_work = replies.makes_work && outcomes.is_ok();
        self.expect_company(&outcomes);
        replies.send(self, ctx, outcomes);
        if makes_work {
            self.waiting.wake();
            self.tell_followers();
        }
        self.serve_waiting(ctx);
        self.flush_later(ctx);
    }

    fn tell_followers(&self) {
        self.work_followers.iter().for_each(|follower| follower.notify_one());
    }

    /// Brings the main file up to date when nothing happens, and looks after the files at times.
    fn maintain(&mut self, ctx: &mut Context<Self>) {
        let Some(is_idle) = self.housekeeping.due() else {
            return;
        };
        if self.store.is_none() || !self.gathered.is_empty() {
            return;
        }
        self.housekeeping.last_maintained = Instant::now();
        let maintained = move |actor: &mut Self, ctx: &mut Context<Self>, checkpoint| {
            match checkpoint {
                Ok(Checkpoint::Complete) if is_idle => actor.housekeeping.dirty = false,
                Ok(Checkpoint::Complete | Checkpoint::Partial) => {}
                Err(error) => actor.note(&error),
            }
            actor.flush_later(ctx);
        };
        self.call(ctx, async |store| store.maintain().await, maintained);
    }

    /// Work may have come, or the last job ended, without any request to this daemon or report from the store.
    fn look_around(&mut self, ctx: &mut Context<Self>) {
        if self.waiting.is_look_due(LOOK_TICK / 2) {
            self.look_for_waiting(ctx);
        }
        self.look_for_stops(ctx);
        self.look_whether_drained(ctx);
        self.end_holds(ctx);
    }
}

/// Looks around whenever somebody else changed the queue; for the actor's whole life.
struct Changes;

impl ActorFuture<StorageActor> for Changes {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut StorageActor,
        ctx: &mut Context<StorageActor>,
        task: &mut task::Context<'_>,
    ) -> Poll<()> {
        // The store is not polled during a call; the end of the call polls this again, as everything does that wakes
        // the actor.
        while let Some(Poll::Ready(changed)) =
            actor.store.as_mut().map(|store| store.poll_changed(task))
        {
            if changed >= Changed::Leases {
                actor.leases.is_complete = false;
                actor.begin_missing_leases(ctx);
            }
            if changed == Changed::Runs {
                actor.runs_changed.happened = true;
                actor.runs_changed.tell();
            }
            actor.stops.is_look_due = true;
            actor.tell_followers();
            if actor.is_remote {
                actor.look_for_waiting(ctx);
            } else {
                // What others edited in a file is carried out with the next batch: this makes one, even if no worker
                // waits.
                actor.look_for_work(ctx);
            }
            actor.look_whether_drained(ctx);
        }
        Poll::Pending
    }
}

impl RunsChange {
    fn tell(&mut self) {
        if let Some(asked) = self.asked.take_if(|_| self.happened) {
            self.happened = false;
            asked.send(());
        }
    }
}

impl Actor for StorageActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.begin_missing_leases(ctx);
        ctx.spawn(Changes);
        ctx.run_interval(IDLE_TICK, |actor, ctx| {
            actor.maintain(ctx);
            actor.outages.look();
            actor.metrics.waiting(actor.waiting.len());
            actor.begin_missing_leases(ctx);
        });
        ctx.run_interval(LOOK_TICK, Self::look_around);
    }
}
