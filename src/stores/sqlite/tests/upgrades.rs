//! Databases of unreleased builds: versions 5 to 9 are upgraded in place, 3 and 4 are refused.

use rusqlite::Connection;
use shiftboss_actors::testing::one_by_one::OneByOne;
use tempfile::TempDir;

use super::support::{FAIR, Site, options, run};
use crate::exit::ExitCode;
use crate::stores::sqlite::SqliteStore;
use crate::stores::sqlite::schema::VERSION;

const REFERENCE: [&str; 2] = [
    include_str!("../migrations/0001_reference.sql"),
    include_str!("../migrations/0002_jitter.sql"),
];
const VERSION_5: &str = include_str!("fixtures/version_5.sql");
/// What version 6 added; the fixture of version 6.
const TO_VERSION_6: &str = include_str!("../migrations/0006_from_5.sql");
const TO_VERSION_7: &str = include_str!("../migrations/0007_from_6.sql");
const TO_VERSION_8: &str = include_str!("../migrations/0008_from_7.sql");
/// It had an index more.
const HELD: &str =
    "CREATE INDEX shiftboss_held ON queue (partition, last_started, order_jitter) WHERE state < 0;";
/// A trigger as those versions had, which names what is renamed.
const TRIGGER: &str = "CREATE TRIGGER shiftboss_flight_delete AFTER DELETE ON shiftboss_flights
    BEGIN UPDATE queue SET slot = 0 WHERE attr_path = OLD.attr_path; END;";

/// A list with a job leased, one out with a classic worker, one done and a dead letter; another list; and the
/// entry of a spool that version 5 had in the queue.
const IN_USE: &str = "
    INSERT INTO fetchers (name) VALUES ('f'), ('@spool');
    INSERT INTO fetcher_runs VALUES (1, 7, 1), (2, 5, 1);
    INSERT INTO shiftboss_runs (fetcher_id, run_started, rows, pending, offset, lines)
    VALUES (1, 7, 5, 1, 40, 5), (2, 5, 1, 1, NULL, NULL);
    INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload, order_jitter, is_dequeued)
    VALUES (1, 7, 'leased', '1', 1, 1), (1, 7, 'classic', '2', 2, 1), (1, 7, 'done', '3', 3, 1),
        (1, 7, 'dead', '4', 4, 1), (1, 7, 'waiting', '5', 5, 0), (2, 5, 'entry', '6', 6, 0);
    INSERT INTO log VALUES ('leased', 100, NULL, NULL), ('classic', 110, NULL, NULL), ('done', 90, 95, 0);
    INSERT INTO shiftboss_flights (attr_path, attempt, fetcher_id, run_started, started, tries, prev_turn,
        rearm, worker, lease)
    VALUES ('leased', 12, 1, 7, 100, 2, 3, '[7]', 'w', 60),
        ('classic', 13, 1, 7, 110, 1, NULL, '[7]', NULL, NULL);
    INSERT INTO shiftboss_attempts (attempt, attr_path, fetcher_id, run_started, started, finished, outcome,
        exit_code) VALUES (11, 'done', 1, 7, 90, 95, 'done', 0);
    INSERT INTO shiftboss_turns VALUES (1, 'leased', 'f', 12);
    INSERT INTO shiftboss_tries VALUES (1, 7, 'dead', 5, 1), (1, 7, 'leased', 1, 0);
    INSERT INTO shiftboss_aside VALUES ('x.txt', 'a directory', 50);
    INSERT INTO shiftboss_own_fetchers (name, state, last_told) VALUES ('own', 'idle', '7 lines');
    INSERT INTO shiftboss_done VALUES (1, 0, 3);
    INSERT INTO shiftboss_spool VALUES ('x', 5, 'entry', 1);
    UPDATE shiftboss_counters SET value = 20 WHERE name = 'attempt';
    INSERT INTO shiftboss_state VALUES ('policy', 'fair'), ('paused', '0');";
/// A single task that waits and one that failed.
const SINGLE_TASKS: &str = "
    INSERT INTO shiftboss_single_tasks (task, attr_path, checksum, added, status, payload)
    VALUES (30, 'one', 1, 30, 'waiting', 'p'), (31, 'two', 2, 31, 'failed', 'q');
    INSERT INTO shiftboss_accepted VALUES ('/spool', 'x', 1, 2, 3);";

/// A database of version 5 to 8 that says it is of version `said`.
fn of_version(version: i64, said: i64) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let connection = Connection::open(directory.path().join("state.db")).unwrap();
    let mut script = vec![REFERENCE[0], REFERENCE[1], VERSION_5, IN_USE];
    if version > 5 {
        script.extend([TO_VERSION_6, SINGLE_TASKS]);
    }
    if version > 6 {
        script.push(TO_VERSION_7);
    }
    if version > 7 {
        script.extend([TO_VERSION_8, HELD]);
    }
    connection.execute_batch(&script.concat()).unwrap();
    if version < 7 {
        connection.execute_batch(TRIGGER).unwrap();
    }
    connection.pragma_update(None, "user_version", said).unwrap();
    directory
}

/// Attempts, leases, single tasks and all that is noted are kept; also after the reference had the file.
#[test]
fn versions_5_to_8_are_upgraded() {
    for (version, said) in [(5, 5), (6, 6), (6, 2), (7, 7), (7, 2), (8, 8), (8, 2)] {
        let mut site = Site::in_directory(of_version(version, said), FAIR);
        assert_eq!(site.rows("PRAGMA user_version"), [VERSION.to_string()]);
        let kept = [
            (
                "SELECT attr_path, attempt, delivery_count, prev_last_served, marked_runs, worker, lease
                    FROM shiftboss_in_flight",
                &["classic|13|1|-|[7]|-|-", "leased|12|2|3|[7]|w|60"][..],
            ),
            ("SELECT attempt, attr_path, exit_code FROM shiftboss_attempts", &["11|done|0"]),
            ("SELECT attr_path, last_served FROM queue WHERE last_served <> 0", &["leased|12"]),
            (
                "SELECT attr_path, expired_leases, dead_letter FROM shiftboss_expired_leases",
                &["dead|5|1", "leased|1|0"],
            ),
            ("SELECT name, last_message FROM shiftboss_managed_fetchers", &["own|7 lines"]),
            ("SELECT * FROM shiftboss_completions", &["1|0|3"]),
            (
                "SELECT offset, lines, rows, pending FROM shiftboss_runs WHERE fetcher_id = 1",
                &["40|5|5|1"],
            ),
            ("SELECT name FROM fetchers WHERE name = '@spool'", &[]),
        ];
        for (sql, expected) in kept {
            assert_eq!(site.rows(sql), expected, "version {version}: {sql}");
        }
        site.check_kept();
        let mut next: Vec<_> = std::iter::from_fn(|| site.next(120)).collect();
        next.sort();
        assert_eq!(next, if version > 5 { &["one p", "waiting 5"][..] } else { &["waiting 5"] });
        if version > 5 {
            assert_eq!(
                site.rows("SELECT status FROM shiftboss_single_tasks"),
                ["waiting", "failed"]
            );
            assert_eq!(site.rows("SELECT name FROM shiftboss_accepted"), ["x"]);
        }
    }
}

/// An upgraded database has the schema that a new one has.
#[test]
fn an_upgraded_schema_is_that_of_a_new_database() {
    let schema = "SELECT m.type, m.name, m.tbl_name, c.cid, c.name, upper(c.type), c.\"notnull\",
            c.dflt_value, c.pk
        FROM sqlite_schema AS m LEFT JOIN pragma_table_info(m.name) AS c
        WHERE m.name NOT LIKE 'sqlite_%' ORDER BY 1, 2, 4";
    let indexes =
        "SELECT m.name, c.seqno, c.name FROM sqlite_schema AS m, pragma_index_info(m.name) AS c
        WHERE m.type = 'index' ORDER BY 1, 2";
    let new = Site::new(FAIR);
    for version in [5, 6, 7, 8] {
        let site = Site::in_directory(of_version(version, version), FAIR);
        assert_eq!(site.rows(schema), new.rows(schema));
        assert_eq!(site.rows(indexes), new.rows(indexes));
    }
}

/// What a relay was answered last by version 10 is answered still.
#[test]
fn version_10_is_upgraded() {
    let site = Site::new(FAIR);
    let back = "DROP TABLE shiftboss_relay_lanes;
        ALTER TABLE shiftboss_relays ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE shiftboss_relays ADD COLUMN answer TEXT;
        INSERT INTO shiftboss_relays (name, process, epoch, joined, number, answer)
            VALUES ('r', 'p', 7, 1, 3, '[]');
        PRAGMA user_version = 10";
    site.outside.execute_batch(back).unwrap();
    let site = site.restart(&options(FAIR), true);
    let kept = site.rows("SELECT relay, lane, number, answer FROM shiftboss_relay_lanes");
    assert_eq!(kept, ["1|0|3|[]"]);
}

/// Versions 3 and 4 are refused and left as they are, whatever number they say.
#[test]
fn versions_3_and_4_are_refused() {
    for said in [2, 3, 4] {
        let directory = of_version(5, said);
        let path = directory.path().join("state.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("DROP TABLE shiftboss_own_fetchers")
            .unwrap();
        let before = std::fs::read(&path).unwrap();
        let refused = SqliteStore::open(&path, &options(FAIR)).map(drop).unwrap_err();
        assert_eq!(refused.code(), ExitCode::Configuration, "{refused}");
        let text = refused.to_string();
        assert!(text.contains(&format!("has version {said} ")), "{text}");
        assert!(text.contains("start a build of version 5 or 6"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

const TURNS: &str = "SELECT attr_path, last_served FROM queue WHERE last_served IS NOT NULL";

/// Turns of version 7 are kept, also of a row without a jitter.
#[test]
fn turns_are_kept_without_a_jitter() {
    let directory = of_version(7, 7);
    let hand = Connection::open(directory.path().join("state.db")).unwrap();
    hand.execute_batch("UPDATE queue SET order_jitter = NULL").unwrap();
    drop(hand);
    let site = Site::in_directory(directory, FAIR);
    assert_eq!(site.rows(TURNS), ["leased|12"]);
}

/// A database of version 7 that is recovered keeps its turns.
#[test]
fn turns_are_recovered() {
    let directory = of_version(7, 7);
    let (old, new) = (directory.path().join("state.db"), tempfile::tempdir().unwrap());
    crate::stores::sqlite::recover::recover(&old, &new.path().join("state.db")).unwrap();
    let site = Site::in_directory(new, FAIR);
    assert_eq!(site.rows(TURNS), ["leased|12"]);
}

/// A dispatch that its row records is in a recovered database, too.
#[test]
fn dispatches_are_recovered() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha", "bravo"]);
    for now in [5, 6] {
        assert!(site.next(now).is_some());
    }
    site.finish("alpha", 7);
    let in_flight = "SELECT attr_path, attempt, started, marked_runs FROM shiftboss_in_flight";
    let before = site.rows(in_flight);
    assert_eq!(before.len(), 1);
    let Site { store, outside, directory } = site;
    drop((store, outside));
    let (old, new) = (directory.path().join("state.db"), tempfile::tempdir().unwrap());
    crate::stores::sqlite::recover::recover(&old, &new.path().join("state.db")).unwrap();
    let mut site = Site::in_directory(new, FAIR);
    assert_eq!(site.rows(in_flight), before);
    site.finish("bravo", 8);
    site.check_kept();
    let ended = "SELECT attr_path, outcome, finished FROM shiftboss_attempts ORDER BY finished";
    assert_eq!(site.rows(ended), ["alpha|done|7", "bravo|done|8"]);
}

/// Version 9 knew no relays; all it had stays, also after the reference had the file.
#[test]
fn version_9_is_upgraded() {
    for said in [9, 2] {
        let mut site = Site::new(FAIR);
        site.list(&run("f", 1), &["alpha", "bravo"]);
        let site = site.restart(&options(FAIR), true);
        let tables = "SELECT name FROM sqlite_schema WHERE name LIKE 'shiftboss!_relay%' ESCAPE '!' AND type = 'table'";
        let relays: Vec<String> = site.rows(tables);
        assert_eq!(relays.len(), 5);
        site.outside.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        for table in &relays {
            site.outside.execute_batch(&format!("DROP TABLE {table}")).unwrap();
        }
        site.outside.pragma_update(None, "user_version", said).unwrap();
        let mut site = site.restart(&options(FAIR), false);
        assert_eq!(site.rows("PRAGMA user_version"), [VERSION.to_string()]);
        assert_eq!(site.rows(tables), relays);
        assert_eq!(site.rows("SELECT attr_path FROM queue ORDER BY 1"), ["alpha", "bravo"]);
        assert!(site.store.dispatch(1_000_000, None).is_ok());
    }
}
