//! `hold`, `unhold` and `held`: keys that are not handed out, and where that is shown; and `forget`.

use crate::common::{Client, Site, wait_until};
use crate::said::{failure, object, said};
use serde_json::json;

/// A held key is passed over, over lists and a restart, is named wherever one looks, and comes back at its old place.
#[test]
fn a_held_key_is_passed_over() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let daemon = site.start();
    site.wait_count(2);
    let hold = ["hold", "--reason", "upstream is down", "--by", "eve", "alpha"];
    assert_eq!(said(&site, &hold), "Held until `shiftboss unhold alpha`: alpha.\n");
    assert_eq!(site.next_key("READY").as_deref(), Some("bravo"));
    assert_eq!(site.next_key("DONE bravo 0"), None);
    site.write("f.2.txt", "alpha 0 1\nbravo 0 2\n");
    daemon.kill();
    let _daemon = site.start();
    site.wait_count(4);
    assert_eq!(site.next_key("READY").as_deref(), Some("bravo"));
    assert_eq!(site.next_key("DONE bravo 0"), None);
    let why = said(&site, &["why", "alpha"]);
    assert!(why.contains("held: it is not handed out, and keeps its place\n"), "{why}");
    assert!(why.contains(" by eve, until it is unheld: upstream is down\n"), "{why}");
    assert!(said(&site, &["status", "-t", "socket"]).contains("\nHeld            1 key: "));
    let metrics = said(&site, &["metrics", "-t", "socket"]);
    assert!(metrics.contains("\nshiftboss_held_keys{kind=\"hold\"} 1.0\n"), "{metrics}");
    assert!(said(&site, &["tasks", "--held"]).contains("upstream is down"));
    let held = object(&said(&site, &["tasks", "--held", "--json"]));
    let (first, since) = (&held["keys"][0], &held["keys"][0]["since"]);
    let expected = json!({"key": "alpha", "kind": "hold", "since": since, "until": null, "reason": "upstream is down", "by": "eve"});
    assert_eq!((first, &held["truncated"]), (&expected, &json!(false)));
    let refused = failure(&site.run(&["retry", "alpha"]));
    assert!(refused.0 == 65 && refused.1.contains("held"), "{refused:?}");
    let ended = said(&site, &["unhold", "alpha"]);
    assert!(ended.starts_with("No longer held: alpha. "), "{ended}");
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    assert_eq!(said(&site, &["tasks", "--held"]), "No key is held.\n");
}

/// A job that is in flight goes on; a hold for a time ends by itself, and a worker that waits is told.
#[test]
fn a_hold_ends_by_itself() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let _daemon = site.start();
    site.wait_count(1);
    let mut worker = Client::connect(&site);
    assert!(worker.ask("HELLO 2 builder").starts_with("HELLO 2 "));
    let attempt = worker.ask("READY").split(' ').nth(1).unwrap().to_owned();
    let answer = object(&said(&site, &["hold", "--for", "1500ms", "--json", "alpha"]));
    assert!(answer["until"].is_i64() && answer["known"] == true, "{answer}");
    let why = object(&said(&site, &["why", "--json", "alpha"]));
    assert_eq!((&why["state"], &why["hold"]["until"]), (&json!("in_flight"), &answer["until"]));
    assert_eq!(worker.ask(&format!("DONE {attempt} 1")).trim_end(), "OK");
    site.write("f.2.txt", "alpha 0 2\n");
    assert!(worker.ask("READY 60").ends_with(" alpha 0 2\n"));
    assert_eq!(said(&site, &["tasks", "--held"]), "No key is held.\n");
}

/// The last word about a key holds; one that nobody knows is held as well, and said to be unknown. What is no hold is refused.
#[test]
fn what_may_be_held() {
    let site = Site::new();
    let _daemon = site.start();
    let doubt = "is it spelled right?\n";
    assert!(said(&site, &["hold", "alhpa"]).ends_with(doubt));
    let again = said(&site, &["hold", "--for", "2h", "--reason", "a", "alhpa"]);
    assert!(again.starts_with("Held until 2") && again.ends_with(doubt), "{again}");
    assert!(again.contains(" It takes the place of a hold by "), "{again}");
    let why = said(&site, &["why", "alhpa"]);
    assert!(why.contains("not queued") && why.contains("for another"), "{why}");
    assert!(said(&site, &["unhold", "alhpa"]).starts_with("No longer held"));
    assert_eq!(said(&site, &["unhold", "alhpa"]), "alhpa was not held.\n");
    let long = "r".repeat(1_001);
    for wrong in [
        &["hold", "--for", "11years", "a"][..],
        &["hold", "--for", "soon", "a"],
        &["hold", "--reason", "two\nlines", "a"],
        &["hold", "--reason", &long, "a"],
        &["hold", "--by", "two words", "a"],
        &["hold", "two words"],
    ] {
        assert_eq!(site.run(wrong).status.code(), Some(64), "{wrong:?}");
    }
    let mut operator = Client::connect(&site);
    assert!(operator.ask("HELLO 2 eve").starts_with("HELLO 2 "));
    for wrong in ["HOLD", "HOLD a", "HOLD a soon", "HOLD a 315360001", "HOLD a -1", "UNHOLD"] {
        assert!(operator.ask(wrong).starts_with("ERROR usage "), "{wrong}");
    }
    assert!(operator.ask(&format!("HOLD a - {long}")).starts_with("ERROR usage "));
    assert!(operator.ask("HOLD a 0 ").starts_with("{\"key\":\"a\","));
    wait_until("it is over at once", || said(&site, &["tasks", "--held"]).starts_with("No key"));
}

/// All keys that begin alike are held, if they are known; each is let go by itself.
#[test]
fn keys_that_begin_alike() {
    let site = Site::new();
    let _daemon = site.start();
    let lines: String = (0..1_001).map(|number| format!("host/{number} 1\n")).collect();
    site.write("f.1.txt", lines + "hosts 1\n");
    site.wait_count(1_002);
    assert_eq!(
        said(&site, &["hold", "--prefix", "--for", "2h", "host/"]),
        "Held: 1001 keys that begin with host/; `shiftboss tasks --held` lists them. Keys that come later are not held.\n"
    );
    assert_eq!(said(&site, &["unhold", "host/7"]).find("No longer held"), Some(0));
    let mut given: Vec<_> = (0..3).map(|_| site.next_key("READY")).collect();
    given.sort();
    assert_eq!(given, [None, Some("host/7".to_owned()), Some("hosts".to_owned())]);
    assert_eq!(
        said(&site, &["hold", "--prefix", "host/1000"]),
        "Held: 1 key that begins with host/1000; `shiftboss tasks --held` lists them. Keys that come later are not held. It takes the place of 1 earlier hold.\n"
    );
    assert_eq!(
        said(&site, &["unhold", "--prefix", "host/1"]),
        "No longer held: 112 keys that begin with host/1. What waits of them is at its old place.\n"
    );
    assert!(site.next_key("READY").is_some_and(|key| key.starts_with("host/1")));
    let none = said(&site, &["hold", "--prefix", "other"]);
    assert!(none.starts_with("Held: 0 keys that begin with other;"), "{none}");
}

/// What would be handed out is told to be held, though its row is behind those that are shown.
#[test]
fn a_held_row_behind_long_payloads() {
    let site = Site::new();
    let _daemon = site.start();
    let long = "x".repeat(1_000_000);
    for number in 0..18 {
        site.deliver(&format!("f{number:02}"), 1, format!("alpha {long}\n"));
        site.wait_count(number + 1);
        assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
        assert_eq!(site.next_key("DONE alpha 0"), None);
    }
    site.deliver("z", 1, "alpha short\n");
    site.wait_count(19);
    let state = || object(&said(&site, &["why", "--json", "alpha"]))["state"].clone();
    assert_eq!(state(), "waiting");
    said(&site, &["hold", "alpha"]);
    assert_eq!(state(), "held");
}

/// All failed tasks are put back but those of held keys, and that is said.
#[test]
fn failed_tasks_of_held_keys_are_left_alone() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let _daemon = site.start();
    site.wait_count(2);
    let first = site.next_key("READY").unwrap();
    let second = site.next_key(&format!("DONE {first} 1")).unwrap();
    assert_eq!(site.next_key(&format!("DONE {second} 1")), None);
    said(&site, &["hold", &first]);
    let back = said(&site, &["retry", "--failed", "--yes"]);
    assert_eq!(back, "Back in the queue: 1 row, but for 1 task of held keys.\n");
    assert_eq!(site.next_key("READY").as_ref(), Some(&second));
}

/// Of a key that nothing lists all is forgotten; one that is listed, in flight or unknown is refused.
#[test]
fn a_key_is_forgotten() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let _daemon = site.start();
    site.wait_count(1);
    let forget = |key| site.run(&["forget", key]);
    let refused = |key, code, why: &str| {
        let (found, text) = failure(&forget(key));
        assert!(found == code && text.contains(why), "{found} {text}");
    };
    refused("bravo", 65, "nothing is known of that key");
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    refused("alpha", 65, "a list or a single task has that key");
    site.remove("f.1.txt");
    site.wait_count(0);
    refused("alpha", 69, "in flight");
    assert_eq!(site.next_key("DONE alpha 1"), None);
    said(&site, &["hold", "alpha"]);
    assert_eq!(said(&site, &["forget", "alpha"]), "Forgotten: alpha.\n");
    assert_eq!(site.run(&["why", "alpha"]).status.code(), Some(65));
    assert!(said(&site, &["log", "--key", "alpha"]).starts_with("No such attempt"));
    assert_eq!(said(&site, &["tasks", "--held"]), "No key is held.\n");
    site.write("f.2.txt", "alpha 0 1\n");
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
}

/// Only operators hold keys.
#[test]
fn who_may_hold() {
    let site = Site::new();
    let _daemon = site.start_with(&["--socket-mode", "0666"]);
    for verb in ["hold", "unhold", "bump", "forget"] {
        let asked = site.as_somebody_else(&[verb, "-t", "socket", "alpha"]).output().unwrap();
        assert_eq!(asked.status.code(), Some(77), "{verb}");
    }
}
