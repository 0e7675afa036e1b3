//! `shiftboss backup`: one moment of the queue, whole, beside nothing that was there before.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::common::mounts::FileSystem;
use crate::common::sql::{LOG, QUEUE, reader, rows};
use crate::common::wait::SetOnDrop;
use crate::common::worker::key_of;
use crate::common::{Client, Site, list_of, root, wait_until};
use rusqlite::Connection;

fn backup(site: &Site, database: &str, file: &str) -> (Option<i32>, String) {
    let output = site.run(&["backup", "-t", database, file]);
    assert_eq!(output.stdout, b"");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn is_sound(copy: &Connection) {
    assert_eq!(rows(copy, "PRAGMA integrity_check").unwrap(), ["ok"]);
    assert_eq!(rows(copy, "PRAGMA foreign_key_check").unwrap(), [""; 0]);
    assert_eq!(rows(copy, "PRAGMA journal_mode").unwrap(), ["delete"]);
}

/// What is left in the site of a backup that was not made.
fn leftovers(site: &Site) -> Vec<String> {
    let names = fs::read_dir(site.path(".")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("copy")).collect()
}

/// Works through the queue; the exit code of the n-th job is n. Counts what was acknowledged.
fn work(site: &Site, acknowledged: &AtomicI64, enough: &AtomicBool) {
    let mut client = Client::connect(site);
    let mut key = key_of(&client.ask("READY"));
    while let Some(done) = key.filter(|_| !enough.load(Ordering::Relaxed)) {
        let number = acknowledged.load(Ordering::SeqCst);
        key = key_of(&client.ask(&format!("DONE {done} {number}")));
        acknowledged.store(number + 1, Ordering::SeqCst);
    }
}

/// While a worker works all the time, each copy is sound, has all that was acknowledged before it
/// was asked for, and is a prefix of the history.
#[test]
fn a_copy_is_a_prefix_of_the_history() {
    let (site, _daemon) = Site::serving(&list_of(10_000), &["--durability", "process"]);
    let (acknowledged, enough) = (AtomicI64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| work(&site, &acknowledged, &enough));
        let _stop = SetOnDrop(&enough);
        for copy in ["copy1", "copy2", "copy3"] {
            let before = acknowledged.load(Ordering::SeqCst);
            wait_until("the worker works", || acknowledged.load(Ordering::SeqCst) > before);
            let before = acknowledged.load(Ordering::SeqCst);
            assert_eq!(backup(&site, "state.db", copy), (Some(0), String::new()));
            let copy = reader(&site.path(copy)).unwrap();
            is_sound(&copy);
            let codes = "SELECT exit_code FROM log WHERE finished IS NOT NULL ORDER BY exit_code";
            let codes = rows(&copy, codes).unwrap();
            let prefix: Vec<String> = (0..codes.len()).map(|n| n.to_string()).collect();
            assert_eq!(codes, prefix);
            assert!(i64::try_from(codes.len()).unwrap() >= before, "{} of {before}", codes.len());
            let wrong = "SELECT 1 FROM lists WHERE rows - pending <>
                (SELECT count(*) FROM queue WHERE is_dequeued <> 0)";
            assert_eq!(rows(&copy, wrong).unwrap(), [""; 0]);
        }
    });
}

/// A daemon that starts on the copy goes on with the queue as it was.
#[test]
fn a_copy_can_be_served() {
    let (site, daemon) = Site::serving("alpha 0 1\nbravo 0 2\ncharlie 0 3\n", &[]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(backup(&site, "state.db", "copy"), (Some(0), String::new()));
    let status = String::from_utf8(site.run(&["status", "-t", "copy"]).stdout).unwrap();
    assert!(status.contains("Daemon          not running\n"), "no daemon died on it: {status}");
    let shown = [site.sql(QUEUE), site.sql(LOG)];
    daemon.stop();
    fs::rename(site.path("copy"), site.database()).unwrap();
    let _daemon = site.start();
    assert_eq!([site.sql(QUEUE), site.sql(LOG)], shown);
    assert_eq!(site.ask("DONE alpha 0"), "JOB charlie 0 3\n");
}

/// After a kill the copy has what is still in the log beside the file; after a stop it is the same.
#[test]
fn a_copy_without_a_daemon() {
    let (site, daemon) = Site::serving("alpha 0 1\n", &[]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    daemon.kill();
    assert_eq!(backup(&site, "state.db", "copy1"), (Some(0), String::new()));
    site.start().stop();
    assert_eq!(backup(&site, "state.db", "copy2"), (Some(0), String::new()));
    for copy in ["copy1", "copy2"] {
        let copy = reader(&site.path(copy)).unwrap();
        is_sound(&copy);
        assert_eq!(rows(&copy, "SELECT attr_path, finished FROM log").unwrap(), ["alpha|-"]);
    }
}

/// What is there is never replaced, be it a file, a directory or a link to nothing.
#[test]
fn nothing_is_replaced() {
    let site = Site::new();
    site.start().stop();
    fs::write(site.path("copy1"), "precious").unwrap();
    fs::create_dir(site.path("copy2")).unwrap();
    symlink("nowhere", site.path("copy3")).unwrap();
    for copy in ["copy1", "copy2", "copy3", "state.db"] {
        let (code, said) = backup(&site, "state.db", copy);
        assert!(code == Some(73) && said.contains("exists already"), "{code:?}: {said}");
    }
    assert_eq!(fs::read_to_string(site.path("copy1")).unwrap(), "precious");
    assert_eq!(leftovers(&site).len(), 3);
    assert!(!site.path("nowhere").exists());
}

/// Without a database, or a place for the copy, there is a clear error and nothing is left.
#[test]
fn a_copy_that_cannot_be_made() {
    let site = Site::new();
    let (code, said) = backup(&site, "state.db", "copy");
    assert!(code == Some(69) && said.contains("state.db"), "{code:?}: {said}");
    fs::write(site.path("list"), "alpha 0 1\n".repeat(200)).unwrap();
    let (code, said) = backup(&site, "list", "copy");
    assert!(code == Some(65) && said.contains("list"), "{code:?}: {said}");
    site.start().stop();
    let (code, said) = backup(&site, "state.db", "missing/copy");
    assert!(code == Some(73) && said.contains("missing/copy"), "{code:?}: {said}");
    assert_eq!(leftovers(&site), [""; 0]);
}

/// Where the copy cannot be written, that is said of the copy and not of the database: a full file system, one that is read-only.
#[test]
fn a_place_that_takes_no_copy() {
    root!();
    let (site, daemon) = Site::serving(&list_of(10_000), &[]);
    daemon.stop();
    let disk = FileSystem::of_size(&site.path("disk"), 1);
    // The room that is left is none, a little, or enough for a part.
    for room in [0, 10_000, 500_000] {
        fs::write(site.path("disk/filler"), vec![0; (1 << 20) - room]).unwrap();
        let (code, said) = backup(&site, "state.db", "disk/copy");
        assert!(
            code == Some(74) && said.contains("disk/copy") && said.contains("full"),
            "{code:?}: {said}"
        );
        assert!(!said.contains("state.db") && !site.path("disk/copy").exists(), "{said}");
    }
    fs::remove_file(site.path("disk/filler")).unwrap();
    disk.make_read_only();
    let (code, said) = backup(&site, "state.db", "disk/copy");
    assert!(code == Some(73) && said.contains("disk/copy: Read-only"), "{code:?}: {said}");
    drop(disk);
}

/// A corrupt database gives no copy that looks like a good one.
#[test]
fn a_corrupt_database_is_not_copied() {
    let (site, daemon) = Site::serving(&list_of(5_000), &[]);
    daemon.stop();
    let mut bytes = fs::read(site.database()).unwrap();
    let middle = bytes.len() / 2 / 4_096 * 4_096;
    bytes[middle..middle + 4_096].fill(0xa5);
    fs::write(site.database(), bytes).unwrap();
    let (code, said) = backup(&site, "state.db", "copy");
    assert!(code == Some(65) && said.contains("corrupt"), "{code:?}: {said}");
    assert_eq!(leftovers(&site), [""; 0]);
}
