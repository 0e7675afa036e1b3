//! A running installation's database is taken over in place, and can be given back.

use rusqlite::Connection;
use shiftboss_protocol::model::jitter;

use super::{JOURNAL, stands_alone};
use crate::common::Site;
use crate::common::reference::{delete, dispatch, enqueue, finish, register, version_2};
use crate::common::said::code_and_error;
use crate::common::sql::{LOG, RUNS};

/// What [`fill`] queues, once it is taken over: the lease of the job of charlie is over.
const QUEUED: [&str; 5] = [
    "f|1|alpha|0 1|1",
    "f|1|bravo| 0 2|0",
    "f|2|alpha|1 2|0",
    "g|1|alpha|0 1|0",
    "g|1|charlie|0 3|0",
];
const LOGGED: [&str; 3] = ["alpha|1000|1005|0", "charlie|2000|-|-", "old|5|6|-9"];
const LAST_STARTED: &str = "SELECT attr_path, last_started, order_jitter FROM queue \
    GROUP BY 1, 2, 3 ORDER BY attr_path";

/// The input files of what [`fill`] queues.
fn write_files(site: &Site) {
    site.write("f.1.txt", "alpha 0 1\nbravo  0 2\n");
    site.write("f.2.txt.part", "alpha 1 2\n");
    site.write("g.1.txt", "alpha 0 1\ncharlie 0 3\n");
}

/// A week in the reference's life, by its own statements.
fn fill(connection: &Connection) {
    register(connection, "gone", 1, true);
    register(connection, "f", 1, true);
    enqueue(connection, "f", 1, "alpha", "0 1");
    enqueue(connection, "f", 1, "bravo", " 0 2");
    dispatch(connection, "f", "alpha", 1_000);
    finish(connection, "alpha", 1_005, 0);
    register(connection, "f", 2, false);
    enqueue(connection, "f", 2, "alpha", "1 2");
    register(connection, "g", 1, true);
    enqueue(connection, "g", 1, "alpha", "0 1");
    enqueue(connection, "g", 1, "charlie", "0 3");
    dispatch(connection, "g", "charlie", 2_000);
    let old = "INSERT INTO log VALUES ('old', 5, 6, -9)";
    connection.execute_batch(old).unwrap();
    delete(connection, "gone", 1);
}

fn expected_order() -> Vec<String> {
    let line = |key: &str, last: &str| format!("{key}|{last}|{}", jitter(key));
    vec![line("alpha", "1000"), line("bravo", "-"), line("charlie", "2000")]
}

/// Version 2 is taken over with every row, flag, id and log entry, also what a killed reference left in its write-ahead log,
/// and serves at once.
#[test]
fn version_2_is_taken_over_whole() {
    let (other, site) = (Site::new(), Site::new());
    write_files(&site);
    let connection = version_2(&other.database());
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").unwrap();
    fill(&connection);
    for name in ["state.db", "state.db-wal"] {
        std::fs::copy(other.path(name), site.path(name)).unwrap();
    }
    drop(connection);
    let ids = site.sql("SELECT * FROM fetchers ORDER BY name");
    let daemon = site.start();
    site.wait_queue(&QUEUED);
    assert_eq!(site.sql(LOG), LOGGED);
    assert_eq!(site.sql(RUNS), ["f|1|1", "f|2|0", "g|1|1"]);
    assert_eq!(site.sql(LAST_STARTED), expected_order());
    assert_eq!(site.sql("SELECT * FROM fetchers ORDER BY name"), ids);
    assert_eq!(site.ask("READY"), "JOB bravo  0 2\n");
    assert!(site.ask("READY").starts_with("JOB alpha "));
    // Its job was in flight, and for longer than the lease.
    assert_eq!(site.ask("READY"), "JOB charlie 0 3\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert_eq!(site.integrity(), ["ok"]);
    daemon.stop();
    site.write("h.1.txt", "zulu 0 1\n");
    let _daemon = site.start();
    site.wait_sql("SELECT count(*) FROM fetchers", &["3"]);
    let larger = "SELECT name FROM fetchers ORDER BY fetcher_id DESC LIMIT 1";
    assert_eq!(site.sql(larger), ["h"]);
}

/// A clean stop leaves one file in journal_mode DELETE.
#[test]
fn a_clean_stop_leaves_one_plain_file() {
    let site = Site::new();
    write_files(&site);
    for _ in 0..2 {
        let daemon = site.start();
        site.wait_count(5);
        assert_eq!(site.sql(JOURNAL), ["wal"]);
        daemon.stop();
        assert!(stands_alone(&site));
        assert_eq!(site.sql(JOURNAL), ["delete"]);
        assert_eq!(site.integrity(), ["ok"]);
    }
}

/// On the way back the queue leaves its file, which no daemon uses afterwards; single tasks stay behind, and what was in the place of the
/// target stays.
#[test]
fn the_way_back_leaves_a_mark() {
    let (site, daemon) = Site::serving("alpha 1\nbravo 2\n", &[]);
    assert!(site.run(&["add", "single", "1"]).status.success());
    let give_back = |to: &str| code_and_error(&site.run(&["move", "state.db", to]));
    let (code, error) = give_back("supervisor.py:old.db");
    assert!(code == 75 && !site.path("old.db").exists(), "{code} {error}");
    daemon.stop();
    std::fs::write(site.path("other"), "mine").unwrap();
    let (code, error) = give_back("supervisor.py:other");
    assert!(code == 73 && error.contains("other exists already"), "{code} {error}");
    assert_eq!(std::fs::read(site.path("other")).unwrap(), b"mine");
    std::fs::write(site.path("old.db"), "").unwrap();
    let output = site.run(&["move", "state.db", "supervisor.py:old.db"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.starts_with("Moved: 2 tasks, 0 logged keys. 1 single task stayed behind.\n"),
        "{said}"
    );
    let (code, log) = site.refused(site.serve(&[]));
    assert!(code == 78 && log.contains("was moved to supervisor.py:/"), "{code} {log}");
    let (code, error) = give_back("supervisor.py:again.db");
    assert!(code == 78 && error.contains("was moved to"), "{code} {error}");
    let given = Connection::open(site.path("old.db")).unwrap();
    assert_eq!(
        given.query_row("SELECT count(*) FROM queue", [], |row| row.get::<_, i64>(0)),
        Ok(2)
    );
}
