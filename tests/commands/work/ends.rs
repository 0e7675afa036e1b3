//! How commands end, and those that do not even start.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};

use super::{ATTEMPTS, jobs, lines, run, start, wait_gone, wait_lines, with_jobs, work};
use crate::common::terminal::terminal;
use crate::common::{Site, wait_until};

/// Exit codes, signals and time limits are reported as a shell and `timeout` would.
#[test]
fn ends_are_reported() {
    let cases: [(&[&str], &str, &str); 5] = [
        (&[], "exit 3", "3"),
        (&[], "kill -KILL $$", "137"),
        (&[], "kill -TERM $$", "143"),
        (&["--timeout", "100ms"], "exec sleep 1000", "124"),
        // It ignores TERM, and a child of its own would outlive it.
        (
            &["--timeout", "100ms", "--grace", "100ms"],
            "trap '' TERM; sleep 1000 & echo $! >> pids; echo $$ >> pids; sleep 1000",
            "124",
        ),
    ];
    for (options, script, code) in cases {
        let (site, _daemon) = with_jobs(1, &[]);
        let options = [&["--once"], options].concat();
        let (exit, _, log) = run(&site, &options, script);
        assert_eq!(exit, Some(0), "{log}");
        assert_eq!(site.sql(ATTEMPTS), [format!("k0|{code}")], "{script}");
        if script.contains("pids") {
            wait_gone(&site, "pids");
        }
    }
}

/// A typing error in the command costs no job.
#[test]
fn a_typing_error_costs_no_job() {
    let (site, _daemon) = with_jobs(5, &[]);
    for program in ["/nowhere/program", "no-such-program", "/etc/passwd"] {
        let output = work(&site, &["-n", "3"], &[program]).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{told}");
        assert!(told.contains(&format!("cannot run {program}")), "{told}");
        assert!(told.contains("no job was taken") && told.lines().count() == 1, "{told}");
    }
    let told = work(&site, &[], &["echo {key}"]).output().unwrap().stderr;
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains("write the command without quotes around it"), "{told}");
    assert_eq!(site.number("SELECT count(*) FROM log"), 0);
}

/// What keeps a worker's program from being started, and what ends that.
type Obstacle = (&'static str, fn(&Path) -> Option<File>, fn(&Path));

fn make_program(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "#!/bin/sh\necho >> \"$RAN\"\n").unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A program that is gone, may not be executed, or is being written costs no job: they are given back, it is said why, and
/// done when it can be run again.
#[test]
fn a_program_that_vanishes_burns_no_jobs() {
    let obstacles: [Obstacle; 3] = [
        ("no such program", |path| fs::remove_file(path).map(|()| None).unwrap(), make_program),
        (
            "Permission denied",
            |path| {
                fs::set_permissions(path, PermissionsExt::from_mode(0o600)).map(|()| None).unwrap()
            },
            make_program,
        ),
        // It is open until this is over.
        ("Text file busy", |path| Some(File::options().append(true).open(path).unwrap()), |_| {}),
    ];
    for (why, hinder, mend) in obstacles {
        let (site, _daemon) = Site::running(&[]);
        let program = site.path("program");
        make_program(&program);
        site.append("f.1.txt.part", "first p\n");
        let mut work = work(&site, &["-n", "3"], &[program.to_str().unwrap()]);
        work.env("RAN", site.path("ran"));
        let worker = site.spawn(work);
        wait_lines(&site, "ran", 1);
        let open = hinder(&program);
        let lines: String = (0..20).map(|number| format!("k{number} p\n")).collect();
        site.append("f.1.txt.part", lines);
        wait_until("it waits longer and longer", || worker.log().contains("pause=2s"));
        drop(open);
        mend(&program);
        wait_lines(&site, "ran", 21);
        let log = worker.stop();
        assert!(log.contains("A job could not be started") && log.contains(why), "{log}");
        assert!(log.matches("WARN").count() <= 12, "{log}");
        let ended = site.sql(ATTEMPTS);
        assert!(ended.iter().any(|line| line.ends_with("|released")), "{ended:?}");
        let is_well = |line: &String| line.ends_with("|released") || line.ends_with("|0");
        assert!(ended.iter().all(is_well), "{ended:?}");
    }
}

/// A worker whose directory was removed gives its jobs back and says so; with `--once` it ends.
#[test]
fn a_directory_that_is_removed_burns_no_jobs() {
    let (site, _daemon) = with_jobs(3, &[]);
    fs::create_dir(site.path("app")).unwrap();
    let script = "echo >> ../ran; rmdir ../app";
    let mut worker = work(&site, &["--once"], &["sh", "-c", script]);
    let output = worker.current_dir(site.path("app")).output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(73), "{log}");
    assert!(log.contains("the directory in which this program was started was removed"), "{log}");
    let ended = "SELECT count(*) FROM ended WHERE outcome <> 'released'";
    assert_eq!(site.number(ended), 1);
    assert_eq!(lines(&site, "ran").len(), 1);
}

/// A command that asks on the terminal of its worker fails: it has none.
#[test]
fn a_command_has_no_terminal() {
    let (site, _daemon) = with_jobs(1, &[]);
    let (given, shown) = terminal();
    let mut worker = Command::new("setsid");
    worker
        .args(["--ctty", env!("CARGO_BIN_EXE_shiftboss"), "work", "--once", "-t"])
        .arg(site.socket());
    worker.args(["--", "sh", "-c", "read x < /dev/tty || exit 3"]).current_dir(site.path(""));
    worker.stdin(given.try_clone().unwrap()).stdout(given.try_clone().unwrap()).stderr(given);
    let mut worker = worker.spawn().unwrap();
    site.wait_sql(ATTEMPTS, &["k0|3"]);
    // It has a terminal until it has ended.
    assert!(worker.wait().unwrap().success());
    drop(shown);
}

/// A payload that is too long for the environment is left out of it, and the command runs.
#[test]
fn a_payload_that_is_too_long_for_the_environment() {
    let (site, _daemon) = Site::running(&[]);
    let long = "x".repeat(130 * 1_024);
    site.write("f.1.txt", format!("long {long}\nshort p\n"));
    let (code, out, log) = run(&site, &["--once"], "echo $SHIFTBOSS_KEY ${SHIFTBOSS_PAYLOAD-none}");
    assert_eq!(code, Some(0), "{log}");
    assert!(out.contains("long none\n") && out.contains("short p\n"), "{out} {log}");
    assert_eq!(site.sql("SELECT DISTINCT exit_code FROM log"), ["0"]);
}

/// A payload that no command can be given costs its own job, and not the others.
#[test]
fn a_payload_that_is_too_long() {
    let (site, _daemon) = Site::running(&[]);
    let long = "x".repeat(1_000_000);
    let lines: String =
        (0..5).map(|number| format!("long{number} {long}\nk{number} p\n")).collect();
    site.write("f.1.txt", lines);
    site.wait_count(10);
    let begun = Instant::now();
    let worker = work(&site, &["--once"], &["true", "{payload}"]).output().unwrap();
    let log = String::from_utf8(worker.stderr).unwrap();
    assert_eq!(worker.status.code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "there is no pause");
    assert!(!log.contains("is it a program"), "{}", &log[..log.len().min(2_000)]);
    let ended = "SELECT exit_code, count(*) FROM ended WHERE exit_code IS NOT NULL \
        GROUP BY exit_code";
    assert_eq!(site.sql(ended), ["0|5", "126|5"]);
    assert!(log.contains("{payload_file} or --stdin"), "{}", &log[..log.len().min(2_000)]);
    assert!(log.contains("128 KiB") && log.contains("long3"), "{}", &log[..log.len().min(2_000)]);
    assert!(log.len() < 10_000);
}

/// Any payload can be had from a private file, which goes with the job, or from standard input.
#[test]
fn a_long_payload_is_read_from_a_file() {
    let (site, _daemon) = Site::running(&[]);
    let long = "x".repeat(1_000_000);
    std::fs::create_dir(site.path("tmp")).unwrap();
    let script = "printf '%s ' $SHIFTBOSS_KEY ${SHIFTBOSS_PAYLOAD-none}; wc -c \"$@\"; ls tmp; \
        [ -z \"$1\" ] || stat -c %a \"$1\"; exit 3";
    let cases: [(&[&str], &[&str], &str); 2] =
        [(&["--once"], &["{payload_file}"], "600"), (&["--once", "--stdin"], &[], "a: a p 1")];
    for (number, (options, places, expected)) in cases.into_iter().enumerate() {
        site.write(format!("f.{number}.txt"), format!("long {long}\na p\n"));
        let mut work = work(&site, options, &[&["sh", "-c", script, "sh"], places].concat());
        let output = work.env("TMPDIR", site.path("tmp")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("long: long none 1000000"), "{text}");
        assert!(text.contains("a: a p 1") && text.contains(expected), "{text}");
        assert_eq!(text.contains("shiftboss-payload-"), number == 0, "{text}");
        assert_eq!(fs::read_dir(site.path("tmp")).unwrap().count(), 0, "nothing is left");
        let ended = "SELECT count(*) FROM ended WHERE exit_code = 3";
        assert_eq!(site.number(ended), 2 * (number as i64 + 1));
    }
}

/// A worker that is killed leaves its payload's file, and the next one removes it; that of one that lives stays.
#[test]
fn a_killed_worker_s_payload_is_removed() {
    let (site, _daemon) = Site::running(&[]);
    fs::create_dir(site.path("tmp")).unwrap();
    site.write("f.1.txt", jobs(3));
    // Of each job its payload, and what its command asks in.
    let there = || fs::read_dir(site.path("tmp")).unwrap().count();
    let work = |options: &[&str], script| {
        let mut work = work(&site, options, &["sh", "-c", script, "sh", "{payload_file}"]);
        work.env("TMPDIR", site.path("tmp"));
        site.spawn(work)
    };
    let lives = work(&["--max-jobs", "1"], super::GATE);
    wait_until("it runs", || there() == 2);
    let killed = work(&["--lease", "1s"], "sleep 1000");
    wait_until("it runs", || there() == 4);
    killed.kill();
    assert_eq!(there(), 4);
    let mut next = work(&["--max-jobs", "1"], "ls tmp >> seen");
    assert_eq!(next.exit().code(), Some(0), "{}", next.log());
    assert_eq!(lines(&site, "seen").len(), 4, "its own, and that of the one that lives");
    fs::write(site.path("go"), "").unwrap();
    lives.stop();
    assert_eq!(there(), 0);
}

/// Where the system has no room for a process the job is given back, and nothing is reported.
#[test]
fn no_room_for_a_process() {
    let (site, _daemon) = with_jobs(1, &[]);
    let worker = start(&site, &[], "true");
    site.wait_sql("SELECT count(*) FROM log WHERE exit_code = 0", &["1"]);
    // From now on it gets no descriptor any more, not even for a pipe.
    let none = Rlimit { current: Some(3), maximum: Some(3) };
    rustix::process::prlimit(Some(worker.pid()), Resource::Nofile, none).unwrap();
    site.write("later.1.txt", "x 1\ny 1\nz 1\n");
    crate::common::wait_until("a job was given back", || {
        site.sql(ATTEMPTS).iter().any(|line| line.ends_with("|released"))
    });
    let log = worker.stop();
    assert!(log.contains("A job could not be started"), "{log}");
    let ended = "SELECT count(*) FROM ended WHERE outcome <> 'released'";
    assert_eq!(site.number(ended), 1);
    assert_eq!(run(&site, &["--once"], "echo >> ran").0, Some(0));
    assert_eq!(lines(&site, "ran").len(), 3);
}
