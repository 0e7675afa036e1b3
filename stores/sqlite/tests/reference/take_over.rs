//! Databases of the supervisor are taken over in place, given back, and taken over again; nothing is lost or wrong
//! either way.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rusqlite::Connection;
use shiftboss_queue::context::Settings;
use shiftboss_queue::reader::Reader;
use shiftboss_queue::records::StoreError;
use shiftboss_sqlite::{
    GivenBack, SqliteReader, TakenOver, Whose, give_back, set_aside, take_over, whose,
};
use tempfile::TempDir;

use crate::reference;
use crate::sides::{Ours, Step, Supervisor, public, rows, step};
use crate::words::{self, Script};

const NOW: i64 = 1_000_000;

const COUNTED: &str = "SELECT fetcher, run, rows, waiting FROM counts WHERE rows > 0 ORDER BY 1, 2";
/// What must be counted.
const COUNTS: &str = "SELECT fetcher_id, fetcher_run_started, count(*), sum(is_dequeued = 0 AND NOT EXISTS (
        SELECT 1 FROM rows newer JOIN keys ON keys.id = newer.key
        WHERE keys.key = queue.attr_path AND newer.fetcher = fetcher_id AND newer.run > fetcher_run_started))
    FROM queue GROUP BY 1, 2 ORDER BY 1, 2";

/// A directory, and where its databases are.
fn site() -> (TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name| directory.path().join(name);
    let (one, other) = (path("state.db"), path("old.db"));
    (directory, one, other)
}

pub fn taken(path: &Path, is_fair: bool, now: i64) -> TakenOver {
    let mut connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
    assert_eq!(whose(&connection).unwrap(), Whose::Supervisors);
    let settings = Settings { is_fair, ..Settings::default() };
    let taken = take_over(&mut connection, &settings, now * 1_000, |_| {}).unwrap();
    assert_eq!(whose(&connection).unwrap(), Whose::Ours);
    taken
}

pub fn given(from: &Path, to: &Path) -> GivenBack {
    let mut connection = Connection::open(to).unwrap();
    connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
    give_back(from, &mut connection).unwrap()
}

/// Two fetchers, old and new runs, jobs waiting, out and done.
fn in_use(path: &Path) -> Connection {
    let it = reference::version_2(path);
    reference::register(&it, "f", 1, true);
    for key in ["alpha", "bravo", "charlie"] {
        reference::enqueue(&it, "f", 1, key, "old");
    }
    reference::dispatch(&it, "f", "alpha", 100);
    reference::finish(&it, "alpha", 110, 0);
    reference::dispatch(&it, "f", "bravo", 200);
    reference::register(&it, "f", 2, false);
    reference::enqueue(&it, "f", 2, "alpha", "new");
    reference::register(&it, "g", 1, true);
    reference::enqueue(&it, "g", 1, "bravo", "g's");
    it
}

/// Its status can be read before and after; everything else only after the take-over.
#[test]
fn looked_at_before_and_after() {
    let (_directory, path, _) = site();
    in_use(&path).close().unwrap();
    let reader = SqliteReader::new(path.clone());
    let told = |version, policy: Option<&str>| {
        let status = reader.status(NOW).unwrap();
        assert_eq!((status.schema_version, status.policy.as_deref()), (version, policy));
        let fetchers = status.fetchers.into_iter();
        let fetchers = fetchers.map(|it| (it.name, it.run, it.complete, it.lines, it.older_runs));
        (status.rows.in_flight, fetchers.collect::<Vec<_>>())
    };
    let before = told(2, None);
    let lists = [("f".to_owned(), 2, false, 1, 1), ("g".to_owned(), 1, true, 1, 0)];
    assert_eq!(before, (1, lists.to_vec()));
    let refused = reader.next_jobs(NOW, 1).unwrap_err().to_string();
    assert!(refused.contains("not yet taken over"), "{refused}");
    taken(&path, true, NOW);
    assert_eq!(told(15, None), before);
    assert!(reader.next_jobs(NOW, 1).is_ok());
}

/// What the queue of a file that was taken over does, in words.
fn script(path: &Path, script: &str) {
    let store = shiftboss_sqlite::SqliteRecords::new(Connection::open(path).unwrap()).unwrap();
    let mut it = Script::new(Settings::default());
    it.engine = Some(shiftboss_queue::engine::Engine::new(store, Settings::default()));
    it.run(script);
}

proptest! {
    /// Forward, back, and forward again, with the supervisor at work in between: no row, flag, time or code differs from those
    /// of a supervisor that worked alone, nor does a job.
    #[test]
    fn forward_and_back(phases in prop::collection::vec(prop::collection::vec(step(), 0..15), 5)) {
        let (directory, ours, old) = site();
        let alone = Supervisor::new(Path::new(":memory:"));
        let mut now = NOW;
        alone.0.execute_batch("PRAGMA synchronous = OFF").unwrap();
        alone.0.execute("VACUUM INTO ?1", [old.to_str().unwrap()]).unwrap();
        for (at, steps) in phases.into_iter().enumerate() {
            let supervisor;
            let mut shiftboss;
            let perform: &mut dyn FnMut(&Step, i64) -> String = if at % 2 == 0 {
                supervisor = Supervisor::again(&old);
                &mut |step, now| supervisor.perform(step, now)
            } else {
                std::fs::rename(&old, &ours).unwrap();
                taken(&ours, false, now);
                shiftboss = Ours::open(&ours);
                prop_assert_eq!(public(&shiftboss.outside), public(&alone.0));
                prop_assert_eq!(rows(&shiftboss.outside, COUNTED), rows(&shiftboss.outside, COUNTS));
                &mut |step, now| shiftboss.perform(step, now)
            };
            for step in steps {
                if let Step::Passes(seconds) = step {
                    now += seconds;
                }
                prop_assert_eq!(perform(&step, now), alone.perform(&step, now), "{:?}", &step);
            }
            if at % 2 == 1 {
                given(&ours, &old);
                std::fs::remove_file(&ours).unwrap();
            }
            prop_assert_eq!(public(&Connection::open(&old).unwrap()), public(&alone.0));
        }
        drop(directory);
    }
}

#[test]
fn a_database_in_use_is_taken_over() {
    let (_directory, path, _) = site();
    let before = public(&in_use(&path));
    assert_eq!(
        taken(&path, true, words::NOW),
        TakenOver { keys: 3, rows: 7, in_flight: 1, set_aside: 0 }
    );
    let seen = Connection::open(&path).unwrap();
    assert_eq!(public(&seen), before);
    assert_eq!(rows(&seen, "PRAGMA integrity_check"), [r#"[Text("ok")]"#]);
    let counts = "SELECT run, rows, waiting, in_flight FROM counts ORDER BY fetcher, run";
    // The first counts keys.
    let right = ["[-1, 0, 0, 0]", "[1, 3, 1, 1]", "[2, 1, 1, 0]", "[1, 1, 1, 0]"];
    let counts: Vec<_> =
        rows(&seen, counts).iter().map(|it| it.replace("Integer(", "").replace(')', "")).collect();
    assert_eq!(counts, right);
    script(
        &path,
        "ready -> job 3 charlie old\nready -> job 4 alpha new\nready -> nothing\nfinish bravo 0\nready -> job 5 bravo g's",
    );
}

/// A job that is out has the lease of a classic job, which counts from its start; then its row waits again, behind the key's others.
#[test]
fn a_job_in_flight_has_a_lease() {
    let (_directory, path, _) = site();
    drop(in_use(&path));
    taken(&path, true, words::NOW);
    let seen = Connection::open(&path).unwrap();
    assert_eq!(
        rows(&seen, "SELECT key, attempt, run, started_ms FROM keys WHERE attempt IS NOT NULL"),
        [r#"[Text("bravo"), Integer(2), Integer(1), Integer(200000)]"#]
    );
    script(
        &path,
        "ready\nready\nexpire 2 -> expired bravo false\nready -> job 5 bravo g's\nfinish bravo 0\nready -> job 6 bravo old",
    );
}

/// What was before a job that was out is not known. That it was started is known, and stays so when it is taken back.
#[test]
fn a_job_in_flight_that_is_taken_back_keeps_its_start() {
    let (_directory, path, _) = site();
    drop(in_use(&path));
    taken(&path, false, words::NOW);
    script(&path, "requeue bravo -> requeued 2");
    let seen = Connection::open(&path).unwrap();
    let started = rows(&seen, "SELECT started FROM log WHERE attr_path = 'bravo'");
    assert_eq!(started, ["[Integer(200)]"]);
    assert_eq!(rows(&seen, "SELECT revisit FROM attempts"), ["[Null]"]);
    let again = "ready -> job + charlie old\nready -> job + alpha new\nready -> job + bravo old";
    script(&path, again);
}

/// A job whose row is no longer in the queue, or armed by a newer list, keeps its key for the same time.
#[test]
fn a_job_without_its_row_keeps_its_key() {
    let (_directory, path, _) = site();
    let it = in_use(&path);
    reference::register(&it, "f", 3, true);
    reference::enqueue(&it, "f", 3, "bravo", "newest");
    reference::delete(&it, "g", 1);
    it.execute_batch("UPDATE log SET started = 1699999000 WHERE finished IS NULL").unwrap();
    drop(it);
    taken(&path, true, words::NOW);
    let seen = Connection::open(&path).unwrap();
    assert_eq!(
        rows(&seen, "SELECT claimed, attempt FROM keys WHERE key = 'bravo'"),
        ["[Integer(1), Null]"]
    );
    script(&path, "ready\nready\nready -> nothing\nat 42201\nwake\nready -> job 5 bravo newest");
}

/// Version 1 has no jitter, and the supervisor sets the version without looking.
#[test]
fn version_1_is_taken_over() {
    let (_directory, path, _) = site();
    let it = reference::version_1(&path);
    it.execute_batch(
        "INSERT INTO fetchers VALUES (7, 'f'); INSERT INTO fetcher_runs VALUES (7, 1, 1); INSERT INTO log VALUES ('alpha', 5, 6, 0);
         INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload)
         VALUES (7, 1, 'alpha', 'p'), (7, 1, 'bravo', 'p'), (7, 1, 'echo', 'p')",
    )
    .unwrap();
    drop(it);
    taken(&path, true, words::NOW);
    let seen = Connection::open(&path).unwrap();
    let jitter = "SELECT attr_path, order_jitter FROM queue WHERE attr_path = 'alpha'";
    assert_eq!(rows(&seen, jitter), [r#"[Text("alpha"), Integer(-1555884244)]"#]);
    seen.execute_batch("PRAGMA user_version = 2").unwrap();
    assert_eq!(whose(&seen).unwrap(), Whose::Ours);
    script(&path, "jobs -> echo bravo alpha");
}

/// A row without its run, as an edit without foreign keys leaves it, is taken over with a run.
#[test]
fn a_row_without_its_run_is_taken_over() {
    let (_directory, path, _) = site();
    let it = in_use(&path);
    it.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM fetcher_runs WHERE run_started = 2")
        .unwrap();
    drop(it);
    taken(&path, true, words::NOW);
    assert_eq!(
        rows(
            &Connection::open(&path).unwrap(),
            "SELECT is_complete FROM fetcher_runs WHERE run_started = 2"
        ),
        ["[Integer(0)]"]
    );
    script(&path, "ready -> job 3 charlie old\nready -> job 4 alpha new\ndelete f.2 -> count 1");
}

/// What cannot be read is set aside with its reason, and the rest is taken over.
#[test]
fn damaged_rows_are_set_aside() {
    let (_directory, path, _) = site();
    let it = in_use(&path);
    it.execute_batch(
        "PRAGMA foreign_keys = OFF;
         UPDATE queue SET payload = CAST(x'ff00' AS TEXT) WHERE attr_path = 'charlie';
         UPDATE queue SET fetcher_id = 9 WHERE payload = 'new';
         INSERT INTO log VALUES (CAST(x'ff61' AS TEXT), 1, 2, 0), ('delta', -9223372036854775808, 0, 0);
         UPDATE log SET finished = 9223372036854775807 WHERE attr_path = 'alpha'",
    )
    .unwrap();
    drop(it);
    assert_eq!(
        taken(&path, true, words::NOW),
        TakenOver { keys: 2, rows: 9, in_flight: 1, set_aside: 5 }
    );
    let seen = Connection::open(&path).unwrap();
    let mut aside: Vec<_> = set_aside(&seen, 10).unwrap().iter().map(ToString::to_string).collect();
    aside.sort();
    let right = [
        "the row of alpha in run 2 of fetcher 9 is set aside: it is of no known fetcher",
        "the row of charlie in run 1 of fetcher 1 is set aside: its payload is no text",
        "what the log says of alpha is set aside: its times are not of the years 0 to 9999",
        "what the log says of delta is set aside: its times are not of the years 0 to 9999",
        "what the log says of \u{fffd}a is set aside: its key is no UTF-8",
    ];
    assert_eq!(aside, right);
    script(&path, "ready -> nothing\nfinish bravo 0\nready -> job 3 bravo g's");
}

/// If the process is killed, the supervisor's database is unchanged, whatever was written by then; the next process
/// takes it over.
#[test]
fn killed_in_between_it_is_the_supervisors() {
    let (_directory, path, copy) = site();
    let it = in_use(&path);
    it.execute_batch("PRAGMA synchronous = OFF").unwrap();
    // More than fits into the page cache.
    let payload = "x".repeat(1_000_000);
    (0..40).for_each(|n| reference::enqueue(&it, "f", 1, &format!("k{n}"), &payload));
    let before = public(&it);
    drop(it);
    let beside = |path: &Path| path.with_extension("db-journal");
    let mut connection = Connection::open(&path).unwrap();
    let mut written = 0;
    take_over(&mut connection, &Settings::default(), NOW * 1_000, |_| {
        std::fs::copy(&path, &copy).unwrap();
        std::fs::copy(beside(&path), beside(&copy)).ok();
        written += usize::from(std::fs::metadata(&copy).unwrap().len() > 50_000_000);
        let killed = Connection::open(&copy).unwrap();
        assert_eq!(whose(&killed).unwrap(), Whose::Supervisors);
        assert!(public(&killed) == before);
    })
    .unwrap();
    assert!(written > 0, "nothing was written before the end");
    taken(&copy, true, words::NOW);
    assert!(public(&Connection::open(&copy).unwrap()) == before);
}

/// Space is looked for before anything is written.
#[test]
fn without_space_nothing_is_begun() {
    let (_directory, path, _) = site();
    let before = public(&in_use(&path));
    let bytes: u64 = 1 << 43;
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(bytes).unwrap();
    let mut connection = Connection::open(&path).unwrap();
    let refused = take_over(&mut connection, &Settings::default(), 0, |_| {});
    assert!(
        matches!(&refused, Err(StoreError::Full(text)) if text.contains("nothing was changed")),
        "{refused:?}"
    );
    assert_eq!(public(&connection), before);
}

/// Others' databases are refused with what to do.
#[test]
fn others_are_refused() {
    for (sql, right) in [
        ("CREATE TABLE t (a)", "another program"),
        ("PRAGMA application_id = 1; CREATE TABLE queue (a)", "another program"),
        (
            "CREATE TABLE queue (a); CREATE TABLE log (a); CREATE TABLE fetchers (a); CREATE TABLE fetcher_runs (a); PRAGMA user_version = 3",
            "version 3",
        ),
        (
            "CREATE TABLE keys (a); PRAGMA application_id = 0x53484654; PRAGMA user_version = 99",
            "use the newer shiftboss",
        ),
    ] {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(sql).unwrap();
        let found = whose(&connection).unwrap();
        assert!(matches!(&found, Whose::Refused(why) if why.contains(right)), "{sql}: {found:?}");
    }
    assert_eq!(whose(&Connection::open_in_memory().unwrap()).unwrap(), Whose::Nobodys);
}

/// A database that is given back has the tables, indexes and triggers that the supervisor makes; an existing file is
/// not touched.
#[test]
fn the_way_back_makes_the_supervisors_schema() {
    let (directory, path, old) = site();
    drop(in_use(&path));
    taken(&path, true, words::NOW);
    let given = given(&path, &old);
    assert_eq!(given, GivenBack { rows: 5, keys: 2, single_tasks: 0 });
    let (right, seen) =
        (reference::version_2(Path::new(":memory:")), Connection::open(&old).unwrap());
    for sql in [
        "PRAGMA user_version",
        "PRAGMA application_id",
        "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY 1, 2",
        "SELECT m.name, c.name, upper(c.type), c.\"notnull\", c.dflt_value, c.pk FROM sqlite_schema m, pragma_table_info(m.name) c
            WHERE m.type = 'table' ORDER BY 1, c.cid",
        "SELECT m.name, i.seqno, i.name, i.desc FROM sqlite_schema m, pragma_index_xinfo(m.name) i WHERE m.type = 'index' ORDER BY 1, 2",
        "SELECT m.name, f.* FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY 1, 2, 3",
        "SELECT m.name, l.strict, l.wr FROM sqlite_schema m JOIN pragma_table_list l USING (name) WHERE m.name NOT LIKE 'sqlite%' ORDER BY 1",
    ] {
        assert_eq!(rows(&seen, sql), rows(&right, sql), "{sql}");
    }
    let before = public(&seen);
    drop(seen);
    for (from, to) in [(&path, &old), (&old, &path), (&directory.path().join("none.db"), &old)] {
        assert!(give_back(from, &mut Connection::open(to).unwrap()).is_err());
    }
    assert_eq!(public(&Connection::open(&old).unwrap()), before);
}
