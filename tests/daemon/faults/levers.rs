//! The daemon is killed at every write and sync of a life in which keys are held, bumped and tried again, and groups close.
//! What was acknowledged is there afterwards, and of the order that was not answered all or nothing.

use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{Fault, STEP, ask, calls, faulty, library};
use crate::common::{Daemon, Site, wait_until};

/// Each order with what is kept after it.
const LIFE: [(&str, &[&str]); 7] = [
    ("HELLO 2 eve\nHOLD alpha - away", &["hold alpha"]),
    ("HELLO 2 eve\nBUMP delta", &["bump delta", "hold alpha"]),
    ("HELLO 2 eve\nHOLD bravo 3600", &["bump delta", "hold alpha", "hold bravo"]),
    ("HELLO 2 eve\nUNHOLD alpha", &["bump delta", "hold bravo"]),
    ("READY", &["bump delta out", "group out started", "hold bravo"]),
    ("DONE delta 1", &["group rests", "hold bravo", "retry delta"]),
    ("HELLO 2 eve\nHOLD-GROUP g:d - away", &["group held rests", "hold bravo", "retry delta"]),
];
const RULES: &str = "[job_retry]\nretries = 1\nfirst = '1h'\n[[group]]\nname = 'g'\nby = {regex = '^d'}\nmax_in_flight = 1\n\
    delay = '1h'\nrest_factor = 1.0\nrest_min = '1h'\nrest_max = '1h'\n";
/// What is kept of the only group.
const GROUP: &str = "SELECT 'group' || iif(state ->> '$.hold' IS NULL, '', ' held') || iif(in_flight = 1, ' out', '')
    || iif(state ->> '$.ended' IS NOT NULL, ' rests', iif(state ->> '$.started' IS NULL, '', ' started'))
    FROM groups WHERE state ->> '$.hold' IS NOT NULL OR state ->> '$.started' IS NOT NULL";
const KEPT: &str = "SELECT 'hold ' || k.key FROM keys k JOIN extras e ON e.key = k.id WHERE extras ->> '$.hold' IS NOT NULL
    UNION SELECT 'bump ' || k.key FROM keys k JOIN extras e ON e.key = k.id WHERE extras ->> '$.bump' IS NOT NULL
    UNION SELECT 'retry ' || k.key FROM keys k JOIN extras e ON e.key = k.id WHERE extras ->> '$.retries[0]' IS NOT NULL
    UNION SELECT 'bump ' || key || ' out' FROM keys WHERE before ->> '$[2]' IS NOT NULL";

/// Has the orders carried out, as long as the daemon lives; how many were acknowledged.
fn order(site: &Site, daemon: &mut Daemon) -> usize {
    let is_done = |(request, _): &&(&str, &[&str])| {
        let answer = ask(site, daemon, request).unwrap_or_default();
        assert!(!answer.contains("ERROR"), "{request}: {answer}");
        // Of two lines the second one may have been lost with the daemon.
        answer.lines().count() == request.lines().count()
    };
    LIFE.iter().take_while(is_done).count()
}

/// Lives once, and ends at that call. False: it did not come to that.
fn lives_through(library: &Path, kind: &'static str, at: u32) -> bool {
    let site = Site::new();
    std::fs::write(site.path("rules.toml"), RULES).unwrap();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\ncharlie 0 3\ndelta 0 4\n");
    let daemon = site.start_with(&["--config", "rules.toml"]);
    site.wait_count(4);
    daemon.stop();
    let mut command = faulty(&site, library, Fault { kind, does: "KILL", count: 1 }, at);
    command.args(["--config", "rules.toml"]);
    let mut daemon = site.spawn(command);
    wait_until("the start, or the end", || {
        UnixStream::connect(site.socket()).is_ok() || !daemon.is_running()
    });
    let acknowledged = order(&site, &mut daemon);
    drop(daemon);
    let daemon = site.start_with(&["--config", "rules.toml"]);
    let kept = site.sql(&format!("{KEPT} UNION {GROUP} ORDER BY 1"));
    let after = |orders: usize| orders.checked_sub(1).map_or(&[][..], |last| LIFE[last].1);
    let unanswered = (acknowledged + 1).min(LIFE.len());
    assert!(
        kept == after(acknowledged) || kept == after(unanswered),
        "{kind} {at}: {acknowledged} were acknowledged, and there is {kept:?}"
    );
    assert_eq!(site.integrity(), ["ok"], "{kind} {at}");
    daemon.stop();
    site.path("hit").exists()
}

fn at_calls(kind: &'static str, step: u32) {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    let last = calls(step).find(|at| !lives_through(&library, kind, *at));
    assert!(last.is_some_and(|last| last as usize > LIFE.len()), "{last:?}");
}

#[test]
fn orders_outlive_a_kill_at_each_write() {
    at_calls("write", STEP);
}

#[test]
fn orders_outlive_a_kill_at_each_sync() {
    at_calls("sync", 2);
}
