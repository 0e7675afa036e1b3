//! The state of a queue: the question of `status`.
//!
//! All counts are stored ones, or counts of few things: runs, fetchers of either kind, keys in flight, held keys. So
//! the time does not grow with the queue.

use shiftboss_protocol::model::UnixSeconds;

use super::{Look, Steps, WALK_MAX, count_of};
use crate::counts::{Counts, OF_KEYS, OF_SINGLES, Run};
use crate::documents::MEMBER;
use crate::listings::{Along, Listings};
use crate::records::Stored;
use shiftboss_protocol::answers::{
    FetcherStatus, HOLDERS_MAX, Holding, NotStopped, QueueStatus, Rows, Waiting,
};

/// Keys that are counted at once.
const COUNT_STEP: usize = 8_192;
const YEAR_2000: UnixSeconds = 946_684_800;

impl<S: Listings> Look<'_, S> {
    pub(super) async fn status(&mut self) -> Result<QueueStatus, S::Error> {
        let keepers = self.keepers().await?;
        let holders = self.holders().await?;
        let pace = self.pace().await?;
        let all = self.all_counts();
        let [singles, keys] = [OF_SINGLES, OF_KEYS].map(|it| self.counts(it));
        let rows = self.rows(all).await?;
        let [oldest_waiting, longest_wait] =
            [self.first_waiting(false).await?, self.first_waiting(true).await?];
        let daemon = self.head.daemon.as_ref();
        let running = daemon.and_then(|it| it.running);
        Ok(QueueStatus {
            schema_version: self.head.schema_version,
            durability: daemon.map(|it| it.durability.clone()),
            policy: daemon.map(|it| it.policy.word().to_owned()),
            lease_seconds: daemon.map(|it| it.lease_seconds),
            paused: self.head.header.paused,
            moved_to: keepers.moved_to,
            rows,
            dead_letters: all.dead,
            failed: all.failed,
            single_tasks: singles.rows,
            single_tasks_ended: singles.failed.saturating_add(singles.dead),
            max_single_tasks: daemon.map(|it| it.max_single_tasks),
            held: keys.held,
            hold_rules: self
                .head
                .holds
                .rules
                .iter()
                .map(|rule| rule.shown(&self.context))
                .collect(),
            hold_rules_carried: self.head.holds.carried,
            groups_carried: keepers.sorted,
            backed_off: keys.backed_off,
            delayed: all.delayed,
            bumped: keys.bumped,
            keys: keys.keys,
            unlisted_keys: keys.unlisted,
            forgotten_keys: keepers.forgotten.try_into().unwrap_or(i64::MAX),
            groups: self.group_counts().await?,
            holders,
            fetchers: self.fetchers(),
            managed_fetchers: keepers.fetchers,
            oldest_waiting,
            longest_wait,
            done_last_hour: pace.done,
            done_since: pace.minutes.first().map(|minute| minute.since),
            busy_seconds: pace.busy_seconds,
            rejected_files: keepers.rejected,
            directory_lost_since: keepers.lost.as_ref().map(|lost| lost.since),
            directory_lost_reason: keepers.lost.map(|lost| lost.reason),
            not_stopped: running.map(|it| NotStopped {
                pid: it.pid,
                started: it.started,
                last_write: self.head.last_write.or(keepers.last_beat),
            }),
            daemons: keepers.daemons,
            relays: keepers.relays,
        })
    }

    fn counts(&self, run: Run) -> Counts {
        self.head.header.counts.0.get(&run).copied().unwrap_or_default()
    }

    /// Counts of all runs; of those under deletion only the jobs that are out.
    fn all_counts(&self) -> Counts {
        let mut all = Counts::default();
        for (run, counts) in &self.head.header.counts.0 {
            let Counts { in_flight, leased, redelivered, .. } = *counts;
            let out = Counts { in_flight, leased, redelivered, ..Counts::default() };
            all.add(if self.context.going.contains(run) { out } else { *counts });
        }
        all
    }

    async fn rows(&mut self, all: Counts) -> Result<Rows, S::Error> {
        let (mut steps, mut claimed) = (Steps::claimed(&self.context), 0);
        while !steps.is_all && claimed < WALK_MAX {
            claimed += steps.next(self, COUNT_STEP).await?.len();
        }
        Ok(Rows {
            pending: all.waiting,
            dispatched: all.rows.saturating_sub(all.waiting),
            in_flight: all.in_flight.saturating_add(count_of(claimed)),
            leased: all.leased,
            redelivered: all.redelivered,
        })
    }

    /// The oldest jobs that are out, from their hand-out until they end or their lease expires.
    async fn holders(&mut self) -> Result<Vec<Holding>, S::Error> {
        let mut out = Steps::new(Along::Out).records(self, HOLDERS_MAX).await?;
        out.extend(Steps::claimed(&self.context).records(self, HOLDERS_MAX).await?);
        let mut held: Vec<Holding> = out.iter().filter_map(|it| self.holding(it)).collect();
        held.sort_by(|one, other| {
            (one.since, one.attempt, &one.key).cmp(&(other.since, other.attempt, &other.key))
        });
        held.truncate(HOLDERS_MAX);
        Ok(held)
    }

    fn holding(&self, stored: &Stored) -> Option<Holding> {
        let record = &stored.record;
        let flight = record.flight.as_ref();
        let holder = flight.and_then(|it| it.holder.as_ref());
        let owner = flight.and_then(|it| it.owner.as_ref());
        record.is_in_flight(&self.context).then(|| Holding {
            worker: holder.map(|it| it.worker.to_string()),
            key: record.key.to_string(),
            attempt: flight.map(|it| it.attempt.0),
            since: record.out_since().unwrap_or_default(),
            lease_seconds: holder.map(|it| it.lease_seconds.into()),
            daemon: owner.and_then(|it| it.strip_prefix(MEMBER.name())).map(str::to_owned),
        })
    }

    /// Each with its newest run, by name. Single tasks are shown as one fetcher, with the last number as its run.
    fn fetchers(&self) -> Vec<FetcherStatus> {
        let header = &self.head.header;
        let mut fetchers: Vec<FetcherStatus> = Vec::new();
        let mut last = None;
        for ((fetcher, run), state) in header.runs.iter().filter(|it| !it.1.deleting).rev() {
            if last == Some(*fetcher) {
                let newest = fetchers.last_mut();
                let Counts { failed, dead, .. } = self.counts((*fetcher, *run));
                newest.into_iter().for_each(|it| {
                    it.older_runs += 1;
                    it.failed = it.failed.saturating_add(failed);
                    it.dead_letters = it.dead_letters.saturating_add(dead);
                });
                continue;
            }
            last = Some(*fetcher);
            let skipped = i64::try_from(state.skipped).unwrap_or(i64::MAX);
            fetchers.push(self.fetcher_status((*fetcher, *run), *run, state.complete, skipped));
        }
        if self.counts(OF_SINGLES).rows > 0 {
            fetchers.push(self.fetcher_status(OF_SINGLES, header.last_single, true, 0));
        }
        fetchers.sort_by(|one, other| one.name.cmp(&other.name));
        fetchers
    }

    fn fetcher_status(&self, run: Run, shown: i64, complete: bool, skipped: i64) -> FetcherStatus {
        let (counts, now) = (self.counts(run), self.context.seconds());
        FetcherStatus {
            name: self.name(run.0),
            run: shown,
            complete,
            lines: counts.rows,
            pending: counts.waiting,
            skipped,
            older_runs: 0,
            dead_letters: counts.dead,
            failed: counts.failed,
            age_seconds: age(shown, now),
        }
    }

    async fn first_waiting(&mut self, that_ran: bool) -> Result<Option<Waiting>, S::Error> {
        let first = self.first_in_order(that_ran).await?;
        Ok(first.map(|Stored { record, .. }| Waiting {
            key: record.key.to_string(),
            last_started: self.last_start(&record),
        }))
    }
}

/// A run's number is usually the time of its start; a number before 2000 cannot be one, and gives no age.
pub fn age(run: i64, now: UnixSeconds) -> Option<i64> {
    (YEAR_2000..=now).contains(&run).then(|| now - run)
}
