//! What happens to tasks that fail: they are retried automatically ([`Retries`]), and keys whose jobs fail repeatedly
//! are held ([`Backoff`]; docs/decisions/holds-retries-bumps.md).
//!
//! Pure arithmetic in whole seconds. `serve` makes the rules from its configuration file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::{TASKS_FETCHER, jitter};

use crate::attempt::TIMEOUT_CODE;

/// The largest number of failures in a row before a key is held, and of retries of a task.
pub const FAILURES_MAX: u32 = 1_000;
/// How many times as long as the one before each delay may be.
pub const DELAY_FACTOR_MAX: f64 = 100.0;
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Most different delays: after more failures the last one applies.
const DELAYS_MAX: usize = 1_000;
/// Jitters reach up to 2^31 from 0; dividing by this gives at most a tenth.
const TENTH_OF_JITTERS: i64 = 10 << 31;

/// Which ends of jobs count; a success never does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedEnds {
    pub codes: Vec<i64>,
    /// True: only those codes count; false: all but those.
    pub is_listed: bool,
}

impl CountedEnds {
    pub fn failed() -> Self {
        Self { codes: Vec::new(), is_listed: false }
    }

    pub fn failure() -> Self {
        Self { codes: vec![TIMEOUT_CODE], is_listed: false }
    }

    pub fn timeout() -> Self {
        Self::listed(vec![TIMEOUT_CODE])
    }

    pub fn listed(codes: Vec<i64>) -> Self {
        Self { codes, is_listed: true }
    }

    pub fn counts(&self, exit_code: i64) -> bool {
        exit_code != 0 && self.codes.contains(&exit_code) == self.is_listed
    }
}

/// How long to wait, longer each time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays {
    /// In seconds, the first one first; the last one stands for all that follow. Never empty.
    pub seconds: Vec<i64>,
}

impl Delays {
    /// `first`, and each next one `factor` times as long, up to `most`. At least a second.
    pub fn new(first: Duration, factor: f64, most: Duration) -> Self {
        let most = most.min(DELAY_MAX).as_secs_f64().max(1.0);
        let first = first.as_secs_f64().clamp(1.0, most);
        let mut delays = vec![first];
        while let Some(last) = delays.last().filter(|last| **last < most)
            && factor > 1.0
            && delays.len() < DELAYS_MAX
        {
            delays.push((last * factor).min(most));
        }
        // Each is a number of seconds within a few years.
        Self { seconds: delays.into_iter().map(|delay| delay as i64).collect() }
    }

    /// The delay after `others` earlier ones, in seconds. The key's jitter makes it up to a tenth longer or shorter, so
    /// that keys that failed together do not come back together.
    fn after(&self, others: usize, key: &str) -> Option<i64> {
        let delay = self.seconds.get(others).or(self.seconds.last())?;
        let scrambled = delay.saturating_mul(i64::from(jitter(key))) / TENTH_OF_JITTERS;
        Some(delay.saturating_add(scrambled))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub on: CountedEnds,
    /// A key is held after this many such ends in a row.
    pub after: NonZeroU32,
    pub delays: Delays,
}

impl Backoff {
    /// For how long a key is held after `failures` such ends in a row, in seconds; `None`: it is not held.
    pub fn delay(&self, key: &str, failures: i64) -> Option<i64> {
        let others = usize::try_from(failures.saturating_sub(i64::from(self.after.get()))).ok()?;
        self.delays.after(others, key)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    pub on: CountedEnds,
    pub most: u32,
    pub delays: Delays,
}

impl Retries {
    /// When a task with this exit code and `retried` earlier retries is due again, in seconds from its end; `None`: it
    /// is not retried.
    pub fn delay(&self, key: &str, exit_code: i64, retried: u32) -> Option<i64> {
        let is_left = retried < self.most && self.on.counts(exit_code);
        is_left.then(|| self.delays.after(retried as usize, key)).flatten()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryRules {
    /// The rule for lists without one of their own; `None`: their tasks are not retried.
    pub lists: Option<Retries>,
    pub single: Option<Retries>,
    pub of_fetcher: BTreeMap<String, Retries>,
}

impl RetryRules {
    pub fn of(&self, fetcher: &str) -> Option<&Retries> {
        match fetcher {
            TASKS_FETCHER => self.single.as_ref(),
            name => self.of_fetcher.get(name).or(self.lists.as_ref()),
        }
    }
}

pub fn failed_so_often(failures: i64) -> String {
    match failures {
        1 => "failed".to_owned(),
        _ => format!("failed {failures} times in a row"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400;

    fn backoff(after: u32, first: u64, factor: f64, most: u64) -> Backoff {
        let after = NonZeroU32::new(after).unwrap();
        let [first, most] = [first, most].map(Duration::from_secs);
        Backoff { on: CountedEnds::failed(), after, delays: Delays::new(first, factor, most) }
    }

    fn delays(first: u64, factor: f64, most: u64) -> Vec<i64> {
        backoff(1, first, factor, most).delays.seconds
    }

    #[test]
    fn delays_grow_up_to_the_longest() {
        let days = |days: u64| (days * DAY) as i64;
        let usual = backoff(3, DAY, 2.0, 60 * DAY);
        assert_eq!(usual.delays.seconds, [1, 2, 4, 8, 16, 32, 60].map(days));
        assert_eq!(delays(10, 1.0, 60), [10]);
        assert_eq!(delays(90, 3.0, 60), [60]);
        assert_eq!(delays(0, 1.5, 4), [1, 1, 2, 3, 4]);
        assert_eq!(usual.delay("a", 2), None);
        assert!((usual.delay("a", 3).unwrap() - days(1)).abs() <= days(1) / 10);
        assert_eq!(usual.delay("a", 9), usual.delay("a", i64::MAX));
    }

    #[test]
    fn ends_that_count() {
        let which = |ends: CountedEnds| [0, 1, 2, 124].map(|code| ends.counts(code));
        assert_eq!(which(CountedEnds::failed()), [false, true, true, true]);
        assert_eq!(which(CountedEnds::failure()), [false, true, true, false]);
        assert_eq!(which(CountedEnds::timeout()), [false, false, false, true]);
        assert_eq!(which(CountedEnds::listed(vec![0, 2])), [false, false, true, false]);
    }

    #[test]
    fn tasks_are_tried_again_so_often() {
        let delays = Delays::new(Duration::from_secs(60), 2.0, Duration::from_secs(600));
        let lists = Retries { on: CountedEnds::timeout(), most: 2, delays };
        let due = |code, retried| lists.delay("a", code, retried).map(|delay| (delay + 30) / 60);
        assert_eq!(
            [(124, 0), (124, 1), (124, 2), (1, 0), (0, 0)]
                .map(|(code, retried)| due(code, retried)),
            [Some(1), Some(2), None, None, None]
        );
        let more = Retries { most: 7, ..lists.clone() };
        let of_fetcher = BTreeMap::from([("f".to_owned(), more.clone())]);
        let rules = RetryRules { lists: Some(lists.clone()), single: None, of_fetcher };
        assert_eq!(
            ["f", "g", TASKS_FETCHER].map(|name| rules.of(name)),
            [Some(&more), Some(&lists), None]
        );
    }

    proptest! {
        /// Whatever is configured, delays do not shrink, except by the jitter, and stay within their bounds.
        #[test]
        fn every_delay_is_within_its_bounds(
            (after, first, most) in (1..1_000_u32, 0..u64::MAX / 2, 0..u64::MAX / 2),
            factor in 0.0..100.0,
            failures in 0..2_000_i64,
            key in "[a-z]{1,9}",
        ) {
            let it = backoff(after, first, factor, most);
            prop_assert!(it.delays.seconds.is_sorted() && it.delays.seconds.len() <= DELAYS_MAX);
            let delay = it.delay(&key, failures);
            prop_assert_eq!(delay.is_some(), failures >= after.into());
            let most = DELAY_MAX.as_secs() as i64;
            prop_assert!(delay.is_none_or(|delay| (1..=most + most / 10).contains(&delay)));
        }
    }
}
