//! The machine dies at every write of a start that has much to do: one that takes a database over, and one
//! that recovers from a death. The next start on a sound machine finds all that there was.

use super::{Fault, STEP, calls, faulty, library, try_ask};
use crate::common::reference::{enqueue, finish, register, version_2};
use crate::common::{Daemon, Site};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::common::wait_until;

const KILLED: Fault = Fault { kind: "write", does: "KILL", count: 1 };
const KEYS: [&str; 3] = ["alpha", "bravo", "charlie"];

/// Starts with a death at the `at`th write, until the socket accepts. False: it did not come to that.
fn dies(site: &Site, library: &Path, at: u32) -> bool {
    let mut daemon = site.spawn(faulty(site, library, KILLED, at));
    wait_until("the start, or the end", || {
        UnixStream::connect(site.socket()).is_ok() || !daemon.is_running()
    });
    drop(daemon);
    std::fs::remove_file(site.path("hit")).is_ok()
}

/// All keys are handed out once each, and what ended stays ended.
fn serves(site: &Site, daemon: Daemon, at: u32) {
    let mut keys: Vec<_> = KEYS.iter().filter_map(|_| site.next_key("READY")).collect();
    keys.sort();
    assert_eq!(keys, KEYS, "call {at}");
    assert_eq!(site.ask("READY"), "NOJOBS\n", "call {at}");
    let old = "SELECT started, finished, exit_code FROM log WHERE attr_path = 'old'";
    assert_eq!(site.sql(old), ["5|6|-9"], "call {at}");
    assert_eq!(site.integrity(), ["ok"], "call {at}");
    daemon.stop();
}

/// A list of three keys, in a database of the reference, and a job of long ago.
fn reference(site: &Site) {
    let connection = version_2(&site.database());
    register(&connection, "f", 1, true);
    KEYS.iter().for_each(|key| enqueue(&connection, "f", 1, key, "0 1"));
    connection.execute_batch("INSERT INTO log VALUES ('old', 5, NULL, NULL)").unwrap();
    finish(&connection, "old", 6, -9);
    site.write("f.1.txt", KEYS.map(|key| format!("{key} 0 1\n")).concat());
}

/// A death at each write of a take-over: the old database or the new one, never half of each.
#[test]
fn killed_while_taking_over() {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    let last = calls(STEP).find(|at| {
        let site = Site::new();
        reference(&site);
        let died = dies(&site, &library, *at);
        serves(&site, site.start(), *at);
        !died
    });
    assert!(last.is_some_and(|last| last > 5), "{last:?}");
}

/// A second death while the first one is recovered from, at each write of the recovery.
#[test]
fn killed_again_while_recovering() {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    let last = calls(1).find(|at| {
        let site = Site::new();
        reference(&site);
        let daemon = site.start();
        // Something that only the write-ahead log has.
        site.append("g.1.txt", "alpha 0 2\n");
        assert!(try_ask(&site, "DONE nobody 0").starts_with("JOB "));
        site.wait_count(4);
        daemon.kill();
        let died = dies(&site, &library, *at);
        let daemon = site.start();
        site.wait_count(4);
        assert_eq!(site.integrity(), ["ok"], "call {at}");
        assert_eq!(site.number("SELECT count(*) FROM log"), 2, "call {at}");
        daemon.stop();
        !died
    });
    assert!(last.is_some_and(|last| last > 1), "{last:?}");
}
