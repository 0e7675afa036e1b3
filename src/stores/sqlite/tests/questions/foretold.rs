//! What `queue` and `why` foretell, held against what the store then hands out, after random histories.

use proptest::prelude::*;
use shiftboss_actors::store::Dispatched;
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::{ask, leased, listed, status};
use crate::stores::sqlite::Policy;
use crate::stores::sqlite::tests::histories::{Event, KEYS, Pair, event};
use crate::stores::sqlite::tests::support::{FAIR, Site, cases, run};

/// What `count` requests get; a deletion under way may hold more back.
fn dispatched(site: &mut Site, count: usize, now: i64) -> Vec<String> {
    let next = |_| match site.commit(|store| store.dispatch(now, None)).unwrap() {
        Dispatched::Job(_, job) => Some(format!("{} {}", job.key, job.payload)),
        Dispatched::Nothing | Dispatched::Later => None,
    };
    (0..count).map_while(next).collect()
}

/// `queue` says what the next requests get, and `why` the same of each key.
fn foretells(site: &mut Site, keys: &[&str], now: i64) -> Result<(), TestCaseError> {
    let expected = listed(site, 50, now);
    prop_assert_eq!(&listed(site, 2, now)[..], &expected[..expected.len().min(2)]);
    for key in keys {
        let place = ask(site, key, now).and_then(|why| why.place);
        let listed = expected.iter().position(|job| job.split(' ').next() == Some(key));
        let shown = place.as_ref().map(|place| place.keys_before).filter(|before| *before < 50);
        prop_assert_eq!(shown, listed, "{}", key);
        prop_assert!(place.is_none_or(|place| place.exact));
    }
    prop_assert_eq!(dispatched(site, 50, now), expected);
    Ok(())
}

/// The key that `status` says waits longest: the first of the order, whatever is bumped.
fn oldest(site: &Site, now: i64) -> Option<String> {
    status(site, now).oldest_waiting.map(|waiting| waiting.key)
}

fn foretold(policy: Policy, history: &[Event]) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(policy);
    for event in history {
        pair.apply(event)?;
    }
    let now = pair.now;
    prop_assert_eq!(oldest(&pair.site, now), pair.model.first_in_order(now));
    foretells(&mut pair.site, &KEYS, now)
}

proptest! {
    #![proptest_config(cases(300))]

    /// After any history, with the default policy.
    #[test]
    fn fair_queues_are_foretold(history in prop::collection::vec(event(), 1..40)) {
        foretold(FAIR, &history)?;
    }

    /// With the Python supervisor's.
    #[test]
    fn classic_queues_are_foretold(history in prop::collection::vec(event(), 1..40)) {
        foretold(Policy::Classic, &history)?;
    }
}

proptest! {
    #![proptest_config(cases(24))]

    /// With large runs, which have partitions of their own, one of them under deletion; and with leased
    /// jobs, of which some leases have expired.
    #[test]
    fn large_queues_are_foretold(
        started in prop::collection::vec((0..900_usize, 1..50_000_i64, any::<bool>()), 0..60),
        leases in 0..30_usize,
        goes in any::<bool>(),
    ) {
        let mut site = Site::new(FAIR);
        let keys: Vec<String> = (0..900).map(|number| format!("key{number}")).collect();
        let words: Vec<&str> = keys.iter().map(String::as_str).collect();
        site.list(&run("f", 1), &words[..700]);
        site.list(&run("f", 1), &words[700..]);
        site.list(&run("g", 1), &words[..600]);
        site.list(&run("g", 1), &words[600..800]);
        site.list(&run("h", 1), &words[..10]);
        let now = 60_000;
        for count in 0..leases {
            let (attempt, _) = leased(&mut site, "w", 60, now - 100);
            if count % 2 == 0 {
                site.commit(|store| store.expire(attempt, now)).unwrap();
            }
        }
        for (at, started, ended) in started {
            let finished = if ended { "5" } else { "NULL" };
            site.edit(&format!(
                "INSERT OR IGNORE INTO log VALUES ('key{at}', {started}, {finished}, NULL)"
            ));
        }
        // Half of all ran already; what nobody else lists never did, and comes early.
        site.edit("INSERT OR IGNORE INTO log
            SELECT attr_path, 5, 6, 0 FROM queue WHERE order_jitter % 2 = 0");
        site.list(&run("g", 1), &["own1", "own2", "own3"]);
        site.list(&run("i", 1), &["own4", "own5", "own6"]);
        site.edit("UPDATE queue SET order_jitter = -2147483648 WHERE attr_path LIKE 'own%'");
        if goes {
            site.commit(|store| store.begin_deletion(&run("g", 1))).unwrap();
            site.commit(|store| store.begin_deletion(&run("i", 1))).unwrap();
        }
        let first = listed(&site, 1, now).first().and_then(|job| Some(job.split_once(' ')?.0.to_owned()));
        prop_assert_eq!(oldest(&site, now), first);
        foretells(&mut site, &["key0", "key5", "key650", "key899", "own1", "own5"], now)?;
    }
}
