//! The spool's intake: entries of the spool's queue `tasks` enter the daemon's queue, each exactly once,
//! and leave both when their job is done.
//!
//! [`SpoolIntake`] is a guest of the supervision tree, started by `serve`. It knows the spool (through
//! the [`desk`]) and the messages of storage; no SQL, no socket.
//!
//! One actor, one round after the other. A round holds what is checked out against what storage knows,
//! and does what makes them agree; nothing is remembered from one round to the next, so a start after a
//! death is a round like any other:
//!
//! - An entry is checked out before it enters the queue and until its job is done; what a dead daemon had
//!   is given back by the spool, and recognised by its name in the transaction that would enter it.
//! - A job that was done takes its entry out of the spool first, then out of storage. A death in between
//!   leaves a known name without an entry, which the next round forgets.
//! - An entry that somebody takes away leaves the queue too.

pub mod desk;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::guest::{Guest, GuestLinks};
use shiftboss_actors::model::Row;
use shiftboss_actors::storage::messages::{Enter, ForgetEntries, KnownEntries};
use shiftboss_actors::store::{Entered, Entry, EntryState, StoreError};
use shiftboss_actors::vital::Vital;
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use crate::spool::{EntryName, Spool, SpoolError, Stop};
use desk::{Desk, ROUND_MAX};

/// How long storage may take for one request.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the next entry, and so between two looks at what was done.
const ROUND: Duration = Duration::from_millis(200);
/// Shortest time between two rounds that are not full. A round costs a look at all that is in the queue:
/// what is done by workers one by one leaves together.
const GATHER: Duration = Duration::from_millis(25);
/// Entries in one transaction: workers wait for no more.
const ENTER_MAX: usize = 64;
/// The first and the longest pause after a round that failed.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// See [`PAUSE_MIN`].
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Why a round could not be finished. Nothing is lost: the next one begins anew.
#[derive(Debug, Error)]
enum IntakeError {
    /// The spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Storage did not answer in time, or is gone.
    #[error("storage gave no answer: {0}")]
    Mailbox(#[from] MailboxError),
}

/// The guest that brings a spool's tasks into the queue.
pub struct SpoolIntake {
    spool: Spool,
    stop: Stop,
    ended: Option<oneshot::Receiver<()>>,
}

impl SpoolIntake {
    /// An intake of the tasks of `spool`.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new(spool: Spool) -> std::io::Result<Self> {
        Ok(Self { spool, stop: Stop::new()?, ended: None })
    }
}

impl Guest for SpoolIntake {
    fn name(&self) -> &'static str {
        "the SpoolActor"
    }

    fn start(&mut self, links: GuestLinks, vital: Vital<String>) {
        let (end, ended) = oneshot::channel();
        self.ended = Some(ended);
        let (spool, stop) = (self.spool.clone(), self.stop.clone());
        SpoolActor { spool, stop, links, _vital: vital, _end: end }.start();
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        self.stop.stop();
        let ended = self.ended.take();
        Box::pin(async move {
            if let Some(ended) = ended {
                // It is dropped with the actor, however that ends.
                let _ = ended.await;
            }
        })
    }
}

/// Makes one round after the other until it is stopped. See the module's documentation.
struct SpoolActor {
    spool: Spool,
    stop: Stop,
    links: GuestLinks,
    _vital: Vital<String>,
    _end: oneshot::Sender<()>,
}

impl Actor for SpoolActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        info!(spool = %self.spool.path().display(), queue = desk::QUEUE, "Taking tasks from a spool.");
        let rounds = Rounds {
            spool: self.spool.clone(),
            stop: self.stop.clone(),
            links: self.links.clone(),
            desk: None,
            pause: PAUSE_MIN,
        };
        ctx.spawn(rounds.run().into_actor(self).map(|(), _, ctx| ctx.stop()));
    }
}

/// The rounds, and what they work with.
struct Rounds {
    spool: Spool,
    stop: Stop,
    links: GuestLinks,
    /// `None` while it could not be set up, and while a blocking call has it.
    desk: Option<Desk>,
    pause: Duration,
}

impl Rounds {
    async fn run(mut self) {
        let mut wait = Duration::ZERO;
        while !self.stop.is_set() {
            match self.round(wait).await {
                Ok(moved) => {
                    wait = if moved == 0 { ROUND } else { Duration::ZERO };
                    self.pause = PAUSE_MIN;
                    // What was moved may have made room.
                    if (1..ROUND_MAX).contains(&moved) {
                        self.wait(GATHER).await;
                    }
                }
                Err(error) => self.rest(&error).await,
            }
        }
        let desk = self.desk.take();
        blocking(move || drop(desk)).await;
    }

    /// One round; the most that was moved in one direction.
    async fn round(&mut self, wait: Duration) -> Result<usize, IntakeError> {
        let mut known = self.known().await?;
        let mut gone = self.on_desk(Desk::vanished).await?;
        let strange = self.not_held(&known);
        gone.extend(self.on_desk(move |desk| desk.take_known(strange)).await?);
        self.forget(&gone).await?;
        let done: BTreeSet<_> =
            known.iter().filter(|(_, state)| state.done).map(|(name, _)| name.clone()).collect();
        let completed = self.on_desk(move |desk| desk.complete(&done)).await?;
        self.forget(&completed).await?;
        // Only what is forgotten by now may come again under its name.
        gone.iter().chain(&completed).for_each(|name| _ = known.remove(name));
        let taken = self.on_desk(move |desk| desk.take(wait)).await?;
        let entered = self.enter(&known).await?;
        Ok(completed.len().max(taken).max(entered))
    }

    /// What storage knows, by name.
    async fn known(&self) -> Result<BTreeMap<EntryName, EntryState>, IntakeError> {
        let states = self.links.known.send(KnownEntries).timeout(STORE_TIMEOUT).await??;
        let named = |state: EntryState| match state.name.parse() {
            Ok(name) => Some((name, state)),
            Err(error) => {
                debug!(name = %state.name, %error, "An entry's name in the database is none.");
                None
            }
        };
        Ok(states.into_iter().filter_map(named).collect())
    }

    /// What is in the queue, but not checked out by this process.
    fn not_held(&self, known: &BTreeMap<EntryName, EntryState>) -> Vec<EntryName> {
        let held = |name: &EntryName| self.desk.as_ref().is_some_and(|desk| desk.holds(name));
        known.keys().filter(|name| !held(name)).cloned().collect()
    }

    /// Entries leave the queue.
    async fn forget(&self, names: &[EntryName]) -> Result<(), IntakeError> {
        for names in names.chunks(ENTER_MAX) {
            let names = names.iter().map(|name| name.to_string().into()).collect();
            self.links.forget.send(ForgetEntries(names)).timeout(STORE_TIMEOUT).await??;
        }
        Ok(())
    }

    /// Entries enter the queue that are not in it, of each key one, and those that may be in it are
    /// confirmed; how many there were.
    async fn enter(
        &mut self,
        known: &BTreeMap<EntryName, EntryState>,
    ) -> Result<usize, IntakeError> {
        let offered = self.to_offer(known);
        if offered.is_empty() {
            return Ok(0);
        }
        let entry = |(name, row): &(EntryName, Row)| Entry {
            name: Arc::from(name.to_string()),
            row: row.clone(),
        };
        let entries = offered.iter().map(entry).collect();
        let answers = self.links.enter.send(Enter(entries)).timeout(STORE_TIMEOUT).await??;
        debug!(?answers, "Entries were offered to the queue.");
        let count = answers.len();
        let entered = offered.into_iter().zip(answers);
        let is_in = |(_, answer): &(_, Entered)| *answer != Entered::Waits;
        let names = entered.filter(is_in).map(|((name, _), _)| name).collect();
        self.on_desk(move |desk| {
            desk.confirm(&names);
            Ok(())
        })
        .await?;
        Ok(count)
    }

    /// Entries whose key is free, and those whose name is known already, for it may be another's.
    fn to_offer(&self, known: &BTreeMap<EntryName, EntryState>) -> Vec<(EntryName, Row)> {
        let mut keys: HashSet<_> = known.values().map(|state| state.key.clone()).collect();
        let rows = self.desk.iter().flat_map(Desk::rows);
        let new = rows.filter(|(name, row, confirmed)| match known.contains_key(*name) {
            true => !confirmed,
            false => keys.insert(row.key.clone()),
        });
        new.take(ENTER_MAX).map(|(name, row, _)| (name.clone(), row.clone())).collect()
    }

    /// Calls the desk on a thread for blocking work. It is set up first, if it is not.
    async fn on_desk<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut Desk) -> Result<T, SpoolError> + Send + 'static,
    ) -> Result<T, IntakeError> {
        let (desk, spool, stop) = (self.desk.take(), self.spool.clone(), self.stop.clone());
        let (desk, result) = blocking(move || {
            let mut desk = match desk.map_or_else(|| Desk::new(spool, stop), Ok) {
                Ok(desk) => desk,
                Err(error) => return (None, Err(error)),
            };
            let result = call(&mut desk);
            (Some(desk), result)
        })
        .await;
        self.desk = desk;
        Ok(result?)
    }

    /// Lets time pass, unless it is stopped.
    async fn wait(&self, time: Duration) {
        let stop = self.stop.clone();
        blocking(move || {
            let _ = stop.wait(time);
        })
        .await;
    }

    /// A full disk stays full for a while.
    async fn rest(&mut self, error: &IntakeError) {
        warn!(%error, pause = ?self.pause, "Tasks of the spool must wait; trying again.");
        self.wait(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// Runs `work` on a thread for blocking work. A panic there is one here.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is going: this task goes with it.
        Err(_) => std::future::pending().await,
    }
}
