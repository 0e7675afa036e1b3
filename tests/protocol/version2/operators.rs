//! What operators ask and change, and who may.

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
