//! What operators ask and change, and who may.

use serde_json::Value;

use super::with_jobs;
use crate::common::{Client, job_of, root};

/// A paused daemon hands nothing out to anybody, also after a restart, until it is told to.
#[test]
fn a_pause_outlives_the_daemon() {
    let (site, daemon) = with_jobs(&["alpha", "bravo"], &[]);
    let mut client = Client::opted_in(&site, "HELLO 2 w");
    let mut waiting = Client::opted_in(&site, "HELLO 2 waiting");
    assert_eq!(client.ask("PAUSE"), "{\"paused\":true}\n");
    waiting.write(b"READY 600\n");
    assert_eq!(client.ask("READY"), "NOJOBS paused 2\n");
    assert_eq!(client.ask("READY 1"), "NOJOBS paused 2\n", "also after a wait");
    assert_eq!(site.ask("READY"), "NOJOBS\n", "classic workers too, without a word more");
    daemon.stop();
    let _daemon = site.start();
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    let mut client = Client::opted_in(&site, "HELLO 2 w");
    let mut waiting = Client::opted_in(&site, "HELLO 2 waiting");
    waiting.write(b"READY 600\n");
    assert_eq!(client.ask("RESUME"), "{\"paused\":false}\n");
    job_of(&waiting.line());
    assert!(site.next_key("READY").is_some());
}

/// A drained daemon stops with code 0 when the last job is back, classic ones too.
#[test]
fn a_drain_ends_the_daemon() {
    let (site, mut daemon) = with_jobs(&["alpha", "bravo", "charlie"], &[]);
    let mut client = Client::opted_in(&site, "HELLO 2 w");
    let (attempt, _) = job_of(&client.ask("READY"));
    let classic = site.next_key("READY").unwrap();
    assert_eq!(client.ask("DRAIN"), "{\"paused\":true,\"in_flight\":2}\n");
    assert_eq!(client.ask(&format!("DONE {attempt} 0")), "OK\n");
    assert_eq!(client.ask("READY"), "NOJOBS paused 1\n");
    assert!(daemon.is_running());
    assert_eq!(site.ask(&format!("DONE {classic} 0")), "NOJOBS\n");
    assert_eq!(daemon.exit().code(), Some(0));
    assert_eq!(client.rest(), "");
}

/// Operators' requests are the daemon's user's and root's; the others are anybody's.
#[test]
fn strangers_are_denied() {
    root!();
    let (site, _daemon) = with_jobs(&["alpha"], &["--socket-mode", "0666"]);
    let lines = [
        "ask",
        "-t",
        "socket",
        "HELLO 2 stranger",
        "PAUSE",
        "STATUS",
        "ACCEPT-INPUT",
        "RUN-FETCHER a",
        "METRICS",
        "READY",
    ];
    let asked = site.as_somebody_else(&lines).output().unwrap();
    let answers = String::from_utf8(asked.stdout).unwrap();
    let answers: Vec<&str> = answers.lines().collect();
    assert!(answers[1..5].iter().all(|line| line.starts_with("ERROR denied ")), "{answers:?}");
    assert!(
        answers[5].starts_with("{\"version\":") && !answers[5].contains("alpha"),
        "{answers:?}"
    );
    assert_eq!(job_of(answers[6]).1, "alpha");
}

/// What operators ask is one line of JSON.
#[test]
fn questions_are_answered_in_json() {
    let (site, _daemon) = with_jobs(&["alpha", "bravo"], &[]);
    let mut client = Client::opted_in(&site, "HELLO 2 w");
    let (attempt, key) = job_of(&client.ask("READY"));
    let mut ask = |line: &str| -> Value { serde_json::from_str(&client.ask(line)).unwrap() };
    assert_eq!(ask("STATUS")["rows"]["in_flight"], 1);
    assert_eq!(ask(&format!("WHY {key}"))["in_flight"]["attempt"], attempt);
    assert_eq!(ask("QUEUE 5")["keys"].as_array().unwrap().len(), 1);
    assert_eq!(ask("LOG 5")["attempts"].as_array().unwrap().len(), 0);
    assert!(client.ask("WHY nobody").starts_with("ERROR unknown "));
}
