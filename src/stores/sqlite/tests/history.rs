//! Ends and their sums, where somebody edits the log, a result comes late, or a database is of the version before. What holds
//! of all histories is in the conformance suite.

use shiftboss_actors::store::answers::StatsGroup;
use shiftboss_actors::store::{Ack, EndedAttempts, Grouping, StatsOf};
use shiftboss_actors::testing::one_by_one::OneByOne;

use shiftboss_protocol::model::Key;

use super::support::{FAIR, Site, holder, options, run};

/// All that is summed up.
fn sums(site: &Site) -> StatsGroup {
    let asked = StatsOf { since: 0, by: Grouping::All, fetchers: Vec::new() };
    let stats = site.ask(1, |reader, _| reader.stats(&asked)).unwrap();
    stats.groups.into_iter().next().unwrap_or_default()
}

/// Each attempt's key, outcome and number of its end, the last one first.
fn ends(site: &Site, key: Option<&str>) -> Vec<(String, String, i64)> {
    let asked =
        EndedAttempts { key: key.map(str::to_owned), count: 100, ..EndedAttempts::default() };
    let found = site.ask(1, |reader, _| reader.ended_attempts(&asked)).unwrap().attempts;
    found.into_iter().map(|ended| (ended.key, ended.outcome, ended.ended)).collect()
}

fn end(key: &str, outcome: &str, ended: i64) -> (String, String, i64) {
    (key.to_owned(), outcome.to_owned(), ended)
}

/// What somebody ends by hand has a number, and is in no sum; the daemon's numbers go on behind it.
#[test]
fn an_end_by_hand_is_in_no_sum() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a", "b", "c"]);
    let first = site.next(10).unwrap();
    let first = first.split(' ').next().unwrap().to_owned();
    let second = site.next(11).unwrap();
    let second = second.split(' ').next().unwrap().to_owned();
    site.finish(&first, 12);
    site.edit(&format!("UPDATE log SET finished = 13, exit_code = 0 WHERE attr_path = '{second}'"));
    let third = site.next(14).unwrap();
    let third = third.split(' ').next().unwrap().to_owned();
    site.finish(&third, 15);
    let expected =
        [end(&third, "success", 3), end(&second, "success", 2), end(&first, "success", 1)];
    assert_eq!(ends(&site, None), expected);
    assert_eq!((sums(&site).jobs, sums(&site).success), (2, 2));
}

/// How long a job took is measured, whatever its key is, and though somebody else writes meanwhile.
#[test]
fn what_a_job_took_is_measured() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a", "b"]);
    site.commit(|store| store.bump(&Key::new("a").unwrap(), 5)).unwrap();
    for _ in 0..2 {
        let job = site.next(10).unwrap();
        site.edit("INSERT INTO log VALUES ('other', 1, 2, 0) ON CONFLICT DO NOTHING");
        site.finish(job.split(' ').next().unwrap(), 12);
    }
    let asked = EndedAttempts { count: 100, ..EndedAttempts::default() };
    let found = site.ask(20, |reader, _| reader.ended_attempts(&asked)).unwrap().attempts;
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|ended| ended.took_ms.is_some()), "{found:?}");
}

/// Of a lease whose end is found later, and of a hand-out that was none, nothing is measured.
#[test]
fn what_was_no_end_is_not_measured() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a"]);
    site.next(10).unwrap();
    site.next(1_000_000).unwrap();
    site.finish("a", 1_000_001);
    let asked = EndedAttempts { count: 100, ..EndedAttempts::default() };
    let found = site.ask(1_000_002, |reader, _| reader.ended_attempts(&asked)).unwrap().attempts;
    let measured: Vec<_> =
        found.iter().map(|ended| (&*ended.outcome, ended.took_ms.is_some())).collect();
    assert_eq!(measured, [("expired", false), ("success", true)]);
}

/// A late result is another end, in the place of the lease that expired.
#[test]
fn a_late_result_takes_the_place_of_the_expired_lease() {
    let mut site = Site::new(FAIR);
    site.edit("INSERT INTO log VALUES ('a', 100, 110, 0)");
    site.list(&run("f", 1), &["a"]);
    let job = site.commit(|store| store.dispatch(1_000, Some(&holder("w", 60)))).unwrap();
    let shiftboss_actors::store::Dispatched::Job(attempt, _) = job else { panic!("{job:?}") };
    site.commit(|store| store.expire(attempt, 1_100)).unwrap();
    assert_eq!((sums(&site).expired, sums(&site).jobs), (1, 0));
    assert_eq!(ends(&site, None), [end("a", "expired", 1)]);
    let late = site.commit(|store| store.finish_attempt(attempt, 124, 4_000)).unwrap();
    assert_eq!(late, Ack::Recorded);
    let found = sums(&site);
    assert_eq!((found.expired, found.jobs, found.timeout), (0, 1, 1));
    assert_eq!(found.cycle_seconds, Some(900));
    assert_eq!(ends(&site, None), [end("a", "timeout", 2)]);
    assert_eq!(ends(&site, Some("a")), [end("a", "timeout", 2)]);
}

/// A database of version 11 has its attempts numbered in the order of their ends, and each key its history.
#[test]
fn version_11_is_upgraded() {
    let mut site = Site::new(FAIR);
    for round in 1..4 {
        let now = round * 100;
        site.list(&run("f", round), &["a", "b"]);
        for at in 0..2 {
            let job = site.next(now + at).unwrap();
            site.finish(job.split(' ').next().unwrap(), now + 10 - at);
        }
    }
    let before = ends(&site, Some("a"));
    assert_eq!(before.len(), 3);
    site.edit(
        "DROP TRIGGER shiftboss_delivery_delete; DROP INDEX shiftboss_ends; ALTER TABLE shiftboss_attempts DROP COLUMN ended;
        ALTER TABLE shiftboss_attempts DROP COLUMN previous; DROP TABLE shiftboss_hours;
        PRAGMA user_version = 11",
    );
    let mut site = site.restart(&options(FAIR), false);
    let keys = |ends: Vec<(String, String, i64)>| -> Vec<String> {
        ends.into_iter().map(|(key, ..)| key).collect()
    };
    assert_eq!(keys(ends(&site, Some("a"))), ["a"; 3]);
    let all = ends(&site, None);
    assert_eq!(all.iter().map(|(.., ended)| *ended).collect::<Vec<_>>(), [6, 5, 4, 3, 2, 1]);
    assert_eq!(sums(&site).jobs, 0, "what was done before is not summed up");
    site.list(&run("f", 4), &["a"]);
    assert!(site.next(500).is_some_and(|job| job.starts_with('a')));
    site.finish("a", 510);
    assert_eq!(ends(&site, Some("a"))[0], end("a", "success", 7));
    assert_eq!((ends(&site, Some("a")).len(), sums(&site).jobs), (4, 1));
}
