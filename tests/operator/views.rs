//! `why`, `queue` and `log`: what they show, of what, with and without a daemon, and over the socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::said::{failure, json as object, said};
use crate::common::sql::editor;
use crate::common::{Client, Site, job_of, wait_until};
use crate::pages::crawl;
use crate::web::start;
use serde_json::{Value, json};

/// A site whose keys ran in a known order: alpha, bravo, charlie.
pub fn site() -> Site {
    let (site, daemon) = Site::running(&[]);
    site.deliver("f", 1, "alpha 0 1\nbravo 0 2\ncharlie 0 3\n");
    site.deliver("g", 1, "alpha other\n");
    site.wait_count(4);
    site.wait_sql("SELECT sum(is_complete) FROM fetcher_runs", &["2"]);
    site.edit(
        "INSERT INTO log VALUES ('alpha', 1, 1, 0), ('bravo', 2, 2, 0), ('charlie', 3, 5, 9)",
    );
    wait_until("the edits are carried out", || {
        said(&site, &["why", "charlie"]).contains("exit code 9")
    });
    daemon.stop();
    site
}

/// The daemon answers what commands print.
#[test]
fn the_daemon_answers_the_same() {
    let site = site();
    let _daemon = site.start();
    let mut worker = Client::opted_in(&site, "HELLO 2 builder 600");
    let (attempt, key) = job_of(&worker.ask("READY"));
    assert_eq!(key, "alpha");
    assert_eq!(worker.ask(&format!("DONE {attempt} 4")), "OK\n");
    for (request, arguments) in [
        ("STATUS", &["status", "-t", "socket"][..]),
        ("WHY charlie", &["why", "charlie"]),
        ("QUEUE 20", &["tasks", "--next"]),
        ("LOG 20", &["log"]),
    ] {
        let mut told: Value = serde_json::from_str(&worker.ask(request)).unwrap();
        let mut shown = object(&site, arguments);
        for both in [&mut told, &mut shown] {
            // What grows with time, and the command's own.
            ["fetchers", "not_stopped", "live", "health", "busy_seconds", "expected_in_seconds"]
                .iter()
                .for_each(|it| both[*it] = Value::Null);
        }
        assert_eq!(told, shown, "{request}");
    }
    assert!(worker.ask("WHY nobody").starts_with("ERROR unknown "));
}

/// A task's last attempt tells whether it failed; `retry --failed` puts those back, after saying how many.
#[test]
fn failed_tasks() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 1\nbravo 1\ncharlie 1\n");
    site.write("g.1.txt", "delta 1\n");
    let _daemon = site.start_with(&["--max-expired-leases", "1"]);
    site.wait_count(4);
    let mut worker = Client::opted_in(&site, "HELLO 2 builder 600");
    let mut codes = std::collections::BTreeMap::from([("alpha", 1), ("bravo", 0), ("delta", 139)]);
    let mut ends = Vec::new();
    for _ in 0..4 {
        let (attempt, key) = job_of(&worker.ask("READY"));
        match codes.remove(&*key) {
            Some(code) => ends.push(format!("DONE {attempt} {code}")),
            None => assert_eq!(key, "charlie"),
        }
    }
    let listed = |status: &str, more: &[&str]| -> Vec<(String, String)> {
        let arguments = [&["tasks", "--status", status], more].concat();
        let found = object(&site, &arguments);
        let tasks = found["tasks"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut tasks: Vec<_> =
            tasks.map(|task| (text(&task["key"]), text(&task["reason"]))).collect();
        tasks.sort();
        tasks
    };
    let task = |key: &str, reason: &str| (key.to_owned(), reason.to_owned());
    assert_eq!(listed("in_flight", &[]).len(), 4);
    assert_eq!(listed("failed", &[]), []);
    for end in ends {
        assert_eq!(worker.ask(&end), "OK\n");
    }
    let failed = [task("alpha", "failure 1"), task("delta", "failure SEGV")];
    assert_eq!(listed("failed", &[]), failed);
    assert_eq!(listed("failed", &["--fetcher", "g"]), failed[1..]);
    assert_eq!(listed("failed", &["-n", "1"]).len(), 1);
    assert_eq!(listed("waiting", &[]), []);
    assert_eq!(listed("delayed", &[]), []);
    let all = object(&site, &["tasks"])["tasks"].clone();
    let all: Vec<_> = all.as_array().unwrap().iter().map(|task| task["status"].clone()).collect();
    assert_eq!(all, ["in_flight", "failed", "failed"]);
    assert_eq!(object(&site, &["tasks", "-n", "2"])["truncated"], true);
    let text = said(&site, &["tasks", "--status", "in_flight"]);
    assert!(text.contains("charlie") && text.contains("builder, attempt "), "{text}");
    let log = object(&site, &["log", "--failed", "--since", "1h"]);
    let log = log["attempts"].as_array().unwrap();
    assert!(log.len() == 2 && log.iter().all(|ended| ended["took_ms"].is_i64()), "{log:?}");
    assert_eq!(object(&site, &["log", "--since", "2999-01-01T00:00:00Z"])["attempts"], json!([]));
    let text = said(&site, &["log", "-n", "1"]);
    assert!(text.ends_with("\nThese are the last 1: a larger -n shows more.\n"), "{text}");
    let (code, why) = refused(&site, &["retry", "--failed"]);
    assert!(code == 64 && why.contains("2 failed tasks") && why.contains("--yes"), "{why}");
    let text = said(&site, &["retry", "--failed", "--fetcher", "g", "--yes"]);
    assert_eq!(text, "Back in the queue: 1 task.\n");
    assert_eq!(listed("waiting", &[]), [task("delta", "its turn comes")]);
    assert_eq!(listed("failed", &[]), failed[..1]);
    let text = said(&site, &["retry", "--failed", "--yes"]);
    assert_eq!(text, "Back in the queue: 1 task.\n");
    assert_eq!(listed("failed", &[]), []);
    assert_eq!(worker.ask("HELLO 2 again").split(' ').next(), Some("ERROR"));
    let mut lost = Client::opted_in(&site, "HELLO 2 lost 1");
    let (_, key) = job_of(&lost.ask("READY"));
    wait_until("its lease expired", || {
        listed("dead_letter", &[]) == [task(&key, "1 leases expired")]
    });
}

/// The file of an attempt's output is named where it is.
#[test]
fn the_output_of_an_attempt() {
    let (site, _daemon) = Site::serving("alpha 1\n", &[]);
    let worked =
        site.run(&["work", "--once", "--log-dir", "logs", "-t", "socket", "--", "echo", "{key}"]);
    assert!(worked.status.success(), "{}", String::from_utf8_lossy(&worked.stderr));
    let text = said(&site, &["log", "--log-dir", "logs"]);
    let output =
        text.lines().find_map(|line| line.trim().strip_prefix("output of that day: ")).unwrap();
    assert!(text.contains("success") && output.ends_with("/alpha.log"), "{text}");
    assert!(std::fs::read_to_string(site.path(output)).unwrap().contains("alpha"));
    assert_eq!(
        object(&site, &["log", "--log-dir", "elsewhere"])["attempts"][0]["output"],
        Value::Null
    );
}

/// With the daemon down the file is read, and that is said; in the object `daemon` is null.
#[test]
fn with_the_daemon_down() {
    let site = site();
    let text = said(&site, &["tasks", "--next", "-n", "2"]);
    let keys: Vec<&str> =
        text.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(keys, ["alpha", "bravo"]);
    let is_told = |arguments: &[&str]| {
        String::from_utf8_lossy(&site.run(arguments).stderr).contains("no daemon runs on")
    };
    for arguments in [&["tasks", "--next"][..], &["why", "alpha"], &["log"]] {
        assert!(is_told(arguments), "{arguments:?}");
        assert_eq!(object(&site, arguments)["daemon"], Value::Null);
    }
    site.start().kill();
    assert!(is_told(&["tasks", "--next", "-t", "socket"]), "by its socket");
}

/// A command that fails: its exit code, and what it says.
fn refused(site: &Site, arguments: &[&str]) -> (i32, String) {
    let mut command = site.program();
    command.args(arguments);
    failure(&site.unprivileged(command).output().unwrap())
}

/// The socket of a daemon that has stopped is told apart from a path at which nothing ever was; and that
/// of one that was killed leads to its database, whether the socket is still there or not.
#[test]
fn the_socket_of_a_daemon_that_has_stopped() {
    let (site, daemon) = Site::running(&[]);
    let (socket, other) = (site.socket(), site.path("other"));
    let (socket, other) = (socket.to_str().unwrap(), other.to_str().unwrap());
    daemon.stop();
    for verb in ["status", "tasks", "log"] {
        let (code, told) = refused(&site, &[verb, "-t", socket]);
        assert_eq!(code, 69, "{told}");
        assert!(told.contains("leaves no socket") && told.contains("give its database"), "{told}");
    }
    let (code, told) = refused(&site, &["status", "-t", other]);
    assert_eq!(code, 69, "{told}");
    assert!(told.contains("there is no database") && told.contains(other), "{told}");
    site.start().kill();
    assert!(
        said(&site, &["tasks", "--next", "-t", socket]).contains("Nothing can be handed out now.")
    );
    fs::remove_file(socket).unwrap();
    assert!(
        said(&site, &["tasks", "--next", "-t", socket]).contains("Nothing can be handed out now.")
    );
}

/// A database that this user may not read, or that is behind a directory it may not enter: it is said
/// which, and whom to be.
#[test]
fn a_database_for_others() {
    let site = Site::new();
    site.start().stop();
    let behind = site.path("closed/state.db");
    fs::create_dir(site.path("closed")).unwrap();
    fs::copy(site.database(), &behind).unwrap();
    let allow = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode));
    allow(&site.database(), 0).unwrap();
    allow(&site.path("closed"), 0).unwrap();
    for (database, denied) in [(site.database(), site.database()), (behind, site.path("closed"))] {
        for verb in ["status", "tasks"] {
            let (code, told) = refused(&site, &[verb, "-t", database.to_str().unwrap()]);
            assert_eq!(code, 77, "{told}");
            assert!(told.contains(&format!("may not read {}", denied.display())), "{told}");
            assert!(told.contains("run this as that user or as root"), "{told}");
        }
    }
    allow(&site.path("closed"), 0o700).unwrap();
}

/// Times of other years are refused where they are written; whatever stands in the file, each view and each page shows something.
#[test]
fn times_that_cannot_be() {
    let site = site();
    let [first, last] = [i64::MIN, i64::MAX];
    for (time, key) in [(first, "alpha"), (last, "bravo")] {
        let log = format!("UPDATE log SET started = {time} WHERE attr_path = '{key}'");
        let refused = editor(&site.database()).unwrap().execute_batch(&log).unwrap_err();
        assert!(refused.to_string().contains("of the years 0 to 9999"), "{refused}");
        site.edit(&format!(
            "UPDATE keys SET started = {time}, finished = {time} WHERE key = '{key}'"
        ));
    }
    for arguments in [
        &["status"][..],
        &["why", "alpha"],
        &["why", "bravo"],
        &["tasks", "--next"],
        &["log"],
        &["log", "--sum"],
        &["metrics"],
        &["tasks", "--status", "failed"],
    ] {
        said(&site, arguments);
    }
    let _daemon = site.start();
    crawl(&start(&site, &["--output", "logs/{day}/{key}.log"]));
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    assert_eq!(site.next_key("DONE alpha 0").as_deref(), Some("bravo"));
    assert_eq!(site.next_key("DONE bravo 0").as_deref(), Some("charlie"));
}
