//! What a machine does to a daemon short of failing: a slow disk, a wall clock that jumps, no watch to be had,
//! standing still for longer than a lease.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, prlimit};

use super::{Fault, faulty, library};
use crate::common::{Client, Site, attempt_of, list_of, wait_equal, wait_until, wait_within};

/// More calls than any test makes.
const ALWAYS: u32 = 1_000_000;

/// Each sync takes 100 ms: requests that come together share one, and nobody is closed.
#[test]
fn a_slow_disk_is_shared() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::new();
    site.write("f.1.txt", (0..64).map(|i| format!("key{i} 0 1\n")).collect::<String>());
    let slow = Fault { kind: "sync", does: "DELAY", count: ALWAYS };
    let command = faulty(&site, &library(directory.path()), slow, 1);
    let mut daemon = site.spawn(command);
    wait_until("the daemon accepts", || {
        assert!(daemon.is_running(), "{}", daemon.log());
        std::os::unix::net::UnixStream::connect(site.socket()).is_ok()
    });
    site.wait_count(64);
    let mut workers: Vec<_> = (0..64).map(|_| Client::connect(&site)).collect();
    let asked = Instant::now();
    workers.iter_mut().for_each(|worker| worker.write(b"READY\n"));
    for worker in &mut workers {
        assert!(worker.line().starts_with("JOB key"));
    }
    // One after the other they would take 6.4 s.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(site.path("hit").exists(), "the disk was slow");
}

/// Has the daemon's clock be so many seconds ahead, from now on.
fn set_clock(site: &Site, seconds: i64) {
    // Put in place whole: the daemon may read at any time.
    fs::write(site.path("clock.new"), seconds.to_string()).unwrap();
    fs::rename(site.path("clock.new"), site.path("clock")).unwrap();
}

/// The wall clock jumps a year back and ahead: jobs go on, a lease of protocol 2 lives and dies by the monotonic
/// clock, and one of a classic job by the wall clock, as it is specified.
#[test]
fn a_clock_that_jumps() {
    let directory = tempfile::tempdir().unwrap();
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 1\ncharlie 0 1\ndelta 0 1\n");
    let set = |seconds| set_clock(&site, seconds);
    set(0);
    let mut command = site.serve(&[]);
    command.env("LD_PRELOAD", library(directory.path())).env("FAULT_CLOCK", site.path("clock"));
    let daemon = site.spawn(command).ready();
    site.wait_count(4);
    let mut worker = Client::leased(&site, 600);
    let held = attempt_of(&worker.ask("READY"));
    let classic = site.next_key("READY").expect("a job");
    let year = 365 * 86_400;
    for seconds in [-year, year] {
        set(seconds);
        let attempt = attempt_of(&worker.ask("READY"));
        assert_eq!(worker.ask(&format!("DONE {attempt} 0")), "OK\n", "{seconds}");
        assert_eq!(worker.ask(&format!("BEAT {held}")), "OK\n", "{seconds}");
    }
    wait_equal("its twelve hours are over", &Some(classic), || site.next_key("READY"));
    assert_eq!(worker.ask("READY"), "NOJOBS busy 2\n");
    assert_eq!(worker.ask(&format!("DONE {held} 0")), "OK\n");
    assert_eq!(site.integrity(), ["ok"]);
    daemon.stop();
}

/// No inotify watch is to be had: the daemon says which setting to raise, and looks by itself.
#[test]
fn without_watches() {
    let site = Site::new();
    let serve = site.serve(&[]);
    let mut command = Command::new("unshare");
    let script = "echo 0 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    command.arg(serve.get_program()).args(serve.get_args()).stdin(Stdio::null());
    let daemon = site.spawn(command).ready();
    wait_until("it is said", || daemon.warnings(&["fs.inotify.max_user_watches"]).len() == 1);
    site.write("f.1.txt.part", "alpha 0 1\n");
    site.wait_count(1);
    site.append("f.1.txt.part", "bravo 0 1\n");
    site.wait_count(2);
    site.remove("f.1.txt.part");
    site.wait_count(0);
    daemon.stop();
}

/// A file that may not grow further (RLIMIT_FSIZE) is a full disk: the daemon says so, and goes on when there is room.
#[test]
fn files_may_not_grow() {
    let site = Site::new();
    let script = "ulimit -S -f 1500; exec \"$@\"";
    let mut daemon = site.spawn(site.through_shell(script, &[])).ready();
    site.write("f.1.txt", list_of(20_000));
    wait_until("it is said", || !daemon.warnings(&["RLIMIT_FSIZE"]).is_empty());
    assert!(daemon.is_running());
    let status = String::from_utf8(site.run(&["status", "-t", "socket"]).stdout).unwrap();
    assert!(status.contains("nothing can be written since"), "{status}");
    let unlimited = Rlimit { current: None, maximum: None };
    prlimit(Some(daemon.pid()), Resource::Fsize, unlimited).unwrap();
    site.wait_count(20_000);
    assert_eq!(site.integrity(), ["ok"]);
    daemon.stop();
}

/// Frozen for longer than a lease, then thawed: the lease is over, the job goes to somebody else, and the late result
/// is told so.
#[test]
fn frozen_for_longer_than_a_lease() {
    let (site, daemon) = Site::serving("alpha 0 1\n", &[]);
    let mut first = Client::leased(&site, 1);
    let attempt = attempt_of(&first.ask("READY"));
    let frozen = Instant::now();
    daemon.freeze();
    wait_within(Duration::from_secs(10), "the lease is over", || {
        frozen.elapsed() > Duration::from_secs(2)
    });
    daemon.thaw();
    let mut second = Client::leased(&site, 60);
    assert!(second.ask("READY 20").starts_with("JOB "), "{}", daemon.log());
    assert_eq!(first.ask(&format!("BEAT {attempt}")), "LOST\n");
    assert!(first.ask(&format!("DONE {attempt} 0")).starts_with("ERROR stale "));
    daemon.stop();
}
