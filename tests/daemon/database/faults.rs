//! The database locked, full or taken away while the daemon runs (spec 6).

use std::fs;

use crate::common::sql::editor;
use crate::common::{Daemon, Site, wait_until};

fn two_jobs() -> (Site, Daemon) {
    Site::serving("alpha 0 1\nbravo 0 2\n", &[])
}

/// Locked by somebody for longer than the daemon waits: requests close in silence, files wait,
/// and everything goes on by itself when the lock is gone.
#[test]
fn locked_for_longer_than_the_busy_timeout() {
    let (site, mut daemon) = two_jobs();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    let lock = editor(&site.database()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    site.write("g.1.txt", "charlie 0 3\n");
    assert_eq!(site.ask("DONE alpha 4"), "");
    assert_eq!(site.ask("READY"), "");
    lock.execute_batch("ROLLBACK").unwrap();
    assert!(daemon.is_running());
    wait_until("charlie is loaded", || site.number("SELECT count(*) FROM queue") == 3);
    assert_eq!(site.ask("DONE alpha 4"), "JOB bravo 0 2\n");
    assert_eq!(site.ask("READY"), "JOB charlie 0 3\n");
    let code = "SELECT exit_code FROM log WHERE attr_path = 'alpha'";
    assert_eq!(site.sql(code), ["4"]);
    daemon.stop();
}

/// The daemon whose database is unlinked, renamed or replaced, or whose log or index is unlinked, says so and ends with an error.
#[test]
fn taken_away_while_running() {
    let changes: [fn(&Site); 5] = [
        |site| fs::remove_file(site.database()).unwrap(),
        |site| fs::rename(site.database(), site.path("moved.db")).unwrap(),
        |site| {
            fs::copy(site.database(), site.path("copy.db")).unwrap();
            fs::rename(site.path("copy.db"), site.database()).unwrap();
        },
        |site| fs::remove_file(site.path("state.db-wal")).unwrap(),
        |site| fs::remove_file(site.path("state.db-shm")).unwrap(),
    ];
    for change in changes {
        let (site, mut daemon) = two_jobs();
        assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
        change(&site);
        let status = daemon.exit();
        assert_eq!(status.code(), Some(74), "{status}");
        let log = daemon.log();
        assert!(log.contains("ERROR") && log.contains("state.db"), "{log}");
    }
}

/// What was answered after the log was unlinked is safe.
#[test]
fn log_unlinked_while_running() {
    let (site, mut daemon) = two_jobs();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    fs::remove_file(site.path("state.db-wal")).unwrap();
    assert_eq!(site.ask("DONE alpha 3"), "JOB bravo 0 2\n");
    assert!(!daemon.exit().success());
    let codes = "SELECT attr_path, exit_code FROM log ORDER BY 1";
    assert_eq!(site.sql(codes), ["alpha|3", "bravo|-"]);
}

/// Under load too: a daemon that is never idle notices.
#[test]
fn unlinked_under_load() {
    let (site, mut daemon) = two_jobs();
    fs::remove_file(site.database()).unwrap();
    let mut status = None;
    wait_until("the daemon ends", || {
        if let Ok(stream) = std::os::unix::net::UnixStream::connect(site.socket()) {
            use std::io::Write;
            let _ = (&stream).write_all(b"DONE nobody 0\n");
        }
        if !daemon.is_running() {
            status = Some(daemon.exit());
        }
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(74));
}
