//! `shiftboss work` as a user runs it: real daemons, real commands, real kills.

mod answers;
mod cancelled;
mod children;
mod classic;
mod ends;
mod failures;
mod fetchers;
mod jobs;
mod kills;
mod logs;
mod outages;
mod stops;

use std::fs;
use std::process::Command;

use crate::common::left::{lines, wait_gone, wait_lines};
use crate::common::{Daemon, Site};

/// How every attempt ended: key, and its exit code, or how else.
const ATTEMPTS: &str = "SELECT attr_path, coalesce(CAST(exit_code AS TEXT), outcome) FROM ended \
    ORDER BY attempt";

/// Waits until `go` is there.
const GATE: &str = "until [ -e go ]; do sleep .01; done";

/// `work OPTIONS SOCKET -- COMMAND`.
fn work(site: &Site, options: &[&str], command: &[&str]) -> Command {
    let mut work = site.program();
    work.arg("work").args(options).arg("-t").arg(site.socket()).arg("--").args(command);
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

fn touch(site: &Site, name: &str) {
    fs::write(site.path(name), "").unwrap();
}

/// A list of `count` jobs, `k0 p` and so on.
fn jobs(count: usize) -> String {
    (0..count).map(|number| format!("k{number} p\n")).collect()
}

/// A daemon that has read them.
fn with_jobs(count: usize, options: &[&str]) -> (Site, Daemon) {
    Site::serving(&jobs(count), options)
}
