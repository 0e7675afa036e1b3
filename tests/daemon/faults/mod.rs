//! The disk fails, or the machine dies, at every single write and sync of a short life; and what else a
//! machine can do to the daemon: a slow disk, a clock that jumps, no watches left, hours of standing still.
//!
//! A library built here with `cc` and preloaded into the daemon makes the Nth call go wrong; the
//! life is lived again for some N, other ones in each run, until one comes to its end undisturbed. After each, a daemon on a
//! sound disk must find everything that was acknowledged.

mod levers;
mod machine;
mod starts;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Daemon, Site, wait_within};

/// More calls than a short life has.
const CALLS_MAX: u32 = 400;
/// Jobs of a life.
const JOBS: usize = 6;

/// What goes wrong, and how often.
#[derive(Clone, Copy)]
struct Fault {
    kind: &'static str,
    does: &'static str,
    count: u32,
}

/// Builds the library; returns its path.
fn library(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/faults/interpose.c");
    let library = directory.join("interpose.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    assert!(cc.status().unwrap().success(), "cc builds the library");
    library
}

/// One request on a connection of its own; empty when it was not answered, for whatever reason.
fn try_ask(site: &Site, line: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = UnixStream::connect(site.socket()) {
        let sent = stream.write_all(format!("{line}\n").as_bytes());
        let closed = stream.shutdown(std::net::Shutdown::Write);
        if sent.and(closed).is_ok() {
            // A daemon that dies meanwhile has not answered.
            let _ = stream.read_to_string(&mut answer);
        }
    }
    answer
}

/// Asks until there is an answer, the daemon has ended, or it took too long.
fn ask(site: &Site, daemon: &mut Daemon, line: &str) -> Option<String> {
    let mut answer = String::new();
    wait_within(Duration::from_secs(30), "an answer, or the end", || {
        answer = try_ask(site, line);
        !answer.is_empty() || !daemon.is_running()
    });
    answer.ends_with('\n').then(|| answer.trim_end().to_owned())
}

/// Works through the list, as long as the daemon lives; returns the keys whose end was acknowledged.
fn live(site: &Site, daemon: &mut Daemon) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let mut line = "READY".to_owned();
    // The list may be loaded only later, when its rows could not be stored at first.
    wait_within(Duration::from_secs(60), "all is done, or the end", || {
        let Some(answer) = ask(site, daemon, &line) else {
            return true;
        };
        if let Some(key) = line.strip_prefix("DONE ").and_then(|rest| rest.split(' ').next()) {
            acknowledged.push(key.to_owned());
        }
        let key = answer.strip_prefix("JOB ").and_then(|rest| rest.split(' ').next());
        line = key.map_or("READY".to_owned(), |key| format!("DONE {key} 7"));
        key.is_none() && acknowledged.len() >= JOBS
    });
    acknowledged
}

/// The daemon with the `at`th call going wrong; the file `hit` is made when it does.
fn faulty(site: &Site, library: &Path, fault: Fault, at: u32) -> Command {
    let mut command = site.serve(&[]);
    command
        .env("LD_PRELOAD", library)
        .env("FAULT_KIND", fault.kind)
        .env("FAULT_DOES", fault.does)
        .env("FAULT_AT", at.to_string())
        .env("FAULT_COUNT", fault.count.to_string())
        .env("FAULT_HIT", site.path("hit"));
    command
}

/// Lives once with the `at`th call going wrong. False: it did not come to that.
fn lives_through(library: &Path, fault: Fault, at: u32) -> bool {
    let site = Site::new();
    let list: String = (0..JOBS).map(|i| format!("key{i} 0 {i}\n")).collect();
    site.write("f.1.txt", list);
    let hit = site.path("hit");
    let mut daemon = site.spawn(faulty(&site, library, fault, at));
    wait_within(Duration::from_secs(30), "the start, or the end", || {
        UnixStream::connect(site.socket()).is_ok() || !daemon.is_running()
    });
    let acknowledged = live(&site, &mut daemon);
    if daemon.is_running() {
        daemon.signal(rustix::process::Signal::TERM);
    }
    let status = daemon.exit();
    let was_hit = hit.exists();
    if fault.does == "EIO" && was_hit && status.code() != Some(0) {
        assert!([74, 73].contains(&status.code().unwrap_or(-1)), "{at}: {status} {}", daemon.log());
        assert!(daemon.log().contains("shiftboss: "), "{at}: says why\n{}", daemon.log());
    }
    if fault.does == "ENOSPC" && was_hit && status.code() == Some(0) {
        assert_eq!(acknowledged.len(), JOBS, "{at}: work went on\n{}", daemon.log());
    }
    drop(daemon);
    look_after(&site, &acknowledged, at);
    was_hit
}

/// A daemon on a sound disk finds all that was acknowledged, and works through the rest.
fn look_after(site: &Site, acknowledged: &[String], at: u32) {
    let mut daemon = site.start();
    site.wait_count(JOBS);
    let ended = site.sql("SELECT attr_path FROM log WHERE exit_code = 7 ORDER BY 1");
    for key in acknowledged {
        assert!(ended.contains(key), "call {at}: {key} was acknowledged, and is lost: {ended:?}");
    }
    assert!(ended.len() <= acknowledged.len() + 1, "call {at}: {ended:?} {acknowledged:?}");
    assert_eq!(site.integrity(), ["ok"], "call {at}");
    assert!(daemon.is_running());
    daemon.stop();
}

/// Calls that stay untried between two in one run of the tests: each run has others.
const STEP: u32 = 4;

/// One of so many calls, and which is the first of this run. All are tried with `SHIFTBOSS_EVERY_CALL` set.
fn calls(step: u32) -> impl Iterator<Item = u32> {
    let step = if std::env::var_os("SHIFTBOSS_EVERY_CALL").is_some() { 1 } else { step };
    let first = 1 + std::process::id() % step;
    println!("from call {first} on, each of {step}");
    (first..CALLS_MAX).step_by(step as usize)
}

/// Lives again and again, the fault some calls later each time, until it no longer happens.
fn at_calls(fault: Fault, step: u32) {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    let last = calls(step).find(|at| !lives_through(&library, fault, *at));
    assert!(last.is_some_and(|last| last > 2), "{} {}: {last:?}", fault.kind, fault.does);
}

/// An I/O error of a write.
#[test]
fn a_write_fails() {
    at_calls(Fault { kind: "write", does: "EIO", count: 1 }, STEP);
}

/// An I/O error of a sync.
#[test]
fn a_sync_fails() {
    at_calls(Fault { kind: "sync", does: "EIO", count: 1 }, 2);
}

/// The disk is full for one write.
#[test]
fn the_disk_is_full_for_a_moment() {
    at_calls(Fault { kind: "write", does: "ENOSPC", count: 1 }, 2 * STEP);
}

/// The disk is full for a while.
#[test]
fn the_disk_is_full_for_a_while() {
    at_calls(Fault { kind: "write", does: "ENOSPC", count: 5 }, 10);
}

/// The process is killed in the middle of a write.
#[test]
fn killed_at_a_write() {
    at_calls(Fault { kind: "write", does: "KILL", count: 1 }, STEP);
}

/// The process is killed in the middle of a sync.
#[test]
fn killed_at_a_sync() {
    at_calls(Fault { kind: "sync", does: "KILL", count: 1 }, 2);
}
