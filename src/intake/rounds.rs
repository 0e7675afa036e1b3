//! The rounds of the intake: each holds what is checked out against what storage knows, and makes them
//! agree. Run by the [`SpoolActor`](super); a failed round is made anew after a pause.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use actix::MailboxError;
use shiftboss_actors::guest::GuestLinks;
use shiftboss_actors::model::Row;
use shiftboss_actors::storage::messages::{Enter, ForgetEntries, KnownEntries, WithdrawEntries};
use shiftboss_actors::store::{Entered, Entry, EntryState, StoreError};
use thiserror::Error;
use tracing::{debug, warn};

use super::desk::{Desk, ROUND_MAX};
use crate::spool::{EntryName, Spool, SpoolError, Stop};

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

/// The rounds, and what they work with.
pub struct Rounds {
    spool: Spool,
    stop: Stop,
    links: GuestLinks,
    /// `None` while it could not be set up, and while a blocking call has it.
    desk: Option<Desk>,
    pause: Duration,
}

impl Rounds {
    /// Rounds that have not begun. Waits end with `stop`.
    #[must_use]
    pub fn new(spool: Spool, stop: Stop, links: GuestLinks) -> Self {
        Self { spool, stop, links, desk: None, pause: PAUSE_MIN }
    }

    /// Makes one round after the other until it is stopped; then what is held is given back.
    pub async fn run(mut self) {
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
        gone.extend(self.hand_over().await?);
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

    /// Entries that somebody asks for leave the queue, if no worker has them; those that did.
    async fn hand_over(&mut self) -> Result<Vec<EntryName>, IntakeError> {
        let mut wanted = self.on_desk(Desk::requests).await?;
        wanted.truncate(ENTER_MAX);
        if wanted.is_empty() {
            return Ok(wanted);
        }
        let names = wanted.iter().map(|name| name.to_string().into()).collect();
        let out = self.links.withdraw.send(WithdrawEntries(names)).timeout(STORE_TIMEOUT).await??;
        let answers: Vec<_> = wanted.into_iter().zip(out).collect();
        let left = answers.iter().filter(|(_, is_out)| *is_out).map(|(name, _)| name.clone());
        let left = left.collect();
        self.on_desk(move |desk| desk.hand_over(answers)).await?;
        Ok(left)
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
