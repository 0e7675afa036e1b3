//! Something that lasts, and what is to be said of it: that it began, at most once in a while that it
//! goes on, and that it is over. For the log, where a condition that lasts for hours must neither fill
//! pages nor fall silent. Pure: it is handed the time; the caller logs.

use std::time::{Duration, Instant};

/// A outage is over when nothing has failed for so long, and something succeeded meanwhile: what fails
/// in a bad time is tried again sooner.
const REST: Duration = Duration::from_secs(10);

/// What is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Began,
    Lasts(Extent),
    Over(Extent),
}

/// How far a outage has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub failed: u64,
    /// From the first failure to the last one.
    pub lasted: Duration,
}

/// A time in which things fail, though not all of them need to.
#[derive(Debug)]
pub struct OutageTracker {
    /// Between two words, unless the second one is that it is over.
    period: Duration,
    now: Option<Current>,
    /// The last word that was not the last of its outage.
    said: Option<Instant>,
}

#[derive(Debug)]
struct Current {
    began: Instant,
    last: Instant,
    failed: u64,
    /// Something succeeded since the last failure.
    succeeded: bool,
    reported: bool,
}

impl Current {
    fn extent(&self) -> Extent {
        let lasted = self.last.saturating_duration_since(self.began);
        Extent { failed: self.failed, lasted }
    }
}

impl OutageTracker {
    /// None yet; of one that lasts something is said once in `period`.
    pub const fn new(period: Duration) -> Self {
        Self { period, now: None, said: None }
    }

    pub fn failed(&mut self, at: Instant) -> Option<Word> {
        let new = || Current { began: at, last: at, failed: 0, succeeded: false, reported: false };
        let current = self.now.get_or_insert_with(new);
        current.failed += 1;
        current.last = at;
        current.succeeded = false;
        let is_early = |said| at.saturating_duration_since(said) < self.period;
        if self.said.is_some_and(is_early) {
            return None;
        }
        self.said = Some(at);
        let is_known = std::mem::replace(&mut current.reported, true);
        Some(if is_known { Word::Lasts(current.extent()) } else { Word::Began })
    }

    /// Since when things fail, unless something has succeeded since the last failure.
    pub fn lasts_since(&self) -> Option<Instant> {
        self.now.as_ref().filter(|current| !current.succeeded).map(|current| current.began)
    }

    /// Whether something failed since then, and nothing has succeeded after it.
    pub fn failed_since(&self, then: Instant) -> bool {
        self.now.as_ref().is_some_and(|current| !current.succeeded && current.last > then)
    }

    pub fn succeeded(&mut self) {
        if let Some(current) = &mut self.now {
            current.succeeded = true;
        }
    }

    /// Whether it is over by now. To be asked now and then.
    pub fn poll(&mut self, at: Instant) -> Option<Word> {
        let rests = |current: &mut Current| {
            current.succeeded && at.saturating_duration_since(current.last) >= REST
        };
        let over = self.now.take_if(rests)?;
        over.reported.then(|| Word::Over(over.extent()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(60);

    fn extent(failed: u64, seconds: u64) -> Extent {
        Extent { failed, lasted: Duration::from_secs(seconds) }
    }

    /// Ten failures a second for three minutes: four words in all.
    #[test]
    fn a_long_outage_is_told_sparsely() {
        let (mut tracker, start) = (OutageTracker::new(PERIOD), Instant::now());
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let reported: Vec<_> = (0..1_800).filter_map(|tenths| tracker.failed(at(tenths))).collect();
        assert_eq!(
            reported,
            [Word::Began, Word::Lasts(extent(601, 60)), Word::Lasts(extent(1_201, 120))]
        );
        assert_eq!(tracker.poll(at(3_000)), None, "nobody has tried since");
        tracker.succeeded();
        let lasted = Duration::from_millis(179_900);
        assert_eq!(tracker.poll(at(3_000)), Some(Word::Over(Extent { failed: 1_800, lasted })));
        assert_eq!(tracker.poll(at(4_000)), None);
    }

    /// What succeeds among failures ends nothing.
    #[test]
    fn it_is_over_after_a_rest() {
        let (mut tracker, start) = (OutageTracker::new(PERIOD), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(tracker.failed(at(0)), Some(Word::Began));
        assert_eq!(tracker.lasts_since(), Some(start));
        tracker.succeeded();
        assert_eq!(tracker.lasts_since(), None);
        assert_eq!(tracker.poll(at(9)), None);
        assert_eq!(tracker.failed(at(9)), None);
        assert_eq!(tracker.poll(at(19)), None, "nothing succeeded after the last failure");
        tracker.succeeded();
        assert_eq!(tracker.poll(at(18)), None);
        assert_eq!(tracker.poll(at(19)), Some(Word::Over(extent(2, 9))));
    }

    /// Outages that follow each other are not reported more often than one that lasts, and of one that was
    /// not reported the end is not either.
    #[test]
    fn short_outages_are_reported_as_one() {
        let (mut tracker, start) = (OutageTracker::new(PERIOD), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut reported = Vec::new();
        for round in 0..10 {
            reported.extend(tracker.failed(at(20 * round)));
            tracker.succeeded();
            reported.extend(tracker.poll(at(20 * round + 10)));
        }
        let each = [Word::Began, Word::Over(extent(1, 0))];
        assert_eq!(reported, [each; 4].concat());
    }
}
