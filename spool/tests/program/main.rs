//! `shiftspool` as a user runs it: every verb, by the binary and its files.
#![allow(clippy::unwrap_used)]

mod common;
mod full;
mod health;
mod kills;
mod logs;
mod put;
mod rights;
mod run;
mod take;
mod verbs;

use std::io::Write;
use std::process::{Child, Command, Stdio};

use common::Site;
use common::left::{lines, wait_gone, wait_lines};
use rustix::process::{Pid, Signal, kill_process};

/// Waits until `go` is there.
const GATE: &str = "until [ -e go ]; do sleep .01; done";

/// `shiftspool WORDS`, in the site's directory.
fn command(site: &Site, words: &[&str]) -> Command {
    let mut command = site.program();
    // Crashes of the system are not tested here.
    command.args(["--durability", "none"]).args(words);
    command
}

/// Runs to the end with this on standard input: exit code, standard output, standard error.
fn feed(site: &Site, words: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut command = command(site, words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that does not read its input may be gone before it gets it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn spool(site: &Site, words: &[&str]) -> (i32, String, String) {
    feed(site, words, b"")
}

/// Runs to success; returns what it printed.
fn done(site: &Site, words: &[&str]) -> String {
    let (code, stdout, stderr) = spool(site, words);
    assert_eq!((code, &*stderr), (0, ""), "{words:?}");
    stdout
}

/// Runs to a refusal with this code: nothing is printed, and this is said.
fn refused(site: &Site, words: &[&str], code: i32, said: &str) {
    let (found, stdout, stderr) = spool(site, words);
    assert_eq!((found, &*stdout), (code, ""), "{words:?}: {stderr}");
    assert!(stderr.contains(said), "{words:?}: {stderr}");
}

/// The JSON object that a verb prints.
fn json(site: &Site, words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&done(site, words)).unwrap()
}

/// A site with a spool `s` that has the queue `q`, and entries of these names in it.
fn with(names: &[&str]) -> Site {
    let site = Site::bare();
    done(&site, &["init", "s", "q"]);
    for name in names {
        let (code, ..) = feed(&site, &["put", "s", "q", "--name", name, "--meta", "m"], b"data");
        assert_eq!(code, 0);
    }
    site
}

fn listed(site: &Site, queue: &str) -> Vec<String> {
    done(site, &["list", "s", queue]).lines().map(str::to_owned).collect()
}

/// What is there of an entry in `q`.
fn shown(site: &Site, name: &str) -> serde_json::Value {
    json(site, &["show", "--json", "s", "q", "--", name])
}

/// An entry is in `q`, and no attempt at it counts.
fn assert_untried(site: &Site, name: &str) {
    let shown = shown(site, name);
    assert_eq!((&shown["state"], &shown["attempts"]), (&"available".into(), &0.into()));
}

/// Nothing is left in the spool but the entries of its queues, and they are whole.
fn assert_whole(site: &Site) {
    assert_eq!(done(site, &["fsck", "s"]), "Nothing is wrong.\n");
}

/// `run WORDS s q -- sh -c SCRIPT`
fn run(site: &Site, words: &[&str], script: &str) -> Command {
    let mut all = vec!["run"];
    all.extend(words);
    all.extend(["s", "q", "--", "sh", "-c", script]);
    let mut command = command(site, &all);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// As [`run`], to its end: exit code, standard output, log.
fn ran(site: &Site, words: &[&str], script: &str) -> (i32, String, String) {
    let output = run(site, words, script).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Stops a child; its exit code.
fn stop(mut child: Child) -> i32 {
    signal(&child, Signal::TERM);
    child.wait().unwrap().code().unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
