//! The library's client against the built daemon.

use std::time::Duration;

use shiftboss_protocol::client::{BeatAnswer, ClientError, Worker};
use shiftboss_protocol::model::{Attempt, Idle};

use super::with_jobs;

/// A worker in Rust takes a job, keeps it, gives it back and ends it; every refusal is a value.
#[test]
fn a_worker_in_rust() {
    let (site, _daemon) = with_jobs(&["alpha"], &[]);
    let mut worker = Worker::connect(&site.socket(), "rust", 60).unwrap();
    let job = worker.next(Duration::ZERO).unwrap().unwrap();
    assert_eq!((job.shown_key().as_str(), &*job.payload), ("alpha", &b"1"[..]));
    assert_eq!(
        worker.next(Duration::from_secs(1)).unwrap(),
        Err(Idle { busy: 1, ..Idle::default() })
    );
    let first = job.attempt.unwrap();
    assert_eq!(worker.beat(first, Duration::from_secs(1)).unwrap(), BeatAnswer::GoOn);
    worker.release(first).unwrap();
    assert_eq!(worker.beat(first, Duration::ZERO).unwrap(), BeatAnswer::Lost);
    let second = worker.next(Duration::ZERO).unwrap().unwrap().attempt.unwrap();
    worker.done(second, 3).unwrap();
    worker.done(second, 3).unwrap();
    assert_eq!(site.sql("SELECT exit_code FROM log"), ["3"]);
    match worker.done(Attempt(99), 0).unwrap_err() {
        ClientError::Refused { code, .. } => assert_eq!(code, "unknown"),
        other => panic!("{other}"),
    }
    assert_eq!(worker.next(Duration::ZERO).unwrap(), Err(Idle::default()));
}

/// A daemon that speaks the classic protocol closes; where nobody listens the socket says why.
#[test]
fn a_worker_of_a_classic_daemon() {
    let (site, daemon) = with_jobs(&["alpha"], &["--classic"]);
    let connect = || Worker::connect(&site.socket(), "rust", 60).unwrap_err();
    assert!(matches!(connect(), ClientError::Closed));
    daemon.stop();
    assert!(matches!(connect(), ClientError::Connect(_)));
}
