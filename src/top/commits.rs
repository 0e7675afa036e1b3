//! How long the daemon's commits took between two looks, from what it counts of them. Pure.

use shiftboss_protocol::answers::live::DaemonMetrics;
use shiftboss_protocol::answers::metrics::Histogram;

/// Half of the commits took less than the first, all but a hundredth less than the second, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Commits {
    pub p50: f64,
    pub p99: f64,
}

#[derive(Debug, Default)]
pub struct Last {
    /// Of a daemon that was started then.
    started: u64,
    counts: Vec<u64>,
    commits: Option<Commits>,
}

impl Last {
    /// Of the commits since the last look, or since the daemon's start; if there were none, those that there were at last.
    pub fn commits_until(&mut self, metrics: &DaemonMetrics) -> Option<Commits> {
        let Histogram { bounds, counts, .. } = &metrics.counted.commit_seconds;
        let now = Self { started: metrics.started, counts: counts.clone(), commits: None };
        let before = std::mem::replace(self, now);
        let is_same = before.started == metrics.started && before.counts.len() == counts.len();
        let since = |at: usize| if is_same { before.counts[at] } else { 0 };
        let new: Vec<u64> =
            counts.iter().enumerate().map(|(at, count)| count.saturating_sub(since(at))).collect();
        let found = quantile(bounds, &new, 0.5).zip(quantile(bounds, &new, 0.99));
        let found = found.map(|(p50, p99)| Commits { p50, p99 });
        self.commits = found.or(before.commits.filter(|_| is_same));
        self.commits
    }
}

/// As Prometheus estimates it: within a range, values are taken to be spread evenly. Beyond the last bound it is that bound.
#[allow(clippy::cast_precision_loss)] // Exact up to 2^53 commits.
fn quantile(bounds: &[f64], counts: &[u64], share: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    let rank = share * total as f64;
    let (mut before, mut lower) = (0.0, 0.0);
    for (bound, count) in bounds.iter().zip(counts) {
        let count = *count as f64;
        if count > 0.0 && before + count >= rank {
            return Some(lower + (bound - lower) * (rank - before) / count);
        }
        (before, lower) = (before + count, *bound);
    }
    bounds.last().copied().filter(|_| total > 0)
}

#[cfg(test)]
mod tests {
    use shiftboss_protocol::answers::metrics::Counted;

    use super::*;

    fn metrics(started: u64, counts: [u64; 4]) -> DaemonMetrics {
        let (bounds, counts) = (vec![1.0, 2.0, 4.0].into(), counts.to_vec());
        let commit_seconds = Histogram { bounds, counts, sum: 0.0 };
        let counted = Counted { commit_seconds, ..Counted::default() };
        DaemonMetrics { started, counted, ..DaemonMetrics::default() }
    }

    /// Earlier counts are left out, unless another daemon counted them; if nothing is new, the last values stay.
    #[test]
    fn commits_since_the_last_look() {
        let mut last = Last::default();
        let first = last.commits_until(&metrics(7, [10, 0, 0, 0]));
        assert_eq!(first, Some(Commits { p50: 0.5, p99: 0.99 }));
        assert_eq!(last.commits_until(&metrics(7, [10, 0, 0, 0])), first);
        let slow = last.commits_until(&metrics(7, [10, 0, 4, 0]));
        assert_eq!(slow, Some(Commits { p50: 3.0, p99: 3.98 }));
        let beyond = last.commits_until(&metrics(7, [10, 0, 4, 1]));
        assert_eq!(beyond, Some(Commits { p50: 4.0, p99: 4.0 }));
        let other = last.commits_until(&metrics(8, [0, 2, 0, 0]));
        assert_eq!(other, Some(Commits { p50: 1.5, p99: 1.99 }));
        assert_eq!(last.commits_until(&metrics(9, [0; 4])), None);
    }
}
