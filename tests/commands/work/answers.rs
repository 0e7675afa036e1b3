//! What a worker says and how it takes what it is told, word for word: here the daemon is the test.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::Instant;

use rustix::process::Signal;
use shiftboss_protocol::client::ANSWER_TIMEOUT;

use super::{lines, start, touch, wait_lines};
use crate::common::{Client, Daemon, Site, wait_until};

/// The daemon's side of a socket.
struct Fake(UnixListener);

impl Fake {
    fn new(site: &Site) -> Self {
        Self(UnixListener::bind(site.socket()).unwrap())
    }

    /// The next connection, greeted.
    fn greeted(&self) -> Client {
        self.greeted_with_lease(60)
    }

    fn greeted_with_lease(&self, seconds: u32) -> Client {
        let mut connection = Client::over(self.0.accept().unwrap().0);
        assert_eq!(connection.line(), format!("HELLO 2 w {seconds}\n"));
        connection.write(b"HELLO 2 test\n");
        connection
    }

    /// The next connection, that of a worker which was told that there is no job now.
    fn waiting(&self) -> Client {
        let mut connection = self.greeted();
        assert_eq!(connection.line(), "READY fetchers=*\n");
        connection.write(b"NOJOBS\n");
        connection
    }
}

fn worker(site: &Site, script: &str) -> Daemon {
    start(site, &["--name", "w"], script)
}

fn exits_well(mut worker: Daemon) -> String {
    assert_eq!(worker.exit().code(), Some(0), "{}", worker.log());
    worker.log()
}

/// An end and the request for the next job come in one write.
#[test]
fn an_end_and_a_request_in_one_write() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let worker = worker(&site, "exit 9");
    let mut connection = fake.waiting();
    assert_eq!(connection.line(), "READY 30 fetchers=*\n");
    connection.write(b"JOB 17 a p\n");
    let mut bytes = [0; 100];
    let length = std::io::Read::read(&mut connection.stream(), &mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"DONE 17 9\nREADY 30 fetchers=*\n");
    connection.write(b"OK\n");
    worker.signal(Signal::TERM);
    assert_eq!(connection.line(), "QUIT\n");
    connection.write(b"NOJOBS\nOK\n");
    exits_well(worker);
}

/// A job that crosses the taking back of its request is released, not run and not forgotten.
#[test]
fn a_job_that_crosses_the_stop_is_released() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let worker = worker(&site, "echo >> ran");
    let mut connection = fake.waiting();
    assert_eq!(connection.line(), "READY 30 fetchers=*\n");
    worker.signal(Signal::TERM);
    assert_eq!(connection.line(), "QUIT\n");
    connection.write(b"JOB 18 a p\nOK\n");
    drop(connection);
    let mut connection = fake.greeted();
    assert_eq!(connection.line(), "RELEASE 18\n");
    connection.write(b"OK\n");
    exits_well(worker);
    assert_eq!(lines(&site, "ran"), [""; 0]);
}

/// An end that cannot be recorded now is said again; a job that came meanwhile waits for others.
#[test]
fn a_busy_daemon_is_told_again() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let worker = worker(&site, "echo $SHIFTBOSS_KEY >> ran");
    let mut connection = fake.waiting();
    assert_eq!(connection.line(), "READY 30 fetchers=*\n");
    connection.write(b"ERROR busy the disk is full\n");
    assert_eq!(connection.line(), "READY fetchers=*\n");
    connection.write(b"JOB 1 a p\n");
    assert_eq!(connection.line() + &connection.line(), "DONE 1 0\nREADY 30 fetchers=*\n");
    connection.write(b"ERROR busy the disk is full\nJOB 2 b p\n");
    assert_eq!(connection.line(), "RELEASE 2\n");
    connection.write(b"OK\n");
    assert_eq!(connection.line() + &connection.line(), "DONE 1 0\nREADY fetchers=*\n");
    connection.write(b"OK\n");
    worker.signal(Signal::TERM);
    assert_eq!(connection.line(), "QUIT\n");
    connection.write(b"NOJOBS\nOK\n");
    let log = exits_well(worker);
    assert_eq!(lines(&site, "ran"), ["a"]);
    assert!(log.contains("the disk is full"), "{log}");
}

/// A daemon that cannot serve for a while is told of once, and so is that it can again: a request that was
/// sent is no answer yet.
#[test]
fn a_busy_daemon_is_told_of_once() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let worker = worker(&site, "exit 0");
    let mut connection = fake.waiting();
    assert_eq!(connection.line(), "READY 30 fetchers=*\n");
    for _ in 0..4 {
        connection.write(b"ERROR busy the disk is full\n");
        assert_eq!(connection.line(), "READY fetchers=*\n");
    }
    // Nor does it answer because it greets.
    drop(connection);
    let mut connection = fake.greeted();
    assert_eq!(connection.line(), "READY fetchers=*\n");
    connection.write(b"ERROR busy the disk is full\n");
    assert_eq!(connection.line(), "READY fetchers=*\n");
    connection.write(b"JOB 1 a p\n");
    assert_eq!(connection.line() + &connection.line(), "DONE 1 0\nREADY 30 fetchers=*\n");
    connection.write(b"OK\n");
    worker.signal(Signal::TERM);
    assert_eq!(connection.line(), "QUIT\n");
    connection.write(b"NOJOBS\nOK\n");
    let log = exits_well(worker);
    assert_eq!(log.matches("The daemon cannot serve now").count(), 1, "{log}");
    assert!(!log.contains("The daemon does not answer"), "{log}");
    assert_eq!(log.matches("The daemon answers again").count(), 1, "{log}");
}

/// What is no answer, an answer without an end, and an end in the middle of one: it connects again.
#[test]
fn answers_that_are_none() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let worker = worker(&site, "echo $SHIFTBOSS_KEY >> ran");
    for answer in [&b"WELCOME\n"[..], b"JOB 1\n", b"JOB 1 a", b"\n", &[b'x'; 2_200_000]] {
        let mut connection = fake.greeted();
        assert_eq!(connection.line(), "READY fetchers=*\n");
        connection.write(answer);
    }
    let mut connection = fake.greeted();
    assert_eq!(connection.line(), "READY fetchers=*\n");
    // As long as they come.
    let payload = "p".repeat(1_048_576);
    connection.write(format!("JOB 7 {} {payload}\n", "k".repeat(4_096)).as_bytes());
    assert_eq!(connection.line(), "DONE 7 0\n");
    assert_eq!(connection.line(), "READY 30 fetchers=*\n");
    connection.write(b"OK\nJOB 8 a p\n");
    wait_lines(&site, "ran", 2);
    assert!(worker.memory_kib("VmHWM:") < 64 * 1024);
    worker.kill();
}

/// The daemon is taken for a classic one only after two closed `HELLO`s in a row, a second apart; a
/// socket on which nobody listens in between says that it was a restart.
#[test]
fn two_closed_hellos_are_a_classic_daemon() {
    let site = Site::new();
    let mut fake = Fake::new(&site);
    let worker = start(&site, &["--name", "w", "--log-level", "debug"], "exit 0");
    let close_hello = |fake: &Fake| {
        let mut connection = Client::over(fake.0.accept().unwrap().0);
        assert_eq!(connection.line(), "HELLO 2 w 60\n");
        std::time::Instant::now()
    };
    close_hello(&fake);
    fs::remove_file(site.socket()).unwrap();
    drop(fake);
    wait_until("it finds nobody", || worker.log().contains("cannot connect"));
    fake = Fake::new(&site);
    let first = close_hello(&fake);
    let second = close_hello(&fake);
    assert!(second - first >= std::time::Duration::from_secs(1));
    let classic = Client::over(fake.0.accept().unwrap().0);
    assert_eq!(classic.rest(), "READY\n");
    // No answer: it may have been replaced meanwhile.
    fake.greeted();
    worker.kill();
}

/// A stop does not wait for a daemon that does not answer the greeting: nothing was asked yet.
#[test]
fn a_greeting_is_broken_off() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let worker = worker(&site, "exit 0");
    let mut silent = Client::over(fake.0.accept().unwrap().0);
    assert_eq!(silent.line(), "HELLO 2 w 60\n");
    let signalled = Instant::now();
    worker.signal(Signal::TERM);
    exits_well(worker);
    assert!(signalled.elapsed() < ANSWER_TIMEOUT, "{:?}", signalled.elapsed());
}

/// A heartbeat that is not answered holds up no end: that is reported over another connection.
#[test]
fn an_end_does_not_wait_for_a_heartbeat() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let script = "until test -e beaten; do sleep 0.01; done";
    let worker = start(&site, &["--name", "w", "--lease", "3s"], script);
    let mut frozen = fake.greeted_with_lease(3);
    assert_eq!(frozen.line(), "READY fetchers=*\n");
    frozen.write(b"JOB 1 a p\n");
    assert_eq!(frozen.line(), "BEAT 1 1\n");
    let ended = Instant::now();
    touch(&site, "beaten");
    let mut connection = fake.greeted_with_lease(3);
    assert_eq!(connection.line() + &connection.line(), "DONE 1 0\nREADY 30 fetchers=*\n");
    assert!(ended.elapsed() < ANSWER_TIMEOUT, "{:?}", ended.elapsed());
    connection.write(b"OK\n");
    worker.signal(Signal::TERM);
    assert_eq!(connection.line(), "QUIT\n");
    connection.write(b"NOJOBS\nOK\n");
    exits_well(worker);
}
