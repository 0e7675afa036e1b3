//! Ends of attempts: said again, late, stale, of numbers that are unknown.

use shiftboss_actors::store::Ack;
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::Attempt;

use super::super::support::{FAIR, Site, options, run};
use super::{HALF_DAY, NOW, site};
use crate::stores::sqlite::Options;

/// "DONE may be said again: the first one stands."
#[test]
fn the_first_end_stands() {
    let mut site = site(&["alpha"]);
    let attempt = site.leased(NOW);
    assert_eq!([3, 0].map(|code| site.done(attempt, code, NOW + 5 + code)), [Ack::Recorded; 2]);
    assert_eq!(site.log(), [format!("alpha|{NOW}|{}|3", NOW + 8)]);
    assert_eq!(site.outcomes(), ["1|done|3"]);
    assert_eq!((site.release(attempt), site.expire(attempt)), (Ack::Stale, None));
}

/// "For an attempt whose lease expired it still counts": also as a dead letter, retried, and without its run.
#[test]
fn a_late_end_counts() {
    type Case = (bool, fn(&mut Site));
    let cases: [Case; 6] = [
        (false, |_| {}),
        (true, |_| {}),
        (true, |site| assert_eq!(site.retry("alpha"), Some(1))),
        (false, |site| {
            site.list(&run("f", 2), &["bravo"]);
            site.delete(&run("f", 1));
        }),
        (false, |site| {
            let (undone, _) = site.attempt(NOW).unwrap();
            assert!(site.undo(undone), "it was never handed out");
        }),
        (false, |site| {
            let (undone, _) = site.attempt(NOW).unwrap();
            site.delete(&run("f", 1));
            assert!(site.undo(undone), "it was never handed out, and its fetcher is gone");
        }),
    ];
    for (is_dead_letter, after) in cases {
        let mut site = site(&["alpha"]);
        if is_dead_letter {
            let attempt = site.leased(NOW);
            assert!(!site.lose(attempt));
        }
        let attempt = site.leased(NOW);
        assert_eq!(site.lose(attempt), is_dead_letter);
        after(&mut site);
        assert_eq!(site.done(attempt, 7, NOW + 99), Ack::Recorded);
        assert_eq!(site.log(), [format!("alpha|{NOW}|{}|7", NOW + 99)]);
        let ended = format!("{}|done|7", attempt.0);
        assert!(site.outcomes().contains(&ended));
        let next = site.next(NOW + HALF_DAY + 1).unwrap_or_default();
        assert!(!next.starts_with("alpha"), "it is done");
    }
}

/// A late end makes earlier attempts stale, also when their fetcher is gone.
#[test]
fn an_attempt_before_a_late_end_is_stale() {
    let mut site = site(&["alpha"]);
    let [first, second] = [(), ()].map(|()| {
        let attempt = site.leased(NOW);
        site.expire(attempt);
        attempt
    });
    site.delete(&run("f", 1));
    assert_eq!(site.done(second, 0, NOW + 99), Ack::Recorded);
    assert_eq!(site.done(first, 1, NOW + 99), Ack::Stale);
}

/// A late end is the end of earlier classic attempts too.
#[test]
fn a_late_end_is_final() {
    let mut site = site(&["alpha"]);
    site.attempt(NOW).unwrap();
    let attempt = site.leased(NOW + HALF_DAY + 1);
    site.expire(attempt);
    assert_eq!(site.done(attempt, 0, NOW + HALF_DAY + 2), Ack::Recorded);
    assert_eq!(site.next(NOW + 9 * HALF_DAY), None);
}

/// "... unless the key was handed out since: stale. So it is for an attempt that was released."
#[test]
fn a_stale_end_changes_nothing() {
    let after: [fn(&mut Site); 4] = [
        |_| {},
        |site| site.finish("alpha", NOW + 61),
        |site| assert_eq!(site.release(Attempt(2)), Ack::Recorded),
        |site| assert!(!site.expire(Attempt(2)).unwrap().key.as_str().is_empty()),
    ];
    for after in after {
        let mut site = site(&["alpha"]);
        let attempt = site.leased(NOW);
        site.expire(attempt);
        site.leased(NOW + 60);
        after(&mut site);
        let before = (site.tables(), site.outcomes());
        assert_eq!(site.done(attempt, 0, NOW + 70), Ack::Stale);
        assert_eq!((site.tables(), site.outcomes()), before);
    }
    let mut site = site(&["alpha"]);
    let attempt = site.leased(NOW);
    assert_eq!([site.release(attempt), site.release(attempt)], [Ack::Recorded; 2]);
    assert_eq!(site.done(attempt, 0, NOW), Ack::Stale);
    assert_eq!(site.next(NOW).as_deref(), Some("alpha f.1"));
}

/// "Unknown is for an attempt that was never given out"; a classic job's number is none.
#[test]
fn unknown_attempts() {
    let mut site = site(&["alpha"]);
    let (classic, _) = site.attempt(NOW).unwrap();
    for attempt in [classic, Attempt(99), Attempt(0)] {
        assert_eq!(site.done(attempt, 0, NOW), Ack::Unknown);
        assert_eq!((site.release(attempt), site.expire(attempt)), (Ack::Unknown, None));
    }
    site.finish("alpha", NOW);
    assert_eq!(site.done(classic, 1, NOW), Ack::Unknown);
    assert_eq!(site.log(), [format!("alpha|{NOW}|{NOW}|0")]);
}

/// "The daemon knows the last 100,000."
#[test]
fn the_last_100_000_are_known() {
    let mut site = site(&["alpha", "bravo", "charlie"]);
    let first = site.leased(NOW);
    site.done(first, 0, NOW);
    for (taken, told) in [(99_999, Ack::Recorded), (100_000, Ack::Unknown)] {
        site = site.restart(&options(FAIR), true);
        site.edit(&format!("UPDATE shiftboss_counters SET value = {taken} WHERE name = 'attempt'"));
        site = site.restart(&options(FAIR), false);
        let attempt = site.leased(NOW);
        assert_eq!(attempt, Attempt(taken + 1));
        assert_eq!(site.done(first, 0, NOW), told, "after attempt {attempt:?}");
    }
}

/// The number of an end is not used again, though the attempt that it was the end of is forgotten before there is another one.
#[test]
fn a_forgotten_ends_number_is_not_used_again() {
    let few = Options { history: 1_000, ..options(FAIR) };
    let keys: Vec<String> = (0..3_000).map(|number| format!("key{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut site = site(&keys).restart(&few, true);
    let late = site.leased(NOW);
    site.commit(|store| store.expire(late, NOW)).unwrap();
    assert_eq!(site.done(late, 0, NOW), Ack::Recorded);
    let last = "SELECT max(ended) FROM shiftboss_attempts";
    assert_eq!(site.rows(last), ["2"]);
    // As in a file that was recovered.
    site.edit("DELETE FROM shiftboss_counters WHERE name = 'ended'");
    let attempts: Vec<Attempt> = (0..2_100).map(|_| site.leased(NOW)).collect();
    assert_eq!(site.rows(last), ["-"], "it is forgotten");
    site = site.restart(&few, false);
    site.done(attempts[0], 0, NOW);
    site.edit("DELETE FROM shiftboss_deliveries WHERE attempt = (SELECT max(attempt) FROM shiftboss_deliveries)");
    assert_eq!(site.rows("SELECT ended FROM shiftboss_attempts ORDER BY ended"), ["3", "4"]);
}

/// A late result takes the place of the expired lease in the sums by hour, also when its fetcher went in between.
#[test]
fn a_late_result_of_a_fetcher_that_is_gone() {
    let mut site = site(&["alpha"]);
    let late = site.leased(NOW);
    site.commit(|store| store.expire(late, NOW)).unwrap();
    while site.delete_step(&run("f", 1), 10) {}
    assert_eq!(site.done(late, 0, NOW), Ack::Recorded);
    let sums = "SELECT outcome, sum(jobs) FROM shiftboss_hours GROUP BY fetcher, outcome HAVING sum(jobs) <> 0";
    assert_eq!(site.rows(sums), ["success|1"]);
}

/// With fewer to be kept than were, what is too old goes in steps, also while nothing happens.
#[test]
fn a_shorter_history_is_kept() {
    let keys: Vec<String> = (0..5_000).map(|number| format!("key{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut site = site(&keys);
    for _ in 0..5_000 {
        let attempt = site.leased(NOW);
        site.done(attempt, 0, NOW);
    }
    let few = Options { history: 1_000, ..options(FAIR) };
    site = site.restart(&few, true);
    site.store.run_maintenance().unwrap();
    assert_eq!(site.rows("SELECT count(*) FROM shiftboss_attempts"), ["1000"]);
}

/// "A classic DONE key code ends whatever attempt its key is in."
#[test]
fn a_classic_end_ends_a_leased_attempt() {
    let mut site = site(&["alpha"]);
    let attempt = site.leased(NOW);
    site.finish("alpha", NOW + 5);
    assert!(!site.store.is_leased(attempt).unwrap());
    assert_eq!(
        (site.done(attempt, 7, NOW + 6), site.outcomes()),
        (Ack::Recorded, vec!["1|done|0".to_owned()])
    );
}
