//! How fast jobs end, and so when a turn comes: for `why`, `queue`, `top` and the web page, whatever the store. Pure.

use crate::sums::total;
use shiftboss_protocol::answers::{MinuteJobs, Place};
use shiftboss_protocol::model::UnixSeconds;

/// Ends within less time count as if they took this long.
const SECONDS_MIN: i64 = 10;
/// Fewer ends in the last hour do not show how long turns take.
const JOBS_MIN: i64 = 10;
const HOUR_SECONDS: i64 = 3_600;
const MINUTE_SECONDS: i64 = 60;
/// A time without an end is a pause if it is this many times as long as the time between two ends ...
const PAUSE_GAPS: i64 = 5;
/// ... and this many times as long as a job takes, because many may run meanwhile, and end together ...
const PAUSE_JOBS: i64 = 2;
/// ... and at least as long as this: ends are known to the minute.
const PAUSE_SECONDS_MIN: i64 = 2 * MINUTE_SECONDS;

/// How fast jobs ended within the last hour: their number, and the seconds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    jobs: i64,
    seconds: i64,
}

impl Pace {
    pub fn new(jobs: i64, busy_seconds: Option<i64>) -> Self {
        Self { jobs, seconds: busy_seconds.unwrap_or(HOUR_SECONDS) }
    }

    /// Seconds until a place's turn, if there are enough jobs to estimate it. The next key has none: its turn comes
    /// when a worker asks.
    pub fn expected(self, place: &Place) -> Option<i64> {
        place.exact.then(|| self.expected_in(place.keys_before)).flatten()
    }

    pub fn expected_in(self, keys_before: usize) -> Option<i64> {
        if keys_before == 0 || self.jobs < JOBS_MIN {
            return None;
        }
        let turns = i64::try_from(keys_before).ok()? + 1;
        Some(turns.saturating_mul(self.seconds) / self.jobs)
    }
}

/// The time since the first of the last hour's jobs ended, without pauses: before it, and in pauses, there may have
/// been no workers, or no work. `None`: no job ended.
///
/// minutes: those in which jobs ended, in order; took: how many seconds a job took.
pub fn busy_seconds(minutes: &[MinuteJobs], took: i64, now: UnixSeconds) -> Option<i64> {
    let jobs = total(minutes.iter().map(|minute| minute.jobs));
    let all = now.saturating_sub(minutes.first()?.since);
    let pause = PAUSE_SECONDS_MIN
        .max((all / jobs.max(1)).saturating_mul(PAUSE_GAPS))
        .max(took.saturating_mul(PAUSE_JOBS));
    let begins = minutes.iter().skip(1).map(|minute| minute.since).chain([now]);
    let quiet = minutes
        .iter()
        .zip(begins)
        // Minutes in the future are from before the clock was set back.
        .map(|(minute, next)| {
            next.min(now).saturating_sub(minute.since.saturating_add(MINUTE_SECONDS))
        })
        .filter(|quiet| *quiet >= pause);
    Some(all.saturating_sub(total(quiet)).clamp(SECONDS_MIN, HOUR_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = 36_000;

    fn busy(minutes: &[(i64, i64)]) -> Option<i64> {
        busy_at(minutes, 1)
    }

    fn busy_at(minutes: &[(i64, i64)], took: i64) -> Option<i64> {
        let minute = |(ago, jobs): &(i64, i64)| MinuteJobs { since: NOW - ago * 60, jobs: *jobs };
        busy_seconds(&minutes.iter().map(minute).collect::<Vec<_>>(), took, NOW)
    }

    /// The pace of a queue that has only just begun is that since its beginning.
    #[test]
    fn a_turn_is_foretold() {
        let place = |keys_before| Place { keys_before, exact: true, first: vec![] };
        let expected = |jobs, busy, keys| Pace::new(jobs, busy).expected(&place(keys));
        assert_eq!(expected(120, Some(3_599), 7), Some(8 * 3_599 / 120));
        assert_eq!(expected(31, Some(60), 27), Some(28 * 60 / 31));
        assert_eq!((expected(9, Some(60), 1), expected(99, Some(60), 0)), (None, None));
        let far = Place { exact: false, ..place(5) };
        assert_eq!(Pace::new(99, Some(60)).expected(&far), None);
    }

    #[test]
    fn the_time_counts_from_the_first_end() {
        assert_eq!(busy(&[]), None);
        assert_eq!(busy(&[(1, 5)]), Some(60));
        assert_eq!(busy(&[(0, 5)]), Some(10), "not less than that");
        assert_eq!(busy(&[(-1, 5)]), Some(10), "a clock that was set back");
        assert_eq!(busy(&[(3, 1), (2, 1), (1, 1)]), Some(180));
        assert_eq!(busy(&[(10, 600), (-40, 600)]), Some(60), "minutes of before that");
    }

    /// Sums that were edited by hand are clamped.
    #[test]
    fn no_number_of_jobs_is_too_large() {
        assert_eq!(busy(&[(3, i64::MAX), (2, i64::MAX)]), Some(180));
        assert_eq!(busy(&[(3, i64::MIN), (2, i64::MIN)]), Some(180));
    }

    /// Lists of sixty keys every quarter of an hour, each done within a minute.
    #[test]
    fn pauses_between_bursts_do_not_count() {
        assert_eq!(busy(&[(46, 60), (31, 60), (16, 60), (1, 60)]), Some(4 * 60));
        assert_eq!(busy(&[(50, 600)]), Some(60), "nothing since then");
    }

    /// Long jobs end rarely, though all workers are busy.
    #[test]
    fn what_is_slow_has_no_pauses() {
        let slow: Vec<(i64, i64)> = (1..=12).rev().map(|at| (at * 5, 1)).collect();
        assert_eq!(busy(&slow), Some(3_600));
        let together = [(50, 10), (30, 10), (10, 10)];
        assert_eq!(busy_at(&together, 20 * 60), Some(50 * 60));
        assert_eq!(busy_at(&together, 60), Some(3 * 60));
        assert_eq!(busy(&[(30, 10), (27, 10), (1, 10)]), Some(30 * 60 - 25 * 60));
    }
}
