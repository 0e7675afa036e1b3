//! The disk is full for a while (spec 6).

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::common::disk::{on_a_small_disk, seen};
use crate::common::sql::{editor, rows};
use crate::common::{Site, wait_equal, wait_until};

/// Mounts a small file system that only this process and its children see, puts ballast on it,
/// and becomes the daemon.
const SCRIPT: &str = "mount -t tmpfs -o size=128m none disk && \
    head -c 122000000 /dev/zero >disk/ballast && exec \"$@\"";

/// The same, but the daemon is one that was killed before the disk was full to the last byte.
const KILLED: &str = "mount -t tmpfs -o size=8m none disk && { for signal in TERM KILL; do \"$@\" & \
    until test -S socket; do sleep 0.02; done; kill -$signal $!; wait $!; done; rm -f disk/.state.db.shiftboss-*; \
    head -c 16000000 /dev/zero >disk/ballast; } 2>/dev/null; exec \"$@\"";

/// While there is no space requests fail closed or are answered, and the list waits; when there
/// is space again, service resumes by itself, and nothing acknowledged is lost.
#[test]
fn a_full_disk_is_outlived() {
    let site = Site::new();
    let mut daemon = on_a_small_disk(&site, SCRIPT, &[]);
    let disk = seen(&site, &daemon);
    site.write("small.1.txt", (0..2_000).map(|i| format!("small{i} 0 1\n")).collect::<String>());
    wait_until("jobs are there", || site.ask("DONE nobody 0").starts_with("JOB "));
    let mut acknowledged = work_for(&site, Duration::from_millis(300));
    let list: String =
        (0..60_000).map(|i| format!("key{i} 0 a payload of some length\n")).collect();
    site.write("large.1.txt", &list);
    wait_until("the disk is full", || daemon.log().contains("no space"));
    acknowledged.extend(work_for(&site, Duration::from_secs(1)));
    assert!(daemon.is_running() && !acknowledged.is_empty());
    fs::remove_file(disk.join("ballast")).unwrap();
    // SQLite follows the link that leads into the daemon's mounts to its end, and finds nothing;
    // a raw copy of an idle daemon's file is as good.
    let look = |query: &str| {
        let copy = site.path("copy.db");
        fs::copy(disk.join("state.db"), &copy).unwrap();
        rows(&editor(&copy)?, query)
    };
    let loaded = Ok(vec!["62000".to_owned()]);
    let count = || look("SELECT count(*) FROM queue").map_err(|error| error.to_string());
    wait_equal("all is loaded", &loaded, count);
    let finished = look("SELECT attr_path FROM log WHERE exit_code = 7").unwrap();
    let finished: HashSet<String> = finished.into_iter().collect();
    assert!(acknowledged.iter().all(|key| finished.contains(key)));
    assert!(site.ask("READY").starts_with("JOB "));
    wait_until("it is told that it is over", || daemon.log().contains("carried out again"));
    let log = daemon.stop();
    assert_eq!(log.matches("Requests fail and lists wait").count(), 1, "{log}");
    assert_eq!(log.matches("A storage request failed").count(), 0, "{log}");
}

/// A daemon that was killed starts again on a full disk, says so, and serves as soon as there is space. Its lock needs none.
#[test]
fn a_start_on_a_full_disk() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let daemon = on_a_small_disk(&site, KILLED, &[]);
    wait_until("the second one accepts", || daemon.log().contains("Ready"));
    assert_eq!(daemon.warnings(&["The disk is full"]).len(), 1);
    assert_eq!(daemon.warnings(&["The note of who runs could not be written"]).len(), 1);
    fs::remove_file(seen(&site, &daemon).join("ballast")).unwrap();
    wait_until("a job is there", || site.ask("READY") == "JOB alpha 0 1\n");
    daemon.stop();
}

/// Works as a stock worker does; returns the keys whose DONE was answered.
fn work_for(site: &Site, time: Duration) -> Vec<String> {
    let (start, mut done, mut held) = (Instant::now(), Vec::new(), None::<String>);
    while start.elapsed() < time {
        let request = held.as_ref().map_or("READY".to_owned(), |key| format!("DONE {key} 7"));
        let answer = site.ask(&request);
        if answer.is_empty() {
            crate::common::wait::pause(Duration::from_millis(20));
            continue;
        }
        done.extend(held.take());
        held = crate::common::worker::key_of(&answer);
    }
    done
}
