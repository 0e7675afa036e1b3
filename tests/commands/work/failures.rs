//! What a worker says of jobs that fail, and of those that it left to others.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{ATTEMPTS, GATE, jobs, run, start, touch, wait_lines, with_jobs, work, work_script};
use crate::common::{Client, Daemon, Site, wait_until};

/// Every failed job is told, with its end, its time and its output; with `--fail` the worker's exit code
/// says so, too, however it ends.
#[test]
fn failed_jobs_are_told() {
    let (site, _daemon) = Site::running(&[]);
    let script =
        "case $SHIFTBOSS_KEY in code) exit 3;; signal) kill -9 $$;; time) exec sleep 1000;; esac";
    let options = ["--once", "--timeout", "300ms", "--log-dir", "logs"];
    for (number, fail, code) in [(1, &[][..], 0), (2, &["--fail"], 1)] {
        site.write(format!("f.{number}.txt"), "code 1\nsignal 1\ntime 1\ngood 1\n");
        let (exit, _, log) = run(&site, &[&options[..], fail].concat(), script);
        assert_eq!(exit, Some(code), "{log}");
        let told = |key: &str| {
            let is_told = |line: &&str| line.contains("A job failed.") && line.contains(key);
            let mut lines = log.lines().filter(is_told);
            let line = lines.next().unwrap_or_else(|| panic!("{key}: {log}")).to_owned();
            assert_eq!(lines.next(), None);
            line
        };
        for (key, ended) in [
            ("code", "ended=\"exit code 3\" took=0."),
            ("signal", "ended=\"signal 9, exit code 137\" took=0."),
            ("time", "ended=\"its time was over, exit code 124\" took=0."),
        ] {
            let line = told(&format!("key=\"{key}\""));
            assert!(line.contains("WARN") && line.contains(ended), "{line}");
            let output = line.split_once("output=\"").unwrap().1.split('"').next().unwrap();
            assert!(output.ends_with(&format!("/{key}.log")), "{line}");
            assert!(std::fs::exists(output).unwrap(), "{line}");
        }
        assert!(!log.contains("good"), "{log}");
        assert_eq!(log.contains("not all jobs were done well: 3 failed"), code == 1, "{log}");
    }
    site.write("f.1.txt", jobs(3));
    let ends: [&[&str]; 2] = [&["--max-jobs", "1", "--fail"], &["--once"]];
    for (options, code) in ends.into_iter().zip([1, 0]) {
        let (exit, _, log) = run(&site, options, "exit 1");
        assert_eq!(exit, Some(code), "{log}");
        assert!(!log.contains("output="), "it is printed: {log}");
    }
}

/// A job that was taken away while it ran is no good end for `--fail`, either.
#[test]
fn lost_jobs_are_told() {
    let (site, _daemon) = with_jobs(1, &[]);
    let options = ["--once", "--fail", "--lease", "1s"];
    let mut worker = start(&site, &options, &format!("echo >> ran; mkdir lock && {GATE}"));
    wait_lines(&site, "ran", 1);
    assert!(site.run(&["requeue", "-t", site.socket().to_str().unwrap(), "k0"]).status.success());
    let (exit, log) = (worker.exit().code(), worker.log());
    assert_eq!(exit, Some(1), "{log}");
    assert!(log.contains("not all jobs were done well: 1 failed, 1 lost"), "{log}");
}

/// With `--once` a worker that can prepare no job says so and ends, and its job is back in its place.
#[test]
fn a_worker_that_can_prepare_no_job_ends() {
    let cases: [(&[&str], &[&str]); 2] =
        [(&["--once"], &["cat", "{payload_file}"]), (&["--once", "--stdin", "-n", "2"], &["cat"])];
    for (options, command) in cases {
        let (site, _daemon) = with_jobs(3, &[]);
        let mut worker = work(&site, options, command);
        worker.env("TMPDIR", site.path("nowhere"));
        let mut worker = site.spawn(worker);
        let (exit, log) = (worker.exit().code(), worker.log());
        assert_eq!(exit, Some(73), "{log}");
        assert!(log.contains("no job can be started: cannot write a payload to a file"), "{log}");
        assert!(site.sql(ATTEMPTS).iter().all(|line| line.ends_with("|released")), "{log}");
        assert_eq!(site.number("SELECT count(*) FROM log"), 0);
    }
}

/// As a user who may ask the daemon for jobs, and nothing else.
fn work_as_stranger(site: &Site, options: &[&str], script: &str) -> (Option<i32>, String) {
    let command: Command = site.unprivileged(work_script(site, options, script));
    let mut worker: Daemon = site.spawn(command);
    (worker.exit().code(), worker.log())
}

/// Jobs that others hold are not done when `--once` ends: it says how many, also to those whom the daemon
/// tells nothing else, and with `--fail` that is no good end.
#[test]
fn jobs_that_others_hold_are_told() {
    let (site, _daemon) = with_jobs(3, &["--socket-mode", "0666"]);
    let holds = start(&site, &["-n", "2"], &format!("echo >> ran; {GATE}"));
    wait_lines(&site, "ran", 2);
    for (fail, code) in [(&["--once"][..], 0), (&["--once", "--fail"], 1)] {
        let (exit, log) = work_as_stranger(&site, fail, "exit 0");
        assert_eq!(exit, Some(code), "{log}");
        assert!(log.contains("Other workers hold jobs that are not done yet. left=2"), "{log}");
        assert_eq!(log.contains("2 left that other workers hold"), code == 1, "{log}");
    }
    touch(&site, "go");
    wait_until("all is done", || site.number("SELECT count(*) FROM log WHERE exit_code = 0") == 3);
    let (exit, log) = work_as_stranger(&site, &["--once", "--fail"], "exit 0");
    assert!(exit == Some(0) && !log.contains("left="), "{log}");
    holds.stop();
}

/// A queue that is paused looks like one without jobs: a worker that waits says so at once, and when it is
/// over; with `--once --fail` it is no good end.
#[test]
fn a_paused_queue_is_told() {
    let (site, _daemon) = with_jobs(3, &["--socket-mode", "0666"]);
    let order = |word: &str| assert!(site.run(&[word]).status.success());
    order("pause");
    let (exit, log) = work_as_stranger(&site, &["--once", "--fail"], "exit 0");
    assert_eq!(exit, Some(1), "{log}");
    assert!(log.contains("left=3") && log.contains("the queue is paused (3 waiting)"), "{log}");
    let worker = start(&site, &["-n", "4"], "echo >> ran");
    wait_until("it says so", || worker.log().contains("The queue is paused"));
    order("resume");
    wait_lines(&site, "ran", 3);
    wait_until("it says so", || worker.log().contains("The queue is not paused any more."));
    let log = worker.stop();
    assert_eq!(log.matches("The queue is paused").count(), 1, "{log}");
    assert_eq!(log.matches("The queue is not paused any more.").count(), 1, "{log}");
}

/// With `--max-failures` so many in a row end a worker; jobs that it did not take wait.
#[test]
fn so_many_failures_end_a_worker() {
    let (site, _daemon) = with_jobs(9, &[]);
    let (exit, _, log) = run(&site, &["--max-failures", "3"], "exit 7");
    assert_eq!(exit, Some(1), "{log}");
    assert!(log.contains("3 jobs failed one after the other"), "{log}");
    assert_eq!(site.number("SELECT count(*) FROM log WHERE exit_code = 7"), 3);
    let script = "mkdir once 2> /dev/null";
    let (exit, _, log) = run(&site, &["--once", "--max-failures", "6"], script);
    assert_eq!(exit, Some(0), "the first one succeeds: {log}");
    assert_eq!(site.number("SELECT count(*) FROM log"), 9);
}

/// When all jobs fail at once, the worker goes on with one at a time until one succeeds, and says both.
#[test]
fn what_only_fails_is_slowed_down() {
    let (site, _daemon) = with_jobs(200, &[]);
    let mut worker = start(&site, &["--once", "-n", "4"], "test -e good");
    wait_until("it is careful", || worker.log().contains("all failed within a second each."));
    touch(&site, "good");
    let (exit, log) = (worker.exit().code(), worker.log());
    assert_eq!(exit, Some(0), "{log}");
    assert_eq!(log.matches("A job succeeded again").count(), 1, "{log}");
    let failed = site.number("SELECT count(*) FROM log WHERE exit_code = 1");
    // Three more may have been out, and a few were tried one by one.
    assert!((20..=30).contains(&failed), "{failed}");
    assert_eq!(site.number("SELECT count(*) FROM log WHERE exit_code = 0"), 200 - failed);
}

/// A worker whose last hundred jobs failed is told of, and so is a fetcher.
#[test]
fn what_only_fails_is_told() {
    let (site, daemon) = with_jobs(100, &[]);
    let mut worker = Client::opted_in(&site, "HELLO 2 mill 60");
    let mut end = |code: u8| {
        let job = worker.ask("READY");
        let attempt = job.split(' ').nth(1).unwrap().to_owned();
        assert_eq!(worker.ask(&format!("DONE {attempt} {code}")), "OK\n");
    };
    (0..100).for_each(|_| end(1));
    wait_until("both are told of", || {
        daemon.log().matches("The last 100 jobs failed").count() == 2
    });
    let status = |options: &[&str]| {
        let output = site.run(&[&["status", "-t", "socket"], options].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, told) = status(&[]);
    assert!(told.contains("\nWorker mill     the last 100 jobs failed: "), "{told}");
    assert!(told.contains("\nJobs of fetcher f the last 100 jobs failed: "), "{told}");
    let (code, told) = status(&["--check"]);
    assert!(code == Some(0) && told.contains("mill"), "a warning: {told}");
    site.write("f.2.txt", "k0 1\n");
    site.wait_count(101);
    end(0);
    assert!(!status(&[]).1.contains("the last "), "one succeeded");
}

/// With `--once` a worker says what it leaves because it is tried again later, or held; with `--until-done` it waits for
/// the former.
#[test]
fn what_is_tried_again_is_told_and_waited_for() {
    let site = Site::new();
    std::fs::write(site.path("rules.toml"), "[job_retry]\nretries = 1\nfirst = '2s'\n").unwrap();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    site.write("f.1.txt", jobs(4));
    site.wait_count(4);
    assert!(site.run(&["hold", "k0"]).status.success());
    let script = "mkdir tried-$SHIFTBOSS_KEY 2> /dev/null && exit 1; test $SHIFTBOSS_KEY != k2";
    let (exit, _, log) = run(&site, &["--once", "--fail"], script);
    assert_eq!(exit, Some(1), "{log}");
    let told =
        "Tasks that failed are tried again later; `--until-done` waits for them. left=3 next=";
    assert!(log.contains(told) && log.contains("3 failed, 3 left that are tried again"), "{log}");
    assert!(log.contains("Keys are held; if they have tasks"), "{log}");
    assert!(log.contains("keys=1"), "{log}");
    let begun = Instant::now();
    let (exit, _, log) = run(&site, &["--once", "--until-done", "-n", "2"], script);
    assert_eq!(exit, Some(0), "{log}");
    assert!(begun.elapsed() < Duration::from_secs(25), "it does not wait for more: {log}");
    assert!(!log.contains("tried again later") && log.contains("Keys are held"), "{log}");
    let codes = site.sql("SELECT attr_path || exit_code FROM log ORDER BY attr_path");
    assert_eq!(codes, ["k10", "k21", "k30"]);
}
