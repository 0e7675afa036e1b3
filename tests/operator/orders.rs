//! `pause`, `resume`, `drain` and `retry`: against the daemon, and against peers that are none.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};

use crate::common::said::{failure, object, said};
use crate::common::{Client, Site, attempt_of};
use serde_json::json;

/// A worker of protocol 2 that was handed a job; its attempt.
fn leased(site: &Site) -> (Client, i64) {
    let mut worker = Client::leased(site, 600);
    let attempt = attempt_of(&worker.ask("READY"));
    (worker, attempt)
}

/// While it is paused nobody is handed anything.
#[test]
fn pause_and_resume() {
    let (site, _daemon) = Site::serving("alpha 0 1\n", &[]);
    assert!(said(&site, &["pause", "-t", "socket"]).starts_with("Paused"));
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert!(said(&site, &["status", "-t", "socket"]).contains("\nPaused "));
    assert_eq!(object(&said(&site, &["pause", "--json", "-t", "socket"])), json!({"paused": true}));
    assert_eq!(
        object(&said(&site, &["resume", "--json", "-t", "socket"])),
        json!({"paused": false})
    );
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert!(said(&site, &["resume", "-t", "socket"]).contains("handed out again"));
}

/// A round trip through the database, for whoever may connect; 69 when there is nobody, with `--classic`,
/// and when nothing can be written.
#[test]
fn health() {
    crate::common::root!();
    let (site, daemon) = Site::serving("alpha 0 1\n", &["--socket-mode", "0666"]);
    assert!(said(&site, &["health", "-t", "socket"]).starts_with("Healthy"));
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    let answer = object(&said(&site, &["health", "--json", "-t", "socket"]));
    assert_eq!(answer, json!({"in_flight": 1, "draining": false}));
    let asked = site.as_somebody_else(&["health", "-t", "socket"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(0), "{}", String::from_utf8_lossy(&asked.stderr));
    let locked = rusqlite::Connection::open(site.database()).unwrap();
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(site.ask("DONE alpha 0"), "", "not before the lock is free");
    let (code, why) = failure(&site.run(&["health", "-t", "socket"]));
    assert!(code == 69 && why.contains("locked"), "{code} {why}");
    locked.execute_batch("ROLLBACK").unwrap();
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    assert!(said(&site, &["health", "-t", "socket"]).starts_with("Healthy"));
    daemon.stop();
    assert_eq!(failure(&site.run(&["health", "-t", "socket"])).0, 69);
    let _daemon = site.start_with(&["--classic"]);
    let (code, why) = failure(&site.run(&["health", "-t", "socket"]));
    assert!(code == 69 && why.contains("--classic"), "{code} {why}");
}

/// A job in flight goes back to its old place, a classic one and a leased one; whoever had it is late.
#[test]
fn requeue() {
    crate::common::root!();
    let (site, _daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    let first = site.next_key("READY").unwrap();
    let back = format!("Back in the queue, at its old place: {first}.\n");
    assert_eq!(said(&site, &["requeue", "-t", "socket", &first]), back);
    let (code, why) = failure(&site.run(&["requeue", "-t", "socket", &first]));
    assert!(code == 65 && why.contains("is not in flight"), "{why}");
    let (mut worker, attempt) = leased(&site);
    let answer = object(&said(&site, &["requeue", "--json", "-t", "socket", &first]));
    assert_eq!(answer, json!({"key": first, "requeued": true, "attempt": attempt}));
    assert!(worker.ask(&format!("DONE {attempt} 0")).starts_with("ERROR stale "));
    assert_eq!(worker.ask(&format!("RELEASE {attempt}")), "OK\n");
    assert_eq!(worker.ask(&format!("BEAT {attempt}")), "LOST\n");
    assert_eq!(site.next_key("READY").as_ref(), Some(&first));
    assert_eq!(failure(&site.run(&["requeue", "-t", "socket", "nobody"])).0, 65);
}

/// A job that is out with a worker of protocol 2 is to stop: the worker learns it at once, and if it is gone, the job is cancelled
/// when its lease ends.
#[test]
fn cancel_running() {
    let (site, _daemon) = Site::serving("alpha 0 1\n", &[]);
    let mut worker = Client::leased(&site, 1);
    let attempt = attempt_of(&worker.ask("READY"));
    worker.write(format!("BEAT {attempt} 1000\n").as_bytes());
    let cancel = ["cancel", "--running", "-t", "socket", "alpha"];
    let answer = object(&said(&site, &[&cancel[..], &["--json"]].concat()));
    assert_eq!(answer, json!({"key": "alpha", "attempt": attempt, "worker": "worker"}));
    assert_eq!(worker.line(), "STOP\n");
    assert!(said(&site, &["why", "-t", "socket", "alpha"]).contains("its worker is to stop it"));
    drop(worker);
    site.wait_sql("SELECT attr_path, outcome FROM ended", &["alpha|cancelled"]);
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    let (code, why) = failure(&site.run(&cancel));
    assert!(code == 65 && why.contains("is not in flight"), "{why}");
    said(&site, &["retry", "-t", "socket", "alpha"]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    let (code, why) = failure(&site.run(&cancel));
    assert!(code == 65 && why.contains("a classic worker") && why.contains("`requeue`"), "{why}");
}

fn drain(site: &Site, arguments: &[&str]) -> Child {
    let mut command = site.program();
    command.args(["drain", "-t", "socket"]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A drain waits for the jobs that are out, and then for the daemon's end.
#[test]
fn drain_waits_for_the_end() {
    let (site, mut daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    let (mut worker, attempt) = leased(&site);
    let (code, why) = {
        let output = drain(&site, &["--timeout", "300ms"]).wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(code == Some(69) && why.contains("still in flight"), "{why}");
    // The one before has asked for the same: this one has, too, once it says so.
    let mut draining = drain(&site, &[]);
    let mut lines = BufReader::new(draining.stdout.take().unwrap());
    let mut text = String::new();
    lines.read_line(&mut text).unwrap();
    // On a server the other daemons go on.
    assert_eq!(object(&said(&site, &["health", "--json", "-t", "socket"]))["draining"], true);
    assert!(worker.ask("READY").starts_with("NOJOBS paused "));
    assert!(daemon.is_running());
    assert_eq!(worker.ask(&format!("DONE {attempt} 0")), "OK\n");
    lines.read_to_string(&mut text).unwrap();
    assert_eq!(draining.wait().unwrap().code(), Some(0));
    assert!(
        text.starts_with("Nothing is handed out any more; 1 job in flight.\nThe daemon has gone.")
    );
    let resume = "`shiftboss -t socket resume` hands tasks out.\n";
    assert!(site.server().is_some() || text.ends_with(resume), "{text}");
    assert_eq!(daemon.exit().code(), Some(0), "{}", daemon.log());
}

/// Under `--classic` there are no operators, and it is said why.
#[test]
fn a_classic_daemon() {
    let (site, _daemon) = Site::running(&["--classic"]);
    for command in ["pause", "resume", "drain"] {
        let (code, why) = failure(&site.run(&[command, "-t", "socket"]));
        assert!(code == 69 && why.contains("--classic") && why.contains(command), "{why}");
    }
}

/// Only the daemon's own user and root are obeyed; the refusal names the option that decides.
#[test]
fn somebody_else_is_refused() {
    crate::common::root!();
    let (site, _daemon) = Site::running(&["--socket-mode", "0666"]);
    let alone = "root alone, as long as it runs without --operator-group";
    for verb in ["pause", "hold", "unhold", "bump", "forget", "requeue"] {
        let key = if verb == "pause" { &[][..] } else { &["alpha"] };
        let command = [&[verb, "-t", "socket"], key].concat();
        let (code, why) = failure(&site.as_somebody_else(&command).output().unwrap());
        assert!(code == 77 && why.contains(alone), "{verb}: {why}");
    }
    let other = Site::new();
    let _other = other.start_with(&["--socket-mode", "0666", "--operator-group", "0"]);
    let (code, why) =
        failure(&other.as_somebody_else(&["pause", "-t", "socket"]).output().unwrap());
    assert!(code == 77 && why.contains("group 0, which its --operator-group names"), "{why}");
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_count(1);
    assert!(site.ask("READY").starts_with("JOB "));
    assert_eq!(site.ask("DONE alpha 1"), "NOJOBS\n");
    let failed = ["retry", "--failed", "--yes", "-t", "socket"];
    let (code, why) = failure(&site.as_somebody_else(&failed).output().unwrap());
    assert!(code == 77 && why.contains("root"), "{why}");
}

/// What is no name is refused before it is sent: it might be a request.
#[test]
fn a_name_is_no_request() {
    let (site, _daemon) = Site::running(&[]);
    let (code, _) = failure(&site.run(&["run-fetcher", "-t", "socket", "x\nPAUSE"]));
    assert_eq!(code, 64);
    assert_eq!(object(&said(&site, &["status", "--json"]))["paused"], false);
}

/// A peer that answers two lines with the given ones, and closes.
fn peer(site: &Site, answers: &'static str) -> JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(site.socket()).unwrap();
    thread::spawn(move || {
        let mut stream: UnixStream = listener.accept().unwrap().0;
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let asked: Vec<String> = lines.take(2).map(Result::unwrap).collect();
        stream.write_all(answers.as_bytes()).unwrap();
        asked
    })
}

/// What a peer may answer, and what becomes of it.
#[test]
fn other_answers() {
    let cases = [
        ("ERROR version 3 only\n", 78, "another version"),
        ("HELLO 2 1\nERROR busy the disk is full\n", 69, "the disk is full"),
        ("HELLO 2 1\nERROR odd \u{1b}[2J\n", 69, "\\u{1b}[2J"),
        ("HELLO 2 1\n", 69, "without an answer"),
        ("SSH-2.0-OpenSSH\n", 69, "is it the socket"),
    ];
    for (answers, code, why) in cases {
        let site = Site::bare();
        let peer = peer(&site, answers);
        let found = failure(&site.run(&["pause", "-t", "socket"]));
        assert!(found.0 == code && found.1.contains(why), "{answers:?}: {found:?}");
        assert_eq!(peer.join().unwrap(), ["HELLO 2 shiftboss-pause 60", "PAUSE"]);
    }
    let site = Site::bare();
    let _silent = UnixListener::bind(site.socket()).unwrap();
    let (code, why) = failure(&site.run(&["resume", "--timeout", "30ms", "-t", "socket"]));
    assert!(code == 69 && why.contains("waited 30ms"), "{why}");
    let (code, why) = failure(&site.run(&["resume", "--timeout", "0s", "-t", "socket"]));
    assert!(code == 64 && why.contains("--timeout"), "{why}");
}

/// A peer that closes and goes on running has not gone: the lock on its socket tells.
#[test]
fn a_daemon_that_stays() {
    use shiftboss::lock::{take, this_process};
    let site = Site::bare();
    let holder = this_process(&site.target(), &site.input(), &site.socket());
    let _held = take(&site.socket(), &holder).unwrap();
    let peer = peer(&site, "HELLO 2 1\n{\"paused\":true,\"in_flight\":0}\n");
    let output = site.run(&["drain", "--json", "--timeout", "500ms", "-t", "socket"]);
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(69) && why.contains("still runs"), "{why}");
    assert_eq!(object(std::str::from_utf8(&output.stdout).unwrap())["in_flight"], 0);
    assert_eq!(peer.join().unwrap(), ["HELLO 2 shiftboss-drain 60", "DRAIN"]);
}
