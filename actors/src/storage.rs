//! StorageActor: owns the one [`Store`], serializes every mutation, commits in groups.
//!
//! It lives alone on its own Arbiter and makes blocking calls. Connections, the watcher and the
//! tails message it; it messages nobody. A mutation runs inside the open transaction and its
//! reply is held; when the mailbox is empty (or at a bound) one commit makes them all durable,
//! and only then are they answered: *a reply means it is on disk*.
//!
//! It knows no SQL and no socket. The messages are in [`messages`], the held replies in [`reply`].

mod handlers;
pub mod messages;
mod reply;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::clock::Clock;
use crate::model::Run;
use crate::store::{Checkpoint, Deletion, Store, StoreError, StoreResult};
use crate::throttle::{Throttle, Verdict};
use crate::vital::Vital;
use messages::Finish;
use reply::{Deferred, Dispatched, Held};

/// Messages that may share one commit.
const BATCH_MESSAGES_MAX: usize = 1024;
/// How long a transaction may stay open while messages keep coming.
const BATCH_TIME_MAX: Duration = Duration::from_millis(10);
/// Rows deleted in one step; a worker's request waits for one step at most.
const DELETE_STEP_ROWS: usize = 500;
/// Pause between two steps of a deletion, so that others get at the database.
const DELETE_STEP_PAUSE: Duration = Duration::from_millis(1);
/// Delay before an undo that could not be written is tried again.
const UNDO_RETRY: Duration = Duration::from_secs(1);
/// How often the actor looks whether it is idle.
const IDLE_TICK: Duration = Duration::from_millis(250);
/// Without a commit for this long the main file is brought up to date (spec 6: a second).
const IDLE_AFTER: Duration = Duration::from_millis(400);
/// Even a busy store is looked after this often: its files may have vanished.
const CARE_EVERY: Duration = Duration::from_secs(2);

/// Failures that are logged in one period, one by one.
const COMPLAINTS_BURST: u32 = 10;
/// See [`COMPLAINTS_BURST`].
const COMPLAINTS_PERIOD_SECONDS: u32 = 60;

/// Owns the queue. See the module's documentation.
pub struct StorageActor {
    store: Box<dyn Store>,
    clock: Box<dyn Clock>,
    /// Replies that wait for the commit.
    held: Held,
    /// When the open transaction was begun, and what it has taken so far.
    opened: Option<Instant>,
    messages: usize,
    /// Runs under deletion; the first is being worked on.
    deletions: VecDeque<(Run, oneshot::Sender<StoreResult<()>>)>,
    /// Commits were made since the main file was last up to date.
    dirty: bool,
    last_commit: Instant,
    last_care: Instant,
    complaints: Throttle,
    /// Told once, with the error that ends the process.
    vital: Vital<StoreError>,
}

impl StorageActor {
    /// Takes the store over. `vital` is told when the store cannot go on.
    #[must_use]
    pub fn new(store: Box<dyn Store>, clock: Box<dyn Clock>, vital: Vital<StoreError>) -> Self {
        let now = Instant::now();
        Self {
            store,
            clock,
            held: Held::default(),
            opened: None,
            messages: 0,
            deletions: VecDeque::new(),
            dirty: true,
            last_commit: now,
            last_care: now,
            complaints: Throttle::new(COMPLAINTS_BURST, COMPLAINTS_PERIOD_SECONDS),
            vital,
        }
    }

    /// Runs one mutation inside the shared transaction. Its reply waits for the commit, unless it
    /// failed: an error needs no disk.
    fn mutate<T>(
        &mut self,
        ctx: &mut Context<Self>,
        operation: impl FnOnce(&mut dyn Store) -> StoreResult<T>,
    ) -> Deferred<T> {
        if let Err(error) = self.open_transaction(ctx) {
            return Deferred::now(Err(self.noted(error)));
        }
        match operation(&mut *self.store) {
            Ok(value) => {
                self.messages += 1;
                Deferred::after_commit(value, &self.held)
            }
            Err(error) => {
                self.abandon_if_ended(&error);
                Deferred::now(Err(self.noted(error)))
            }
        }
    }

    /// Runs a mutation of many rows, as the first of a transaction: there it costs least.
    fn mutate_many<T>(
        &mut self,
        ctx: &mut Context<Self>,
        operation: impl FnOnce(&mut dyn Store) -> StoreResult<T>,
    ) -> Deferred<T> {
        self.commit();
        self.mutate(ctx, operation)
    }

    fn open_transaction(&mut self, ctx: &mut Context<Self>) -> StoreResult<()> {
        if self.batch_is_full() {
            self.commit();
        }
        if self.opened.is_none() {
            self.store.begin()?;
            self.opened = Some(Instant::now());
            // Runs when the mailbox is empty: all that is queued by then shares the commit.
            ctx.notify(Commit);
        }
        Ok(())
    }

    fn batch_is_full(&self) -> bool {
        self.messages >= BATCH_MESSAGES_MAX
            || self.opened.is_some_and(|since| since.elapsed() >= BATCH_TIME_MAX)
    }

    fn commit(&mut self) {
        if self.opened.take().is_none() {
            return;
        }
        let result = self.store.commit();
        debug!(messages = self.messages, ok = result.is_ok(), "Committed.");
        if self.messages > 0 {
            self.dirty = true;
            self.last_commit = Instant::now();
        }
        self.messages = 0;
        if let Err(error) = &result {
            self.noted(error.clone());
        }
        self.held.release(&result);
    }

    /// An error can end the whole transaction (a full disk does): then none of its neighbours is
    /// on disk either, and each is told so.
    fn abandon_if_ended(&mut self, error: &StoreError) {
        if !self.store.in_transaction() {
            self.opened = None;
            self.messages = 0;
            self.held.release(&Err(error.clone()));
        }
    }

    /// Logs an error, and ends the process's life with one that only a new process can mend.
    fn noted(&mut self, error: StoreError) -> StoreError {
        if error.is_fatal() {
            error!(%error, "Storage cannot go on.");
            self.vital.ended(error.clone());
        } else {
            self.complain(&error);
        }
        error
    }

    fn take_work(
        &mut self,
        ctx: &mut Context<Self>,
        finished: Option<Finish>,
    ) -> Deferred<Dispatched> {
        let now = self.clock.now();
        let undo = ctx.address().recipient();
        self.mutate(ctx, move |store| {
            if let Some(Finish { key, exit_code }) = finished {
                store.finish(&key, exit_code, now)?;
            }
            let dispatch = store.dispatch(now)?;
            Ok(Dispatched { dispatch, undo })
        })
    }

    /// Warns of a failure, unless that was said too often lately: a disk can stay full for hours.
    fn complain(&mut self, error: &StoreError) {
        match self.complaints.admit(std::time::Instant::now()) {
            Verdict::Log { suppressed_before: 0 } => warn!(%error, "A storage request failed."),
            Verdict::Log { suppressed_before: left_out } => {
                warn!(%error, left_out, "A storage request failed. Others were left out.");
            }
            Verdict::Suppress => {}
        }
    }

    /// Goes on with the first deletion, one step, in a transaction that may be shared.
    fn delete_step(&mut self, ctx: &mut Context<Self>) {
        let Some((run, _)) = self.deletions.front() else {
            return;
        };
        let run = run.clone();
        let step = self.mutate_many(ctx, |store| store.delete_run(&run, DELETE_STEP_ROWS));
        self.commit();
        match step.into_result() {
            Ok(Deletion::More) => {}
            ended => {
                if let Some((_, reply)) = self.deletions.pop_front() {
                    let _ = reply.send(ended.map(|_| ()));
                }
            }
        }
        if !self.deletions.is_empty() {
            ctx.notify_later(DeleteStep, DELETE_STEP_PAUSE);
        }
    }

    /// Brings the main file up to date when nothing happens, and looks after the files at times.
    fn look_after(&mut self) {
        let idle = self.dirty && self.last_commit.elapsed() >= IDLE_AFTER;
        if self.opened.is_some() || !(idle || self.last_care.elapsed() >= CARE_EVERY) {
            return;
        }
        self.last_care = Instant::now();
        match self.store.idle() {
            Ok(Checkpoint::Complete) if idle => self.dirty = false,
            Ok(Checkpoint::Complete | Checkpoint::Partial) => {}
            Err(error) => {
                self.noted(error);
            }
        }
    }
}

impl Actor for StorageActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(IDLE_TICK, |actor, _| actor.look_after());
    }
}

/// Ends the open transaction and answers everybody in it.
#[derive(Message)]
#[rtype(result = "()")]
struct Commit;

/// The next step of the first deletion.
#[derive(Message)]
#[rtype(result = "()")]
struct DeleteStep;

impl Handler<Commit> for StorageActor {
    type Result = ();

    fn handle(&mut self, _: Commit, _: &mut Self::Context) {
        self.commit();
    }
}

impl Handler<DeleteStep> for StorageActor {
    type Result = ();

    fn handle(&mut self, _: DeleteStep, ctx: &mut Self::Context) {
        self.delete_step(ctx);
    }
}
