//! `bump`: keys that go before others, within their share of the hand-outs, and where that is shown.

use crate::common::{Client, Daemon, Site, wait_until};
use crate::said::{failure, object, said};
use serde_json::json;

/// A daemon whose only list has so many keys: key000, key001, ...
fn started(count: usize) -> (Site, Daemon) {
    started_with(count, &[])
}

fn started_with(count: usize, options: &[&str]) -> (Site, Daemon) {
    let site = Site::new();
    let list: String = (0..count).map(|number| format!("key{number:03} 0 {number}\n")).collect();
    site.write("f.1.txt", list);
    let daemon = site.start_with(options);
    site.wait_count(count);
    (site, daemon)
}

/// The next keys, as `queue` foretells them.
fn foretold(site: &Site) -> Vec<String> {
    let queue = object(&said(site, &["tasks", "--next", "--json", "-n", "1000"]));
    let keys = queue["keys"].as_array().unwrap();
    keys.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect()
}

/// All keys, as one classic worker gets them.
fn handed_out(site: &Site) -> Vec<String> {
    let mut keys = Vec::new();
    let mut line = "READY".to_owned();
    while let Some(key) = site.next_key(&line) {
        line = format!("DONE {key} 0");
        keys.push(key);
    }
    keys
}

/// The last key goes first, is named wherever one looks, over a kill and a restart; then it waits as the others do.
#[test]
fn a_bumped_key_goes_first() {
    let (site, daemon) = started(5);
    let last = foretold(&site).pop().unwrap();
    let first = format!(
        "Bumped: {last} is the next of the bumped keys; `shiftboss why {last}` tells its turn.\n"
    );
    assert_eq!(said(&site, &["bump", "--by", "eve", &last]), first);
    assert_eq!(said(&site, &["bump", &last]), first);
    daemon.kill();
    let _daemon = site.start();
    let order = foretold(&site);
    assert_eq!((order.first(), order.len()), (Some(&last), 5));
    let why = object(&said(&site, &["why", "--json", &last]));
    assert_eq!((&why["bump"]["by"], &why["place"]["keys_before"]), (&json!("eve"), &json!(0)));
    assert!(said(&site, &["why", &last]).contains("by eve"));
    assert!(said(&site, &["tasks", "--next"]).contains(", ahead"));
    assert!(said(&site, &["status", "-t", "socket"]).contains("\nBumped          1 key: "));
    assert!(said(&site, &["metrics", "-t", "socket"]).contains("\nshiftboss_bumped_keys 1.0\n"));
    assert_eq!(handed_out(&site), order);
    assert_eq!(object(&said(&site, &["status", "--json", "-t", "socket"]))["bumped"], 0);
}

/// What ended is put back; a key in flight runs once more, though its job fails.
#[test]
fn what_ended_runs_once_more() {
    let (site, _daemon) = started(2);
    assert_eq!(handed_out(&site).len(), 2);
    said(&site, &["bump", "key001"]);
    assert_eq!(site.next_key("READY").as_deref(), Some("key001"));
    said(&site, &["bump", "key001"]);
    let why = object(&said(&site, &["why", "--json", "key001"]));
    assert_eq!((&why["state"], why["bump"].is_object()), (&json!("in_flight"), true));
    assert_eq!(site.next_key("DONE key001 1").as_deref(), Some("key001"));
    assert_eq!(site.next_key("DONE key001 0"), None);
}

/// A worker that waits is told at once.
#[test]
fn a_waiting_worker_gets_it() {
    let (site, _daemon) = started(1);
    assert_eq!(handed_out(&site), ["key000"]);
    let mut worker = Client::connect(&site);
    assert!(worker.ask("HELLO 2 builder").starts_with("HELLO 2 "));
    worker.write(b"READY 60\n");
    said(&site, &["bump", "key000"]);
    assert!(worker.line().ends_with(" key000 0 0\n"));
}

/// One job in ten may be a bumped one, so nobody else waits much longer; it comes as `queue` foretold.
#[test]
fn others_have_their_turns() {
    let (site, _daemon) = started(60);
    let order = foretold(&site);
    for key in &order[50..55] {
        said(&site, &["bump", key]);
    }
    let expected = foretold(&site);
    let out = handed_out(&site);
    assert_eq!(out, expected);
    let bumped = |key: &String| order[50..55].contains(key);
    let turns: Vec<usize> = (0..60).filter(|turn| bumped(&out[*turn])).collect();
    assert_eq!(turns, [0, 10, 20, 30, 40]);
    let kept: Vec<_> = out.iter().filter(|key| !bumped(key)).collect();
    assert_eq!(kept, order[..50].iter().chain(&order[55..]).collect::<Vec<_>>());
}

/// With a share of 0 nothing goes first: keys that are bumped come in their turn.
#[test]
fn there_may_be_no_share() {
    let (site, _daemon) = started_with(5, &["--bump-share", "0"]);
    let order = foretold(&site);
    said(&site, &["bump", "-t", "socket", &order[4]]);
    assert_eq!(foretold(&site), order);
    assert_eq!(handed_out(&site), order);
    for wrong in ["0.6", "-0.1", "1", "0.0004", "ten", "nan"] {
        let share = format!("--bump-share={wrong}");
        assert_eq!(
            site.run(&["serve", &share, "a.db", "in", "b"]).status.code(),
            Some(64),
            "{wrong}"
        );
    }
}

/// Under the classic rules keys go in their order, and are bumped again after it.
#[test]
fn the_classic_rules_know_no_bumps() {
    let (site, daemon) = started(5);
    let order = foretold(&site);
    said(&site, &["bump", "-t", "socket", &order[4]]);
    daemon.kill();
    let daemon = site.start_with(&["--classic"]);
    assert_eq!(site.next_key("READY").as_ref(), Some(&order[0]));
    assert_eq!(site.next_key(&format!("DONE {} 0", order[0])).as_ref(), Some(&order[1]));
    assert_eq!(site.next_key(&format!("DONE {} 0", order[1])).as_ref(), Some(&order[2]));
    daemon.kill();
    let _daemon = site.start();
    assert_eq!(site.next_key("READY").as_ref(), Some(&order[4]));
}

/// Keys that cannot run are refused, and so are more than there may be.
#[test]
fn what_may_be_bumped() {
    let (site, _daemon) = started(1_001);
    let refused = |key, code, why: &str| {
        let (found, text) = failure(&site.run(&["bump", key]));
        assert!(found == code && text.contains(why), "{found} {text}");
    };
    refused("alhpa", 65, "no fetcher lists");
    said(&site, &["hold", "key000"]);
    refused("key000", 65, "held");
    said(&site, &["unhold", "key000"]);
    assert_eq!(site.run(&["bump", "two words"]).status.code(), Some(64));
    let mut operator = Client::connect(&site);
    assert!(operator.ask("HELLO 2 eve").starts_with("HELLO 2 "));
    assert!(operator.ask("BUMP").starts_with("ERROR usage "));
    for number in 0..1_000 {
        let behind = format!("{{\"key\":\"key{number:03}\",\"bumped_before\":{number}}}\n");
        assert_eq!(operator.ask(&format!("BUMP key{number:03}")), behind);
    }
    assert!(operator.ask("BUMP key1000").starts_with("ERROR full "));
    refused("key1000", 75, "as many bumped keys as may be (1000)");
    assert_eq!(site.next_key("READY").as_deref(), Some("key000"));
    let behind = "Bumped: key1000, behind 999 bumped keys.\n";
    assert_eq!(said(&site, &["bump", "key1000"]), behind);
    site.remove("f.1.txt");
    wait_until("its keys are bumped no longer", || {
        object(&said(&site, &["status", "--json", "-t", "socket"]))["bumped"] == 0
    });
}
