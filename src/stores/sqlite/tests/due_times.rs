//! What is due when the wall clock was set: an operator's hold, one by backoff, a retry.

use std::time::Duration;

use shiftboss_actors::store::{
    Backoff, Complete, CountedEnds, Delays, EndHolds, Hold, NextHoldEnd, Retries, RetryRules, Store,
};
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::support::{FAIR, Site, key, options, run};
use crate::stores::sqlite::Options;

/// When each kind began, and for how long it lasts, but for a tenth by its key's jitter.
const BEGAN: i64 = 1_000_000;
const DELAY: u32 = 1_000;
/// The longest one.
const DELAY_MAX: i64 = 1_101;

/// A failed task is tried again after a while; or its key is held.
fn rules(retried: bool) -> Options {
    let delay = Duration::from_secs(DELAY.into());
    let delays = Delays::new(delay, 1.0, delay);
    let once = Retries { on: CountedEnds::failed(), most: 1, delays: delays.clone() };
    let backoff = Backoff { on: CountedEnds::failed(), after: 1.try_into().unwrap(), delays };
    let lists = retried.then_some(once);
    Options {
        retries: RetryRules { lists, ..RetryRules::default() },
        backoff: (!retried).then_some(backoff),
        ..options(FAIR)
    }
}

/// One of each kind; the second in which it is over, as it was planned.
fn sites() -> Vec<(&'static str, Site, Options, i64)> {
    let failed = |retried| {
        let mut site = Site::opened(tempfile::tempdir().unwrap(), &rules(retried));
        site.list(&run("f", 1), &["alpha"]);
        assert!(site.next(BEGAN).is_some());
        let failed = Complete { key: key("alpha"), exit_code: 1 };
        site.commit(|store| store.ask(BEGAN, failed)).unwrap();
        site
    };
    let mut held = Site::opened(tempfile::tempdir().unwrap(), &rules(true));
    let (reason, by) = (String::new(), "eve".into());
    let hold = Hold { key: key("alpha"), seconds: Some(DELAY), reason, by };
    held.commit(|store| store.ask(BEGAN, hold)).unwrap();
    let kinds = [("retry", failed(true), true), ("backoff", failed(false), false)];
    kinds
        .into_iter()
        .chain([("hold", held, true)])
        .map(|(kind, mut site, retried)| {
            let left = left(&mut site, BEGAN);
            assert!(left.abs_diff(DELAY.into()) <= u64::from(DELAY) / 10 + 1, "{kind}: {left}");
            (kind, site, rules(retried), BEGAN + left)
        })
        .collect()
}

fn left(site: &mut Site, now: i64) -> i64 {
    site.store.ask(now, NextHoldEnd).unwrap().unwrap().cast_signed()
}

/// Whatever the clock is set to, back or on, the same time is left; and then it is over.
#[test]
fn due_times_go_along_with_the_clock() {
    for by in [-BEGAN - 100, -3_600, -1, 3_600, 1_700_000_000] {
        for (kind, mut site, _, end) in sites() {
            let now = BEGAN + 100 + by;
            site.commit(|store| store.follow_clock(now, by)).unwrap();
            assert_eq!(left(&mut site, now), end - BEGAN - 100, "{kind} by {by}");
            site.commit(|store| store.ask(end + by, EndHolds)).unwrap();
            assert_eq!(site.store.ask(end + by, NextHoldEnd).unwrap(), None, "{kind} by {by}");
        }
    }
}

/// A daemon that was started with the clock set back does not know by how much: nothing waits for longer than its delay, and
/// what began in the past keeps its end.
#[test]
fn after_a_restart_nothing_waits_longer_than_its_delay() {
    for clean in [true, false] {
        for (kind, site, rules, end) in sites() {
            let mut site = site.restart(&rules, clean);
            let now = BEGAN - 86_400 * 365;
            site.commit(|store| store.follow_clock(now, 0)).unwrap();
            assert_eq!(left(&mut site, now), end - BEGAN, "{kind}");
            let mut site = site.restart(&rules, clean);
            site.commit(|store| store.follow_clock(now + 10, 0)).unwrap();
            assert_eq!(left(&mut site, now + 10), end - BEGAN - 10, "{kind}");
            assert!(left(&mut site, now) <= DELAY_MAX);
        }
    }
}

/// Times that somebody wrote by hand are nobody's delays, and break nothing.
#[test]
fn times_written_by_hand_stay() {
    for (kind, mut site, _, _) in sites() {
        for time in [i64::MIN, i64::MAX] {
            let set = format!(
                "UPDATE shiftboss_holds SET until = {time}; UPDATE shiftboss_bumps SET due = {time} WHERE due IS NOT NULL"
            );
            site.outside.execute_batch(&set).unwrap();
            for by in [i64::MIN, -5, 5, i64::MAX] {
                assert_eq!(site.store.follow_clock(BEGAN, by), Ok(()), "{kind} at {time} by {by}");
            }
        }
    }
}
