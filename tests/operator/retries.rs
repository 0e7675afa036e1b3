//! `[job_retry]`: tasks that fail and are tried again by themselves, and where that is shown.

use serde_json::json;

use crate::common::{Daemon, Site, wait_until};
use crate::said::{object, said};

/// Lists have a rule of their own; single tasks have theirs without one.
fn started(rule: &str) -> (Site, Daemon) {
    let site = Site::new();
    std::fs::write(site.path("rules.toml"), rule).unwrap();
    let daemon = site.start_with(&["--config", "rules.toml"]);
    (site, daemon)
}

fn status_of(site: &Site, key: &str) -> String {
    let why = object(&said(site, &["why", "--json", key]));
    why["state"].as_str().unwrap().to_owned()
}

/// It is delayed, is named wherever one looks, outlives a kill, goes before others when its time comes, and has failed in the end.
#[test]
fn a_failed_task_is_tried_again() {
    let (site, daemon) = started("[job_retry]\nretries = 1\nfirst = '1s'\n");
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_count(1);
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    site.next_key("DONE alpha 7");
    daemon.kill();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    site.write("g.1.txt", "bravo 0 1\ncharlie 0 1\n");
    site.wait_count(3);
    wait_until("the task waits again", || status_of(&site, "alpha") == "waiting");
    let why = said(&site, &["why", "alpha"]);
    assert!(why.contains(" by job_retry: it goes before others"), "{why}");
    let queue = object(&said(&site, &["tasks", "--next", "--json"]))["keys"][0].clone();
    assert_eq!((&queue["key"], &queue["bumped"]), (&json!("alpha"), &json!(true)));
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"), "before keys that never ran");
    site.next_key("DONE alpha 7");
    assert_eq!(status_of(&site, "alpha"), "dispatched");
    let failed = said(&site, &["tasks", "--status", "failed"]);
    assert!(failed.contains("alpha") && failed.contains("failure 7"), "{failed}");
}

/// While it waits for its time it is no failed task, and `retry` puts it back at once.
#[test]
fn a_delayed_task_is_shown() {
    let (site, _daemon) = started("[job_retry]\non = 'timeout'\nfirst = '2h'\nmax_delay = '5h'\n");
    site.write("f.1.txt", "alpha 0 1\nbravo 0 1\n");
    site.wait_count(2);
    let first = site.next_key("READY").unwrap();
    let second = site.next_key(&format!("DONE {first} 124")).unwrap();
    assert_eq!(site.next_key(&format!("DONE {second} 1")), None);
    let delayed = object(&said(&site, &["tasks", "--status", "delayed", "--json"]));
    let task = &delayed["tasks"][0];
    let key = task["key"].as_str().unwrap();
    let reason = task["reason"].as_str().unwrap();
    assert!(reason.starts_with("timeout") && reason.contains("; retry 1 in "), "{reason}");
    let due = task["due"].as_i64().unwrap() - task["since"].as_i64().unwrap();
    assert!((6_480..=7_920).contains(&due), "two hours, a tenth more or less: {task}");
    let failed = object(&said(&site, &["tasks", "--status", "failed", "--json"]));
    assert!(failed["tasks"][0]["due"].is_null(), "{failed}");
    assert_eq!(failed["tasks"].as_array().map(Vec::len), Some(1), "{failed}");
    assert_ne!(failed["tasks"][0]["key"], json!(key));
    assert!(said(&site, &["status", "-t", "socket"]).contains("\nDelayed         1 task: "));
    assert!(said(&site, &["metrics", "-t", "socket"]).contains("\nshiftboss_delayed_tasks 1.0\n"));
    let why = said(&site, &["why", key]);
    assert!(why.contains("delayed: its task failed, and waits again by itself\n"), "{why}");
    assert!(why.contains(&format!(", retry 1 of this task, or with its fetcher's next list if that is sooner; soon by `shiftboss bump {key}`\n")), "{why}");
    assert_eq!(site.next_key("READY"), None);
    assert!(said(&site, &["retry", key]).contains('1'));
    assert_eq!(site.next_key("READY").as_deref(), Some(key));
}

/// A single task is tried again though no rule says so, and not where the rule says so; a fetcher's own rule wins.
#[test]
fn whose_rule_it_is() {
    let site = Site::new();
    let daemon = site.start();
    said(&site, &["add", "alpha", "1"]);
    let fails = |key: &str| {
        assert_eq!(site.next_key("READY").as_deref(), Some(key));
        site.next_key(&format!("DONE {key} 1"));
        status_of(&site, key)
    };
    assert_eq!(fails("alpha"), "delayed");
    assert!(said(&site, &["cancel", "alpha"]).contains('1'));
    daemon.stop();
    let own = "job_retry = {first = '2h', max_delay = '2h'}";
    let fetcher =
        format!("[[fetcher]]\nname = 'f'\ncommand = ['echo', 'bravo 0 1']\nevery = '9h'\n{own}\n");
    std::fs::write(site.path("rules.toml"), format!("[job_retry]\nretries = 0\n{fetcher}"))
        .unwrap();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    site.wait_count(1);
    assert_eq!(fails("bravo"), "delayed");
    said(&site, &["add", "alpha", "2"]);
    assert_eq!(fails("alpha"), "dispatched");
    let status = object(&said(&site, &["status", "--json", "-t", "socket"]));
    assert_eq!((&status["delayed"], &status["single_tasks_ended"]), (&json!(1), &json!(1)));
}

/// Under the classic rules a delayed task stays as it is; back under the others it goes on, and so does the next one of its key.
#[test]
fn the_classic_rules_leave_it_alone() {
    let (site, daemon) = started("[job_retry]\nretries = 1\nfirst = '1s'\n");
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_count(1);
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    site.next_key("DONE alpha 7");
    daemon.stop();
    let daemon = site.start_with(&["--classic"]);
    wait_until("its time has come", || {
        let delayed = object(&said(&site, &["tasks", "--status", "delayed", "--json"]));
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        delayed["tasks"][0]["due"].as_u64().unwrap() < now
    });
    assert_eq!(site.next_key("READY"), None);
    daemon.stop();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    wait_until("it waits again", || status_of(&site, "alpha") == "waiting");
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    site.next_key("DONE alpha 7");
    let status = site.status();
    assert_eq!((&status["delayed"], &status["bumped"]), (&json!(0), &json!(0)));
    site.write("f.2.txt", "alpha 0 2\n");
    site.wait_count(2);
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    site.next_key("DONE alpha 7");
    assert_eq!(status_of(&site, "alpha"), "delayed");
}

/// The clock was a year ahead when a task failed and a key was held, and is right again when the next daemon starts: neither
/// waits for longer than its delay.
#[test]
fn a_clock_that_was_ahead_delays_nothing() {
    let (site, daemon) = started("[job_retry]\nretries = 1\nfirst = '1s'\n");
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_count(1);
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    site.next_key("DONE alpha 7");
    said(&site, &["hold", "--for", "2s", "bravo"]);
    daemon.kill();
    match site.server() {
        Some(server) => server.edit(
            "UPDATE extras SET due = due + 31536000000;
            UPDATE extras SET extras = jsonb_set(jsonb_set(extras::jsonb,
                '{hold,since}', to_jsonb((extras::jsonb -> 'hold' ->> 'since')::int8 + 31536000)),
                '{hold,until,at}', to_jsonb((extras::jsonb -> 'hold' -> 'until' ->> 'at')::int8 + 31536000000))::text
            WHERE extras::jsonb #>> '{hold,until,at}' IS NOT NULL;
            UPDATE extras SET extras = jsonb_set(extras::jsonb,
                '{retries,0,due,at}', to_jsonb((extras::jsonb #>> '{retries,0,due,at}')::int8 + 31536000000))::text
            WHERE extras::jsonb #>> '{retries,0,due,at}' IS NOT NULL",
        ),
        None => site.edit(
            "UPDATE extras SET due = due + 31536000000, extras = json_replace(extras,
                '$.hold.since', extras ->> '$.hold.since' + 31536000,
                '$.hold.until.at', extras ->> '$.hold.until.at' + 31536000000,
                '$.retries[0].due.at', extras ->> '$.retries[0].due.at' + 31536000000)",
        ),
    }
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    wait_until("the task waits again", || status_of(&site, "alpha") == "waiting");
    wait_until("the hold is over", || {
        said(&site, &["tasks", "--held"]).starts_with("No key is held")
    });
}
