//! How a queue stands: the question of `status`.
//!
//! All counts are kept ones, or those of few: runs, fetchers of either kind, keys in flight, keys that are held. So it takes no
//! longer the larger the queue is.

use std::path::Path;
use std::time::UNIX_EPOCH;

use rusqlite::Result;
use shiftboss_protocol::model::{Attempt, UnixSeconds};
use shiftboss_queue::answers::{
    FetcherStatus, HOLDERS_MAX, Holding, NotStopped, QueueStatus, RejectedFile, RelayStatus, Rows,
    Waiting,
};
use shiftboss_queue::counts::{Counts, OF_KEYS, OF_SINGLES, Run};
use shiftboss_queue::documents::{FETCHER, Gone, INPUT, MOVED, Member, REJECTED, RELAY, Rejected};
use shiftboss_queue::records::Stored;
use shiftboss_queue::views::managed;

use super::{Look, limit};
use crate::ask::Ask;
use crate::snapshot::beside;

const CLAIMED: &str = "SELECT count(*) FROM keys INDEXED BY claimed
    WHERE claimed = 1 AND started IS NOT NULL AND finished IS NULL";
/// Of single tasks the highest number is shown as their run.
const LAST_TASK: &str = "SELECT coalesce(max(number), 0) FROM tasks";
const YEAR_2000: UnixSeconds = 946_684_800;

impl Look<'_> {
    pub(super) fn status(&mut self) -> Result<QueueStatus> {
        let input = self.document(&INPUT)?.unwrap_or_default();
        let lost_since = input.lost.as_ref().map(|lost| lost.since);
        let fetchers = self.documents(&FETCHER)?.into_iter();
        let pace = self.pace()?;
        let all = self.all_counts();
        let [singles, keys] = [OF_SINGLES, OF_KEYS].map(|it| self.counts(it));
        let daemon = self.daemon.clone();
        let daemon = daemon.as_ref();
        let running = daemon.and_then(|it| it.running);
        Ok(QueueStatus {
            schema_version: self.connection.value("PRAGMA user_version", [])?,
            durability: daemon.map(|it| it.durability.clone()),
            policy: daemon.map(|it| it.policy.word().to_owned()),
            lease_seconds: daemon.map(|it| it.lease_seconds),
            paused: self.kept.header.paused,
            moved_to: self.document(&MOVED)?.map(|it| it.place),
            rows: self.rows(all)?,
            dead_letters: all.dead,
            single_tasks: singles.rows,
            single_tasks_ended: singles.failed.saturating_add(singles.dead),
            max_single_tasks: daemon.map(|it| it.max_single_tasks),
            held: keys.held,
            backed_off: keys.backed_off,
            delayed: all.delayed,
            bumped: keys.bumped,
            holders: self.holders()?,
            fetchers: self.fetchers()?,
            managed_fetchers: fetchers.map(|(_, it)| managed(it, lost_since)).collect(),
            oldest_waiting: self.first_waiting(false)?,
            longest_wait: self.first_waiting(true)?,
            done_last_hour: self.done_last_hour()?,
            done_since: pace.minutes.first().map(|minute| minute.since),
            busy_seconds: pace.busy_seconds,
            rejected_files: self.rejected()?,
            directory_lost_since: lost_since,
            directory_lost_reason: input.lost.map(|lost| lost.reason),
            not_stopped: running.map(|it| NotStopped {
                pid: it.pid,
                started: it.started,
                last_write: self.connection.path().and_then(|path| last_write(Path::new(path))),
            }),
            daemons: Vec::new(),
            relays: self.relays()?,
        })
    }

    fn counts(&self, run: Run) -> Counts {
        self.kept.header.counts.0.get(&run).copied().unwrap_or_default()
    }

    /// Of all runs, but for those that go: of them only what is out.
    fn all_counts(&self) -> Counts {
        let mut all = Counts::default();
        for (run, counts) in &self.kept.header.counts.0 {
            let Counts { in_flight, leased, redelivered, .. } = *counts;
            let out = Counts { in_flight, leased, redelivered, ..Counts::default() };
            all.add(if self.context.going.contains(run) { out } else { *counts });
        }
        all
    }

    fn rows(&self, all: Counts) -> Result<Rows> {
        let claimed: i64 = self.connection.value(CLAIMED, [])?;
        Ok(Rows {
            pending: all.waiting,
            dispatched: all.rows.saturating_sub(all.waiting),
            in_flight: all.in_flight.saturating_add(claimed),
            leased: all.leased,
            redelivered: all.redelivered,
        })
    }

    /// The jobs that are held, from their hand-out until they end or their lease expires, the oldest ones.
    fn holders(&mut self) -> Result<Vec<Holding>> {
        let mut out = self.loader.in_flight(Attempt(0), HOLDERS_MAX)?;
        out.extend(self.loader.claimed(None, HOLDERS_MAX)?);
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
        record.is_in_flight(&self.context).then(|| Holding {
            worker: holder.map(|it| it.worker.to_string()),
            key: record.key.to_string(),
            attempt: flight.map(|it| it.attempt.0),
            since: record.out_since().unwrap_or_default(),
            lease_seconds: holder.map(|it| it.lease_seconds.into()),
            daemon: None,
        })
    }

    /// Each with its newest run, by name. Single tasks are shown as one.
    fn fetchers(&self) -> Result<Vec<FetcherStatus>> {
        let runs = self.kept.header.runs.iter().filter(|(_, state)| !state.deleting);
        let mut fetchers: Vec<FetcherStatus> = Vec::new();
        let mut last = None;
        for ((fetcher, run), state) in runs.rev() {
            if last == Some(*fetcher) {
                let newest = fetchers.last_mut();
                newest.into_iter().for_each(|it| it.older_runs += 1);
                continue;
            }
            last = Some(*fetcher);
            let skipped = i64::try_from(state.skipped).unwrap_or(i64::MAX);
            fetchers.push(self.fetcher_status((*fetcher, *run), *run, state.complete, skipped));
        }
        if self.counts(OF_SINGLES).rows > 0 {
            let number = self.connection.value(LAST_TASK, [])?;
            fetchers.push(self.fetcher_status(OF_SINGLES, number, true, 0));
        }
        fetchers.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(fetchers)
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
            age_seconds: age(shown, now),
        }
    }

    fn first_waiting(&mut self, that_ran: bool) -> Result<Option<Waiting>> {
        let first = self.first_in_order(that_ran)?;
        let stored = first.map(|key| self.loader.by_id(key)).transpose()?.flatten();
        Ok(stored.map(|Stored { record, .. }| Waiting {
            key: record.key.to_string(),
            last_started: self.last_start(&record),
        }))
    }

    fn rejected(&self) -> Result<Vec<RejectedFile>> {
        let file = |(name, Rejected { reason, since }): (String, Rejected)| RejectedFile {
            name,
            reason,
            since,
            daemon: None,
        };
        Ok(self.documents(&REJECTED)?.into_iter().map(file).collect())
    }

    fn relays(&self) -> Result<Vec<RelayStatus>> {
        let sql = "SELECT owner FROM keys WHERE attempt IS NOT NULL AND owner IS NOT NULL";
        let leased: Vec<String> = self.connection.values(sql, [])?;
        let runs = &self.kept.header.runs;
        let has_runs = |name: &str| {
            self.fetcher(name)
                .is_some_and(|id| runs.range((id, i64::MIN)..=(id, i64::MAX)).next().is_some())
        };
        let relay = |(name, it): (String, Member)| {
            let owner = RELAY.of(&name);
            let own = it.fetchers.iter().filter(|name| has_runs(name));
            let mut fetchers: Vec<String> = own.map(ToString::to_string).collect();
            fetchers.sort_unstable();
            RelayStatus {
                joined_since: it.joined,
                gone: it.gone.is_some(),
                silent: it.gone == Some(Gone::Silent),
                directory_lost_since: it.input.lost.as_ref().map(|lost| lost.since),
                directory_lost_reason: it.input.lost.map(|lost| lost.reason),
                rejected_files: limit(it.rejected.len()),
                in_flight: limit(leased.iter().filter(|it| **it == owner).count()),
                fetchers,
                name,
            }
        };
        Ok(self.documents(&RELAY)?.into_iter().map(relay).collect())
    }
}

/// A run's number is usually the time of its start; one that cannot be, before 2000, has no age.
pub(super) fn age(run: i64, now: UnixSeconds) -> Option<i64> {
    (YEAR_2000..=now).contains(&run).then(|| now - run)
}

/// The time of the log's file, or of the database's.
fn last_write(path: &Path) -> Option<UnixSeconds> {
    let written = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let last = written(&beside(path, "-wal")).max(written(path))?;
    i64::try_from(last.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}
