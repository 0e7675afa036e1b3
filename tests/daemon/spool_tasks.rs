//! Tasks from a spool: `shiftspool run ... -- shiftboss add`, with the built program of the other crate.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::random::Random;
use crate::common::wait::pause;
use crate::common::{Site, wait_until};

/// The program beside ours, which is another package's: cargo builds it for the tests of that one alone.
fn shiftspool() -> PathBuf {
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_shiftboss"));
    let theirs = ours.with_file_name("shiftspool");
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut newer = Command::new("find");
    newer.args(["spool", "runner", "console", "-name", "*.rs", "-newer"]).arg(&theirs);
    let mut is_new = || newer.current_dir(home).output().unwrap().stdout.is_empty();
    if theirs.exists() && is_new() {
        return theirs;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--locked", "--package", "shiftspool"]);
    if ours.parent().is_some_and(|directory| directory.ends_with("release")) {
        cargo.arg("--release");
    }
    assert!(cargo.current_dir(home).status().unwrap().success());
    theirs
}

/// Kills of `shiftspool run`, of `add` with it, and of the daemon, at any moment: each task is added, and once.
#[test]
fn each_entry_is_added_once_whatever_dies() {
    const ENTRIES: i64 = 60;
    let (site, program, mut random) = (Site::new(), shiftspool(), Random::seeded());
    let spool = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
        command.current_dir(site.path(""));
        command
    };
    assert!(spool(&["init", "spool", "tasks"]).status().unwrap().success());
    for entry in 0..ENTRIES {
        let meta = format!("key{entry} {entry}");
        let put = spool(&["put", "spool", "tasks", "--meta", &meta]).stdout(Stdio::null()).status();
        assert!(put.unwrap().success());
    }
    let run = |once: &[&str]| {
        let words =
            ["run", "spool", "tasks", "-n", "2", "--attempts", "1000", "--defer", "69,74,75,77,78"];
        let mut command = spool(&[&words[..], once, &["--"]].concat());
        command.arg(env!("CARGO_BIN_EXE_shiftboss")).args(["add", "--id", "{id}", "--lines"]);
        command
            .args(["--file", "{meta_file}", "-t", "socket"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    for round in 0..8 {
        let daemon = site.start();
        let mut adding = run(&[]);
        // What is done at once is known by its ID alone.
        let mut work = site.program();
        work.args(["work", "--lease", "1s", "-t", "socket", "--", "true"]).stderr(Stdio::null());
        let mut worker = work.spawn().unwrap();
        pause(Duration::from_millis(random.below(400)));
        if round % 2 == 0 {
            daemon.kill();
            adding.kill().unwrap();
        } else {
            adding.kill().unwrap();
            daemon.kill();
        }
        worker.kill().unwrap();
        [adding, worker].iter_mut().for_each(|child| _ = child.wait().unwrap());
    }
    let _daemon = site.start();
    let mut adding = run(&[]);
    let is_empty = || {
        let list = spool(&["list", "--json", "spool"]).output().unwrap();
        let text = String::from_utf8(list.stdout).unwrap();
        text.contains("\"available\":0,\"checked_out\":0") && !text.contains("dead-letter")
    };
    wait_until("all are added", is_empty);
    adding.kill().unwrap();
    adding.wait().unwrap();
    let added = format!("{ENTRIES}|{ENTRIES}");
    assert_eq!(site.sql("SELECT count(*), max(number) FROM tasks"), [added]);
}

/// The example does what it says.
#[test]
fn the_example_runs() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/spool-tasks/run.sh");
    let mut example = Command::new("sh");
    example.arg(script).env("SHIFTBOSS", env!("CARGO_BIN_EXE_shiftboss"));
    let output = example.env("SHIFTSPOOL", shiftspool()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut lines: Vec<_> = output.stdout.split(|byte| *byte == b'\n').collect();
    lines.sort();
    assert_eq!(lines, [&b""[..], b"alpha: 1", b"bravo: 2"], "{said}");
}
