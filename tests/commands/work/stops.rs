//! Signals: the first one lets jobs finish, the second one gives them back.

use std::time::Duration;

use rustix::process::Signal;

use super::{ATTEMPTS, GATE, lines, run, start, touch, wait_gone, wait_lines, with_jobs};
use crate::common::wait::pause_before_second_signal;
use crate::common::{Client, attempt_of, wait_until};

/// The first signal takes no more and finishes what runs, keeping it meanwhile.
#[test]
fn the_first_signal_finishes() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (site, _daemon) = with_jobs(5, &[]);
        let script = format!("echo >> ran; {GATE}; exit 4");
        let mut worker = start(&site, &["-n", "2", "--lease", "1s"], &script);
        wait_lines(&site, "ran", 2);
        worker.signal(signal);
        wait_until("it says so", || worker.log().contains("Stopping"));
        if signal == Signal::TERM {
            // Another one takes the rest, and waits for longer than a lease.
            let mut other = Client::leased(&site, 60);
            let rest = [(); 3].map(|()| attempt_of(&other.ask("READY")));
            assert_eq!(other.ask("READY 2"), "NOJOBS busy 5\n");
            for attempt in rest {
                assert_eq!(other.ask(&format!("RELEASE {attempt}")), "OK\n");
            }
        }
        touch(&site, "go");
        assert_eq!(worker.exit().code(), Some(0), "{}", worker.log());
        let mut ended = site.sql(ATTEMPTS);
        ended.retain(|line| !line.ends_with("|released"));
        assert_eq!(ended.len(), 2, "{ended:?}");
        assert!(ended.iter().all(|line| line.ends_with("|4")), "{ended:?}");
        assert_eq!(lines(&site, "ran").len(), 2);
    }
}

/// The second signal kills what runs, and its jobs are the next again.
#[test]
fn the_second_signal_gives_back() {
    let (site, _daemon) = with_jobs(20, &[]);
    let script =
        "trap '' TERM; echo $SHIFTBOSS_KEY >> ran; echo $$ >> pids; sleep 1000; sleep 1000";
    let mut worker = start(&site, &["-n", "3"], script);
    wait_lines(&site, "pids", 3);
    worker.signal(Signal::TERM);
    wait_until("it says so", || worker.log().contains("Stopping"));
    worker.signal(Signal::TERM);
    pause_before_second_signal();
    assert!(worker.is_running());
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit_within(Duration::from_secs(5)).code(), Some(143), "{}", worker.log());
    assert!(worker.log().contains("succeeded=0 failed=0 given_back=3"), "{}", worker.log());
    wait_gone(&site, "pids");
    let ended = site.sql(ATTEMPTS);
    assert_eq!(ended.len(), 3);
    assert!(ended.iter().all(|line| line.ends_with("|released")), "{ended:?}");
    let first = lines(&site, "ran");
    assert_eq!(run(&site, &["--max-jobs", "3"], "echo $SHIFTBOSS_KEY >> again").0, Some(0));
    assert_eq!(lines(&site, "again"), first);
}

/// Without a daemon a second signal ends it soon all the same.
#[test]
fn stopped_without_a_daemon() {
    let (site, daemon) = with_jobs(2, &[]);
    let script = "echo $$ >> pids; exec sleep 1000";
    let mut worker = start(&site, &["-n", "2"], script);
    wait_lines(&site, "pids", 2);
    daemon.kill();
    worker.signal(Signal::TERM);
    wait_until("it says so", || worker.log().contains("Stopping"));
    pause_before_second_signal();
    worker.signal(Signal::INT);
    assert_eq!(worker.exit_within(Duration::from_secs(12)).code(), Some(130), "{}", worker.log());
    wait_gone(&site, "pids");
    assert_eq!(worker.warnings(&["could not be given back", "k0"]).len(), 1);
}

/// An end that a frozen daemon was not told is named, also after a second signal.
#[test]
fn an_end_that_was_not_reported_is_named() {
    let (site, daemon) = with_jobs(1, &[]);
    let mut worker = start(&site, &[], &format!("echo $$ >> pids; {GATE}; exit 4"));
    wait_lines(&site, "pids", 1);
    daemon.freeze();
    touch(&site, "go");
    wait_gone(&site, "pids");
    worker.signal(Signal::TERM);
    wait_until("it says so", || worker.log().contains("Stopping"));
    pause_before_second_signal();
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit_within(Duration::from_secs(25)).code(), Some(143), "{}", worker.log());
    let log = worker.log();
    let named = |line: &str| line.contains("could not be reported") && line.contains("k0");
    assert!(log.lines().any(named), "{log}");
}
