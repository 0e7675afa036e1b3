//! `shiftboss work` as a user runs it: real daemons, real commands, real kills.
#![allow(clippy::unwrap_used)]

mod answers;
mod children;
mod classic;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod jobs;
mod kills;
mod logs;
mod outages;
mod stops;

use std::fs;
use std::process::Command;

use common::{Daemon, Site, wait_until};

/// How every attempt ended: key, outcome, exit code.
const ATTEMPTS: &str =
    "SELECT attr_path, outcome, exit_code FROM shiftboss_attempts ORDER BY attempt";

/// Waits until `go` is there.
const GATE: &str = "until [ -e go ]; do sleep .01; done";

/// `work OPTIONS SOCKET -- COMMAND`.
fn work(site: &Site, options: &[&str], command: &[&str]) -> Command {
    let mut work = site.program();
    work.arg("work").args(options).arg(site.socket()).arg("--").args(command);
    work
}

/// As [`work`], of a shell's script.
fn work_script(site: &Site, options: &[&str], script: &str) -> Command {
    work(site, options, &["sh", "-c", script])
}

/// Runs a worker's script to its end: exit code, standard output and log.
fn run(site: &Site, options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let output = work_script(site, options, script).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Starts a worker's script; what it prints is dropped.
fn start(site: &Site, options: &[&str], script: &str) -> Daemon {
    site.spawn(work_script(site, options, script))
}

/// Lines of a file in the site's directory, sorted; none if it is not there.
fn lines(site: &Site, name: &str) -> Vec<String> {
    let text = fs::read_to_string(site.path(name)).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn wait_lines(site: &Site, name: &str, count: usize) {
    wait_until(&format!("{name} has {count} lines"), || lines(site, name).len() >= count);
}

fn touch(site: &Site, name: &str) {
    fs::write(site.path(name), "").unwrap();
}

/// A list of `count` jobs, `k0 p` and so on.
fn write_jobs(site: &Site, count: usize) {
    let lines: String = (0..count).map(|number| format!("k{number} p\n")).collect();
    site.write("f.1.txt", lines);
}

/// Whether a process runs; one that has ended and was not reaped does not.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// Waits until none of the processes runs whose ids are in a file.
fn wait_gone(site: &Site, name: &str) {
    let pids = lines(site, name);
    assert!(!pids.is_empty());
    wait_until("the commands are gone", || !pids.iter().any(|pid| is_running(pid)));
}
