//! `kill -9` of `run`: its entries go to the next one, and none of its commands survives.

use std::time::Duration;

use super::common::wait_within;
use super::{assert_whole, lines, listed, ran, run, wait_gone, wait_lines, with};

/// The entry goes to the next, as a second attempt, once the first one's command is gone.
#[test]
fn the_next_one_has_it() {
    let site = with(&["a"]);
    let script = "echo $$ >> pids; sleep 1000 & echo $! >> pids; wait";
    let mut child = run(&site, &["--failed", "bad"], script).spawn().unwrap();
    wait_lines(&site, "pids", 2);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_gone(&site, "pids");
    let (code, ..) = ran(&site, &["--once"], "echo $SHIFTSPOOL_ATTEMPT > attempt");
    assert_eq!(code, 0);
    assert_eq!(lines(&site, "attempt"), ["2"]);
    assert_eq!(listed(&site, "bad"), [""; 0]);
    assert_whole(&site);
}

/// One that waits already has it within moments.
#[test]
fn a_waiting_one_has_it() {
    let site = with(&["a"]);
    let mut first = run(&site, &[], "echo $$ > pids; sleep 1000").spawn().unwrap();
    wait_lines(&site, "pids", 1);
    let mut second = run(&site, &[], "echo x > did").spawn().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    wait_within(Duration::from_secs(10), "the second does it", || lines(&site, "did").len() == 1);
    wait_gone(&site, "pids");
    second.kill().unwrap();
    second.wait().unwrap();
}

/// An entry that ends all who take it is set apart after five attempts.
#[test]
fn an_entry_that_kills() {
    let site = with(&["a", "b"]);
    let script = "[ $SHIFTSPOOL_NAME = b ] || { echo x >> kills; kill -9 $PPID; sleep 1000; }";
    for _ in 0..5 {
        let status = run(&site, &["--once", "--failed", "bad"], script).status().unwrap();
        assert_eq!(status.code(), None);
    }
    assert_eq!(ran(&site, &["--once", "--failed", "bad"], script).0, 0);
    assert_eq!(lines(&site, "kills").len(), 5);
    assert_eq!((listed(&site, "q"), listed(&site, "bad")), (vec![], vec!["a".to_owned()]));
    assert_whole(&site);
}
