//! What a daemon counts of itself since its start, for `METRICS` (docs/metrics.md): requests, connections, commits, and the
//! ends of jobs by fetcher.
//!
//! One value that the actors share: the StorageActor counts commits, the listener and the connections count requests.
//! It decides nothing, and holds no keys.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shiftboss_protocol::answers::live::Failing;
use shiftboss_protocol::answers::metrics::{Counted, FetcherJobs, Histogram, OTHER_FETCHERS};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_protocol::wire::session::ErrorCode;
use shiftboss_queue::error::{Rejected, StoreError};
use shiftboss_queue::operation::{Ack, JobEnd, Outcome, RelayAnswer};

use crate::streaks::Streaks;

/// Most fetchers that are counted separately; any more are counted as one. A name has at most 255 bytes.
const FETCHERS_MAX: usize = 1_000;
const COMMIT_SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
const COMMIT_MUTATIONS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0];

/// See the module's documentation. A poisoned lock is still used: a count may be missing.
pub struct Metrics {
    counted: Mutex<Counted>,
    streaks: Mutex<Streaks>,
}

impl Default for Metrics {
    fn default() -> Self {
        let counted = Mutex::new(Counted {
            commit_seconds: Histogram::new(COMMIT_SECONDS),
            commit_mutations: Histogram::new(COMMIT_MUTATIONS),
            ..Counted::default()
        });
        Self { counted, streaks: Mutex::default() }
    }
}

impl Metrics {
    pub fn counted(&self) -> Counted {
        self.lock().clone()
    }

    /// Workers and fetchers whose last jobs all failed.
    pub fn failing(&self, now: UnixSeconds) -> Vec<Failing> {
        self.streaks.lock().unwrap_or_else(PoisonError::into_inner).failing(now)
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A batch was committed: what came of it, what ended, and how long it took. Returns what has begun to fail.
    pub(crate) fn committed(
        &self,
        outcomes: &[Result<Outcome, Rejected>],
        ends: &[JobEnd],
        took: Duration,
        now: UnixSeconds,
    ) -> Vec<Failing> {
        let mut counted = self.lock();
        counted.commit_seconds.add(took.as_secs_f64());
        // Exact up to 2^53.
        #[allow(clippy::cast_precision_loss)]
        counted.commit_mutations.add(outcomes.len() as f64);
        count_outcomes(&mut counted, outcomes);
        for end in ends {
            count_end(&mut counted, end);
            if end.outcome.has_run() {
                counted.last_job_end = Some(now);
            }
        }
        let mut streaks = self.streaks.lock().unwrap_or_else(PoisonError::into_inner);
        ends.iter().flat_map(|end| streaks.count(end, now)).collect()
    }
}

fn count_outcomes(counted: &mut Counted, outcomes: &[Result<Outcome, Rejected>]) {
    for outcome in outcomes.iter().flatten() {
        match outcome {
            Outcome::CompleteAttempt(Ack::Stale) => counted.stale_results += 1,
            Outcome::Expire(Some(expired)) => {
                let result = match (expired.dead_letter, expired.cancelled) {
                    (true, _) => "dead_letter",
                    (_, true) => "cancelled",
                    _ => "requeued",
                };
                *counted.leases_expired.entry(Cow::Borrowed(result)).or_default() += 1;
            }
            Outcome::Relayed(RelayAnswer::Answered(outcomes)) => count_outcomes(counted, outcomes),
            _ => {}
        }
    }
}

fn count_end(counted: &mut Counted, end: &JobEnd) {
    let is_room =
        counted.fetchers.len() < FETCHERS_MAX || counted.fetchers.contains_key(&end.fetcher);
    let name = if is_room { Arc::clone(&end.fetcher) } else { OTHER_FETCHERS.into() };
    let jobs: &mut FetcherJobs = counted.fetchers.entry(name).or_default();
    *jobs.outcomes.entry(Cow::Borrowed(end.outcome.word())).or_default() += 1;
    if end.outcome.has_run() {
        jobs.job_seconds.add(Duration::from_millis(end.took_ms).as_secs_f64());
        if let Some(seconds) = end.revisit_seconds {
            jobs.revisit_seconds.add(Duration::from_secs(seconds).as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::model::Attempt;
    use shiftboss_queue::attempt::Outcome;

    use super::*;

    fn end(fetcher: &str, outcome: Outcome, took_ms: u64) -> JobEnd {
        JobEnd {
            attempt: Attempt(1),
            fetcher: fetcher.into(),
            worker: None,
            outcome,
            took_ms,
            revisit_seconds: Some(took_ms),
        }
    }

    /// Fetchers beyond the limit are counted as one, and the known ones are still counted separately.
    #[test]
    fn fetchers_are_limited() {
        let metrics = Metrics::default();
        for number in 0..FETCHERS_MAX + 10 {
            let ends =
                [end(&number.to_string(), Outcome::Success, 1), end("0", Outcome::Expired, 1)];
            metrics.committed(&[], &ends, Duration::ZERO, 7);
        }
        let counted = metrics.counted();
        assert_eq!(counted.fetchers.len(), FETCHERS_MAX + 1);
        assert_eq!(counted.fetchers[OTHER_FETCHERS].outcomes["success"], 10);
        assert_eq!(counted.fetchers["0"].outcomes["expired"], FETCHERS_MAX as u64 + 10);
        assert_eq!(counted.last_job_end, Some(7));
    }

    #[test]
    fn it_is_told_as_json() {
        let metrics = Metrics::default();
        metrics.requested("DONE", 2);
        metrics.refused(&[ErrorCode::Stale]);
        metrics.committed(&[], &[end("f", Outcome::Failure, 1_500)], Duration::from_millis(3), 7);
        let line = serde_json::to_string(&metrics.counted()).unwrap();
        assert_eq!(serde_json::from_str::<Counted>(&line).unwrap(), metrics.counted());
    }
}
