//! `[backoff]`: keys whose jobs fail again and again are held for a while, and where that is shown.

use serde_json::json;

use crate::common::{Daemon, Site, wait_until};
use crate::said::{failure, object, said};

const RULE: &str = "[backoff]\nafter = 2\nfirst = '20days'\nmax_delay = '30days'\n";

fn started(rule: &str) -> (Site, Daemon) {
    let site = Site::new();
    std::fs::write(site.path("rules.toml"), rule).unwrap();
    let daemon = site.start_with(&["--config", "rules.toml"]);
    (site, daemon)
}

/// A new list names the key, and its job ends so; `None`: it was not handed out.
fn round(site: &Site, run: i64, code: i32) -> Option<String> {
    site.write(format!("f.{run}.txt"), format!("alpha 0 {run}\n"));
    site.wait_count(1);
    site.wait_sql("SELECT count(*) FROM queue WHERE fetcher_run_started = (SELECT max(run_started) FROM fetcher_runs)", &["1"]);
    let key = site.next_key("READY");
    if let Some(key) = &key {
        site.next_key(&format!("DONE {key} {code}"));
    }
    site.remove(format!("f.{run}.txt"));
    site.wait_count(0);
    key
}

/// It is held over lists and a kill, is named wherever one looks, gets one try from `unhold`, and is held for longer then.
#[test]
fn a_key_that_fails_is_held() {
    let (site, daemon) = started(RULE);
    for run in 1..=2 {
        assert_eq!(round(&site, run, 1).as_deref(), Some("alpha"));
    }
    site.write("f.3.txt", "alpha 0 3\n");
    site.wait_count(1);
    daemon.kill();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    assert_eq!(site.next_key("READY"), None);
    let why = said(&site, &["why", "alpha"]);
    assert!(why.contains("held: it is not handed out, and keeps its place\n"), "{why}");
    assert!(
        why.contains(" by backoff, for another ") && why.contains(": failed 2 times in a row\n")
    );
    assert!(
        said(&site, &["status", "-t", "socket"]).contains("\nBacked off      1 key that fails: ")
    );
    let metrics = said(&site, &["metrics", "-t", "socket"]);
    assert!(metrics.contains("\nshiftboss_held_keys{kind=\"backoff\"} 1.0\n"), "{metrics}");
    let held = object(&said(&site, &["tasks", "--held", "--json"]))["keys"][0].clone();
    let days =
        (held["until"].as_i64().unwrap() - held["since"].as_i64().unwrap()) as f64 / 86_400.0;
    assert!((18.0..=22.0).contains(&days) && held["kind"] == "backoff", "{held}");
    let refused = failure(&site.run(&["retry", "alpha"]));
    assert!(refused.0 == 65 && refused.1.contains("unhold"), "{refused:?}");
    assert!(said(&site, &["unhold", "alpha"]).starts_with("No longer held"));
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    site.next_key("DONE alpha 1");
    let held = object(&said(&site, &["why", "--json", "alpha"]))["hold"].clone();
    assert_eq!(
        (&held["reason"], &held["by"]),
        (&json!("failed 3 times in a row"), &json!("backoff"))
    );
    let why = said(&site, &["why", "alpha"]);
    assert!(
        why.contains("due again with its fetcher's next list, once nothing holds it\n"),
        "{why}"
    );
}

/// Another end clears what was counted; so does a daemon without the rule, which lets held keys go.
#[test]
fn it_begins_anew() {
    let (site, daemon) = started(RULE);
    for (run, code) in [(1, 1), (2, 0), (3, 1), (4, 124)] {
        assert_eq!(round(&site, run, code).as_deref(), Some("alpha"), "{run}");
    }
    assert_eq!(round(&site, 5, 1), None, "it is held");
    daemon.stop();
    let daemon = site.start();
    assert!(said(&site, &["why", "alpha"]).contains("alpha"));
    wait_until("the held key is let go", || {
        said(&site, &["tasks", "--held"]) == "No key is held.\n"
    });
    for run in 6..=9 {
        assert_eq!(round(&site, run, 1).as_deref(), Some("alpha"), "{run}");
    }
    daemon.stop();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    assert_eq!(round(&site, 10, 1).as_deref(), Some("alpha"));
    assert_eq!(round(&site, 11, 1).as_deref(), Some("alpha"), "the second one in a row");
    assert_eq!(round(&site, 12, 1), None);
}

/// A hold ends by itself, and an operator's stands beside it.
#[test]
fn a_hold_ends_by_its_time() {
    let (site, _daemon) = started("[backoff]\nafter = 1\nfirst = '1s'\non = 'timeout'\n");
    assert_eq!(round(&site, 1, 1).as_deref(), Some("alpha"));
    assert_eq!(round(&site, 2, 124).as_deref(), Some("alpha"), "another failure does not count");
    said(&site, &["hold", "alpha"]);
    let status =
        || object(&said(&site, &["status", "--json", "-t", "socket"]))["backed_off"].as_i64();
    wait_until("the hold ends", || status() == Some(0));
    assert_eq!(round(&site, 3, 0), None, "the operator's hold goes on");
    said(&site, &["unhold", "alpha"]);
    assert_eq!(round(&site, 4, 0).as_deref(), Some("alpha"));
}

/// What is no rule is refused with its line.
#[test]
fn what_may_be_a_rule() {
    let site = Site::new();
    for (rule, said) in [
        ("[backoff]\nafter = 0\n", "after is a whole number"),
        ("[backoff]\non = 'always'\n", "on is \"failed\""),
        ("[backoff]\nfirst = '2days'\nmax_delay = '1day'\n", "first is longer than max_delay"),
    ] {
        std::fs::write(site.path("rules.toml"), rule).unwrap();
        let (code, text) = site.refused(site.serve(&["--config", "rules.toml"]));
        assert!(code == 78 && text.contains(said) && text.contains("rules.toml:"), "{text}");
    }
}

#[test]
fn the_classic_rules_know_none() {
    let site = Site::new();
    std::fs::write(site.path("rules.toml"), RULE).unwrap();
    let (code, text) = site.refused(site.serve(&["--config", "rules.toml", "--classic"]));
    assert!(code == 78 && text.contains("neither [job_retry] nor [backoff]"), "{code} {text}");
}
