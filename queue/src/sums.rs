//! Sums of what ended: by hour, fetcher and outcome; and of jobs that ended, by minute and exit code.
//!
//! Pure arithmetic over the ends of a batch. The [engine](crate::engine) makes the changes, stores add them up.

use std::collections::BTreeMap;

use crate::attempt::{EndedAttempt, Outcome};
use crate::record::{FetcherId, LastRun, Millis};

/// Hours that are kept: 90 days.
pub const HOURS_KEPT: i64 = 90 * 24;
pub const MINUTES_KEPT: i64 = 60;

/// Attempts of one fetcher that ended in one hour with the same outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hour {
    pub jobs: i64,
    pub took_ms: i64,
    /// For how many of them the time since the key's previous start is known.
    pub revisits: i64,
    pub revisit_seconds: i64,
}

impl Hour {
    pub(crate) fn add(&mut self, other: Self, sign: i64) {
        let add = |it: &mut i64, more: i64| *it = it.saturating_add(more.saturating_mul(sign));
        add(&mut self.jobs, other.jobs);
        add(&mut self.took_ms, other.took_ms);
        add(&mut self.revisits, other.revisits);
        add(&mut self.revisit_seconds, other.revisit_seconds);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    pub hours: BTreeMap<(i64, FetcherId, Outcome), Hour>,
    /// Jobs by minute since 1970, and exit code; of those that were cancelled, too.
    pub minutes: BTreeMap<(i64, i64), i64>,
}

impl Sums {
    pub fn end(&mut self, attempt: &EndedAttempt) {
        self.add_hour(attempt, 1);
        if attempt.exit_code.is_some() {
            self.add_minute(attempt.ended.div_euclid(60_000), attempt.exit_code, 1);
        }
    }

    /// Takes an expired attempt out of the sums, so that its late result is counted instead.
    pub fn takes_back(&mut self, expired: &EndedAttempt) {
        self.add_hour(expired, -1);
    }

    /// The end of a job was written by hand, or repeated: no attempt of ours ended, so hours do not count it. A key
    /// that never ran has no end.
    pub fn by_hand(&mut self, before: Option<LastRun>, now: Option<LastRun>) {
        let (Some(before), Some(now)) = (before, now) else {
            return;
        };
        let Some(finished) = now.finished else {
            return;
        };
        if let Some(finished) = before.finished {
            self.add_minute(finished.div_euclid(60), before.exit_code, -1);
        }
        self.add_minute(finished.div_euclid(60), now.exit_code, 1);
    }

    fn add_hour(&mut self, attempt: &EndedAttempt, sign: i64) {
        let EndedAttempt { task, ended, outcome, revisit, .. } = attempt;
        let took_ms = attempt.took_ms();
        let (revisits, revisit_seconds) = (i64::from(revisit.is_some()), revisit.unwrap_or(0));
        let hour = Hour { jobs: 1, took_ms, revisits, revisit_seconds };
        let group = (ended.div_euclid(3_600_000), task.fetcher(), *outcome);
        self.hours.entry(group).or_default().add(hour, sign);
    }

    fn add_minute(&mut self, minute: i64, exit_code: Option<i64>, jobs: i64) {
        let sum = self.minutes.entry((minute, exit_code.unwrap_or(0))).or_default();
        *sum = sum.saturating_add(jobs);
    }

    /// Leaves out what is too old to keep, and sums of 0.
    pub(crate) fn tidy(&mut self, oldest: Oldest) {
        self.drop_older(oldest);
        self.minutes.retain(|_, jobs| *jobs != 0);
        self.hours.retain(|_, hour| *hour != Hour::default());
    }

    pub fn drop_older(&mut self, oldest: Oldest) {
        self.minutes.retain(|(at, _), _| *at >= oldest.minute);
        self.hours.retain(|(at, ..), _| *at >= oldest.hour);
    }

    pub fn merge(&mut self, other: &Self) {
        for (group, hour) in &other.hours {
            self.hours.entry(*group).or_default().add(*hour, 1);
        }
        for ((minute, exit_code), jobs) in &other.minutes {
            self.add_minute(*minute, Some(*exit_code), *jobs);
        }
    }
}

/// At most so many single tasks that were kept for their IDs go at a time: the request whose batch it is waits for it.
pub const OVER_STEP: i64 = 1_000;

/// The sum of numbers, clamped, because they may have been edited.
pub fn total(numbers: impl Iterator<Item = i64>) -> i64 {
    numbers.fold(0, i64::saturating_add)
}

/// The first hour and minute that are kept: earlier sums are deleted. Also the first minute whose done or cancelled
/// single tasks are still kept for their IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oldest {
    pub hour: i64,
    pub minute: i64,
    pub over: i64,
}

impl Oldest {
    /// `ids_kept`: in minutes.
    pub(crate) fn at(now: Millis, ids_kept: i64) -> Self {
        let minute = now.div_euclid(60_000);
        Self {
            hour: now.div_euclid(3_600_000) - HOURS_KEPT,
            minute: minute - MINUTES_KEPT,
            over: minute.saturating_sub(ids_kept),
        }
    }
}
