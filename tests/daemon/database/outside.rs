//! Readers and editors from outside, while the daemon works (spec 6).

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::sql::{LOG, QUEUE, RUNS, editor, reader, rows};
use crate::common::wait::SetOnDrop;
use crate::common::{Client, Daemon, Site, list_of, wait_until};

/// The queue page's query.
const PAGE: &str = "SELECT ROW_NUMBER() OVER (ORDER BY last_started ASC, order_jitter) AS place, \
    attr_path, payload, last_started FROM queue WHERE is_dequeued = 0 \
    ORDER BY last_started ASC, order_jitter LIMIT 100";
/// A metrics exporter's queries.
const METRICS: [&str; 3] = [
    "SELECT name, run_started, is_complete, count(attr_path), sum(is_dequeued) FROM fetchers \
     JOIN fetcher_runs USING (fetcher_id) LEFT JOIN queue ON queue.fetcher_id = \
     fetcher_runs.fetcher_id AND fetcher_run_started = run_started GROUP BY 1, 2, 3 ORDER BY 1, 2",
    "SELECT exit_code, count(*) FROM log WHERE finished IS NOT NULL GROUP BY exit_code",
    "SELECT log.attr_path, finished - started FROM log JOIN queue USING (attr_path) \
     JOIN fetchers USING (fetcher_id) WHERE finished IS NULL ORDER BY 1",
];

fn many_jobs(count: usize) -> (Site, Daemon) {
    let lines: String = (0..count).map(|i| format!("key{i:05} 0 {i}\n")).collect();
    Site::serving(&lines, &[])
}

/// Workers that ask as fast as they can until dropped.
fn under_load(site: &Site, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(site);
                let mut request = "READY".to_owned();
                while !over.load(Relaxed) {
                    let key = crate::common::worker::key_of(&client.ask(&request));
                    request = key.map_or("READY".to_owned(), |key| format!("DONE {key} 0"));
                }
            });
        }
        let _at_end = SetOnDrop(&over);
        work();
    });
}

/// The queue page's and the exporter's queries work from other connections, `mode=ro`, while
/// the daemon runs, and tell the truth.
#[test]
fn a_running_installation_s_queries() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    site.write("g.1.txt.part", "charlie 0 3\n");
    let daemon = site.start();
    site.wait_sql(RUNS, &["f|1|1", "g|1|0"]);
    site.wait_count(3);
    site.edit("INSERT INTO log VALUES ('bravo', 1000, 1007, 3)");
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    let check = || {
        assert_eq!(site.sql(PAGE), ["1|charlie|0 3|-", "2|bravo|0 2|1000"]);
        assert_eq!(site.sql(METRICS[0]), ["f|1|1|2|1", "g|1|0|1|0"]);
        assert_eq!(site.sql(METRICS[1]), ["3|1"]);
        assert_eq!(site.sql(METRICS[2]), ["alpha|-"]);
    };
    check();
    daemon.stop();
    check();
}

/// The same from the `sqlite3` program: another SQLite than ours.
#[test]
fn another_sqlite_reads_and_edits() {
    let (site, _daemon) = many_jobs(3);
    let shell = |text: &str| {
        let mut command = Command::new("sqlite3");
        command.arg("-cmd").arg(".timeout 5000").arg(site.database()).arg(text);
        command.output()
    };
    let output = shell("SELECT count(*) FROM queue");
    let output = output.expect("this test needs the program `sqlite3`: install it");
    assert_eq!(output.stdout, b"3\n", "{output:?}");
    let edit = "INSERT INTO log VALUES ('key00000', 1, 2, 3); \
        UPDATE queue SET is_dequeued = 1 WHERE attr_path = 'key00001'; \
        INSERT OR REPLACE INTO log VALUES ('key00002', 7, 2, 3);";
    let output = shell(edit).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        site.ask("READY").split(' ').nth(1),
        site.sql(
            "SELECT attr_path FROM queue \
        WHERE is_dequeued = 1 AND last_started > 7 LIMIT 1"
        )
        .first()
        .map(String::as_str)
    );
    let output = shell(METRICS[0]).unwrap();
    assert!(output.status.success(), "{output:?}");
    for (refused, instead) in [
        ("DELETE FROM log", "`shiftboss forget`"),
        ("DELETE FROM queue", "`shiftboss cancel` or `shiftboss hold`"),
        ("UPDATE queue SET payload = 'x'", "`shiftboss add`"),
        ("DELETE FROM fetcher_runs", "delete lists"),
    ] {
        let output = shell(refused).unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && told.contains(instead), "{refused}: {told}");
    }
}

/// An editor with a busy timeout of 5 s gets through at full load, every time.
#[test]
fn an_editor_gets_through_at_full_load() {
    let (site, _daemon) = many_jobs(20_000);
    under_load(&site, || {
        let hand = editor(&site.database()).unwrap();
        for i in 0..40 {
            let edit = format!(
                "INSERT INTO log VALUES ('mine{i}', {i}, {i}, 0); \
                UPDATE log SET exit_code = 9 WHERE attr_path = 'mine{i}'; \
                UPDATE queue SET is_dequeued = 1 WHERE attr_path = 'key{:05}'",
                19_000 + i
            );
            hand.execute_batch(&edit).unwrap();
        }
    });
    let mine = "SELECT count(*) FROM log WHERE attr_path LIKE 'mine%' AND exit_code = 9";
    assert_eq!(site.sql(mine), ["40"]);
    assert_eq!(site.integrity(), ["ok"]);
}

/// Whoever has the database open meets a free lock: under unbroken load it is left free for longer
/// than SQLite sleeps between two tries. When nobody else is there it is not.
#[test]
fn the_lock_is_left_free_for_others() {
    // Nobody looks into the database before.
    let site = Site::new();
    site.write("f.1.txt", list_of(20_000));
    let daemon = site.start_with(&["--log-level", "debug"]);
    let is_free = || daemon.log().contains("The lock is left free for others.");
    under_load(&site, || {
        wait_until("some jobs are done without it", || {
            daemon.log().matches("Committed").count() > 2_000
        });
        assert!(!is_free(), "{}", daemon.log());
        let hand = editor(&site.database()).unwrap();
        assert_eq!(rows(&hand, "SELECT count(*) FROM queue").unwrap(), ["20000"]);
        wait_until("the lock is left free", is_free);
    });
}

/// A reader that holds its transaction over 1,000 commits, a new file among them, keeps its snapshot and stops nobody.
#[test]
fn a_reader_that_holds_its_transaction() {
    let (site, daemon) = many_jobs(2_000);
    let long = reader(&site.database()).unwrap();
    long.execute_batch("BEGIN").unwrap();
    let before = rows(&long, LOG).unwrap();
    let mut request = "READY".to_owned();
    for commit in 0..1_100 {
        let asked = Instant::now();
        let key = site.next_key(&request);
        assert!(asked.elapsed() < Duration::from_secs(5));
        request = key.map_or("DONE nobody 0".to_owned(), |key| format!("DONE {key} 0"));
        if commit == 500 {
            site.write("g.1.txt", "late 0 1\n");
        }
    }
    assert_eq!(rows(&long, LOG).unwrap(), before);
    assert_eq!(site.sql("SELECT count(*) FROM queue WHERE attr_path = 'late'"), ["1"]);
    drop(long);
    daemon.stop();
}

/// Who copies the raw main file of an idle daemon gets all of it, current; also after the next
/// change.
#[test]
fn a_raw_copy_of_an_idle_daemon_s_file_is_current() {
    let (site, _daemon) = many_jobs(500);
    for round in 0..3 {
        assert!(site.ask("READY").starts_with("JOB "));
        let now = [site.sql(QUEUE), site.sql(LOG)].concat();
        wait_until("the copy is current", || raw_copy(&site).is_ok_and(|copy| copy == now));
        assert_eq!(site.number("SELECT count(*) FROM log"), round + 1);
    }
}

fn raw_copy(site: &Site) -> rusqlite::Result<Vec<String>> {
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("copy.db");
    fs::copy(site.database(), &path).unwrap();
    let copy = editor(&path)?;
    Ok([rows(&copy, QUEUE)?, rows(&copy, LOG)?].concat())
}

/// A reader that is in at the start does not keep the daemon from starting.
#[test]
fn a_reader_that_is_in_at_the_start() {
    let (site, daemon) = many_jobs(10);
    daemon.stop();
    let long = reader(&site.database()).unwrap();
    long.execute_batch("BEGIN").unwrap();
    assert_eq!(rows(&long, "SELECT count(*) FROM queue").unwrap(), ["10"]);
    let daemon = site.spawn(site.serve(&[]));
    let files = format!("/proc/{}/fd", daemon.pid().as_raw_nonzero());
    wait_until("it has opened the file", || {
        let mut open = fs::read_dir(&files).unwrap().flatten().map(|file| file.path());
        open.any(|file| fs::read_link(file).is_ok_and(|path| path == site.database()))
    });
    drop(long);
    let _daemon = daemon.ready();
    wait_until("a job is there", || site.ask("READY").starts_with("JOB "));
}

/// A reader that is in at the end does not keep the daemon from stopping in time, sees its
/// snapshot to the end, and the next start takes everything up.
#[test]
fn a_reader_that_is_in_at_the_stop() {
    let (site, daemon) = many_jobs(10);
    let long = reader(&site.database()).unwrap();
    long.execute_batch("BEGIN").unwrap();
    assert_eq!(rows(&long, LOG).unwrap(), Vec::<String>::new());
    assert!(site.ask("READY").starts_with("JOB "));
    daemon.stop();
    assert_eq!(rows(&long, LOG).unwrap(), Vec::<String>::new());
    assert_eq!(site.number("SELECT count(*) FROM log"), 1);
    drop(long);
    let daemon = site.start();
    assert_eq!(site.number("SELECT count(*) FROM log"), 1);
    daemon.stop();
    assert!(super::stands_alone(&site));
}

/// Nor does a writer that keeps the database locked; what was acknowledged is there afterwards.
#[test]
fn a_writer_that_is_in_at_the_stop() {
    let (site, mut daemon) = many_jobs(10);
    let key = site.next_key("READY").unwrap();
    assert!(site.ask(&format!("DONE {key} 5")).starts_with("JOB "));
    let lock = editor(&site.database()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    daemon.signal(rustix::process::Signal::TERM);
    daemon.exit_within(Duration::from_secs(10));
    lock.execute_batch("ROLLBACK").unwrap();
    drop(lock);
    let daemon = site.start();
    assert_eq!(site.sql("SELECT exit_code FROM log WHERE finished IS NOT NULL"), ["5"]);
    daemon.stop();
}
