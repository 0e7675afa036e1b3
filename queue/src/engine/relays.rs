//! Requests of relays, in the batch's transaction: joining, and batches of their own, each carried out once and in the
//! relay's name. What a relay owns is handled as any [member](super::members)'s.

use std::ops::Range;
use std::sync::Arc;

use shiftboss_protocol::backoff::random;
use shiftboss_protocol::model::{Row, Run};

use super::{Batch, Carried};
use crate::documents::{self, Gone, INSTALLATION, RELAY, RELAY_ANSWER, RELAY_LANE};
use crate::error::Rejected;
use crate::members;
use crate::operation::{
    AddRelayedRows, JoinRelay, JoinedRelay, Lane, LoseRelay, Operation, RANGES, Relay, RelayAnswer,
    Relayed, RelayedRows, RowsAnswer,
};
use crate::records::{Records, Stale, StoreResult};

/// The lanes that number batches; the others number ranges.
const OF_BATCHES: [u8; 2] = [Lane::Jobs as u8, Lane::Lists as u8];
const OF_RANGES: Range<u8> = 16..16 + RANGES;

/// The name of a relay's lane.
fn lane(relay: &str, number: u8) -> String {
    format!("{}/{number}", RELAY.whose(relay))
}

impl<S: Records> Batch<'_, S> {
    /// The identity of this queue. Made when it is first asked for.
    pub(super) async fn installation(&mut self) -> StoreResult<Arc<str>> {
        let name = INSTALLATION.name();
        if let Some(known) = self.document(&INSTALLATION, name).await? {
            return Ok(known.into());
        }
        let made = format!("{:016x}", random());
        self.note(&INSTALLATION, name.to_owned(), &made).await?;
        Ok(made.into())
    }

    pub(super) async fn join_relay(&mut self, it: JoinRelay) -> Carried<JoinedRelay> {
        let installation = self.installation().await?;
        if it.installation.as_ref().is_some_and(|known| *known != installation) {
            let why =
                "the daemon has another queue by now: this relay's lists and jobs are not its";
            return Ok(Err(Rejected(why.to_owned())));
        }
        let now = self.context.seconds();
        let is_another = self.known_members().join_relay(&it, now);
        let name: Arc<str> = RELAY.of(&it.name).into();
        // A new process numbers its batches anew, and its rows are numbered anew with each epoch.
        let of_batches = OF_BATCHES.into_iter().filter(|_| is_another);
        for number in of_batches.chain(OF_RANGES) {
            self.forget_lane(&name, number).await?;
        }
        let relay = self.known_members().get(&name).cloned().unwrap_or_default();
        if is_another {
            // Its files may have changed since the last process read rows beyond their stored positions.
            let runs: Vec<_> = relay.fetchers.iter().flat_map(|it| self.runs_of(it)).collect();
            for run in runs {
                let state = self.header.runs.change(run);
                state.stale = state.stale.for_the_next();
            }
        }
        Ok(Ok(JoinedRelay {
            epoch: relay.epoch,
            installation,
            is_paused: self.header.paused,
            input_directory: relay.input.identity,
        }))
    }

    pub(super) async fn forget_lanes(&mut self, relay: &str) -> StoreResult<()> {
        for number in OF_BATCHES.into_iter().chain(OF_RANGES) {
            self.forget_lane(relay, number).await?;
        }
        Ok(())
    }

    async fn forget_lane(&mut self, relay: &str, number: u8) -> StoreResult<()> {
        let lane = lane(relay, number);
        self.store.note(RELAY_LANE.of(&lane), None).await?;
        self.store.note(RELAY_ANSWER.of(&lane), None).await
    }

    pub(super) async fn lose_relay(&mut self, it: LoseRelay) -> StoreResult<Option<u64>> {
        let Some(relay) = self.known_members().acting(it.epoch) else { return Ok(None) };
        let gone = if it.is_stopped { Gone::Stopped } else { Gone::Silent };
        let now = self.context.seconds();
        self.lose(&relay, gone, now).await.map(Some)
    }

    pub(super) async fn relays(&mut self) -> StoreResult<Vec<Relay>> {
        let beats = self.store.beats().await?;
        let mut relays = self.known_members().all_acting();
        for relay in &mut relays {
            let name = RELAY.of(&relay.name);
            relay.beat = beats.iter().find(|it| it.0 == name).map_or(0, |it| it.1);
        }
        Ok(relays)
    }

    /// Carries out a relay's batch if its number is new; else returns its earlier answer.
    pub(super) async fn relayed(&mut self, it: Relayed) -> StoreResult<RelayAnswer> {
        let Relayed { epoch, lane, number, operations } = it;
        let Some(relay) = self.known_members().acting(epoch) else {
            return Ok(RelayAnswer::Lost);
        };
        self.store.heard(&relay, self.context.seconds());
        let is_numbered = !operations.iter().all(Operation::only_reads);
        let lane = self::lane(&relay, lane as u8);
        if is_numbered || operations.is_empty() {
            let last = self.document(&RELAY_LANE, &RELAY_LANE.of(&lane)).await?.unwrap_or_default();
            if operations.is_empty() && number > last.number {
                // This queue does not have the answers that the relay got: a backup was restored.
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
            let asker = self.asker.replace(relay.clone());
            let answer = self.of_asker(operation).await;
            self.asker = asker;
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
    ) -> StoreResult<Vec<RowsAnswer>> {
        let mut answers = Vec::with_capacity(it.0.len());
        for part in it.0 {
            answers.push(self.relayed_rows(part).await?);
        }
        Ok(answers)
    }

    async fn relayed_rows(&mut self, mut it: RelayedRows) -> StoreResult<RowsAnswer> {
        let Some(relay) = self.known_members().acting(it.epoch) else {
            return Ok(RowsAnswer::Lost);
        };
        self.store.heard(&relay, self.context.seconds());
        let name = RELAY_LANE.of(&lane(&relay, OF_RANGES.start.saturating_add(it.range)));
        let mut last = self.document(&RELAY_LANE, &name).await?.unwrap_or_default();
        if it.number <= last.number {
            return Ok(members::answer_again(&it, &last.rejected));
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
            members::reject(it.number, &mut last.rejected);
        }
        self.note(&RELAY_LANE, name, &last).await?;
        Ok(if is_stored { RowsAnswer::Stored } else { it.rejected() })
    }

    /// Adds further rows of a run, and leaves the run's position where it is. Until that moves, the run is stale for
    /// its next registration, because its file may no longer have these rows. False: the run is unknown, or under
    /// deletion.
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
}
