//! Daemons that go and come back, and jobs that were given to others meanwhile.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{ATTEMPTS, GATE, lines, run, start, touch, wait_gone, wait_lines, with_jobs};
use crate::common::{Daemon, Site, wait_equal, wait_until};

/// A job that ends while the daemon is away is reported when it is back, after a clean stop as after a
/// kill.
#[test]
fn what_ended_meanwhile_is_reported() {
    for is_clean in [true, false] {
        let (site, daemon) = with_jobs(4, &[]);
        let script = format!("echo >> ran; {GATE}; echo >> ended; exit 5");
        let worker = start(&site, &["-n", "4", "--lease", "2s"], &script);
        wait_lines(&site, "ran", 4);
        if is_clean {
            daemon.stop();
        } else {
            daemon.kill();
        }
        touch(&site, "go");
        wait_lines(&site, "ended", 4);
        wait_until("it is told", || worker.log().contains("The daemon does not answer"));
        let _daemon = site.start();
        wait_equal("all are reported", &4, || site.sql(ATTEMPTS).len());
        assert!(site.sql(ATTEMPTS).iter().all(|line| line.ends_with("|5")));
        assert_eq!(lines(&site, "ran").len(), 4, "none ran twice");
        let log = worker.stop();
        assert_eq!(log.matches("The daemon does not answer").count(), 1, "told once: {log}");
        assert!(log.contains("The daemon answers again"), "{log}");
    }
}

/// A job that runs on over a restart is kept, and reported under its attempt.
#[test]
fn what_runs_over_a_restart_is_kept() {
    let (site, daemon) = with_jobs(1, &[]);
    let script = format!("echo >> ran; {GATE}");
    let worker = start(&site, &["--lease", "1s"], &script);
    wait_lines(&site, "ran", 1);
    daemon.stop();
    let _daemon = site.start();
    wait_until("it is heard again", || worker.log().contains("answers again"));
    crate::common::wait::pause(Duration::from_secs(2));
    touch(&site, "go");
    wait_equal("it is reported", &vec!["k0|0".to_owned()], || site.sql(ATTEMPTS));
    worker.stop();
}

/// Freezes a worker until its job is somebody else's.
fn lose_job(site: &Site, worker: &Daemon, meanwhile: impl FnOnce()) {
    worker.freeze();
    meanwhile();
    wait_equal("its job is given to another", &"JOB k0 p\n".to_owned(), || site.ask("READY"));
    worker.thaw();
}

/// A job that was given to somebody else is killed here, and not reported.
#[test]
fn a_lost_job_is_killed() {
    let (site, _daemon) = with_jobs(1, &[]);
    let worker = start(&site, &["--lease", "1s"], "echo $$ >> pids; sleep 1000; sleep 1000");
    wait_lines(&site, "pids", 1);
    lose_job(&site, &worker, || {});
    wait_gone(&site, "pids");
    wait_until("it is told", || !worker.warnings(&["A running job was lost", "k0"]).is_empty());
    assert_eq!(site.ask("DONE k0 0"), "NOJOBS\n");
    worker.stop();
    assert_eq!(site.sql(ATTEMPTS), ["k0|expired", "k0|0"]);
}

/// A result that comes too late is told with key and attempt, and dropped.
#[test]
fn a_late_result_is_dropped() {
    let (site, _daemon) = with_jobs(1, &[]);
    let script = format!("echo >> ran; {GATE}; echo >> ended");
    let worker = start(&site, &["--lease", "1s"], &script);
    wait_lines(&site, "ran", 1);
    lose_job(&site, &worker, || {
        touch(&site, "go");
        wait_lines(&site, "ended", 1);
    });
    wait_until("it is told", || !worker.warnings(&["came too late", "k0", "attempt=1"]).is_empty());
    assert_eq!(site.ask("DONE k0 7"), "NOJOBS\n");
    worker.stop();
    assert_eq!(site.sql("SELECT exit_code FROM log"), ["7"]);
}

/// Without a daemon `--once` ends with 69, after 30 s and not before.
#[test]
fn nobody_answers() {
    let site = Site::new();
    let begun = Instant::now();
    let (code, _, log) = run(&site, &["--once", "-n", "2"], "true");
    assert_eq!(code, Some(69), "{log}");
    let took = begun.elapsed();
    assert!((Duration::from_secs(29)..Duration::from_secs(45)).contains(&took), "{took:?}");
    assert!(log.contains("no daemon answered on") && log.contains("socket"), "{log}");
}

/// An idle worker survives restart after restart.
#[test]
fn restarts_of_an_idle_daemon() {
    let site = Site::new();
    let start_daemon = || site.start_with(&["--log-level", "debug"]);
    let mut daemon = start_daemon();
    let worker = start(&site, &["-n", "3"], "echo \"$SHIFTBOSS_ATTEMPT\" >> ran");
    for round in 1..=4 {
        // Two HELLOs in a row that restarts closed would look like a classic daemon.
        let greeted = || daemon.log().matches("speaks protocol 2").count();
        wait_until("all slots have said HELLO", || greeted() >= 3);
        if round % 2 == 0 {
            daemon.signal(Signal::KILL);
            daemon.exit();
        } else {
            daemon.stop();
        }
        daemon = start_daemon();
        site.append("f.1.txt.part", format!("k{round} p\n"));
        wait_lines(&site, "ran", round);
    }
    assert!(!worker.stop().contains("classic"));
    assert!(!lines(&site, "ran").contains(&String::new()));
}
