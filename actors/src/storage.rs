//! StorageActor: owns the one [`Store`], serializes every mutation, commits in groups.
//!
//! It lives alone on its own Arbiter and makes blocking calls. Connections, the watcher and the
//! tails message it; it messages nobody. A mutation runs inside the open transaction and its
//! reply is held; when the mailbox is empty (or at a bound) one commit makes them all durable,
//! and only then are they answered: *a reply means it is on disk*.
//!
//! It knows no SQL and no socket. The messages are in [`messages`], the held replies in [`reply`].

mod complaints;
mod deletions;
mod expiry;
mod fetcher_runs;
mod handlers;
mod leases;
pub mod messages;
mod reply;
mod sessions;
mod tasks;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;

use crate::clock::Clock;
use crate::store::{Checkpoint, Store, StoreError, StoreResult};
use crate::vital::Vital;
use complaints::Complaints;
use deletions::Deletion;
use leases::Leases;
use reply::{Deferred, Held};
use waiting::Waiting;

/// Messages that may share one commit.
const BATCH_MESSAGES_MAX: usize = 1024;
/// How long a transaction may stay open while messages keep coming.
const BATCH_TIME_MAX: Duration = Duration::from_millis(10);
/// Delay before an undo that could not be written is tried again.
const UNDO_RETRY: Duration = Duration::from_secs(1);
/// How often the actor looks whether it is idle.
const IDLE_TICK: Duration = Duration::from_millis(250);
/// Without a commit for this long the main file is brought up to date (spec 6: a second).
const IDLE_AFTER: Duration = Duration::from_millis(400);
/// Even a busy store is looked after this often: its files may have vanished.
const CARE_EVERY: Duration = Duration::from_secs(2);

/// Owns the queue. See the module's documentation.
pub struct StorageActor {
    store: Box<dyn Store>,
    clock: Box<dyn Clock>,
    /// Replies that wait for the commit.
    held: Held,
    /// When the open transaction was begun, and what it has taken so far.
    opened: Option<Instant>,
    messages: usize,
    /// Runs under deletion, in the order in which they go.
    deletions: VecDeque<Deletion>,
    /// Commits were made since the main file was last up to date.
    dirty: bool,
    last_commit: Instant,
    last_care: Instant,
    complaints: Complaints,
    /// Of attempts that protocol 2 handed out.
    leases: Leases,
    /// Some may be missing: see [`expiry`].
    leases_unsure: bool,
    /// The timer for the lease that ends first, and when it rings.
    lease_timer: Option<(Instant, SpawnHandle)>,
    waiting: Waiting,
    ticks: u32,
    /// Until when leases that ended are left alone, after a failure.
    lease_pause: Option<Instant>,
    /// The same of those who wait; and whether a timer to serve them is set.
    wait_pause: Option<Instant>,
    rousing: bool,
    /// Something happened since those who wait were last served.
    roused: bool,
    /// Told once, when nothing is out any more, if that is waited for.
    drained: Option<oneshot::Sender<()>>,
    draining: bool,
    /// Told once, with the error that ends the process.
    vital: Vital<StoreError>,
}

impl StorageActor {
    /// Takes the store over. `vital` is told when the store cannot go on, `drained` when an operator
    /// asked for a drain and nothing is out any more.
    #[must_use]
    pub fn new(
        store: Box<dyn Store>,
        clock: Box<dyn Clock>,
        vital: Vital<StoreError>,
        drained: oneshot::Sender<()>,
    ) -> Self {
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
            complaints: Complaints::default(),
            leases: Leases::default(),
            leases_unsure: true,
            lease_timer: None,
            waiting: Waiting::default(),
            ticks: 0,
            lease_pause: None,
            wait_pause: None,
            rousing: false,
            roused: false,
            drained: Some(drained),
            draining: false,
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
                self.roused = true;
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
        // Who is in it is told by the commit itself.
        let _ = self.commit();
        self.mutate(ctx, operation)
    }

    fn open_transaction(&mut self, ctx: &mut Context<Self>) -> StoreResult<()> {
        if self.batch_is_full() {
            let _ = self.commit();
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

    /// Ends the open transaction, if there is one, and answers everybody in it.
    fn commit(&mut self) -> StoreResult<()> {
        if self.opened.take().is_none() {
            return Ok(());
        }
        let result = self.store.commit();
        debug!(messages = self.messages, ok = result.is_ok(), "Committed.");
        if self.messages > 0 {
            self.dirty = true;
            self.last_commit = Instant::now();
        }
        if self.messages > 0 && result.is_ok() {
            self.complaints.succeeded();
        }
        self.messages = 0;
        if let Err(error) = &result {
            self.leases_unsure = true;
            self.noted(error.clone());
        }
        self.held.release(&result);
        result
    }

    /// An error can end the whole transaction (a full disk does): then none of its neighbours is
    /// on disk either, and each is told so.
    fn abandon_if_ended(&mut self, error: &StoreError) {
        if !self.store.in_transaction() {
            self.opened = None;
            self.messages = 0;
            self.leases_unsure = true;
            self.held.release(&Err(error.clone()));
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
        self.begin_missing_leases(ctx);
        ctx.run_interval(IDLE_TICK, |actor, ctx| {
            actor.look_after();
            actor.complaints.look();
            actor.begin_missing_leases(ctx);
            actor.look_for_waiting(ctx);
        });
    }
}

/// Ends the open transaction and answers everybody in it.
#[derive(Message)]
#[rtype(result = "()")]
struct Commit;

impl Handler<Commit> for StorageActor {
    type Result = ();

    fn handle(&mut self, _: Commit, ctx: &mut Self::Context) {
        let _ = self.commit();
        self.serve_waiting(ctx);
    }
}
