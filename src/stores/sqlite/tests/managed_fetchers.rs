//! What is remembered of the fetchers that the daemon runs itself: over restarts, take-overs and edits by
//! hand, and what `status` makes of it.

use serde_json::{Value, json};
use shiftboss_actors::store::{
    Each, EndedRun, FetcherRecord, ForgetFetcher, NoteFetcher, RegisterRun,
};
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::support::{FAIR, Site, options, run};
use crate::stores::sqlite::Policy;
use crate::stores::sqlite::schema::VERSION;

fn ended(exit_code: u8, message: &str) -> Option<EndedRun> {
    Some(EndedRun { started: 100, ended: 112, exit_code, message: message.to_owned() })
}

/// One that is idle after a good run, and runs again at 200.
fn idle(name: &str) -> FetcherRecord {
    let last_run = ended(0, "7 lines, 0 faulty: f.100.txt");
    let state = "idle".to_owned();
    FetcherRecord { name: name.into(), state, run_started: None, last_run, next_run: Some(200) }
}

/// One within its first run.
fn running(name: &str) -> FetcherRecord {
    let state = "running".to_owned();
    FetcherRecord {
        name: name.into(),
        state,
        run_started: Some(90),
        last_run: None,
        next_run: None,
    }
}

impl Site {
    fn note(&mut self, record: &FetcherRecord) {
        self.commit(|store| store.note_fetcher(record)).unwrap();
    }

    fn forget_fetcher(&mut self, name: &str) {
        self.commit(|store| store.forget_fetcher(name)).unwrap();
    }

    fn records(&mut self) -> Vec<FetcherRecord> {
        self.store.fetcher_records().unwrap()
    }

    /// What `status --json` has of them, and the version that it tells.
    fn shown(&self) -> (Value, i64) {
        let status = self.ask(150, |reader, now| reader.status(now)).unwrap();
        (serde_json::to_value(&status.managed_fetchers).unwrap(), status.schema_version)
    }

    fn names(&self) -> Vec<String> {
        self.rows("SELECT name FROM shiftboss_managed_fetchers ORDER BY name")
    }
}

/// The last note counts, after a stop and after a kill, until the fetcher is forgotten; whatever the policy.
#[test]
fn notes_outlive_the_daemon() {
    for policy in [FAIR, Policy::Classic] {
        let mut site = Site::new(policy);
        assert!(site.records().is_empty());
        for record in [running("b"), running("a"), idle("b")] {
            site.note(&record);
        }
        for clean in [true, false] {
            site = site.restart(&options(policy), clean);
            assert_eq!(site.records(), [running("a"), idle("b")], "clean: {clean}");
        }
        let failed = FetcherRecord { last_run: ended(7, "exit code 7"), ..running("b") };
        site.note(&failed);
        site.forget_fetcher("a");
        site.forget_fetcher("never heard of");
        let mut site = site.restart(&options(policy), false);
        assert_eq!(site.records(), [failed]);
    }
}

/// What was rolled back was never noted, or forgotten; neighbours in the transaction share its fate.
#[test]
fn a_rollback_leaves_the_former_note() {
    let mut site = Site::new(FAIR);
    site.note(&idle("a"));
    let notes = Each(vec![NoteFetcher(running("a")), NoteFetcher(running("b"))]);
    site.fail(9, (notes, RegisterRun(run("a", 1))));
    assert_eq!(site.records(), [idle("a")]);
    site.fail(9, ForgetFetcher("a".into()));
    assert_eq!(site.records(), [idle("a")]);
    assert_eq!(site.rows("SELECT name FROM fetchers"), [""; 0]);
    site.note(&running("a"));
    assert_eq!(site.records(), [running("a")]);
}

/// Notes leave the queue alone, and the list of the same name.
#[test]
fn a_note_is_not_a_list() {
    let mut site = Site::new(FAIR);
    site.list(&run("a", 1), &["alpha", "bravo"]);
    site.note(&idle("a"));
    assert!(site.next(10).is_some());
    site.forget_fetcher("a");
    assert!(site.next(11).is_some());
    assert_eq!(site.rows("SELECT name FROM fetchers"), ["a"]);
    site.check_kept();
}

/// What `status` tells, member by member.
#[test]
fn status_tells_what_is_noted() {
    let mut site = Site::new(FAIR);
    assert_eq!(site.shown(), (json!([]), VERSION));
    site.note(&running("notes"));
    site.note(&idle("links"));
    let links = json!({
        "name": "links", "state": "idle", "run_started": null,
        "last_run": {"started": 100, "ended": 112, "exit_code": 0, "message": "7 lines, 0 faulty: f.100.txt"},
        "next_run": 200,
    });
    let notes = json!({
        "name": "notes", "state": "running", "run_started": 90, "last_run": null, "next_run": null,
    });
    assert_eq!(site.shown().0, json!([links, notes]));
}

/// Whatever somebody writes into the table: the daemon starts, status answers, and the next note of that
/// name is whole again.
#[test]
fn rows_edited_into_nonsense_stop_nobody() {
    let mut site = Site::new(FAIR);
    for name in ["a", "b", "c", "d"] {
        site.note(&idle(name));
    }
    site.edit(
        "UPDATE shiftboss_managed_fetchers SET last_code = 256, next_run = -9223372036854775808,
            run_started = 9223372036854775807 WHERE name = 'a';
         UPDATE shiftboss_managed_fetchers SET last_code = -1, last_message = NULL WHERE name = 'b';
         UPDATE shiftboss_managed_fetchers SET last_ended = NULL WHERE name = 'c';
         UPDATE shiftboss_managed_fetchers SET state = CAST(x'ff0041' AS TEXT), last_started = NULL,
            last_message = CAST(x'c328' AS TEXT) WHERE name = 'd';
         INSERT INTO shiftboss_managed_fetchers (name, state) VALUES ('', ''), (CAST(x'fe' AS TEXT), ''),
            ('../x.y', 'no such state')",
    );
    let mut site = site.restart(&options(FAIR), false);
    let records = site.records();
    let of = |name: &str| records.iter().find(|record| &*record.name == name).unwrap();
    let code = |name: &str| of(name).last_run.as_ref().map(|last| (last.exit_code, &*last.message));
    assert_eq!(code("a"), Some((255, "7 lines, 0 faulty: f.100.txt")));
    assert_eq!((of("a").run_started, of("a").next_run), (Some(i64::MAX), Some(i64::MIN)));
    assert_eq!(code("b"), Some((255, "")));
    assert_eq!((code("c"), code("d")), (None, None));
    assert_eq!(of("d").state, "\u{fffd}\0A");
    assert_eq!((of("").last_run.as_ref(), of("\u{fffd}").next_run), (None, None));
    assert_eq!((records.len(), site.shown().0.as_array().unwrap().len()), (7, 7));
    for name in ["a", "b", "c", "d"] {
        site.note(&idle(name));
        assert!(site.records().contains(&idle(name)));
    }
    site.forget_fetcher("");
    site.forget_fetcher("../x.y");
    assert_eq!(site.names(), ["a", "b", "c", "d", "\u{fffd}"]);
}

/// The Python supervisor took the database back in between: what was noted is there still, and while it
/// is the supervisor's nothing is told of it.
#[test]
fn notes_outlive_a_turn_of_the_reference() {
    let mut site = Site::new(FAIR);
    site.list(&run("a", 1), &["alpha"]);
    site.note(&idle("a"));
    site.note(&running("b"));
    site.store.close_at_once().unwrap();
    site.edit("PRAGMA foreign_keys = ON; PRAGMA user_version = 2; DELETE FROM fetcher_runs");
    assert_eq!(site.shown(), (json!([]), 2));
    let mut site = site.restart(&options(FAIR), false);
    assert_eq!(site.records(), [idle("a"), running("b")]);
    assert_eq!(site.rows("PRAGMA user_version"), [VERSION.to_string()]);
    assert_eq!(site.rows("SELECT name FROM fetchers"), [""; 0]);
    site.forget_fetcher("b");
    assert_eq!(site.names(), ["a"]);
}
