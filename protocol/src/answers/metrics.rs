//! What a daemon counts of itself since its start (docs/metrics.md): the answer to `METRICS`. Plain values; the
//! daemon's actors do the counting.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::UnixSeconds;

/// The fetcher that stands for all others. No list has that name: a fetcher's name cannot begin with `(`.
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

/// Counts by a word that is known when the program is compiled.
pub type ByWord = BTreeMap<Cow<'static, str>, u64>;

/// What is counted. Counters grow from the daemon's start on; present values are marked as such.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub connections: u64,
    pub connections_opened: u64,
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
    pub stale_results: u64,
    pub last_job_end: Option<UnixSeconds>,
    /// How long each commit took.
    pub commit_seconds: Histogram,
    /// How many requests each commit had.
    pub commit_mutations: Histogram,
    pub fetchers: BTreeMap<Arc<str>, FetcherJobs>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FetcherJobs {
    pub outcomes: ByWord,
    /// How long jobs took that were done.
    pub job_seconds: Histogram,
    /// Between two starts of a key.
    pub revisit_seconds: Histogram,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The upper bounds of the ranges, ascending; the last range has none.
    pub bounds: Cow<'static, [f64]>,
    pub counts: Vec<u64>,
    pub sum: f64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds: Cow::Borrowed(bounds), counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub fn add(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }

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
    pub fn merge(&mut self, other: &Self) {
        for (word, count) in &other.outcomes {
            *self.outcomes.entry(word.clone()).or_default() += count;
        }
        self.job_seconds.merge(&other.job_seconds);
        self.revisit_seconds.merge(&other.revisit_seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value is in the first range whose bound is not below it; there is a range for values beyond all bounds, too.
    #[test]
    fn ranges_have_upper_bounds() {
        let mut histogram = Histogram::new(&[1.0, 5.0]);
        [0.0, 1.0, 1.5, 5.0, 5.1].into_iter().for_each(|value| histogram.add(value));
        assert_eq!((histogram.counts.as_slice(), histogram.sum), (&[2, 2, 1][..], 12.6));
    }
}
