//! StorageActor: owns the one [`Store`], serializes every mutation, commits in groups.
//!
//! It lives alone on its own Arbiter. Connections, the watcher and the tails message it; it messages
//! nobody. What is asked is [gathered] until the mailbox is empty, or a batch is under way; then the
//! store carries it out as one transaction, and only when that is durable is everybody answered: *a reply
//! means it is on disk*. A store that blocks blocks right here, and the mailbox gathers meanwhile.
//!
//! It knows no SQL and no socket. The messages are in [`messages`].

mod deletions;
mod drain;
mod expiry;
mod gathered;
mod handlers;
mod leases;
pub mod messages;
mod outages;
mod reply;
#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use actix::prelude::*;
use futures_util::future::LocalBoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;

use crate::clock::Clock;
use crate::exit_notifier::ExitNotifier;
use crate::store::{Checkpoint, Outcome, Rejected, Request, Store, StoreError, StoreResult};
use deletions::Deletion;
use drain::Drain;
use gathered::{Gathered, Replies};
use leases::LeaseClock;
use outages::Outages;
use reply::{Deferred, Reply, deferred};
use waiting::WaitQueue;

/// How often the actor looks whether it is idle.
const IDLE_TICK: Duration = Duration::from_millis(250);
/// Those who wait are looked after without a reason at every second tick.
const LOOK_TICKS: u32 = 2;
const _: () = assert!(IDLE_TICK.as_millis() * (LOOK_TICKS as u128) < 1000);
/// Without a commit for this long the main file is brought up to date (spec 6: a second).
const IDLE_AFTER: Duration = Duration::from_millis(400);
/// Even a busy store is maintained this often: its files may have vanished.
const MAINTAIN_EVERY: Duration = Duration::from_secs(2);

/// Owns the queue. See the module's documentation.
pub struct StorageActor {
    /// `None`: it is at work.
    store: Option<Box<dyn Store>>,
    clock: Box<dyn Clock>,
    gathered: Gathered,
    /// A [`Flush`] is on its way.
    flushing: bool,
    housekeeping: Housekeeping,
    /// Runs under deletion, in the order in which they go.
    deletions: VecDeque<Deletion>,
    outages: Outages,
    leases: LeaseClock,
    /// The timer for the lease that ends first, and when it rings.
    lease_timer: Option<(Instant, SpawnHandle)>,
    waiting: WaitQueue,
    drain: Drain,
    ticks: u32,
    /// Answered when the store is closed, once that is asked.
    closing: Option<Reply<StoreResult<()>>>,
    /// Gets the error that ends the process, once.
    exit_notifier: ExitNotifier<StoreError>,
}

/// When the main file is to be brought up to date.
struct Housekeeping {
    /// Commits were made since it was last up to date.
    dirty: bool,
    last_commit: Instant,
    last_maintained: Instant,
}

impl StorageActor {
    /// Takes the store over. `exit_notifier` learns when the store cannot go on, `drained` when an operator
    /// asked for a drain and no job is in flight any more.
    pub fn new(
        store: Box<dyn Store>,
        clock: Box<dyn Clock>,
        exit_notifier: ExitNotifier<StoreError>,
        drained: oneshot::Sender<()>,
    ) -> Self {
        let now = Instant::now();
        Self {
            store: Some(store),
            clock,
            gathered: Gathered::default(),
            flushing: false,
            housekeeping: Housekeeping { dirty: true, last_commit: now, last_maintained: now },
            deletions: VecDeque::new(),
            outages: Outages::default(),
            leases: LeaseClock::default(),
            lease_timer: None,
            waiting: WaitQueue::default(),
            drain: Drain::new(drained),
            ticks: 0,
            closing: None,
            exit_notifier,
        }
    }

    /// Asks the store with the next batch; `then` gets what came of it, once that is durable.
    fn submit<R: Request>(
        &mut self,
        ctx: &mut Context<Self>,
        request: R,
        then: impl FnOnce(&mut Self, &mut Context<Self>, StoreResult<R::Answer>) + 'static,
    ) {
        let reply = move |actor: &mut Self, ctx: &mut Context<Self>, outcomes: StoreResult<_>| {
            // What failed as a whole was noted once, by whoever calls this.
            let answer = outcomes.and_then(|mut outcomes| {
                R::answer(&mut outcomes).inspect_err(|error| actor.note(error))
            });
            then(actor, ctx, answer);
        };
        self.gathered.push(request, Box::new(reply));
        self.flush_later(ctx);
    }

    /// Asks the store for whoever sent a message; `answer` makes the message's answer of the store's.
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
            ctx.notify(Flush);
        }
    }

    fn flush(&mut self, ctx: &mut Context<Self>) {
        let Some(mut store) = self.store.take() else {
            return; // What is at work calls this again.
        };
        if self.gathered.is_empty() {
            match self.closing.take() {
                Some(reply) => close(store, reply, ctx),
                None => self.store = Some(store),
            }
            return;
        }
        let now = self.clock.now();
        let (batch, replies) = self.gathered.take();
        let applying: LocalBoxFuture<'static, _> = Box::pin(async move {
            let outcomes = store.apply(now, batch).await;
            (store, outcomes)
        });
        let applying = applying.into_actor(self);
        ctx.spawn(applying.map(move |(store, outcomes), actor, ctx| {
            actor.store = Some(store);
            actor.applied(ctx, replies, outcomes);
        }));
    }

    /// A batch is durable, or nothing of it has happened.
    fn applied(
        &mut self,
        ctx: &mut Context<Self>,
        replies: Replies,
        outcomes: StoreResult<Vec<Result<Outcome, Rejected>>>,
    ) {
        debug!(messages = replies.len(), ok = outcomes.is_ok(), "Committed.");
        if let Err(error) = &outcomes {
            self.leases.unsure();
            // Of those that only look nobody's request failed.
            if replies.writes || error.is_fatal() {
                self.note(error);
            }
        } else if replies.writes {
            self.housekeeping.committed();
            self.outages.succeeded();
        }
        let makes_work = replies.makes_work && outcomes.is_ok();
        replies.send(self, ctx, outcomes);
        if makes_work {
            self.waiting.wake();
        }
        self.serve_waiting(ctx);
        self.set_lease_timer(ctx);
        self.flush_later(ctx);
    }

    /// Brings the main file up to date when nothing happens, and looks after the files at times.
    fn maintain(&mut self, ctx: &mut Context<Self>) {
        let Some(is_idle) = self.housekeeping.due() else {
            return;
        };
        let Some(mut store) = self.store.take_if(|_| self.gathered.is_empty()) else {
            return;
        };
        self.housekeeping.last_maintained = Instant::now();
        let maintaining: LocalBoxFuture<'static, _> = Box::pin(async move {
            let checkpoint = store.maintain().await;
            (store, checkpoint)
        });
        ctx.spawn(maintaining.into_actor(self).map(move |(store, checkpoint), actor, ctx| {
            actor.store = Some(store);
            match checkpoint {
                Ok(Checkpoint::Complete) if is_idle => actor.housekeeping.dirty = false,
                Ok(Checkpoint::Complete | Checkpoint::Partial) => {}
                Err(error) => actor.note(&error),
            }
            actor.flush_later(ctx);
        }));
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.maintain(ctx);
        self.outages.look();
        self.begin_missing_leases(ctx);
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(LOOK_TICKS) {
            self.look_for_waiting(ctx);
            self.look_whether_drained(ctx);
        }
    }
}

/// The last call of the store, and the end of the actor.
fn close(
    mut store: Box<dyn Store>,
    reply: Reply<StoreResult<()>>,
    ctx: &mut Context<StorageActor>,
) {
    let closing: LocalBoxFuture<'static, _> = Box::pin(async move { store.close().await });
    ctx.spawn(actix::fut::wrap_future::<_, StorageActor>(closing).map(|closed, _, ctx| {
        reply.send(closed);
        ctx.stop();
    }));
}

impl Housekeeping {
    fn committed(&mut self) {
        self.dirty = true;
        self.last_commit = Instant::now();
    }

    /// Whether it is time: `Some(true)`, because nothing happens.
    fn due(&self) -> Option<bool> {
        let is_idle = self.dirty && self.last_commit.elapsed() >= IDLE_AFTER;
        (is_idle || self.last_maintained.elapsed() >= MAINTAIN_EVERY).then_some(is_idle)
    }
}

impl Actor for StorageActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.begin_missing_leases(ctx);
        ctx.run_interval(IDLE_TICK, Self::tick);
    }
}

/// Calls the store with what was gathered.
#[derive(Message)]
#[rtype(result = "()")]
struct Flush;

impl Handler<Flush> for StorageActor {
    type Result = ();

    fn handle(&mut self, _: Flush, ctx: &mut Self::Context) {
        self.flushing = false;
        self.flush(ctx);
    }
}
