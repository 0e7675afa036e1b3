//! What ended, summed up: by hour, for `stats`; and by minute, for how fast jobs end.

use std::collections::BTreeMap;

use super::Look;
use crate::attempt::Outcome;
use crate::listings::{Listings, Summed, SumsOf};
use crate::pace::busy_seconds;
use crate::reader::{GROUPS_MAX, Grouping, StatsOf};
use crate::record::FetcherId;
use crate::sums::Hour;
use shiftboss_protocol::answers::{Done, MinuteJobs, Stats, StatsGroup};

const HOUR_SECONDS: i64 = 3_600;
/// Jobs that ended within this many minutes are counted.
const HOUR_MINUTES: i64 = 60;
/// Most sums that are read, each of one outcome: one group has seven.
const SUMS_MAX: usize = 7 * (GROUPS_MAX + 1);

/// How fast jobs ended within the last hour.
pub(super) struct Pace {
    /// Those in which any ended.
    pub(super) minutes: Vec<MinuteJobs>,
    pub(super) busy_seconds: Option<i64>,
    pub(super) done: Vec<Done>,
}

impl<S: Listings> Look<'_, S> {
    pub(super) async fn stats(&mut self, asked: &StatsOf) -> Result<Stats, S::Error> {
        let (by_fetcher, hours) = match asked.by {
            Grouping::All => (false, 0),
            Grouping::Fetcher => (true, 0),
            Grouping::Hour => (false, 1),
            Grouping::Day => (false, 24),
            Grouping::FetcherDay => (true, 24),
        };
        let since = asked.since.div_euclid(HOUR_SECONDS);
        let fetchers: Vec<FetcherId> =
            asked.fetchers.iter().filter_map(|name| self.fetcher(name)).collect();
        let fetchers = (!asked.fetchers.is_empty()).then_some(&*fetchers);
        let of = SumsOf { since, fetchers, by_fetcher, hours, count: SUMS_MAX };
        let mut groups: BTreeMap<_, Group> = BTreeMap::new();
        for it in self.store.hours(&of).await? {
            let of = (it.fetcher.map(|id| self.name(id)), it.since);
            groups.entry(of).or_default().add(&it);
        }
        let truncated = groups.len() > GROUPS_MAX;
        let groups = groups.into_iter().take(GROUPS_MAX).map(Group::shown).collect();
        Ok(Stats { since: since * HOUR_SECONDS, by: asked.by, groups, truncated })
    }

    /// Jobs that ended within the last hour: by minute, and by exit code.
    pub(super) async fn last_hour(&mut self) -> Result<(Vec<MinuteJobs>, Vec<Done>), S::Error> {
        let now = self.context.seconds().div_euclid(60);
        let (mut by_minute, mut by_code) = (BTreeMap::new(), BTreeMap::new());
        let minutes = self.store.minutes(now - HOUR_MINUTES).await?;
        // Minutes in the future are from a clock that was ahead.
        for (minute, exit_code, jobs) in minutes.into_iter().filter(|it| it.0 <= now) {
            for sum in [by_minute.entry(minute), by_code.entry(exit_code)].map(|it| it.or_insert(0))
            {
                *sum = jobs.saturating_add(*sum);
            }
        }
        let minute =
            |(minute, jobs): (i64, _)| MinuteJobs { since: minute.saturating_mul(60), jobs };
        let done = |(exit_code, jobs)| Done { exit_code, jobs };
        Ok((by_minute.into_iter().map(minute).collect(), by_code.into_iter().map(done).collect()))
    }

    pub(super) async fn pace(&mut self) -> Result<Pace, S::Error> {
        let now = self.context.seconds();
        let (minutes, done) = self.last_hour().await?;
        let since = now.div_euclid(HOUR_SECONDS) - 1;
        let (fetchers, by_fetcher, hours, count) = (None, false, 0, SUMS_MAX);
        let of = SumsOf { since, fetchers, by_fetcher, hours, count };
        let (mut took_ms, mut jobs) = (0_i64, 0_i64);
        for Summed { sums, .. } in self.store.hours(&of).await? {
            (took_ms, jobs) =
                (took_ms.saturating_add(sums.took_ms), jobs.saturating_add(sums.jobs));
        }
        let busy_seconds = busy_seconds(&minutes, took_ms / jobs.max(1) / 1_000, now);
        Ok(Pace { minutes, busy_seconds, done })
    }
}

/// What ended in a group, and the sum of its jobs that were done.
#[derive(Default)]
struct Group {
    ended: StatsGroup,
    done: Hour,
}

impl Group {
    fn add(&mut self, Summed { outcome, sums, .. }: &Summed) {
        let it = &mut self.ended;
        let count = match outcome {
            Outcome::Success => &mut it.success,
            Outcome::Timeout => &mut it.timeout,
            Outcome::Failure => &mut it.failure,
            Outcome::Released => &mut it.released,
            Outcome::Undone => &mut it.undone,
            Outcome::Expired => &mut it.expired,
            Outcome::Cancelled => &mut it.cancelled,
        };
        *count = count.saturating_add(sums.jobs);
        if outcome.has_run() {
            self.done.add(*sums, 1);
        }
    }

    fn shown(
        ((fetcher, since), Self { ended, done }): ((Option<String>, Option<i64>), Self),
    ) -> StatsGroup {
        let mean = |sum: i64, count: i64| (count > 0).then(|| sum / count);
        StatsGroup {
            fetcher,
            since,
            jobs: done.jobs,
            mean_ms: mean(done.took_ms, done.jobs),
            cycle_seconds: mean(done.revisit_seconds, done.revisits),
            ..ended
        }
    }
}
