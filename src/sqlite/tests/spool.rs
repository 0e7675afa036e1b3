//! Entries of a spool in the store: in once, out when done, whatever happens in between.

use std::time::Duration;

use shiftboss_actors::model::Row;
use shiftboss_actors::store::{Dispatch, Entered, Entries, Entry, Store, StoreError, Told};

use super::support::{FAIR, Site, holder, key, options};
use crate::sqlite::views::queue_status;
use crate::sqlite::{Options, Policy};

fn entry(name: &str, key_text: &str, payload: &str) -> Entry {
    Entry { name: name.into(), row: Row { key: key(key_text), payload: payload.to_owned() } }
}

impl Site {
    fn enter(&mut self, name: &str, key: &str, payload: &str) -> Entered {
        self.commit(|store| store.enter(&entry(name, key, payload), 1_000)).unwrap()
    }

    fn forget(&mut self, name: &str) {
        self.commit(|store| store.forget_entry(name)).unwrap();
        self.check_kept();
    }

    /// The entries as `name`, with a star when they are done.
    fn entries(&mut self) -> Vec<String> {
        let states = self.store.entries().unwrap().into_iter();
        states.map(|state| format!("{}{}", state.name, if state.done { "*" } else { "" })).collect()
    }
}

/// A known name with the same line adds nothing; with another it is another entry.
#[test]
fn an_entry_enters_once() {
    for policy in [FAIR, Policy::Classic] {
        let mut site = Site::new(policy);
        assert_eq!(site.enter("a", "alpha", "1"), Entered::Added);
        assert_eq!(site.enter("a", "alpha", "1"), Entered::Known);
        let mut site = site.restart(&options(policy), false);
        assert_eq!(site.enter("a", "alpha", "1"), Entered::Known);
        assert_eq!(site.rows("SELECT run_started, is_complete FROM fetcher_runs"), ["1000|1"]);
        assert_eq!(site.next(10).as_deref(), Some("alpha 1"));
        assert_eq!(site.enter("a", "alpha", "1"), Entered::Known);
        assert_eq!(site.next(10), None);
        site.finish("alpha", 20);
        assert_eq!(site.entries(), ["a*"]);
        assert_eq!(site.enter("a", "alpha", "1"), Entered::Known);
        assert_eq!(site.next(30), None);
        assert_eq!(site.enter("a", "alpha", "2"), Entered::Added);
        assert_eq!(site.rows("SELECT run_started FROM fetcher_runs"), ["1001"]);
        assert_eq!(site.entries(), ["a"]);
        assert_eq!(site.next(30).as_deref(), Some("alpha 2"));
        site.finish("alpha", 40);
        site.forget("a");
        site.forget("a");
        assert_eq!(site.entries(), [""; 0]);
        assert_eq!(site.rows("SELECT name FROM fetchers"), [""; 0]);
    }
}

/// A second entry of a key waits until the first is out, so that no run hides another.
#[test]
fn a_key_has_one_entry_at_a_time() {
    let mut site = Site::new(FAIR);
    assert_eq!(site.enter("a", "alpha", "1"), Entered::Added);
    assert_eq!(site.enter("b", "alpha", "2"), Entered::Waits);
    assert_eq!(site.enter("c", "charlie", "3"), Entered::Added);
    assert_eq!(site.entries(), ["a", "c"]);
    site.forget("a");
    assert_eq!(site.enter("b", "alpha", "2"), Entered::Added);
    assert_eq!(site.entries(), ["b", "c"]);
    // Rows that somebody deleted by hand keep nobody out, and come again when they are offered.
    site.edit("DELETE FROM fetcher_runs");
    assert_eq!(site.entries(), [""; 0]);
    assert_eq!(site.enter("d", "alpha", "4"), Entered::Added);
    assert_eq!(site.enter("c", "charlie", "3"), Entered::Added);
    assert_eq!(site.entries(), ["c", "d"]);
    site.check_kept();
}

/// What was rolled back is known to nobody, and enters again.
#[test]
fn a_rollback_leaves_nothing_of_an_entry() {
    let mut site = Site::new(FAIR);
    site.store.begin().unwrap();
    assert_eq!(site.store.enter(&entry("a", "alpha", "1"), 5), Ok(Entered::Added));
    site.store.roll_back().unwrap();
    assert_eq!(site.entries(), [""; 0]);
    assert_eq!(site.enter("a", "alpha", "1"), Entered::Added);
    site.next(10).unwrap();
    site.finish("alpha", 11);
    site.store.begin().unwrap();
    site.store.forget_entry("a").unwrap();
    site.store.roll_back().unwrap();
    assert_eq!(site.entries(), ["a*"]);
    site.check_kept();
}

/// A database that somebody keeps locked is an error like any other's, and changes nothing.
#[test]
fn a_busy_database_takes_no_entry() {
    let directory = tempfile::tempdir().unwrap();
    let busy_timeout = Duration::from_millis(1);
    let mut site = Site::opened(directory, &Options { busy_timeout, ..options(FAIR) });
    site.edit("BEGIN IMMEDIATE");
    assert!(matches!(site.store.begin(), Err(StoreError::Busy(_))));
    site.edit("ROLLBACK");
    assert_eq!(site.enter("a", "alpha", "1"), Entered::Added);
}

/// Only DONE is done: not a job in flight, given back, undone, or whose worker fell silent too often.
#[test]
fn only_done_is_done() {
    let mut site =
        Site::opened(tempfile::tempdir().unwrap(), &Options { max_attempts: 2, ..options(FAIR) });
    site.enter("a", "alpha", "1");
    let lease = |site: &mut Site, now| match site
        .commit(|store| store.dispatch(now, Some(&holder("w", 60))))
        .unwrap()
    {
        Dispatch::Job(attempt, _) => attempt,
        other => panic!("{other:?}"),
    };
    let first = lease(&mut site, 10);
    assert_eq!(site.entries(), ["a"]);
    site.commit(|store| store.release(first, 11)).unwrap();
    assert_eq!(site.entries(), ["a"]);
    let (attempt, _) = site.attempt(12).unwrap();
    assert!(site.undo(attempt));
    assert_eq!(site.entries(), ["a"]);
    for (now, parked) in [(20, false), (30, true)] {
        let attempt = lease(&mut site, now);
        let lost = site.commit(|store| store.expire(attempt, now + 5)).unwrap().unwrap();
        assert_eq!(lost.parked, parked);
        assert_eq!(site.entries(), ["a"]);
    }
    site.commit(|store| store.retry(&key("alpha"))).unwrap();
    let last = lease(&mut site, 40);
    assert_eq!(site.commit(|store| store.finish_attempt(last, 7, 41)).unwrap(), Told::Recorded);
    assert_eq!(site.entries(), ["a*"]);
}

/// What waits or is parked can be withdrawn; what somebody has, or has done, cannot.
#[test]
fn only_what_nobody_has_is_withdrawn() {
    for policy in [FAIR, Policy::Classic] {
        let mut site = Site::opened(
            tempfile::tempdir().unwrap(),
            &Options { max_attempts: 1, ..options(policy) },
        );
        let withdraw =
            |site: &mut Site, name: &str| site.commit(|store| store.withdraw_entry(name)).unwrap();
        assert!(withdraw(&mut site, "unknown"));
        site.enter("a", "alpha", "1");
        assert!(withdraw(&mut site, "a"));
        assert_eq!((site.entries(), site.next(10)), (vec![], None));
        site.enter("a", "alpha", "1");
        assert_eq!(site.next(10).as_deref(), Some("alpha 1"));
        assert!(!withdraw(&mut site, "a"));
        site.finish("alpha", 20);
        assert!(!withdraw(&mut site, "a"));
        assert_eq!(site.entries(), ["a*"]);
        site.check_kept();
    }
    let mut site =
        Site::opened(tempfile::tempdir().unwrap(), &Options { max_attempts: 1, ..options(FAIR) });
    site.enter("a", "alpha", "1");
    let dispatched = site.commit(|store| store.dispatch(10, Some(&holder("w", 60)))).unwrap();
    let Dispatch::Job(attempt, _) = dispatched else { panic!("{dispatched:?}") };
    assert!(site.commit(|store| store.expire(attempt, 20)).unwrap().unwrap().parked);
    assert!(site.commit(|store| store.withdraw_entry("a")).unwrap());
    assert_eq!(site.rows("SELECT name FROM fetchers"), [""; 0]);
    site.check_kept();
}

/// A job that was done stays so while another fetcher's row of its key is in flight.
#[test]
fn another_fetcher_s_job_of_the_key_hides_no_end() {
    let mut site = Site::new(FAIR);
    site.enter("a", "alpha", "1");
    assert_eq!(site.next(10).as_deref(), Some("alpha 1"));
    site.list(&super::support::run("f", 1), &["alpha"]);
    site.finish("alpha", 20);
    assert_eq!(site.next(30).as_deref(), Some("alpha f.1"));
    assert_eq!(site.entries(), ["a*"]);
    site.forget("a");
    site.finish("alpha", 40);
    site.check_kept();
}

/// The reference drops what has no file. Back here, such entries enter anew.
#[test]
fn a_database_that_the_reference_had_takes_its_entries_again() {
    let mut site = Site::new(FAIR);
    site.enter("a", "alpha", "1");
    site.enter("b", "bravo", "2");
    site.store.close().unwrap();
    // As it does at its start: it knows no triggers of ours, but they fire.
    site.edit("PRAGMA foreign_keys = ON; PRAGMA user_version = 2; DELETE FROM fetcher_runs");
    let mut site = site.restart(&options(FAIR), false);
    assert_eq!(site.entries(), [""; 0]);
    assert_eq!(site.enter("b", "bravo", "2"), Entered::Added);
    assert_eq!(site.enter("a", "alpha", "1"), Entered::Added);
    assert_eq!(site.entries(), ["a", "b"]);
    site.check_kept();
}

/// Status shows all entries as one fetcher.
#[test]
fn status_shows_entries_as_one_fetcher() {
    let mut site = Site::new(FAIR);
    for number in 0..5 {
        site.enter(&format!("e{number}"), &format!("k{number}"), "1");
    }
    site.next(10).unwrap();
    let status = queue_status(&site.directory.path().join("state.db"), 1_010).unwrap();
    let shown: Vec<_> = status
        .fetchers
        .iter()
        .map(|fetcher| (&*fetcher.name, fetcher.lines, fetcher.pending, fetcher.older_runs))
        .collect();
    assert_eq!(shown, [("@spool", 5, 4, 0)]);
}
