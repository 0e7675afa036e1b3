//! Spec 5 on leases, turns and undoing, in single steps.

use shiftboss_actors::testing::one_by_one::OneByOne;

use super::support::{FAIR, Site, key, run};
use crate::stores::sqlite::Policy;

/// Twenty cycles of a key that two fetchers list, their runs replaced in between.
fn cycles(policy: Policy) -> (usize, usize) {
    let mut site = Site::new(policy);
    let mut served = Vec::new();
    for cycle in 1..=20 {
        for fetcher in ["f1", "f2"] {
            site.list(&run(fetcher, cycle), &["alpha"]);
            site.delete(&run(fetcher, cycle - 1));
        }
        served.push(site.next(cycle * 100).unwrap());
        site.finish("alpha", cycle * 100);
    }
    let of = |fetcher: &str| served.iter().filter(|job| job.contains(fetcher)).count();
    (of(" f1."), of(" f2."))
}

/// Fetchers of one key take turns, over the replacement of their runs; classic knows no turns.
#[test]
fn fetchers_take_turns() {
    assert_eq!(cycles(FAIR), (10, 10));
    assert_eq!(cycles(Policy::Classic), (20, 0));
}

/// A fetcher whose row of the key was never dispatched goes before one whose was, even when both
/// happen in one second and its id is larger.
#[test]
fn the_newcomer_goes_first() {
    let mut site = Site::new(FAIR);
    site.list(&run("old", 1), &["alpha"]);
    assert_eq!(site.next(5).as_deref(), Some("alpha old.1"));
    site.finish("alpha", 5);
    site.list(&run("old", 2), &["alpha"]);
    site.list(&run("new", 1), &["alpha"]);
    assert_eq!(site.next(5).as_deref(), Some("alpha new.1"));
    site.finish("alpha", 5);
    assert_eq!(site.next(5).as_deref(), Some("alpha old.2"));
}

/// A job whose lease expired is handed out again, behind the undispatched row of its key, and its
/// tries are counted; its end ends that.
#[test]
fn a_lost_job_comes_again() {
    let mut site = Site::new(Policy::Fair { lease_seconds: 60 });
    site.list(&run("f", 1), &["alpha"]);
    site.list(&run("g", 1), &["alpha"]);
    assert_eq!(site.next(100).as_deref(), Some("alpha f.1"));
    assert_eq!(site.next(160), None);
    assert_eq!(site.next(161).as_deref(), Some("alpha g.1"));
    site.finish("alpha", 162);
    assert_eq!(site.next(162).as_deref(), Some("alpha f.1"));
    assert_eq!(
        site.rows("SELECT fetcher_id, delivery_count FROM shiftboss_in_flight ORDER BY attempt"),
        ["1|1", "1|2"]
    );
    site.finish("alpha", 163);
    assert_eq!(site.next(1_000), None);
    assert_eq!(site.rows("SELECT count(*) FROM shiftboss_in_flight"), ["0"]);
}

/// Undoing restores everything: log, flags, order, turns. Only the attempt number is gone.
#[test]
fn undoing_leaves_no_trace() {
    let everything = "SELECT 'q', fetcher_id, fetcher_run_started, attr_path, is_dequeued, last_started, state || '|' || coalesce(last_served, '-') FROM queue
        UNION ALL SELECT 'l', attr_path, started, finished, exit_code, '', '' FROM log
        UNION ALL SELECT 'f', attr_path, attempt, delivery_count, '', '', '' FROM shiftboss_in_flight
        UNION ALL SELECT 'd', minute, exit_code, jobs, '', '', '' FROM shiftboss_completions ORDER BY 1, 2, 3, 4";
    let mut site = Site::new(Policy::Fair { lease_seconds: 60 });
    site.list(&run("f", 1), &["alpha"]);
    site.list(&run("f", 2), &["alpha"]);
    site.list(&run("g", 1), &["alpha"]);
    // First start; after a finish in the same second; of a row whose lease expired.
    for (now, finished) in [(100, true), (100, false), (161, false), (222, true)] {
        let before = site.rows(everything);
        let (attempt, job) = site.attempt(now).unwrap();
        assert!(site.undo(attempt));
        assert_eq!(site.rows(everything), before, "{job} at {now}");
        assert!(!site.undo(attempt), "undone only once");
        let (again, same) = site.attempt(now).unwrap();
        assert_eq!(same, job);
        assert!(again > attempt);
        if finished {
            site.finish("alpha", now);
        }
    }
}

/// What happened to the key since stands: an end, an edit, another dispatch.
#[test]
fn undoing_never_overwrites() {
    for edit in [
        "UPDATE log SET finished = 101, exit_code = 7",
        "UPDATE log SET started = 99",
        "DELETE FROM log",
    ] {
        let mut site = Site::new(FAIR);
        site.list(&run("f", 1), &["alpha"]);
        let (attempt, _) = site.attempt(100).unwrap();
        site.edit(edit);
        let before = site.rows("SELECT * FROM log");
        assert!(!site.undo(attempt), "{edit}");
        assert_eq!(site.rows("SELECT * FROM log"), before);
    }
}

/// Classic writes nothing beside the public tables, and undoes nothing.
#[test]
fn classic_keeps_no_deliveries() {
    let mut site = Site::new(Policy::Classic);
    site.list(&run("f", 1), &["alpha"]);
    let (attempt, _) = site.attempt(100).unwrap();
    assert!(!site.undo(attempt));
    assert_eq!(site.rows("SELECT count(*) FROM shiftboss_in_flight"), ["0"]);
    assert_eq!(site.rows("SELECT last_served FROM queue"), ["-"]);
    assert_eq!(site.next(100 + 43_201), None);
}

/// Opening a fair database as a classic one forgets what fair kept, and the queue stays whole.
#[test]
fn a_fair_database_can_be_opened_classic() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    site.attempt(100).unwrap();
    let Site { store, directory, .. } = site;
    drop(store);
    let mut site = Site::in_directory(directory, Policy::Classic);
    assert_eq!(site.next(100 + 43_201), None);
    assert_eq!(site.rows("SELECT state FROM queue"), ["0"]);
}

/// A `DONE` of a key that is known to be next: an undo of its dispatch gives back what that said.
#[test]
fn undoing_gives_the_last_code_back() {
    let mut site = Site::new(FAIR);
    let keys = ["a", "b", "c", "d", "e"];
    site.list(&run("f", 1), &keys);
    for _ in keys {
        let text = next_key(&site.next(10).unwrap());
        site.finish(&text, 20);
    }
    site.list(&run("f", 2), &keys);
    site.delete(&run("f", 1));
    // Window: 1, then 2.
    site.next(100).unwrap();
    site.next(100).unwrap();
    let order = site.rows(
        "SELECT attr_path FROM queue WHERE is_dequeued = 0 ORDER BY last_started, order_jitter",
    );
    let next = order[0].clone();
    site.commit(|store| store.finish(&key(&next), 7, 100)).unwrap();
    let log = format!("SELECT started, finished, exit_code FROM log WHERE attr_path = '{next}'");
    let before = site.rows(&log);
    assert_eq!(before, ["10|100|7"]);
    let (attempt, again) = site.attempt(100).unwrap();
    assert_eq!(next_key(&again), next);
    assert!(site.undo(attempt));
    assert_eq!(site.rows(&log), before);
}

/// The key of a job that is given as `key payload`.
fn next_key(job: &str) -> String {
    job.split(' ').next().unwrap().to_owned()
}
