//! Workers and fetchers whose last jobs all failed: probably not the jobs are at fault, but something that they have in
//! common. Counted since the daemon's start, told with `status`; nothing is decided by it.
//!
//! The [`metrics`](crate::metrics) keep one, and the StorageActor logs what begins to fail.

use std::collections::HashMap;
use std::sync::Arc;

use shiftboss_protocol::answers::live::{Failing, FailingKind};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::attempt::Outcome;
use shiftboss_queue::operation::JobEnd;

/// After how many failures in a row `status` names it.
pub const STREAK: u64 = 100;
/// How long after its last failure, in seconds: a worker may be gone.
const TOLD: UnixSeconds = 3_600;
/// Most names that fail at a time; others are left out. A worker's name has at most 255 bytes.
const NAMES_MAX: usize = 10_000;

type Name = (FailingKind, Arc<str>);

#[derive(Debug, Default)]
pub struct Streaks(HashMap<Name, Streak>);

#[derive(Debug, Clone, Copy)]
struct Streak {
    jobs: u64,
    last: UnixSeconds,
}

impl Streak {
    fn is_told(self, now: UnixSeconds) -> bool {
        self.last > now.saturating_sub(TOLD)
    }
}

impl Streaks {
    /// Counts the end of a job; returns what has just begun to fail.
    pub fn count(&mut self, end: &JobEnd, now: UnixSeconds) -> Vec<Failing> {
        let worker = end.worker.clone().map(|name| (FailingKind::Worker, name));
        let fetcher = (FailingKind::Fetcher, end.fetcher.clone());
        // A fetcher that is gone has no name.
        let of = worker.into_iter().chain([fetcher]).filter(|(_, name)| !name.is_empty());
        match end.outcome {
            Outcome::Success => of.for_each(|it| _ = self.0.remove(&it)),
            Outcome::Failure | Outcome::Timeout => {
                return of.filter_map(|it| self.failed(it, now)).collect();
            }
            _ => {}
        }
        Vec::new()
    }

    fn failed(&mut self, of: Name, now: UnixSeconds) -> Option<Failing> {
        if self.0.len() >= NAMES_MAX && !self.0.contains_key(&of) {
            self.0.retain(|_, streak| streak.is_told(now));
            if self.0.len() >= NAMES_MAX {
                return None;
            }
        }
        let (kind, name) = (of.0, of.1.to_string());
        let streak = self.0.entry(of).or_insert(Streak { jobs: 0, last: now });
        (streak.jobs, streak.last) = (streak.jobs.saturating_add(1), now);
        (streak.jobs == STREAK).then_some(Failing { kind, name, jobs: STREAK })
    }

    /// What fails, by name.
    pub fn failing(&self, now: UnixSeconds) -> Vec<Failing> {
        let failing = self.0.iter().filter(|(_, it)| it.jobs >= STREAK && it.is_told(now));
        let failing = failing.map(|((kind, name), Streak { jobs, .. })| {
            let (kind, name, jobs) = (*kind, name.to_string(), *jobs);
            Failing { kind, name, jobs }
        });
        let mut failing: Vec<_> = failing.collect();
        failing
            .sort_unstable_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        failing
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::model::Attempt;

    use super::*;

    /// Failures count from the last success on; what did not run to its end does not count. After an hour they are
    /// no longer told.
    #[test]
    fn a_hundred_in_a_row_are_told() {
        let mut streaks = Streaks::default();
        let mut end = |worker: Option<&str>, outcome| {
            let (attempt, fetcher) = (Attempt(1), "links".into());
            let worker = worker.map(Into::into);
            let (took_ms, revisit_seconds) = (0, None);
            let end = JobEnd { attempt, fetcher, worker, outcome, took_ms, revisit_seconds };
            let told = streaks.count(&end, 1_000);
            told.into_iter().map(|it| it.name).collect::<Vec<_>>()
        };
        for _ in 0..STREAK - 1 {
            assert!(end(Some("mill"), Outcome::Failure).is_empty());
        }
        assert!(end(Some("other"), Outcome::Expired).is_empty());
        assert_eq!(end(None, Outcome::Timeout), ["links"], "a classic worker has no name");
        assert!(end(Some("other"), Outcome::Success).is_empty());
        assert_eq!(end(Some("mill"), Outcome::Failure), ["mill"]);
        end(Some("mill"), Outcome::Failure);
        let (kind, name) = (FailingKind::Worker, "mill".to_owned());
        assert_eq!(streaks.failing(1_000), [Failing { kind, name, jobs: STREAK + 1 }]);
        assert_eq!(streaks.failing(1_000 + TOLD), [], "it may be gone");
    }
}
