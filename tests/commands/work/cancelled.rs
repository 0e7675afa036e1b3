//! `cancel --running`: a worker stops what it runs.

use std::time::{Duration, Instant};

use super::{Daemon, start, wait_gone, wait_lines};
use crate::common::said::{json, said};
use crate::common::{Site, wait_within};

/// From the order to the end of a command that does not resist: what is promised.
const SOON: Duration = Duration::from_secs(2);
/// Another one may take its grace, and the machine be busy: still far less than a worker takes from beat to beat.
const LATER: Duration = Duration::from_secs(5);
/// How often it is measured, until the machine was not too busy.
const ROUNDS: usize = 10;
const ENDED: &str = "SELECT attr_path, outcome, exit_code FROM ended ORDER BY attempt";

fn cancel(site: &Site, keys: &[&str]) -> String {
    said(site, &[&["cancel", "--running", "-t", "socket"], keys].concat())
}

fn wait_ended(site: &Site, ended: &[&str], worker: &Daemon) {
    let is_so = || site.sql(ENDED) == ended;
    wait_within(LATER, &format!("the jobs end: {}", worker.log()), is_so);
}

/// The commands are asked to end, and killed if they do not; nothing is retried or counted as a failure. A single task is cancelled,
/// a list's task is done until its next list; the worker goes on.
#[test]
fn running_jobs_are_cancelled() {
    let (site, _daemon) = Site::serving("alpha 1\n", &[]);
    said(&site, &["add", "-t", "socket", "bravo", "1"]);
    let script = "echo $$ >> pids; [ $SHIFTBOSS_KEY = bravo ] && trap '' TERM; echo >> ran; \
        while :; do sleep .05; done";
    let options = ["-n", "2", "--fail", "--grace", "200ms", "--name", "w"];
    let mut worker = start(&site, &options, script);
    wait_lines(&site, "ran", 2);
    let answer = cancel(&site, &["alpha", "bravo"]);
    assert_eq!(
        answer.matches("Cancelled: w is to stop the running job of ").count(),
        2,
        "{answer}"
    );
    wait_gone(&site, "pids");
    let mut ended = ["alpha|cancelled|143", "bravo|cancelled|143"];
    if site.sql(ENDED).first().is_some_and(|first| first.starts_with("bravo")) {
        ended.reverse();
    }
    wait_ended(&site, &ended, &worker);
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    let status = json(&site, &["status", "-t", "socket"]);
    assert_eq!((&status["failed"], &status["single_tasks"]), (&0.into(), &0.into()), "{status}");
    let target = site.target();
    let stats = json(&site, &["log", "--sum", "-t", target.to_str().unwrap()]);
    let group = &stats["groups"][0];
    assert_eq!((&group["cancelled"], &group["failure"]), (&2.into(), &0.into()), "{stats}");
    let mut took = Vec::new();
    while took.len() < ROUNDS && took.last().is_none_or(|took| *took > SOON) {
        let run = took.len() + 2;
        site.write(format!("f.{run}.txt"), format!("alpha {run}\n"));
        wait_lines(&site, "ran", run + 1);
        let ordered = Instant::now();
        cancel(&site, &["alpha"]);
        wait_gone(&site, "pids");
        took.push(ordered.elapsed());
    }
    assert!(took.last().is_some_and(|took| *took <= SOON), "{took:?}: {}", worker.log());
    let again = vec!["alpha|cancelled|143"; took.len()];
    wait_ended(&site, &[&ended[..], &again].concat(), &worker);
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.exit().code(), Some(0), "nothing failed or was lost: {}", worker.log());
    let counted = format!(" given_back=0 cancelled={}", took.len() + 2);
    assert!(worker.log().contains(&counted), "{}", worker.log());
}
