//! Edits of `log` and `queue.is_dequeued` by other programs have the same meaning as in tables.

use std::path::Path;

use proptest::prelude::*;
use rusqlite::Connection;
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_sqlite::SqliteRecords;

use crate::sides::{Ours, Step, Supervisor, edit, key, open, public, rows, step};
use crate::take_over::{given, taken};
use crate::words::{self, Script, ready};

/// A statement of an editor.
fn statement() -> impl Strategy<Value = String> {
    let time = || prop::sample::select(vec!["0", "999000", "1000000", "NULL"]);
    let insert =
        prop::sample::select(vec!["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "REPLACE"]);
    let what = prop::sample::select(vec![
        "log SET started = 5",
        "log SET started = started - 1, finished = NULL",
        "log SET finished = 1000000, exit_code = 255",
        "log SET started = NULL",
        "log SET exit_code = 7",
        "queue SET is_dequeued = 0",
        "queue SET is_dequeued = 1",
        "queue SET is_dequeued = 1 - is_dequeued",
        "queue SET is_dequeued = NULL",
    ]);
    let which = prop_oneof![
        3 => key().prop_map(|key| format!("WHERE attr_path = '{key}'")),
        1 => Just("WHERE attr_path IN (SELECT attr_path FROM queue WHERE is_dequeued <> 0 AND fetcher_run_started = 2)".into()),
        1 => Just("WHERE attr_path IN (SELECT attr_path FROM log WHERE finished IS NULL)".into()),
        1 => Just(String::new()),
    ];
    prop_oneof![
        2 => (insert, prop_oneof![key(), Just("new")], time(), time(), prop::option::of(0..3_i64)).prop_map(
            |(insert, key, started, finished, code)| {
                let code = code.map_or("NULL".into(), |code| code.to_string());
                format!("{insert} INTO log VALUES ('{key}', {started}, {finished}, {code})")
            }),
        3 => (what, which).prop_map(|(what, which)| format!("UPDATE {what} {which}")),
        1 => (key(), 1..3_i64, 1..4_i64, 0..2_i64).prop_map(|(key, fetcher, run, value)| format!(
            "UPDATE queue SET is_dequeued = {value} WHERE attr_path = '{key}' AND fetcher_id = {fetcher} AND fetcher_run_started = {run}"
        )),
    ]
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let edits = prop::collection::vec(statement(), 1..4).prop_map(Step::Edits);
    prop::collection::vec(prop_oneof![3 => step(), 2 => edits], 1..40)
}

proptest! {
    /// Other programs see their edits at once, the next request honours them, and everything equals the supervisor's
    /// tables.
    #[test]
    fn edits_mean_what_they_do_in_tables(history in history()) {
        let directory = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::new(Path::new(":memory:"));
        let mut ours = Ours::new(&directory.path().join("state.db"));
        let mut now = 1_000_000;
        for step in history {
            if let Step::Passes(seconds) = step {
                now += seconds;
            }
            prop_assert_eq!(ours.perform(&step, now), supervisor.perform(&step, now), "{:?}", &step);
            prop_assert_eq!(public(&ours.outside), public(&supervisor.0), "after {:?}", &step);
        }
        // Carrying the edits out gives what the views already showed.
        ours.ask(Vec::new(), now);
        prop_assert_eq!(public(&ours.outside), public(&supervisor.0));
        prop_assert_eq!(rows(&ours.outside, "SELECT key FROM log_edits UNION ALL SELECT key FROM row_edits"), [""; 0]);
    }
}

/// A request in words: anything that may happen to rows.
fn request() -> impl Strategy<Value = String> {
    let attempt = || 1..20_i64;
    prop_oneof![
        3 => prop::sample::select(vec!["ready", "lease", "wake", "restart", "at 100", "at 43300"]).prop_map(Into::into),
        2 => (prop::sample::select(vec!["f", "g"]), 1..4_i64, prop::collection::vec(key(), 0..5))
            .prop_map(|(fetcher, run, keys)| format!("list {fetcher}.{run} {}", keys.join(" "))),
        1 => (prop::sample::select(vec!["f", "g"]), 1..4_i64).prop_map(|(fetcher, run)| format!("delete {fetcher}.{run}")),
        1 => (attempt(), 0..2_i64).prop_map(|(attempt, code)| format!("done {attempt} {code}")),
        1 => (key(), 0..2_i64).prop_map(|(key, code)| format!("finish {key} {code}")),
        2 => (prop::sample::select(vec!["expire", "release"]), attempt()).prop_map(|(what, it)| format!("{what} {it}")),
        1 => (key(), attempt()).prop_map(|(key, it)| format!("undo {key} {it}")),
        2 => (prop::sample::select(vec!["requeue", "retry", "hold", "unhold"]), key()).prop_map(|(what, key)| format!("{what} {key}")),
    ]
}

/// Tables of the supervisor that say what the views do.
fn copy(path: &Path) -> Supervisor {
    let it = Supervisor(crate::reference::version_2(Path::new(":memory:")));
    it.0.execute("ATTACH ?1 AS ours", [path.to_str().unwrap()]).unwrap();
    for table in ["fetchers", "fetcher_runs", "log", "queue"] {
        it.0.execute_batch(&format!("INSERT INTO {table} SELECT * FROM ours.{table}")).unwrap();
    }
    it.0.execute_batch("DETACH ours").unwrap();
    it
}

proptest! {
    /// With leases, holds and retries, too, an edit has the same meaning as in tables, before it is carried out and
    /// afterwards; and nothing is lost on the way back and forward again.
    #[test]
    fn edits_mean_so_whatever_went_before(
        history in prop::collection::vec((prop::collection::vec(request(), 0..12), statement()), 1..8)
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        drop(Ours::new(&path));
        // An edit of a job's start does not end its lease.
        let rules =
            Settings { max_expired_leases: 2, lease_seconds: 2 * words::NOW, ..Settings::default() };
        let mut script = Script::new(rules.clone());
        script.engine = Some(Engine::new(SqliteRecords::new(open(&path)).unwrap(), rules));
        let outside = open(&path);
        for (requests, edits) in history {
            script.run(&requests.join("\n"));
            let (tables, edits) = (copy(&path), [edits]);
            prop_assert_eq!(edit(&outside, &edits), edit(&tables.0, &edits), "{}", &edits[0]);
            prop_assert_eq!(public(&outside), public(&tables.0), "{}", &edits[0]);
            ready(script.engine.as_mut().unwrap().apply(words::NOW * 1_000, Vec::new())).unwrap();
            prop_assert_eq!(public(&outside), public(&tables.0), "carried out: {}", &edits[0]);
        }
        let old = directory.path().join("old.db");
        given(&path, &old);
        prop_assert_eq!(public(&open(&old)), public(&outside));
        taken(&old, true, words::NOW);
        prop_assert_eq!(public(&open(&old)), public(&outside));
    }
}

/// More edits than one step takes are carried out before the next request is answered.
#[test]
fn many_edits_come_before_the_next_request() {
    let directory = tempfile::tempdir().unwrap();
    let mut ours = Ours::new(&directory.path().join("state.db"));
    let many = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
        INSERT INTO log SELECT 'k' || n, 7, 8, 0 FROM n";
    assert_eq!(edit(&ours.outside, &[many.into()]), "+");
    assert_eq!(rows(&ours.outside, "SELECT count(*) FROM log"), ["[Integer(1000)]"]);
    ours.ask(Vec::new(), 1_000_000);
    assert_eq!(
        rows(&ours.outside, "SELECT count(*) FROM keys WHERE started = 7"),
        ["[Integer(1000)]"]
    );
    assert_eq!(rows(&ours.outside, "SELECT count(*) FROM log_edits"), ["[Integer(0)]"]);
}

/// An edit that is not possible fails with advice on what to do instead, and changes nothing.
#[test]
fn other_edits_name_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut ours = Ours::new(&directory.path().join("state.db"));
    ours.perform(&Step::Add("f", 1, vec!["a"], "x"), 1_000_000);
    ours.perform(&Step::Ready, 1_000_000);
    let before = public(&ours.outside);
    for (sql, right) in [
        ("DELETE FROM log", "use `shiftboss forget`"),
        ("UPDATE log SET attr_path = 'b'", "use `shiftboss forget`"),
        ("UPDATE log SET started = -62167219201", "of the years 0 to 9999"),
        ("INSERT INTO log VALUES ('b', 1, 9223372036854775807, 0)", "of the years 0 to 9999"),
        ("INSERT INTO log VALUES ('', 1, 2, 0)", "a key has 1 to 4096 bytes"),
        ("INSERT INTO log VALUES ('x y', 1, 2, 0)", "a key has 1 to 4096 bytes"),
        ("INSERT INTO log VALUES ('x' || char(0, 10), 1, 2, 0)", "a key has 1 to 4096 bytes"),
        ("INSERT INTO log VALUES (char(13), 1, 2, 0)", "a key has 1 to 4096 bytes"),
        (
            "INSERT INTO log VALUES ('x' || hex(zeroblob(2048)), 1, 2, 0)",
            "a key has 1 to 4096 bytes",
        ),
        ("INSERT INTO log VALUES ('a', 1, 2, 0)", "UNIQUE constraint failed"),
        ("INSERT INTO log VALUES ('a', 1, 2, 0) ON CONFLICT DO NOTHING", "UPSERT"),
        ("DELETE FROM queue", "use `shiftboss cancel`"),
        ("UPDATE queue SET payload = 'b'", "use `shiftboss add`"),
        ("INSERT INTO queue (attr_path, payload) VALUES ('b', 'p')", "use `shiftboss add`"),
        ("DELETE FROM fetcher_runs", "delete lists"),
        ("UPDATE fetchers SET name = 'h'", "delete lists"),
    ] {
        let error = ours.outside.execute_batch(sql).unwrap_err().to_string();
        assert!(error.contains(right), "{sql}: {error}");
        assert_eq!(public(&ours.outside), before);
    }
}

/// An unreadable edit is set aside, and the others are carried out.
#[test]
fn an_edit_that_is_no_text_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let mut ours = Ours::new(&directory.path().join("state.db"));
    let edits = [
        "INSERT INTO log VALUES (CAST(x'ff61' AS TEXT), 1, 2, 3)",
        "INSERT INTO log VALUES ('b', 4, 5, 6)",
    ];
    assert_eq!(edit(&ours.outside, &edits.map(Into::into)), "++");
    ours.ask(Vec::new(), 1_000_000);
    assert_eq!(rows(&ours.outside, "SELECT key FROM keys"), [r#"[Text("b")]"#]);
    let aside = "SELECT why, hex(attr_path), started, exit_code FROM set_aside";
    let right =
        r#"[Text("an edit of a key that is no UTF-8"), Text("FF61"), Integer(1), Integer(3)]"#;
    assert_eq!(rows(&ours.outside, aside), [right]);
}

/// Single tasks are seen as rows of a fetcher of their own.
#[test]
fn single_tasks_are_seen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let mut script = Script::new(shiftboss_queue::context::Settings::default());
    script.run("add a=1\nadd b=2\nadd b=3\nready\nfinish a 1\nready");
    let seen = script.engine.as_ref().unwrap().store().connection();
    seen.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
    let seen = Connection::open(path).unwrap();
    let queue = "SELECT fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued FROM queue JOIN fetchers USING (fetcher_id)
        WHERE (fetcher_id, fetcher_run_started, 1) IN fetcher_runs ORDER BY 2";
    assert_eq!(
        rows(&seen, queue),
        [
            r#"[Integer(0), Integer(1), Text("a"), Text("1"), Integer(1)]"#,
            r#"[Integer(0), Integer(2), Text("b"), Text("2"), Integer(1)]"#,
            r#"[Integer(0), Integer(3), Text("b"), Text("3"), Integer(0)]"#,
        ]
    );
    let error = seen.execute_batch("UPDATE queue SET is_dequeued = 0").unwrap_err().to_string();
    assert!(error.contains("use `shiftboss retry`"), "{error}");
}
