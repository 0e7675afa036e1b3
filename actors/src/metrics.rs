//! What a daemon counts of itself since its start, for `METRICS` (docs/metrics.md): requests, connections, commits, and the
//! ends of jobs by fetcher.
//!
//! One value that the actors share: the StorageActor counts what it commits, the listener and the connections what they are
//! asked. It decides nothing, and holds no key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use shiftboss_protocol::model::UnixSeconds;
use shiftboss_protocol::wire::session::ErrorCode;
use shiftboss_queue::error::{Rejected, StoreError};
use shiftboss_queue::operation::{Ack, JobEnd, Outcome, RelayAnswer};

/// Fetchers that are counted apart; those of more are counted as one. A name is of 255 bytes at most.
const FETCHERS_MAX: usize = 1_000;
/// The fetcher that stands for all others. No list has that name: `(` begins no fetcher's.
pub const OTHER_FETCHERS: &str = "(other)";
/// Upper bounds in seconds: from 1 s to a day.
const JOB_SECONDS: &[f64] =
    &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0];
/// From an hour to 90 days.
const REVISIT_SECONDS: &[f64] = &[
    3_600.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    1_209_600.0,
    2_592_000.0,
    7_776_000.0,
];
const COMMIT_SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
const COMMIT_MUTATIONS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0];

/// Counts by a word that is known when the program is compiled.
pub type ByWord = BTreeMap<Cow<'static, str>, u64>;

/// What is counted. Counters ascend from the daemon's start on; what is as it is now says so.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Now.
    pub connections: u64,
    pub connections_opened: u64,
    /// There were too many.
    pub connections_refused: u64,
    /// Workers that wait for a job, within the last quarter of a second.
    pub waiting_requests: u64,
    /// By their first word, of both protocols.
    pub requests: ByWord,
    /// Requests that were refused, by the code of the answer.
    pub request_errors: ByWord,
    /// Requests to the store that failed: busy, full, rejected or fatal.
    pub storage_errors: ByWord,
    /// Leases of protocol 2 that expired: requeued, or dead_letter.
    pub leases_expired: ByWord,
    /// Results of attempts that were over.
    pub stale_results: u64,
    pub last_job_end: Option<UnixSeconds>,
    /// Of commits: how long each took.
    pub commit_seconds: Histogram,
    /// How many requests it had.
    pub commit_mutations: Histogram,
    pub fetchers: BTreeMap<Arc<str>, FetcherJobs>,
}

/// Jobs of a fetcher that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FetcherJobs {
    pub outcomes: ByWord,
    /// How long those took that were done.
    pub job_seconds: Histogram,
    /// Between two starts of a key.
    pub revisit_seconds: Histogram,
}

/// How often a value was in which range.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The upper bounds of the ranges, ascending, but for the last one, which has none.
    pub bounds: Cow<'static, [f64]>,
    /// Values in each range.
    pub counts: Vec<u64>,
    pub sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds: Cow::Borrowed(bounds), counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn add(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }

    /// Adds another one of the same bounds.
    pub fn merge(&mut self, other: &Self) {
        if self.bounds != other.bounds {
            *self = other.clone();
            return;
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }
}

impl Default for FetcherJobs {
    fn default() -> Self {
        Self {
            outcomes: ByWord::new(),
            job_seconds: Histogram::new(JOB_SECONDS),
            revisit_seconds: Histogram::new(REVISIT_SECONDS),
        }
    }
}

impl FetcherJobs {
    fn add(&mut self, end: &JobEnd) {
        *self.outcomes.entry(Cow::Borrowed(end.outcome)).or_default() += 1;
        if is_done(end.outcome) {
            self.job_seconds.add(Duration::from_millis(end.took_ms).as_secs_f64());
            if let Some(seconds) = end.revisit_seconds {
                self.revisit_seconds.add(Duration::from_secs(seconds).as_secs_f64());
            }
        }
    }

    /// Adds those of another fetcher.
    pub fn merge(&mut self, other: &Self) {
        for (word, count) in &other.outcomes {
            *self.outcomes.entry(word.clone()).or_default() += count;
        }
        self.job_seconds.merge(&other.job_seconds);
        self.revisit_seconds.merge(&other.revisit_seconds);
    }
}

/// Whether a job with that outcome was done, well or not.
fn is_done(outcome: &str) -> bool {
    matches!(outcome, "success" | "timeout" | "failure")
}

/// See the module's documentation. A lock that was poisoned is used on: a count may be missing.
pub struct Metrics(Mutex<Counted>);

impl Default for Metrics {
    fn default() -> Self {
        Self(Mutex::new(Counted {
            commit_seconds: Histogram::new(COMMIT_SECONDS),
            commit_mutations: Histogram::new(COMMIT_MUTATIONS),
            ..Counted::default()
        }))
    }
}

impl Metrics {
    /// All of it, as it is now.
    pub fn counted(&self) -> Counted {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connection_opened(&self) {
        let mut counted = self.lock();
        counted.connections_opened += 1;
        counted.connections += 1;
    }

    pub(crate) fn connection_closed(&self) {
        let mut counted = self.lock();
        counted.connections = counted.connections.saturating_sub(1);
    }

    pub(crate) fn connection_refused(&self) {
        self.lock().connections_refused += 1;
    }

    /// So many requests of a kind were read.
    pub(crate) fn requested(&self, word: &'static str, count: u64) {
        *self.lock().requests.entry(Cow::Borrowed(word)).or_default() += count;
    }

    pub(crate) fn refused(&self, codes: &[ErrorCode]) {
        if !codes.is_empty() {
            let mut counted = self.lock();
            for code in codes {
                *counted.request_errors.entry(code.to_string().into()).or_default() += 1;
            }
        }
    }

    pub(crate) fn waiting(&self, requests: usize) {
        self.lock().waiting_requests = requests as u64;
    }

    pub(crate) fn storage_failed(&self, error: &StoreError) {
        let kind = match error {
            StoreError::Busy(_) | StoreError::Denied(_) => "busy",
            StoreError::Full(_) => "full",
            StoreError::Rejected(_) => "rejected",
            StoreError::Corrupt(_)
            | StoreError::Fatal(_)
            | StoreError::Displaced(_)
            | StoreError::Newer(_) => "fatal",
        };
        *self.lock().storage_errors.entry(Cow::Borrowed(kind)).or_default() += 1;
    }

    /// A batch was committed: what came of it, what ended, and how long it took.
    pub(crate) fn committed(
        &self,
        outcomes: &[Result<Outcome, Rejected>],
        ends: &[JobEnd],
        took: Duration,
        now: UnixSeconds,
    ) {
        let mut counted = self.lock();
        counted.commit_seconds.add(took.as_secs_f64());
        // Exact up to 2^53.
        #[allow(clippy::cast_precision_loss)]
        counted.commit_mutations.add(outcomes.len() as f64);
        counted.count_outcomes(outcomes);
        for end in ends {
            counted.jobs_of(&end.fetcher).add(end);
            if is_done(end.outcome) {
                counted.last_job_end = Some(now);
            }
        }
    }
}

impl Counted {
    fn count_outcomes(&mut self, outcomes: &[Result<Outcome, Rejected>]) {
        for outcome in outcomes.iter().flatten() {
            match outcome {
                Outcome::CompleteAttempt(Ack::Stale) => self.stale_results += 1,
                Outcome::Expire(Some(expired)) => {
                    let result = if expired.dead_letter { "dead_letter" } else { "requeued" };
                    *self.leases_expired.entry(Cow::Borrowed(result)).or_default() += 1;
                }
                Outcome::Relayed(RelayAnswer::Answered(outcomes)) => self.count_outcomes(outcomes),
                _ => {}
            }
        }
    }

    fn jobs_of(&mut self, fetcher: &Arc<str>) -> &mut FetcherJobs {
        let is_room = self.fetchers.len() < FETCHERS_MAX || self.fetchers.contains_key(fetcher);
        let name = if is_room { Arc::clone(fetcher) } else { OTHER_FETCHERS.into() };
        self.fetchers.entry(name).or_default()
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::model::Attempt;

    use super::*;

    fn end(fetcher: &str, outcome: &'static str, took_ms: u64) -> JobEnd {
        JobEnd {
            attempt: Attempt(1),
            fetcher: fetcher.into(),
            outcome,
            took_ms,
            revisit_seconds: Some(took_ms),
        }
    }

    /// A value is in the first range whose bound is not below it; what is beyond all has a range, too.
    #[test]
    fn ranges_have_upper_bounds() {
        let mut histogram = Histogram::new(&[1.0, 5.0]);
        [0.0, 1.0, 1.5, 5.0, 5.1].into_iter().for_each(|value| histogram.add(value));
        assert_eq!((histogram.counts.as_slice(), histogram.sum), (&[2, 2, 1][..], 12.6));
    }

    /// Fetchers beyond the limit are counted as one, and those that are known go on being counted.
    #[test]
    fn fetchers_are_limited() {
        let metrics = Metrics::default();
        for number in 0..FETCHERS_MAX + 10 {
            let ends = [end(&number.to_string(), "success", 1), end("0", "expired", 1)];
            metrics.committed(&[], &ends, Duration::ZERO, 7);
        }
        let counted = metrics.counted();
        assert_eq!(counted.fetchers.len(), FETCHERS_MAX + 1);
        assert_eq!(counted.fetchers[OTHER_FETCHERS].outcomes["success"], 10);
        assert_eq!(counted.fetchers["0"].outcomes["expired"], FETCHERS_MAX as u64 + 10);
        assert_eq!(counted.last_job_end, Some(7));
    }

    /// It is JSON, from which another process has the same.
    #[test]
    fn it_is_told_as_json() {
        let metrics = Metrics::default();
        metrics.requested("DONE", 2);
        metrics.refused(&[ErrorCode::Stale]);
        metrics.committed(&[], &[end("f", "failure", 1_500)], Duration::from_millis(3), 7);
        let line = serde_json::to_string(&metrics.counted()).unwrap();
        assert_eq!(serde_json::from_str::<Counted>(&line).unwrap(), metrics.counted());
    }
}
