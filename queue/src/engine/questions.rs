//! Questions about the queue as a whole: what is out, which runs there are, why there is nothing to do. Answered from
//! counts.

use std::sync::Arc;

use shiftboss_protocol::model::{Attempt, IDLE_COUNT_MAX, Idle, Run};

use super::Batch;
use super::clock::seconds_left;
use crate::counts::{Counts, OF_KEYS, Tally};
use crate::file_identity::Position;
use crate::operation::{STOPS_MAX, StoredRun};
use crate::record::{FetcherId, Millis, Record};
use crate::records::{InFlight, Records, RunState, Stale, StoreResult};
use crate::rules;

impl<S: Records> Batch<'_, S> {
    /// Counts by run, with everything that is not saved yet.
    pub(super) fn counts(&self) -> Tally {
        let mut counts = self.header.counts.clone();
        counts.merge(&self.desk.tally());
        counts
    }

    /// Keys that are held by operators.
    pub(super) fn count_held(&self) -> usize {
        self.count_keys(|counts| counts.held, |record| record.extras.hold.is_some())
    }

    /// Keys that are bumped, and wait for their turn.
    pub(super) fn count_bumped(&self) -> usize {
        self.count_keys(|counts| counts.bumped, |record| record.extras.bump.is_some())
    }

    /// The stored count, plus unsaved changes.
    fn count_keys(&self, of: impl Fn(&Counts) -> i64, is: impl Fn(&Record) -> bool) -> usize {
        let saved = self.header.counts.0.get(&OF_KEYS).map_or(0, of);
        usize::try_from(saved.saturating_add(self.desk.more(is))).unwrap_or(0)
    }

    pub(super) async fn pause(&mut self, is_paused: bool) -> StoreResult<u64> {
        self.header.paused = is_paused;
        if !is_paused {
            self.drain(false);
        }
        self.count_all_in_flight().await
    }

    pub(super) async fn begin_drain(&mut self) -> StoreResult<u64> {
        match self.drain(true) {
            true => self.count_in_flight().await,
            false => self.pause(true).await,
        }
    }

    /// The number of jobs that are out; for a member, of those whose leases it keeps.
    pub(super) async fn count_in_flight(&mut self) -> StoreResult<u64> {
        if self.asker.is_none() {
            return self.count_all_in_flight().await;
        }
        self.flush().await?;
        let flights = self.store.flights().await?.into_iter();
        Ok(flights.filter(|it| it.owner == self.asker).count() as u64)
    }

    /// Under `--classic` a classic job is out for the length of its lease.
    async fn count_all_in_flight(&mut self) -> StoreResult<u64> {
        if self.context.settings.is_fair {
            return Ok(sum(self.counts().0.values().map(|it| it.in_flight)));
        }
        self.flush().await?;
        let (now, seconds) = (self.context.seconds(), self.context.settings.lease_seconds);
        let is_over = |started: i64| started.div_euclid(1_000).saturating_add(seconds) < now;
        let flights = self.store.flights().await?.into_iter();
        Ok(flights.filter(|it| it.lease_seconds.is_some() || !is_over(it.started)).count() as u64)
    }

    /// The requester's attempts that are out, with their leases in seconds: from the last sign of life of a leased one,
    /// from the start of a classic one. Under `--classic` classic jobs have no lease.
    pub(super) async fn leases(&mut self) -> StoreResult<Vec<(Attempt, u32)>> {
        self.flush().await?;
        let length = self.context.settings.lease_seconds.saturating_mul(1_000);
        let mut leases = Vec::new();
        for it in self.store.flights().await? {
            let is_classic = it.lease_seconds.is_none();
            if !self.has_job(it.owner.as_ref(), is_classic) {
                continue;
            }
            let seconds = match it.lease_seconds {
                Some(seconds) => seconds,
                None if !self.context.settings.is_fair => continue,
                None => {
                    let end = self.classic_start(&it).await?.saturating_add(length);
                    u32::try_from(seconds_left(end, self.context.now)).unwrap_or(u32::MAX)
                }
            };
            leases.push((it.attempt, seconds));
        }
        Ok(leases)
    }

    pub(super) async fn stops(&mut self) -> StoreResult<Vec<Attempt>> {
        self.flush().await?;
        self.store.stops(STOPS_MAX).await
    }

    /// When the lease of a classic job begins: at its start or, if it was handed out by a clock that was ahead, when
    /// that is first noticed.
    async fn classic_start(&mut self, it: &InFlight) -> StoreResult<Millis> {
        if it.started <= self.context.now {
            return Ok(it.started);
        }
        let Some(slot) = self.slot_of_flight(it.attempt).await? else { return Ok(it.started) };
        let seen = rules::leases::counts_from(self.desk.record_mut(slot), &self.context);
        self.changed(slot);
        Ok(seen.map_or(it.started, |at| at.saturating_mul(1_000)))
    }

    /// For a worker that takes the tasks of these fetchers.
    pub(super) async fn why_idle(&mut self, of: Option<Vec<Arc<str>>>) -> StoreResult<Idle> {
        let scope = self.scope(of);
        let is_paused = self.header.paused || self.is_draining();
        let mut all = Counts::default();
        let (mut waiting, mut others) = (0_i64, 0_i64);
        for (run, counts) in &self.counts().0 {
            let delayed = if scope.has(run.0) { counts.delayed } else { 0 };
            all.add(Counts { delayed, ..*counts });
            if !self.context.going.contains(run) {
                waiting = waiting.saturating_add(counts.waiting);
                let is_others = !scope.has(run.0);
                others = others.saturating_add(if is_others { counts.waiting } else { 0 });
            }
        }
        let count = |sum: i64| u32::try_from(sum.max(0)).unwrap_or(u32::MAX).min(IDLE_COUNT_MAX);
        let held = all.held.saturating_add(all.backed_off);
        // Closed groups keep it from nothing if none of its tasks waits.
        let groups = if waiting > others { self.closed_groups().await? } else { 0 };
        let comes_back = all.delayed > 0 || held > 0;
        let due = if comes_back { self.next_hold_end().await? } else { None };
        Ok(Idle {
            paused: is_paused.then_some(count(waiting)),
            busy: count(all.in_flight),
            delayed: count(all.delayed),
            held: count(held),
            groups,
            others: count(others),
            due: due.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
        })
    }

    /// The requester's own runs.
    pub(super) fn runs(&self) -> Vec<StoredRun> {
        let tally = self.desk.tally();
        let runs = self.header.runs.iter();
        let runs = runs.map(|(run, state)| self.stored_run(*run, state, &tally));
        runs.filter(|it| self.is_own(&it.run.fetcher)).collect()
    }

    pub(super) fn stored_run(
        &self,
        run: (FetcherId, i64),
        state: &RunState,
        not_saved: &Tally,
    ) -> StoredRun {
        let of = |counts: &Tally| counts.0.get(&run).map_or(0, |it| it.rows);
        let rows = of(&self.header.counts).saturating_add(of(not_saved));
        StoredRun {
            run: Run { fetcher: self.context.fetcher(run.0), started: run.1 },
            complete: state.complete,
            position: state.position.as_deref().and_then(Position::parse),
            rows: u64::try_from(rows).unwrap_or(0),
            deleting: state.deleting,
            stale: state.stale != Stale::No,
        }
    }
}

/// Counts edited by hand may be negative.
fn sum(counts: impl Iterator<Item = i64>) -> u64 {
    counts.map(|it| u64::try_from(it).unwrap_or(0)).fold(0, u64::saturating_add)
}
