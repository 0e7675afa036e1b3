//! What ended, by hour, fetcher and outcome: sums that are written once a commit.
//!
//! Counted by whatever keeps an attempt ([`attempts`](super::attempts)), written by the
//! [write-behind counters](super::write_behind). Ends by hand count nowhere here: no attempt is kept of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Result};
use shiftboss_actors::store::JobEnd;
use shiftboss_protocol::model::{TASKS_FETCHER, UnixSeconds};

use super::attempts::{EXPIRED, EndedAttempt, Outcome};
use super::query::Query;
use super::rows::Delivery;
use super::schema::TASKS_ID;
use crate::stores::outcome_words::of_code;

const HOUR_SECONDS: i64 = 3_600;
/// Hours that are kept: 90 days.
const HOURS_KEPT: i64 = 90 * 24;

/// An attempt that ended, as it is counted.
#[derive(Debug, Clone)]
pub(super) struct AttemptEnd {
    fetcher_id: i64,
    outcome: &'static str,
    finished: UnixSeconds,
    took_ms: i64,
    /// Since its key's start before.
    revisit_seconds: Option<i64>,
}

impl AttemptEnd {
    pub(super) fn of(
        delivery: &Delivery,
        (outcome, exit_code): Outcome,
        finished: UnixSeconds,
        took_ms: Option<i64>,
    ) -> Self {
        let started = delivery.started;
        // Wall clocks step.
        let by_clock = || finished.saturating_sub(started).max(0).saturating_mul(1_000);
        Self {
            fetcher_id: delivery.fetcher_id,
            outcome: exit_code.map_or(outcome, of_code),
            finished,
            took_ms: took_ms.unwrap_or_else(by_clock),
            revisit_seconds: delivery
                .prev_started
                .map(|before| started.saturating_sub(before).max(0)),
        }
    }
}

/// Hour, fetcher and outcome.
type Group = (i64, i64, &'static str);

#[derive(Debug, Default)]
struct Sums {
    jobs: i64,
    took_ms: i64,
    revisits: i64,
    revisit_seconds: i64,
}

/// What is not in the table yet.
#[derive(Debug, Default)]
pub(super) struct Hours {
    /// Of most commits there is one.
    sums: Vec<(Group, Sums)>,
    /// The ends themselves, until their transaction is committed.
    ends: Vec<AttemptEnd>,
    /// The last hour in which anything ended.
    hour: i64,
}

impl Hours {
    pub(super) fn count(&mut self, end: AttemptEnd) {
        self.add(&end, 1);
        self.ends.push(end);
    }

    /// A late result takes the place of the expired lease.
    pub(super) fn recount_late(&mut self, late: &EndedAttempt, outcome: Outcome, now: UnixSeconds) {
        let EndedAttempt { delivery, took_ms, .. } = late;
        let end = |outcome, finished| AttemptEnd::of(delivery, outcome, finished, *took_ms);
        self.add(&end(EXPIRED, late.finished), -1);
        self.count(end(outcome, now));
    }

    fn add(&mut self, end: &AttemptEnd, times: i64) {
        let hour = end.finished.div_euclid(HOUR_SECONDS);
        let sums = self.sums_of((hour, end.fetcher_id, end.outcome));
        sums.jobs += times;
        sums.took_ms += times * end.took_ms;
        sums.revisits += times * i64::from(end.revisit_seconds.is_some());
        sums.revisit_seconds += times * end.revisit_seconds.unwrap_or(0);
    }

    fn sums_of(&mut self, group: Group) -> &mut Sums {
        let at = self.sums.iter().rposition(|(known, _)| *known == group).unwrap_or_else(|| {
            self.sums.push((group, Sums::default()));
            self.sums.len() - 1
        });
        &mut self.sums[at].1
    }

    pub(super) fn flush(&mut self, connection: &Connection) -> Result<()> {
        // What is taken back may have been counted of a fetcher that is gone since: then of the first one that has any.
        let sql = "INSERT INTO shiftboss_hours
                (hour, fetcher, outcome, jobs, took_ms, revisits, revisit_seconds)
            SELECT ?1, iif(?4 >= 0, name, coalesce((SELECT fetcher FROM shiftboss_hours AS known
                    WHERE known.hour = ?1 AND known.outcome = ?3 AND known.jobs > 0
                    ORDER BY known.fetcher <> name, known.fetcher LIMIT 1), name)), ?3, ?4, ?5, ?6, ?7
            FROM (SELECT coalesce((SELECT name FROM fetchers WHERE fetcher_id = ?2), iif(?2 = 0, '@tasks', '')) AS name)
            WHERE true ON CONFLICT (hour, fetcher, outcome) DO UPDATE SET jobs = jobs + excluded.jobs,
                took_ms = took_ms + excluded.took_ms, revisits = revisits + excluded.revisits,
                revisit_seconds = revisit_seconds + excluded.revisit_seconds";
        let mut last = self.hour;
        for ((hour, fetcher_id, outcome), sums) in self.sums.drain(..) {
            let Sums { jobs, took_ms, revisits, revisit_seconds } = sums;
            let values = (hour, fetcher_id, outcome, jobs, took_ms, revisits, revisit_seconds);
            connection.run(sql, values)?;
            last = last.max(hour);
        }
        if self.hour != last {
            self.hour = last;
            let old = "DELETE FROM shiftboss_hours WHERE hour < ?1";
            connection.run(old, [last - HOURS_KEPT])?;
        }
        Ok(())
    }

    pub(super) fn roll_back(&mut self) {
        self.sums.clear();
        self.ends.clear();
    }

    /// The ends that were committed since this was asked, with the names of their fetchers; of one that is gone there is
    /// none.
    pub(super) fn take_ends(&mut self, connection: &Connection) -> Result<Vec<JobEnd>> {
        let mut names: HashMap<i64, Arc<str>> = HashMap::new();
        let mut ends = Vec::with_capacity(self.ends.len());
        for end in self.ends.drain(..) {
            let fetcher = match names.entry(end.fetcher_id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(name_of(connection, end.fetcher_id)?),
            };
            ends.push(JobEnd {
                fetcher: Arc::clone(fetcher),
                outcome: end.outcome,
                took_ms: end.took_ms.cast_unsigned(),
                revisit_seconds: end.revisit_seconds.map(i64::cast_unsigned),
            });
        }
        Ok(ends)
    }
}

fn name_of(connection: &Connection, fetcher_id: i64) -> Result<Arc<str>> {
    if fetcher_id == TASKS_ID {
        return Ok(TASKS_FETCHER.into());
    }
    let sql = "SELECT name FROM fetchers WHERE fetcher_id = ?1";
    let name: Option<String> = connection.value(sql, [fetcher_id]).optional()?;
    Ok(name.unwrap_or_default().into())
}
