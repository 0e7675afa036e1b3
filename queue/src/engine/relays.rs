//! What relays ask, in the batch's transaction: to join, and batches of their own, each carried out once and in the relay's name. What
//! is whose, [`Relays`] says; it is read once, and written with the batch. Where there is no relay, nothing is asked of the store.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use shiftboss_protocol::backoff::random;
use shiftboss_protocol::model::{Attempt, Row, Run};

use super::{Batch, Carried, Engine, STEP_KEYS};
use crate::documents::{self, INSTALLATION, RELAY, RELAY_ANSWER, RELAY_LANE, RELAY_LEASE};
use crate::error::Rejected;
use crate::file_identity::DirectoryIdentity;
use crate::operation::{
    AddRelayedRows, JoinRelay, JoinedRelay, Lane, LoseRelay, Operation, RANGES, Relay, RelayAnswer,
    Relayed, RelayedRows, RowsAnswer,
};
use crate::record::Millis;
use crate::records::{Records, Stale, StoreResult};
use crate::relays::{self, Relays};

/// The numbers of lanes: of batches, as [`number_of`] has them, and of ranges.
const OF_BATCHES: [u8; 2] = [0, 1];
const OF_RANGES: Range<u8> = 16..16 + RANGES;

fn number_of(lane: Lane) -> u8 {
    match lane {
        Lane::Jobs => 0,
        Lane::Lists => 1,
    }
}

/// A relay's lane, as it is named.
fn lane(relay: &str, number: u8) -> String {
    format!("{relay}/{number}")
}

/// What came of a step of forgetting a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgetting {
    /// There are more rows of its lists: to be asked again.
    More,
    /// All that was known of it is gone, and so many lists and fetchers were its.
    Gone {
        lists: u64,
        fetchers: u64,
    },
    Unknown,
    /// It lives, or was not taken for dead yet.
    Lives,
}

impl<S: Records> Engine<S> {
    /// Forgets a relay that is gone for good, a bounded number of rows of its lists at once: its fetchers are free then. Jobs of it
    /// that are out stay out.
    ///
    /// # Errors
    /// Nothing of the step has happened.
    pub async fn forget_relay(&mut self, now: Millis, name: &str) -> StoreResult<Forgetting> {
        self.alone(now, async |batch| batch.forget_relay(name).await).await
    }
}

impl<S: Records> Batch<'_, S> {
    pub(super) async fn read_relays(&mut self) -> StoreResult<()> {
        if self.memo.relays.is_none() {
            let relays = self.store.documents(RELAY.name()).await?;
            let leases = self.store.documents(RELAY_LEASE.name()).await?;
            self.memo.relays = Some(Relays::read(&relays, &leases));
        }
        Ok(())
    }

    fn known_relays(&mut self) -> &mut Relays {
        self.memo.relays.get_or_insert_default()
    }

    /// What is noted of the relay in whose name it is asked, to be changed. `None`: the daemon asks.
    pub(super) fn asking_relay(&mut self) -> Option<&mut documents::Relay> {
        let asker = self.asker.clone()?;
        self.known_relays().get_mut(&asker)
    }

    /// Writes what is another thing by now; who saw to attempts that ended sees to nothing.
    pub(super) async fn flush_relays(&mut self) -> StoreResult<()> {
        let relays = self.memo.relays.get_or_insert_default();
        self.ended.iter().for_each(|it| relays.see_to(it.attempt, None));
        for (name, text) in relays.take_changes() {
            self.store.note(name, text).await?;
        }
        Ok(())
    }

    /// Which queue it is. Made when it is asked for first.
    pub(super) async fn installation(&mut self) -> Carried<Arc<str>> {
        let name = INSTALLATION.name();
        if let Some(known) = self.document(&INSTALLATION, name).await? {
            return Ok(Ok(known.into()));
        }
        let made = format!("{:016x}", random());
        self.note(&INSTALLATION, name.to_owned(), &made).await?;
        Ok(Ok(made.into()))
    }

    /// A copy of a queue in a file is another queue's.
    pub(super) async fn place(&mut self) -> Carried<Option<Arc<str>>> {
        Ok(Ok(None))
    }

    pub(super) async fn join_relay(&mut self, it: JoinRelay) -> Carried<JoinedRelay> {
        let installation = match self.installation().await? {
            Ok(installation) => installation,
            Err(rejected) => return Ok(Err(rejected)),
        };
        if it.installation.as_ref().is_some_and(|known| *known != installation) {
            let why =
                "the daemon has another queue by now: this relay's lists and jobs are not its";
            return Ok(Err(Rejected(why.to_owned())));
        }
        let now = self.context.seconds();
        let is_another = self.known_relays().join(&it, now);
        // Another process counts its batches anew, and each one its rows with each epoch.
        let of_batches = OF_BATCHES.into_iter().filter(|_| is_another);
        for number in of_batches.chain(OF_RANGES) {
            self.forget_lane(&it.name, number).await?;
        }
        let relay = self.known_relays().get(&it.name).cloned().unwrap_or_default();
        if is_another {
            // Its files may have changed since the last process read rows that their positions are not behind.
            let fetchers: Vec<_> = relay.fetchers.iter().map(|name| self.fetcher(name)).collect();
            let runs = self.header.runs.keys().copied();
            let its = runs.filter(|(fetcher, _)| fetchers.contains(&Some(*fetcher)));
            for run in its.collect::<Vec<_>>() {
                let state = self.header.runs.change(run);
                state.stale = state.stale.for_the_next();
            }
        }
        Ok(Ok(JoinedRelay {
            epoch: relay.epoch,
            installation,
            is_paused: self.header.paused,
            input_directory: relay.input.identity.and_then(|it| DirectoryIdentity::parse(&it)),
        }))
    }

    async fn forget_lane(&mut self, relay: &str, number: u8) -> StoreResult<()> {
        let lane = lane(relay, number);
        self.store.note(RELAY_LANE.of(&lane), None).await?;
        self.store.note(RELAY_ANSWER.of(&lane), None).await
    }

    pub(super) async fn lose_relay(&mut self, it: LoseRelay) -> Carried<Option<u64>> {
        // What ended is nobody's.
        self.flush().await?;
        Ok(Ok(self.known_relays().lose(it.epoch, it.is_stopped)))
    }

    pub(super) async fn relays(&mut self) -> Carried<Vec<Relay>> {
        Ok(Ok(self.known_relays().all_acting()))
    }

    /// A relay's batch, if its number is a new one; else what it was answered.
    pub(super) async fn relayed(&mut self, it: Relayed) -> StoreResult<RelayAnswer> {
        let Relayed { epoch, lane, number, operations } = it;
        let Some(relay) = self.known_relays().acting(epoch) else {
            return Ok(RelayAnswer::Lost);
        };
        let is_numbered = !operations.iter().all(Operation::only_reads);
        let lane = self::lane(&relay, number_of(lane));
        if is_numbered || operations.is_empty() {
            let last = self.document(&RELAY_LANE, &RELAY_LANE.of(&lane)).await?.unwrap_or_default();
            if operations.is_empty() && number > last.number {
                // What it was answered is not in this queue: a backup was restored.
                return Ok(RelayAnswer::Lost);
            }
            if is_numbered && number <= last.number {
                if number < last.number {
                    return Ok(RelayAnswer::Outdated);
                }
                let answer = self.document(&RELAY_ANSWER, &RELAY_ANSWER.of(&lane)).await?;
                return Ok(answer.map_or(RelayAnswer::Outdated, RelayAnswer::Answered));
            }
        }
        let mut answers = Vec::with_capacity(operations.len());
        for operation in operations {
            self.asker = Some(relay.clone());
            let answer = self.of_asker(operation).await;
            self.asker = None;
            answers.push(answer?);
        }
        if is_numbered {
            let last = documents::Lane { number, rejected: Vec::new() };
            self.note(&RELAY_LANE, RELAY_LANE.of(&lane), &last).await?;
            self.note(&RELAY_ANSWER, RELAY_ANSWER.of(&lane), &answers).await?;
        }
        Ok(RelayAnswer::Answered(answers))
    }

    pub(super) async fn add_relayed_rows(
        &mut self,
        it: AddRelayedRows,
    ) -> Carried<Vec<RowsAnswer>> {
        let mut answers = Vec::with_capacity(it.0.len());
        for part in it.0 {
            answers.push(self.relayed_rows(part).await?);
        }
        Ok(Ok(answers))
    }

    async fn relayed_rows(&mut self, mut it: RelayedRows) -> StoreResult<RowsAnswer> {
        let Some(relay) = self.known_relays().acting(it.epoch) else {
            return Ok(RowsAnswer::Lost);
        };
        let name = RELAY_LANE.of(&lane(&relay, OF_RANGES.start.saturating_add(it.range)));
        let mut last = self.document(&RELAY_LANE, &name).await?.unwrap_or_default();
        if it.number <= last.number {
            return Ok(relays::answer_again(&it, &last.rejected));
        }
        if it.number > last.number.saturating_add(1) {
            return Ok(RowsAnswer::Gap);
        }
        let asker = self.asker.replace(relay);
        let rows = std::mem::take(&mut it.rows);
        let added = self.add_further_rows(&it.run, rows).await;
        self.asker = asker;
        let is_stored = added?;
        last.number = it.number;
        if !is_stored {
            relays::reject(it.number, &mut last.rejected);
        }
        self.note(&RELAY_LANE, name, &last).await?;
        Ok(if is_stored { RowsAnswer::Stored } else { it.rejected() })
    }

    /// Adds rows that are read on, and leaves the run's position where it is: until that moves, the run is stale for whoever
    /// registers it next, for its file may not have these rows any more. False: the run is not known, or goes.
    async fn add_further_rows(&mut self, run: &Run, rows: Vec<Row>) -> StoreResult<bool> {
        let Some(run) = self.growing(run) else {
            return Ok(false);
        };
        let state = self.header.runs.change(run);
        if state.stale == Stale::No {
            state.stale = Stale::Ahead;
        }
        self.add_lines(run, rows).await?;
        Ok(true)
    }

    /// Takes a fetcher that is nobody's, or is the asker's own. Else it says whose it is, for people.
    pub(super) fn take_fetcher(&mut self, fetcher: &Arc<str>) -> Option<String> {
        let asker = self.asker.clone();
        let owner = self.known_relays().owner(fetcher).cloned();
        if owner == asker {
            return None;
        }
        if !self.has_runs(fetcher) {
            self.known_relays().give(fetcher, asker.as_ref());
            return None;
        }
        let whose =
            owner.map_or_else(|| "the daemon".to_owned(), |name| format!("the relay {name}"));
        Some(format!(
            "the fetcher {fetcher} is {whose}'s: remove its lists there, or give this one another name"
        ))
    }

    fn has_runs(&self, fetcher: &str) -> bool {
        let id = self.fetcher(fetcher);
        id.is_some_and(|id| {
            self.header.runs.range((id, i64::MIN)..=(id, i64::MAX)).next().is_some()
        })
    }

    /// Whether a fetcher's lists are the asker's own.
    pub(super) fn is_own(&self, fetcher: &str) -> bool {
        let owner = self.memo.relays.as_ref().and_then(|relays| relays.owner(fetcher));
        owner == self.asker.as_ref()
    }

    /// Whether it is the asker who sees to an attempt.
    pub(super) fn sees_to(&self, attempt: Attempt) -> bool {
        let who = self.memo.relays.as_ref().and_then(|relays| relays.sees_to(attempt));
        who == self.asker.as_ref()
    }

    /// It is the asker who heard of the leased job of a record, and sees to it from now on.
    pub(super) fn note_lease(&mut self, slot: usize) {
        let flight = self.desk.record(slot).flight.as_ref().filter(|it| it.holder.is_some());
        if let Some(attempt) = flight.map(|it| it.attempt).filter(|it| !self.sees_to(*it)) {
            let asker = self.asker.clone();
            self.known_relays().see_to(attempt, asker.as_ref());
        }
    }

    async fn forget_relay(&mut self, name: &str) -> StoreResult<Forgetting> {
        let fetchers = match self.known_relays().get(name) {
            None => return Ok(Forgetting::Unknown),
            Some(relay) if relay.gone.is_none() => return Ok(Forgetting::Lives),
            Some(relay) => relay.fetchers.clone(),
        };
        let fetchers: Vec<_> = fetchers.iter().filter_map(|name| self.fetcher(name)).collect();
        let runs = self.header.runs.keys().filter(|(fetcher, _)| fetchers.contains(fetcher));
        let runs: Vec<_> = runs.copied().collect();
        let mut left = STEP_KEYS;
        for run in &runs {
            left = left.saturating_sub(self.delete_rows(*run, left).await?);
            if left == 0 {
                return Ok(Forgetting::More);
            }
        }
        runs.iter().for_each(|run| self.remove_run(*run));
        for number in OF_BATCHES.into_iter().chain(OF_RANGES) {
            self.forget_lane(name, number).await?;
        }
        self.known_relays().forget(&name.into());
        let fetchers: BTreeSet<_> = runs.iter().map(|(fetcher, _)| fetcher).collect();
        Ok(Forgetting::Gone { lists: runs.len() as u64, fetchers: fetchers.len() as u64 })
    }
}
