//! What `queue`, `why`, `log` and `status` say of what was done. That it comes so is in [`foretold`].

use shiftboss_actors::store::answers::{
    Ended, HOLDERS_MAX, Holding, KeyRow, KeyState, LastResult, Place, QueueStatus, RowState, Why,
};
use std::time::Duration;

use shiftboss_actors::store::{
    Ack, Dispatched, EndedAttempts, KEYS_BEFORE_MAX, LeaseHolder, ReadError, Reader,
};
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::Attempt;

use super::support::{FAIR, Site, key, run};
use crate::stores::sqlite::{Policy, SqliteReader};
use crate::stores::views::QUEUE_MAX;

mod foretold;

fn ask(site: &Site, key: &str, now: i64) -> Option<Why> {
    site.ask(now, |reader, now| reader.why(now, key, KEYS_BEFORE_MAX)).unwrap()
}

fn status(site: &Site, now: i64) -> QueueStatus {
    site.ask(now, |reader, now| reader.status(now)).unwrap()
}

/// The next `count` jobs as `key payload`.
fn listed(site: &Site, count: usize, now: i64) -> Vec<String> {
    let found = site.ask(now, |reader, now| reader.next_jobs(now, count)).unwrap();
    found.keys.iter().map(|next| format!("{} {}", next.key, next.payload)).collect()
}

fn leased(site: &mut Site, worker: &str, lease_seconds: u32, now: i64) -> (Attempt, String) {
    let holder = LeaseHolder { worker: worker.into(), lease_seconds };
    match site.commit(|store| store.dispatch(now, Some(&holder))).unwrap() {
        Dispatched::Job(attempt, job) => (attempt, job.key.to_string()),
        other => panic!("{other:?}"),
    }
}

/// A key's state at each step of its life, and what is told with it.
#[test]
fn where_a_key_is() {
    let mut site = Site::new(FAIR);
    assert_eq!(ask(&site, "alpha", 10), None);
    site.edit("INSERT INTO log VALUES ('alpha', 4, 6, 3)");
    let found = ask(&site, "alpha", 10).unwrap();
    let last = Some(LastResult { started: 4, finished: 6, exit_code: Some(3) });
    assert_eq!((found.state, found.last_result, found.place), (KeyState::Unlisted, last, None));
    site.list(&run("f", 1), &["alpha", "bravo"]);
    site.list(&run("f", 2), &["alpha"]);
    site.list(&run("g", 1), &["alpha"]);
    let found = ask(&site, "alpha", 10).unwrap();
    let place = Place { keys_before: 1, exact: true, first: vec!["bravo".to_owned()] };
    assert_eq!((found.state, &found.place), (KeyState::Waiting, &Some(place)));
    let rows = |found: &Why| -> Vec<_> {
        let row = |row: &KeyRow| (row.payload.clone(), row.state);
        found.rows.iter().map(row).collect()
    };
    let at = |payload: &str, state| (payload.to_owned(), state);
    let (waiting, hidden) = (RowState::Waiting, RowState::Hidden);
    assert_eq!(rows(&found), [at("f.2", waiting), at("f.1", hidden), at("g.1", waiting)]);
    assert_eq!(leased(&mut site, "w", 60, 11).1, "bravo");
    let (attempt, held) = leased(&mut site, "w", 60, 12);
    assert_eq!(held, "alpha");
    let found = ask(&site, "alpha", 13).unwrap();
    assert_eq!((found.state, found.last_result, &found.place), (KeyState::InFlight, last, &None));
    let delivery = found.in_flight.clone().unwrap();
    assert_eq!((delivery.worker.as_deref(), delivery.attempt), (Some("w"), Some(attempt.0)));
    assert_eq!((delivery.since, delivery.lease_seconds, delivery.held_until), (12, Some(60), None));
    assert_eq!(rows(&found)[0], at("f.2", RowState::InFlight));
    assert_eq!(rows(&found)[2], at("g.1", waiting));
    let ack = site.commit(|store| store.finish_attempt(attempt, 7, 14)).unwrap();
    assert_eq!(ack, Ack::Recorded);
    let found = ask(&site, "alpha", 20).unwrap();
    assert_eq!((found.state, rows(&found)[0].1), (KeyState::Waiting, RowState::Dispatched));
    assert_eq!(found.last_result.and_then(|last| last.exit_code), Some(7));
    assert_eq!((found.jobs_last_hour, found.expected_in_seconds), (1, None));
    assert_eq!(site.next(21).as_deref(), Some("alpha g.1"));
    site.finish("alpha", 22);
    assert_eq!(ask(&site, "alpha", 23).unwrap().state, KeyState::Dispatched);
    site.commit(|store| store.begin_deletion(&run("g", 1))).unwrap();
    let found = ask(&site, "alpha", 23).unwrap();
    assert_eq!(rows(&found)[2], at("g.1", RowState::Leaving));
}

/// A classic job is held until its lease is out, to the second; then it waits again.
#[test]
fn a_classic_job_is_held() {
    for policy in [Policy::Fair { lease_seconds: 43_200 }, Policy::Classic] {
        let mut site = Site::new(policy);
        site.list(&run("f", 1), &["alpha"]);
        site.list(&run("g", 1), &["alpha"]);
        assert!(site.next(100).is_some());
        let until = ask(&site, "alpha", 101).unwrap().in_flight.unwrap().held_until.unwrap();
        let state = |now| ask(&site, "alpha", now).unwrap().state;
        assert_eq!((state(until - 1), state(until)), (KeyState::InFlight, KeyState::Waiting));
        assert!(ask(&site, "alpha", until).unwrap().in_flight.is_some(), "it may come back");
        assert_eq!(site.next(until - 1), None);
        assert!(site.next(until).is_some());
    }
}

/// A job that whose leases expired too often is a dead letter until it is listed again; it is counted by `status`.
#[test]
fn a_parked_job() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    for now in 1..=5 {
        let (attempt, _) = leased(&mut site, "w", 1, now);
        site.commit(|store| store.expire(attempt, now + 1)).unwrap();
    }
    let found = ask(&site, "alpha", 10).unwrap();
    assert_eq!((found.state, found.rows[0].state), (KeyState::DeadLetter, RowState::DeadLetter));
    assert_eq!((found.rows[0].expired_leases, status(&site, 10).dead_letters), (5, 1));
    assert_eq!(listed(&site, 5, 10), [""; 0]);
    site.commit(|store| store.retry(&key("alpha"), None)).unwrap();
    assert_eq!(ask(&site, "alpha", 10).unwrap().state, KeyState::Waiting);
    assert_eq!((listed(&site, 5, 10).len(), status(&site, 10).dead_letters), (1, 0));
}

/// While handing out is paused, the order is told all the same, and no time.
#[test]
fn while_paused() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha", "bravo", "charlie"]);
    assert!(site.next(3_600).is_some_and(|job| job.starts_with("alpha")));
    site.finish("alpha", 3_600);
    let next = site.ask(3_600, |reader, now| reader.next_jobs(now, 5)).unwrap().keys;
    let (first, second) = (next[0].key.clone(), next[1].key.clone());
    let expected = |site: &Site| ask(site, &second, 3_600).unwrap().expected_in_seconds;
    assert_eq!(expected(&site), None, "one end tells nothing");
    site.edit("UPDATE shiftboss_completions SET jobs = 10");
    assert_eq!(expected(&site), Some(2), "ten ended within ten seconds");
    site.edit("UPDATE shiftboss_completions SET minute = minute - 30");
    assert_eq!(expected(&site), Some(12), "ten ended within a minute, and there was a pause");
    assert_eq!(ask(&site, &first, 3_600).and_then(|next| next.expected_in_seconds), None);
    site.commit(|store| store.set_paused(true)).unwrap();
    let found = ask(&site, &second, 3_600).unwrap();
    assert_eq!((found.state, found.paused), (KeyState::Waiting, true));
    assert_eq!(found.expected_in_seconds, None);
    let next = site.ask(3_600, |reader, now| reader.next_jobs(now, 5)).unwrap();
    assert_eq!((next.paused, next.keys.len()), (true, 2));
    assert!(status(&site, 3_600).paused);
}

/// Beyond the bound a place is "more than"; a listing costs what it lists.
#[test]
fn a_place_far_behind() {
    let site = Site::new(FAIR);
    site.edit(
        "INSERT INTO fetchers (name) VALUES ('f');
         INSERT INTO fetcher_runs (fetcher_id, run_started) VALUES (1, 1);
         DROP TRIGGER shiftboss_queue_insert; DROP TRIGGER queue_insert_started;
         WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 100003)
         INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload, order_jitter,
             state, partition) SELECT 1, 1, 'key' || n, '', n, 1, n % 2 FROM number;
         UPDATE shiftboss_runs SET partition = 1",
    );
    let place = |key: &str| ask(&site, key, 1).unwrap().place.unwrap();
    let (last, beyond) = (place("key100001"), place("key100002"));
    assert_eq!((last.keys_before, last.exact), (100_000, true));
    assert_eq!((beyond.keys_before, beyond.exact), (100_000, false));
    assert_eq!(beyond.first, ["key1", "key2", "key3", "key4", "key5"]);
    assert_eq!(ask(&site, "key100003", 1).unwrap().expected_in_seconds, None);
    assert_eq!(
        site.ask(1, |reader, now| reader.next_jobs(now, usize::MAX)).unwrap().keys.len(),
        QUEUE_MAX
    );
    let hasty = SqliteReader::glance(site.path(), Duration::ZERO);
    let asked = hasty.why(1, "key100001", KEYS_BEFORE_MAX);
    assert!(matches!(asked, Err(ReadError::Unavailable(_))));
}

/// A listing ends before its payloads take too much memory, and says so.
#[test]
fn payloads_are_bounded() {
    let mut site = Site::new(FAIR);
    let payload = "x".repeat(1024 * 1024);
    let keys: Vec<String> = (0..20).map(|number| format!("key{number}")).collect();
    let rows: Vec<_> = keys.iter().map(|key| (key.as_str(), payload.as_str())).collect();
    site.add(&run("f", 1), &rows);
    let next = site.ask(1, |reader, now| reader.next_jobs(now, 20)).unwrap();
    assert_eq!((next.keys.len(), next.truncated), (16, true));
    let next = site.ask(1, |reader, now| reader.next_jobs(now, 5)).unwrap();
    assert_eq!((next.keys.len(), next.truncated), (5, false));
}

/// Ended attempts, the one handed out last first; by key; and those that did not go well.
#[test]
fn attempts_that_ended() {
    let mut site = Site::new(FAIR);
    site.edit(
        "INSERT INTO log VALUES ('bravo', 1, 1, 0), ('charlie', 2, 2, 0), ('delta', 3, 3, 0)",
    );
    site.list(&run("f", 1), &["alpha", "bravo", "charlie", "delta"]);
    let first = leased(&mut site, "w", 60, 100).0;
    let second = leased(&mut site, "w", 60, 101).0;
    assert!(site.next(102).is_some_and(|job| job.starts_with("charlie")));
    let last = leased(&mut site, "v", 60, 103).0;
    site.commit(|store| store.finish_attempt(first, 0, 110)).unwrap();
    site.commit(|store| store.release(second, 111)).unwrap();
    site.finish("charlie", 112);
    site.commit(|store| store.finish_attempt(last, 9, 113)).unwrap();
    let ended = |wanted: &EndedAttempts| {
        site.ask(1, |reader, _| reader.ended_attempts(wanted)).unwrap().attempts
    };
    let all = EndedAttempts { count: 10, ..EndedAttempts::default() };
    let summary = |found: Vec<Ended>| -> Vec<_> {
        found.into_iter().map(|ended| (ended.key, ended.outcome, ended.exit_code)).collect()
    };
    let row = |key: &str, outcome: &str, code| (key.to_owned(), outcome.to_owned(), code);
    let expected = [
        row("delta", "failure", Some(9)),
        row("charlie", "success", Some(0)),
        row("bravo", "released", None),
        row("alpha", "success", Some(0)),
    ];
    assert_eq!(summary(ended(&all)), expected);
    let delta = ended(&EndedAttempts { count: 1, ..EndedAttempts::default() }).remove(0);
    assert_eq!((delta.worker.as_deref(), delta.fetcher.as_deref()), (Some("v"), Some("f")));
    assert_eq!((delta.started, delta.finished, delta.duration_seconds), (103, 113, 10));
    let failed = EndedAttempts { outcomes: EndedAttempts::FAILED.to_vec(), ..all.clone() };
    assert_eq!(summary(ended(&failed)), [expected[0].clone()]);
    let of_key = EndedAttempts { key: Some("charlie".to_owned()), ..all.clone() };
    assert_eq!(summary(ended(&of_key)), [expected[1].clone()]);
    site.delete(&run("f", 1));
    assert_eq!(
        site.ask(1, |reader, _| reader.ended_attempts(&all)).unwrap().attempts[0].fetcher,
        None
    );
}

/// Who holds which job, the oldest first: leased ones however long, classic ones for their lease.
#[test]
fn who_holds_what() {
    let mut site = Site::new(Policy::Fair { lease_seconds: 100 });
    site.edit("INSERT INTO log VALUES ('b', 1, 1, 0), ('c', 2, 2, 0), ('d', 3, 3, 0)");
    site.list(&run("f", 1), &["a", "b", "c", "d"]);
    let holding = |worker: Option<&str>, key: &str, attempt, since, lease_seconds| Holding {
        worker: worker.map(str::to_owned),
        key: key.to_owned(),
        attempt,
        since,
        lease_seconds,
        daemon: None,
    };
    let old = leased(&mut site, "w", 60, 100).0;
    assert!(site.next(110).is_some());
    let young = leased(&mut site, "v", 30, 250).0;
    assert!(site.next(260).is_some_and(|job| job.starts_with('d')), "the lease of b expired");
    let found = status(&site, 260);
    let (leased, classic) = (holding(Some("w"), "a", Some(old.0), 100, Some(60)), young.0 + 1);
    let young = holding(Some("v"), "c", Some(young.0), 250, Some(30));
    assert_eq!(found.holders, [leased, young, holding(None, "d", Some(classic), 260, None)]);
    assert_eq!(found.rows.in_flight, 4);
    site.edit(
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 2000)
         INSERT INTO log SELECT 'x' || n, 200 + n % 2, NULL, NULL FROM number",
    );
    let holders = status(&site, 260).holders;
    assert_eq!((holders.len(), holders[0].since, holders[1].since), (HOLDERS_MAX, 100, 200));
    assert_eq!((holders[1].worker.as_deref(), holders[1].attempt), (None, None));
}

/// A database that is not taken over has no order to tell.
#[test]
fn not_taken_over() {
    let site = Site::new(FAIR);
    site.edit("PRAGMA user_version = 2");
    let refused = site.ask(1, |reader, now| reader.next_jobs(now, 1)).unwrap_err();
    assert!(
        matches!(&refused, ReadError::Foreign(text) if text.contains("not yet taken over")),
        "{refused}"
    );
    assert!(
        site.ask(1, |reader, now| reader.why(now, "a", 10)).is_err()
            && site.ask(1, |reader, _| reader.ended_attempts(&EndedAttempts::default())).is_err()
    );
}
