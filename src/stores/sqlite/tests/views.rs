//! What `status` sees, and what looking costs.

use rusqlite::Connection;
use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::answers::{Done, QueueStatus, RejectedFile, Rows, Waiting};
use shiftboss_actors::store::{InputDirectory, ReadError, SAMPLE_MAX};
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::support::{FAIR, Site, ask, batch, run};
use crate::stores::sqlite::Policy;
use crate::stores::sqlite::candidates::PLAIN;
use crate::stores::sqlite::dispatch::{OVERDUE, READY};
use crate::stores::sqlite::schema::VERSION;
use crate::stores::sqlite::views::keys::{AT_CHANCE, SEARCH};
use crate::stores::sqlite::views::log::FLOOR;
use crate::stores::sqlite::views::order::in_order;
use crate::stores::sqlite::views::stats::OF_FETCHERS;
use crate::stores::sqlite::views::status::LOOKING;

fn look(site: &Site, now: i64) -> QueueStatus {
    site.ask(now, |reader, now| reader.status(now)).unwrap()
}

/// The kept counts are shown, by fetcher and in all, of the newest run and of how many older ones.
#[test]
fn counts_of_runs_and_rows() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1_000_000_000), &["a", "b", "c"]);
    site.list(&run("g", 7), &["a"]);
    let newer = run("f", 1_000_000_100);
    site.list(&newer, &["a", "d"]);
    let last =
        shiftboss_actors::store::RowBatch { skipped: 2, ..batch(&newer, &[("e", "x")], true) };
    site.commit(|store| store.add_rows(&last)).unwrap();
    assert!(site.next(1_000_000_200).is_some());
    let status = look(&site, 1_000_000_260);
    let shown = |name: &str| {
        let found = status.fetchers.iter().find(|fetcher| fetcher.name == name).unwrap();
        let more = (found.skipped, found.older_runs, found.age_seconds);
        (found.run, found.complete, found.lines, more)
    };
    assert_eq!(shown("f"), (1_000_000_100, true, 3, (2, 1, Some(160))));
    assert_eq!(shown("g"), (7, false, 1, (0, 0, None)));
    let counted = site.rows(
        "SELECT count(*) FILTER (WHERE is_dequeued = 0), count(*) FILTER (WHERE is_dequeued <> 0)
         FROM queue",
    );
    assert_eq!(counted, [format!("{}|{}", status.rows.pending, status.rows.dispatched)]);
    assert_eq!((status.rows.in_flight, status.rows.redelivered), (1, 0));
    assert_eq!((status.schema_version, status.policy.as_deref()), (VERSION, Some("fair")));
    assert_eq!(
        (status.lease_seconds, status.durability.as_deref()),
        (Some(43_200), Some("process"))
    );
}

/// The key that waits longest is one that never ran; after those, the one that ran least recently.
#[test]
fn the_longest_waiting_key() {
    let mut site = Site::new(FAIR);
    assert_eq!(look(&site, 10).oldest_waiting, None);
    site.edit("INSERT INTO log VALUES ('b', 5, 6, 0), ('c', 4, 6, 0)");
    site.list(&run("f", 1), &["a", "b", "c"]);
    let waiting = |key: &str, last_started| Some(Waiting { key: key.to_owned(), last_started });
    assert_eq!(look(&site, 10).oldest_waiting, waiting("a", None));
    assert_eq!(site.next(10).as_deref(), Some("a f.1"));
    assert_eq!(look(&site, 10).oldest_waiting, waiting("c", Some(4)));
    assert_eq!(site.next(11).as_deref(), Some("c f.1"));
    assert_eq!(look(&site, 11).oldest_waiting, waiting("b", Some(5)));
    assert_eq!(site.next(12).as_deref(), Some("b f.1"));
    assert_eq!(look(&site, 12).oldest_waiting, None);
}

/// It is the one that the next request would get: also when its lease expired, and never one of a
/// run under deletion.
#[test]
fn the_longest_waiting_key_is_the_next_one() {
    let mut site = Site::new(Policy::Fair { lease_seconds: 60 });
    site.list(&run("f", 1), &["a"]);
    site.list(&run("g", 1), &["b", "c"]);
    site.list(&run("gone", 1), &["never"]);
    site.edit(
        "INSERT INTO log VALUES ('a', 100, NULL, NULL), ('b', 90, 95, 0), ('c', 105, 106, 0)",
    );
    site.edit("UPDATE queue SET is_dequeued = 1 WHERE attr_path = 'b'");
    assert!(site.delete_step(&run("gone", 1), 1));
    site.list(&run("gone", 2), &["new"]);
    site.commit(|store| store.begin_deletion(&run("gone", 2))).unwrap();
    for (now, next) in [(160, "c g.1"), (161, "a f.1")] {
        let waiting = look(&site, now).oldest_waiting.unwrap();
        assert!(next.starts_with(&waiting.key), "{now}: {waiting:?}");
        let attempt = site.attempt(now).unwrap();
        assert_eq!(attempt.1, next);
        assert!(site.undo(attempt.0));
    }
}

/// Ended jobs are counted for an hour; jobs over their first try, rejected files and a lost
/// directory are shown.
#[test]
fn jobs_and_trouble() {
    let mut site = Site::new(Policy::Fair { lease_seconds: 60 });
    site.list(&run("f", 1), &["a", "b"]);
    let begin = 1_000_000;
    assert!(site.next(begin).is_some());
    assert!(site.next(begin).is_some());
    assert_eq!(look(&site, begin).rows.redelivered, 0);
    let again = site.next(begin + 61).unwrap();
    assert_eq!(
        look(&site, begin + 61).rows,
        Rows { pending: 0, dispatched: 2, in_flight: 2, leased: 0, redelivered: 1 }
    );
    site.finish(again.split(' ').next().unwrap(), begin + 120);
    assert_eq!(look(&site, begin + 120).done_last_hour, [Done { exit_code: 0, jobs: 1 }]);
    assert_eq!(look(&site, begin + 120 + 3_660).done_last_hour, []);
    site.commit(|store| store.reject_file("a.b.txt", "two dots", 5)).unwrap();
    let (name, reason) = ("a.b.txt".to_owned(), "two dots".to_owned());
    let aside = RejectedFile { name, reason, since: 5, daemon: None };
    assert_eq!(look(&site, begin).rejected_files, [aside]);
}

/// A lost directory keeps the time of its loss, and is known when it is there again.
#[test]
fn the_input_directory_is_remembered() {
    let mut site = Site::new(FAIR);
    let lost = |site: &Site| {
        let status = look(site, 100);
        (status.directory_lost_since, status.directory_lost_reason)
    };
    let note = |site: &mut Site, input: InputDirectory, now| {
        site.commit(|store| store.note_input(&input, now)).unwrap();
    };
    assert_eq!((site.store.input_directory(), lost(&site)), (Ok(None), (None, None)));
    let here = DirectoryIdentity { device: 1, inode: 2, born: Some(3) };
    note(&mut site, InputDirectory::There(here), 8);
    note(&mut site, InputDirectory::Lost("gone".to_owned()), 9);
    note(&mut site, InputDirectory::Lost("another".to_owned()), 10);
    assert_eq!(lost(&site), (Some(9), Some("another".to_owned())));
    assert_eq!(site.store.input_directory(), Ok(Some(here)));
    let there = DirectoryIdentity { inode: 4, ..here };
    note(&mut site, InputDirectory::There(there), 11);
    assert_eq!((site.store.input_directory(), lost(&site)), (Ok(Some(there)), (None, None)));
}

/// No statement of the look goes through the queue or the log, whatever they hold.
#[test]
fn looking_is_independent_of_the_number_of_rows() {
    let site = Site::new(FAIR);
    let in_order = in_order(&Vec::from_iter(0..64), 100);
    for sql in LOOKING.iter().chain(&[PLAIN, READY, OVERDUE, &in_order]) {
        let mut statement = site.outside.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![1; statement.parameter_count()];
        let plan: Vec<String> = statement
            .query_map(rusqlite::params_from_iter(parameters), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(!plan.is_empty());
        for step in &plan {
            assert!(!step.starts_with("SCAN queue"), "{sql}: {plan:?}");
            let all_log = step.contains("SCAN log") && !step.contains("shiftboss_unfinished");
            assert!(!all_log, "{sql}: {plan:?}");
            // Few rows share a second and a jitter; and of those that are sorted whole there are few.
            let few = step.ends_with("FOR LAST 2 TERMS OF ORDER BY")
                || sql.contains("started LIMIT 10000");
            let sorted = step.contains("TEMP B-TREE") && sql.contains("FROM queue");
            assert!(!sorted || few, "{sql}: {plan:?}");
        }
    }
}

/// Nor does looking for keys, for a sample of them, or for where the last ends begin.
#[test]
fn searching_goes_along_indexes() {
    let site = Site::new(FAIR);
    for sql in [SEARCH, AT_CHANCE, FLOOR, OF_FETCHERS] {
        let mut statement = site.outside.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![1; statement.parameter_count()];
        let plan = statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3));
        let plan: Vec<String> = plan.unwrap().map(Result::unwrap).collect();
        let tables = ["queue", "log", "shiftboss_attempts", "shiftboss_hours", "kept"];
        let goes_through =
            |step: &String| tables.iter().any(|table| *step == format!("SCAN {table}"));
        assert!(!plan.iter().any(goes_through), "{sql}: {plan:?}");
    }
}

/// Of a long queue so many rows are looked at, each standing for as many as any other.
#[test]
fn a_sample_of_waits() {
    let mut site = Site::new(FAIR);
    let keys: Vec<String> = (0..20_000).map(|number| format!("key{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    site.edit(
        "WITH RECURSIVE number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < 4999)
        INSERT INTO log SELECT 'key' || n, 7, 8, 0 FROM number",
    );
    site.list(&run("f", 1), &keys[..10]);
    site.list(&run("f", 2), &keys);
    let found = site.ask(1, |reader, _| reader.last_starts()).unwrap();
    assert!(!found.is_all && found.started.len() > SAMPLE_MAX - 10, "{}", found.started.len());
    let ran = found.started.iter().filter(|started| **started == Some(7)).count();
    // A quarter, within seven standard deviations.
    assert!((160..352).contains(&ran), "{ran}");
}

/// A database that the reference took back is counted anew, and shown as not taken over.
#[test]
fn a_database_of_the_reference_is_counted() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a", "b", "c"]);
    assert!(site.next(5).is_some());
    site.edit("PRAGMA user_version = 2; UPDATE shiftboss_runs SET pending = 77");
    let status = look(&site, 10);
    assert_eq!((status.schema_version, status.policy), (2, None));
    assert_eq!((status.rows.pending, status.rows.dispatched, status.rows.in_flight), (2, 1, 1));
    assert_eq!((status.fetchers[0].lines, status.fetchers[0].pending), (3, 2));
}

/// What cannot be looked at is told by kind: missing, no database, another one, a newer one.
#[test]
fn what_cannot_be_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a file?mode=rw#.db");
    let error = || ask(&path, 1, |reader, now| reader.status(now)).unwrap_err();
    assert!(matches!(error(), ReadError::Unavailable(_)));
    assert!(!path.exists());
    std::fs::write(&path, "alpha 0 1\n".repeat(200)).unwrap();
    assert!(matches!(error(), ReadError::Corrupt(_)));
    let saves = format!("`shiftboss recover {} NEW`", path.display());
    assert!(error().to_string().contains(&saves), "{}", error());
    std::fs::write(&path, "").unwrap();
    assert!(matches!(error(), ReadError::Foreign(_)));
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE users (name)").unwrap();
    assert!(matches!(error(), ReadError::Foreign(_)));
    let site = Site::new(FAIR);
    site.edit("PRAGMA user_version = 99");
    let newer = site.ask(1, |reader, now| reader.status(now)).unwrap_err();
    assert!(matches!(&newer, ReadError::Foreign(text) if text.contains("version 99")), "{newer}");
}

/// An exit code that is edited by hand, and a job that is said to have ended again, count once.
#[test]
fn a_job_counts_once_whatever_is_edited() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    site.next(1_000_000).unwrap();
    site.finish("alpha", 1_000_000);
    site.edit("UPDATE log SET exit_code = 3 WHERE attr_path = 'alpha'");
    assert_eq!(look(&site, 1_000_000).done_last_hour, [Done { exit_code: 3, jobs: 1 }]);
    site.finish("alpha", 1_000_000);
    assert_eq!(look(&site, 1_000_000).done_last_hour, [Done { exit_code: 0, jobs: 1 }]);
}

/// A run that is deleted by hand takes its rows along, though a plain connection enforces no
/// foreign keys; rows that are left alone stop nobody.
#[test]
fn a_run_deleted_by_hand() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    site.list(&run("g", 1), &["bravo", "charlie"]);
    site.edit("PRAGMA foreign_keys = OFF; DELETE FROM fetcher_runs WHERE fetcher_id = 1");
    assert_eq!(site.rows("SELECT attr_path FROM queue ORDER BY 1"), ["bravo", "charlie"]);
    site.edit("DELETE FROM fetchers WHERE name = 'g'");
    assert!(site.next(10).is_some() && site.next(10).is_some());
    assert_eq!(site.next(10), None);
}

/// What ended within the last seconds is not said to have taken a minute, wherever whole minutes begin.
#[test]
fn a_young_queue_is_as_fast_as_it_is() {
    let mut site = Site::new(FAIR);
    let keys: Vec<String> = (0..40).map(|at| format!("k{at}")).collect();
    site.list(&run("f", 1), &keys.iter().map(String::as_str).collect::<Vec<_>>());
    let begun = 1_000 * 60 + 55;
    for at in 0..20 {
        let job = site.next(begun + at / 4).unwrap();
        site.finish(job.split(' ').next().unwrap(), begun + at / 4);
    }
    let status = look(&site, begun + 10);
    let busy = status.busy_seconds.unwrap();
    assert!((10..=11).contains(&busy), "{busy} s, {:?}", status.done_since);
}
