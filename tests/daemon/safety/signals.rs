//! Two signals within milliseconds, as GNU `timeout` and a Ctrl-C in a pipeline send them, are one wish to
//! stop; the tests of each command show what a second one does that comes later.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::Site;
use crate::common::wait::{pause, wait_until};

/// A job or run that says that it is on, and that it was asked to end, and goes on until it may end.
const SCRIPT: &str = "trap 'echo > asked' TERM; echo > begun; until [ -e go ]; do sleep .01; done; \
    echo > ended";

/// `command` gets both signals while its script runs, and lets that end, with the code.
fn is_one_stop(site: &Site, mut command: Command, code: i32) {
    command.args(["--", "sh", "-c", SCRIPT]);
    let mut process = site.spawn(command);
    wait_until("its command runs", || site.path("begun").exists());
    process.signal(Signal::INT);
    pause(Duration::from_millis(5));
    process.signal(Signal::TERM);
    let is_stopping = || process.log().contains("Stopping") || site.path("asked").exists();
    wait_until("it is stopping", is_stopping);
    pause(Duration::from_millis(200));
    assert!(process.is_running(), "{}", process.log());
    fs::write(site.path("go"), "").unwrap();
    assert_eq!(process.exit().code(), Some(code), "{}", process.log());
    assert!(site.path("ended").exists(), "{}", process.log());
}

/// A worker finishes its job and reports it.
#[test]
fn work() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", "key value\n");
    let mut command = site.program();
    command.args(["work", "-t"]).arg(site.socket());
    is_one_stop(&site, command, 0);
    assert_eq!(site.sql("SELECT exit_code FROM log"), ["0"]);
}

/// A daemon answers, commits and closes.
#[test]
fn serve() {
    for _ in 0..5 {
        let (_site, mut daemon) = Site::running(&[]);
        daemon.signal(Signal::INT);
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.exit().code(), Some(0), "{}", daemon.log());
        assert!(daemon.log().contains("Stopped."), "{}", daemon.log());
    }
}

/// A fetch has its command end, within its grace.
#[test]
fn fetch() {
    let site = Site::new();
    let mut command = site.program();
    command.args(["fetch", "--grace", "1h", "input", "f"]);
    is_one_stop(&site, command, 130);
}

/// So does an on-change.
#[test]
fn on_change() {
    let site = Site::new();
    fs::create_dir(site.path("run")).unwrap();
    let mut command = site.program();
    command.env("XDG_RUNTIME_DIR", site.path("run"));
    command.args(["on-change", "--grace", "1h", "input"]);
    is_one_stop(&site, command, 130);
}
