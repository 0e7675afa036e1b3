//! The log on standard error: one event a line, in the three formats.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use crate::common::terminal::terminal;
use crate::common::{Site, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A file name that would forge a line, and one that would steer a terminal.
const NAMES: [&str; 2] = ["a\nERROR forged.x.txt", "b\u{1b}[2J.x.txt"];

/// A daemon that goes with a test that fails.
struct Running(Child);

impl Running {
    /// SIGTERM; the exit code.
    fn stop(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the daemon logs with `options` from its start to its clean stop. Standard error is the
/// file `log`, and `adapt` sees the command before it runs.
fn log(site: &Site, options: &[&str], adapt: impl FnOnce(&mut Command, &fs::File)) -> Vec<String> {
    for name in NAMES {
        site.write(name, "");
    }
    site.write("c\u{1b}[31m.1.txt", "alpha 0 1\n");
    let path = site.path("log");
    let file = fs::File::create(&path).unwrap();
    let mut command = site.serve(options);
    command.env_remove("JOURNAL_STREAM").env_remove("SHIFTBOSS_LOG");
    adapt(&mut command, &file);
    let mut daemon = Running(command.stdout(Stdio::null()).stderr(file).spawn().unwrap());
    let text = || fs::read_to_string(&path).unwrap();
    let told = ["forged", "b\\", "Ready", "run is complete"];
    wait_until("all is logged", || told.iter().all(|word| text().contains(word)));
    assert_eq!(daemon.stop(), Some(0), "{}", text());
    assert!(!text().contains('\u{1b}'), "{:?}", text());
    text().lines().map(str::to_owned).collect()
}

/// Text begins each line with the time and the level.
#[test]
fn text() {
    for line in log(&Site::new(), &[], |_, _| {}) {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
        assert!(["INFO ", "WARN "].iter().any(|l| rest.trim_start().starts_with(l)), "{line}");
    }
}

/// For the journal a line begins with its priority, has no time, and is chosen where standard error
/// is the journal's, and only there.
#[test]
fn journal() {
    let stream = |command: &mut Command, file: &fs::File, more: u64| {
        let found = file.metadata().unwrap();
        command.env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino() + more));
    };
    let asked = log(&Site::new(), &["--log-format", "journal"], |_, _| {});
    let found = log(&Site::new(), &[], |command, file| stream(command, file, 0));
    for line in asked.iter().chain(&found) {
        assert!(line.starts_with("<6>") || line.starts_with("<4>"), "{line}");
        assert!(!line.contains("x1b[0m") && !line.contains("x1b[3m"), "{line}");
    }
    assert!(found.iter().any(|line| line.starts_with("<6>Starting. database=/")), "{found:?}");
    let other = log(&Site::new(), &[], |command, file| stream(command, file, 1));
    assert!(other[0].starts_with("20"), "{}", other[0]);
}

/// JSON is one object a line, with time, level and the message among its fields.
#[test]
fn json() {
    for line in log(&Site::new(), &["--log-format", "json"], |_, _| {}) {
        let event: Value = serde_json::from_str(&line).unwrap();
        assert!(event["timestamp"].is_string() && event["level"].is_string(), "{line}");
        assert!(event["fields"]["message"].is_string(), "{line}");
    }
}

/// Colours: on a terminal, unless the environment says otherwise; elsewhere only if it says so.
#[test]
fn colours() {
    for (on_terminal, variables, coloured) in [
        (true, &[("TERM", "xterm")][..], true),
        (true, &[("TERM", "xterm"), ("NO_COLOR", "1")], false),
        (true, &[("TERM", "dumb")], false),
        (true, &[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")], true),
        (false, &[("TERM", "xterm")], false),
        (false, &[("CLICOLOR_FORCE", "1")], true),
        (false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
    ] {
        let site = Site::new();
        let (given, mut shown) = terminal();
        let mut command = site.serve(&[]);
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "CI"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        let file = fs::File::create(site.path("log")).unwrap();
        let stderr = if on_terminal { given } else { file };
        let mut daemon = Running(command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap());
        drop(command);
        wait_until("it listens", || std::os::unix::net::UnixStream::connect(site.socket()).is_ok());
        assert_eq!(daemon.stop(), Some(0));
        let mut log = fs::read(site.path("log")).unwrap();
        if on_terminal {
            // One that nobody holds any more ends with an error, after all that was written.
            let _ = shown.read_to_end(&mut log);
        }
        let log = String::from_utf8(log).unwrap();
        assert!(log.contains("Starting"), "{log}");
        assert_eq!(log.contains("\u{1b}["), coloured, "{on_terminal} {variables:?} {log}");
    }
}

/// A daemon whose log cannot be written serves on.
#[test]
fn a_log_that_nobody_reads() {
    let site = Site::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut daemon = Running(site.serve(&[]).stderr(writer).spawn().unwrap());
    site.write("f.1.txt", "alpha 0 1\n");
    wait_until("it listens", || std::os::unix::net::UnixStream::connect(site.socket()).is_ok());
    site.write("g..txt", "");
    wait_until("it serves", || site.ask("READY") == "JOB alpha 0 1\n");
    assert_eq!(daemon.stop(), Some(0));
}

/// A worker that goes wrong as fast as it can connect does not fill the log.
#[test]
fn complaints_are_limited() {
    let (site, daemon) = Site::running(&[]);
    for _ in 0..250 {
        assert_eq!(site.ask("ready"), "");
    }
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    // A hundred a minute; a slow run may reach into a second minute.
    assert!((100..=200).contains(&daemon.warnings(&["faulty request"]).len()));
}
