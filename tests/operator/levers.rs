//! `hold`, `unhold`, `bump` and `forget`, `[job_retry]` and `[backoff]`: each path through the program once, and that whoever looks is
//! told. What they do to a key is held in the tables of `queue::statements`.

use serde_json::{Value, json};

use crate::common::said::{all_said, code_and_error, failure, json, said};
use crate::common::{Client, Daemon, Site, attempt_of, wait_until};

/// A daemon with these rules.
fn ruled(rules: &str) -> (Site, Daemon) {
    let site = Site::new();
    std::fs::write(site.path("rules.toml"), rules).unwrap();
    let daemon = site.start_with(&["--config", "rules.toml"]);
    (site, daemon)
}

/// A daemon whose only list has so many keys: key000, key001, ...
fn listed(count: usize) -> (Site, Daemon) {
    let list: String = (0..count).map(|number| format!("key{number:03} 0 {number}\n")).collect();
    Site::serving(&list, &[])
}

fn why(site: &Site, key: &str) -> Value {
    json(site, &["why", key])
}

fn held(site: &Site) -> Value {
    json(site, &["tasks", "--held"])["keys"].clone()
}

/// The next keys, as they are foretold.
fn foretold(site: &Site) -> Vec<String> {
    let queue = json(site, &["tasks", "--next", "-n", "1000"]);
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

/// `status` and the metrics have a line each that tells of it.
fn assert_told(site: &Site, status: &str, metric: &str) {
    let shown = said(site, &["status", "-t", "socket"]);
    assert!(shown.contains(&format!("\n{status}")), "{shown}");
    let shown = said(site, &["metrics", "-t", "socket"]);
    assert!(shown.contains(&format!("\nshiftboss_{metric}\n")), "{shown}");
}

/// Refused with this exit code, because of that.
fn assert_refused(site: &Site, arguments: &[&str], code: i32, why: &str) {
    let (found, text) = failure(&site.run(arguments));
    assert!(found == code && text.contains(why), "{arguments:?}: {found} {text}");
}

/// A held key is passed over, over lists and a kill, is named wherever one looks, and comes back at its old place.
#[test]
fn a_held_key_is_passed_over() {
    let (site, daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    let hold = ["hold", "--reason", "upstream is down", "--by", "eve", "alpha"];
    assert_eq!(said(&site, &hold), "Held until `shiftboss unhold alpha`: alpha.\n");
    assert_eq!(handed_out(&site), ["bravo"]);
    site.write("f.2.txt", "alpha 0 1\nbravo 0 2\n");
    daemon.kill();
    let _daemon = site.start();
    site.wait_count(4);
    assert_eq!(handed_out(&site), ["bravo"]);
    let told = said(&site, &["why", "alpha"]);
    assert!(told.contains("held: it is not handed out, and keeps its place\n"), "{told}");
    assert!(told.contains(" by eve, until it is unheld: upstream is down\n"), "{told}");
    assert_told(&site, "Held            1 key: ", "held_keys{kind=\"hold\"} 1.0");
    let since = &held(&site)[0]["since"];
    let expected = json!([{"key": "alpha", "kind": "hold", "since": since, "until": null,
        "reason": "upstream is down", "by": "eve"}]);
    assert_eq!(held(&site), expected);
    assert_refused(&site, &["retry", "alpha"], 65, "held");
    assert!(said(&site, &["unhold", "alpha"]).starts_with("No longer held: alpha. "));
    assert_eq!(said(&site, &["unhold", "alpha"]), "alpha was not held.\n");
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    assert_eq!(said(&site, &["tasks", "--held"]), "No key is held.\n");
}

/// A job that is in flight goes on; a hold for a time ends by itself, and a worker that waits is told.
#[test]
fn a_hold_ends_by_itself() {
    let (site, _daemon) = listed(1);
    let mut worker = Client::opted_in(&site, "HELLO 2 eve");
    let attempt = attempt_of(&worker.ask("READY"));
    let answer = json(&site, &["hold", "--for", "1500ms", "key000"]);
    assert!(answer["until"].is_i64() && answer["known"] == true, "{answer}");
    let why = why(&site, "key000");
    assert_eq!((&why["state"], &why["hold"]["until"]), (&json!("in_flight"), &answer["until"]));
    assert_eq!(worker.ask(&format!("DONE {attempt} 1")).trim_end(), "OK");
    site.write("f.2.txt", "key000 0 2\n");
    assert!(worker.ask("READY 60").ends_with(" key000 0 2\n"));
    assert_eq!(held(&site), json!([]));
}

/// The last word about a key holds; one that nobody knows is held as well, and said to be unknown. What is no hold is refused.
#[test]
fn what_may_be_held() {
    let (site, _daemon) = Site::running(&[]);
    let doubt = "is it spelled right?\n";
    assert!(said(&site, &["hold", "alhpa"]).ends_with(doubt));
    let again = said(&site, &["hold", "--for", "2h", "--reason", "a", "alhpa"]);
    assert!(again.starts_with("Held until 2") && again.ends_with(doubt), "{again}");
    assert!(again.contains(" It takes the place of a hold by "), "{again}");
    let long = "r".repeat(1_001);
    for wrong in [
        &["hold", "--for", "11years", "a"][..],
        &["hold", "--for", "soon", "a"],
        &["hold", "--reason", &long, "a"],
        &["hold", "--by", "two words", "a"],
        &["hold", "two words"],
        &["bump", "two words"],
    ] {
        assert_eq!(site.run(wrong).status.code(), Some(64), "{wrong:?}");
    }
    let mut operator = Client::opted_in(&site, "HELLO 2 eve");
    for wrong in ["HOLD a", "HOLD a soon", "HOLD a 315360001", "HOLD a -1", "UNHOLD", "BUMP"] {
        assert!(operator.ask(wrong).starts_with("ERROR usage "), "{wrong}");
    }
    assert!(operator.ask("HOLD alhpa 0 ").starts_with("{\"key\":\"alhpa\","));
    wait_until("it is over at once", || held(&site) == json!([]));
}

/// Keys that begin alike are held by one rule, also later ones; so are a fetcher's tasks. It is named wherever one looks.
#[test]
fn keys_are_held_by_rules() {
    let (site, daemon) = listed(1_001);
    let hold = ["hold", "--prefix", "key", "--reason", "upstream is down", "--by", "eve"];
    let held = "Held until `shiftboss unhold --prefix key`: all keys that begin with key, also those that come later.";
    assert_eq!(said(&site, &hold), format!("{held}\n"));
    site.write("g.1.txt", "key9999 1\nother 1\n");
    site.wait_count(1_003);
    assert_eq!(handed_out(&site), ["other"]);
    daemon.kill();
    let _daemon = site.start();
    assert_eq!(handed_out(&site), [""; 0]);
    let told = said(&site, &["why", "key9999"]);
    assert!(told.contains("held: it is not handed out"), "{told}");
    assert!(told.contains("\nHeld by rule    prefix key, "), "{told}");
    assert!(told.contains(" by eve, until it is unheld: upstream is down\n"), "{told}");
    assert_eq!(why(&site, "key9999")["hold_rule"]["of"], "key");
    assert_told(&site, "Hold rules      1: prefix key, ", "held_keys{kind=\"hold\"} 0.0");
    said(&site, &["hold", "--fetcher", "g", "--for", "2h"]);
    said(&site, &["hold", "key007"]);
    let ended = "No rule holds all keys that begin with key any more: what waits of them is at its old place.\n";
    let unheld = said(&site, &["unhold", "--prefix", "key"]);
    assert!(unheld.starts_with("No longer held: 1 key. ") && unheld.ends_with(ended), "{unheld}");
    let follow = || wait_until("all follow", || site.status()["hold_rules_carried"].is_null());
    follow();
    assert_eq!(handed_out(&site).len(), 1_001, "but for that of g");
    said(&site, &["unhold", "--fetcher", "g"]);
    follow();
    assert_eq!(handed_out(&site), ["key9999"]);
    assert_refused(&site, &["hold", "--prefix", "a", "--fetcher", "g"], 64, "give one of them");
}

/// What would be handed out is told to be held, though its row is behind those that are shown.
#[test]
fn a_held_row_behind_long_payloads() {
    let (site, _daemon) = Site::running(&[]);
    let long = "x".repeat(1_000_000);
    for number in 0..18 {
        site.deliver(&format!("f{number:02}"), 1, format!("alpha {long}\n"));
        site.wait_count(number + 1);
        assert_eq!(handed_out(&site), ["alpha"]);
    }
    site.deliver("z", 1, "alpha short\n");
    site.wait_count(19);
    assert_eq!(why(&site, "alpha")["state"], "waiting");
    said(&site, &["hold", "alpha"]);
    assert_eq!(why(&site, "alpha")["state"], "held");
}

/// All failed tasks are put back but those of held keys, and that is said.
#[test]
fn failed_tasks_of_held_keys_are_left_alone() {
    let (site, _daemon) = listed(2);
    let first = site.next_key("READY").unwrap();
    let second = site.next_key(&format!("DONE {first} 1")).unwrap();
    assert_eq!(site.next_key(&format!("DONE {second} 1")), None);
    said(&site, &["hold", &first]);
    let back = said(&site, &["retry", "--failed", "--yes"]);
    assert_eq!(back, "Back in the queue: 1 task. Left alone: 1 held key.\n");
    assert_eq!(site.next_key("READY").as_ref(), Some(&second));
}

/// The last key goes first, is named wherever one looks, over a kill and a restart; then it waits as the others do.
#[test]
fn a_bumped_key_goes_first() {
    let (site, daemon) = listed(5);
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
    let why = why(&site, &last);
    assert_eq!((&why["bump"]["by"], &why["place"]["keys_before"]), (&json!("eve"), &json!(0)));
    assert!(said(&site, &["why", &last]).contains("by eve"));
    assert!(said(&site, &["tasks", "--next"]).contains(", ahead"));
    assert_told(&site, "Bumped          1 key: ", "bumped_keys 1.0");
    assert_eq!(handed_out(&site), order);
    assert_eq!(site.status_of("socket")["bumped"], 0);
    let mut worker = Client::opted_in(&site, "HELLO 2 eve");
    worker.write(b"READY 60\n");
    said(&site, &["bump", "key000"]);
    assert!(worker.line().ends_with(" key000 0 0\n"), "who waits is told at once");
}

/// One job in ten may be a bumped one, so nobody else waits much longer; it comes as it was foretold.
#[test]
fn others_have_their_turns() {
    let (site, _daemon) = listed(60);
    let order = foretold(&site);
    let chosen = &order[50..55];
    chosen.iter().for_each(|key| drop(said(&site, &["bump", key])));
    let expected = foretold(&site);
    let turns: Vec<usize> = (0..60).filter(|turn| chosen.contains(&expected[*turn])).collect();
    assert_eq!(turns, [0, 10, 20, 30, 40]);
    assert_eq!(handed_out(&site), expected);
    for wrong in ["0.6", "-0.1", "0.0004", "ten", "nan"] {
        let share = format!("--bump-share={wrong}");
        let refused = site.run(&["serve", &share, "a.db", "in", "b"]);
        assert_eq!(refused.status.code(), Some(64), "{wrong}");
    }
}

/// Keys that cannot run are refused, and so are more than there may be.
#[test]
fn what_may_be_bumped() {
    let (site, _daemon) = listed(1_001);
    assert_refused(&site, &["bump", "alhpa"], 65, "no fetcher lists");
    said(&site, &["hold", "key000"]);
    assert_refused(&site, &["bump", "key000"], 65, "held");
    said(&site, &["unhold", "key000"]);
    let mut operator = Client::opted_in(&site, "HELLO 2 eve");
    for number in 0..1_000 {
        let behind = format!("{{\"key\":\"key{number:03}\",\"bumped_before\":{number}}}\n");
        assert_eq!(operator.ask(&format!("BUMP key{number:03}")), behind);
    }
    assert!(operator.ask("BUMP key1000").starts_with("ERROR full "));
    assert_refused(&site, &["bump", "key1000"], 75, "as many bumped keys as may be (1000)");
    assert_eq!(site.next_key("READY").as_deref(), Some("key000"));
    let behind = "Bumped: key1000, behind 999 bumped keys.\n";
    assert_eq!(said(&site, &["bump", "key1000"]), behind);
    site.remove("f.1.txt");
    wait_until("its keys are bumped no longer", || site.status_of("socket")["bumped"] == 0);
}

/// Of a key that nothing lists all is forgotten; one that is listed, in flight or unknown is refused.
#[test]
fn a_key_is_forgotten() {
    let (site, _daemon) = listed(1);
    assert_refused(&site, &["forget", "bravo"], 65, "nothing is known of that key");
    assert_eq!(site.next_key("READY").as_deref(), Some("key000"));
    assert_refused(&site, &["forget", "key000"], 65, "a list or a single task has that key");
    site.remove("f.1.txt");
    site.wait_count(0);
    assert_refused(&site, &["forget", "key000"], 69, "in flight");
    assert_eq!(site.next_key("DONE key000 1"), None);
    said(&site, &["hold", "key000"]);
    assert_eq!(said(&site, &["forget", "key000"]), "Forgotten: key000.\n");
    assert_eq!(site.run(&["why", "key000"]).status.code(), Some(65));
    assert!(said(&site, &["log", "--key", "key000"]).starts_with("No such attempt"));
    assert_eq!(held(&site), json!([]));
}

/// While it waits for its time it is no failed task, is named wherever one looks, and `retry` puts it back at once.
#[test]
fn a_delayed_task_is_shown() {
    let (site, _daemon) = ruled("[job_retry]\non = 'timeout'\nfirst = '2h'\nmax_delay = '5h'\n");
    site.write("f.1.txt", "alpha 0 1\nbravo 0 1\n");
    site.wait_count(2);
    let first = site.next_key("READY").unwrap();
    let second = site.next_key(&format!("DONE {first} 124")).unwrap();
    assert_eq!(site.next_key(&format!("DONE {second} 1")), None);
    let listed = |status| json(&site, &["tasks", "--status", status]);
    let task = &listed("delayed")["tasks"][0];
    assert_eq!(task["key"], *first);
    let reason = task["reason"].as_str().unwrap();
    assert!(reason.starts_with("timeout") && reason.contains("; retry 1 in "), "{reason}");
    let due = task["due"].as_i64().unwrap() - task["since"].as_i64().unwrap();
    assert!((6_480..=7_920).contains(&due), "two hours, a tenth more or less: {task}");
    let failed = listed("failed");
    assert_eq!(failed["tasks"].as_array().map(Vec::len), Some(1), "{failed}");
    assert_eq!(
        (&failed["tasks"][0]["key"], &failed["tasks"][0]["due"]),
        (&json!(second), &Value::Null)
    );
    assert_told(&site, "Delayed         1 task: ", "delayed_tasks 1.0");
    let metric = "tasks{fetcher=\"f\",status=\"failed\"} 1.0";
    assert_told(&site, "Failed          1 task: ", metric);
    let told = said(&site, &["why", &first]);
    assert!(told.contains("delayed: its task failed, and waits again by itself\n"), "{told}");
    assert!(told.contains(&format!(", retry 1 of this task, or with its fetcher's next list if that is sooner; soon by `shiftboss bump {first}`\n")), "{told}");
    assert!(said(&site, &["retry", &first]).contains('1'));
    assert_eq!(handed_out(&site), [first]);
}

/// A single task is tried again though no rule says so, and not where the rule says so; a fetcher's own rule wins.
#[test]
fn whose_rule_it_is() {
    let (site, daemon) = Site::running(&[]);
    said(&site, &["add", "alpha", "1"]);
    let fails = |key: &str| {
        assert_eq!(site.next_key("READY").as_deref(), Some(key));
        site.next_key(&format!("DONE {key} 1"));
        why(&site, key)["state"].clone()
    };
    assert_eq!(fails("alpha"), "delayed");
    assert!(said(&site, &["cancel", "alpha"]).contains('1'));
    daemon.stop();
    let own = "job_retry = {first = '2h', max_delay = '2h'}";
    let fetcher =
        format!("[[fetcher]]\nname = 'f'\ncommand = ['echo', 'bravo 0 1']\nevery = '9h'\n{own}\n");
    let rules = format!("[job_retry]\nretries = 0\n{fetcher}");
    std::fs::write(site.path("rules.toml"), rules).unwrap();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    site.wait_count(1);
    assert_eq!(fails("bravo"), "delayed");
    said(&site, &["add", "alpha", "2"]);
    assert_eq!(fails("alpha"), "failed");
    let status = site.status_of("socket");
    assert_eq!((&status["delayed"], &status["single_tasks_ended"]), (&json!(1), &json!(1)));
}

/// The clock was a year ahead when a task failed and a key was held, and is right again when the next daemon starts: neither
/// waits for longer than its delay.
#[test]
fn a_clock_that_was_ahead_delays_nothing() {
    let (site, daemon) = ruled("[job_retry]\nretries = 1\nfirst = '1s'\n");
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
    wait_until("the task waits again", || why(&site, "alpha")["state"] == "waiting");
    wait_until("the hold is over", || held(&site) == json!([]));
}

/// A key that fails again and again is held, over lists and a kill, is named wherever one looks, gets one try from `unhold`, and is
/// held for longer then.
#[test]
fn a_key_that_fails_is_held() {
    let (site, daemon) = ruled("[backoff]\nafter = 2\nfirst = '20days'\nmax_delay = '30days'\n");
    for run in 1..=3 {
        site.write(format!("f.{run}.txt"), format!("alpha 0 {run}\n"));
        site.wait_count(run);
        if run < 3 {
            assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
            assert_eq!(site.next_key("DONE alpha 1"), None);
        }
    }
    daemon.kill();
    let _daemon = site.start_with(&["--config", "rules.toml"]);
    assert_eq!(site.next_key("READY"), None);
    let told = said(&site, &["why", "alpha"]);
    assert!(told.contains(" by backoff, for another "), "{told}");
    assert!(told.contains(": failed 2 times in a row\n"), "{told}");
    assert_told(&site, "Backed off      1 key that fails: ", "held_keys{kind=\"backoff\"} 1.0");
    let kept = held(&site)[0].clone();
    let days =
        (kept["until"].as_i64().unwrap() - kept["since"].as_i64().unwrap()) as f64 / 86_400.0;
    assert!((18.0..=22.0).contains(&days) && kept["kind"] == "backoff", "{kept}");
    assert_refused(&site, &["retry", "alpha"], 65, "unhold");
    assert!(said(&site, &["unhold", "alpha"]).starts_with("No longer held"));
    assert_eq!(site.next_key("READY").as_deref(), Some("alpha"));
    site.next_key("DONE alpha 1");
    let hold = why(&site, "alpha")["hold"].clone();
    assert_eq!(hold["reason"], "failed 3 times in a row", "{hold}");
    let told = said(&site, &["why", "alpha"]);
    let once = "due again with its fetcher's next list, once nothing holds it\n";
    assert!(told.contains(once), "{told}");
}

/// What is no rule is refused with its line, and the classic rules know none.
#[test]
fn what_may_be_a_rule() {
    let site = Site::new();
    let refused = |rule: &str, options: &[&str]| {
        std::fs::write(site.path("rules.toml"), rule).unwrap();
        site.refused(site.serve(&[&["--config", "rules.toml"], options].concat()))
    };
    let (code, text) = refused("[backoff]\nafter = 0\n", &[]);
    assert!(code == 78 && text.contains("after: 0 is not in 1..=1000"), "{text}");
    assert!(text.contains("rules.toml:"), "{text}");
    if site.server().is_none() {
        let (code, text) = refused("[backoff]\nafter = 2\n", &["--classic"]);
        assert!(code == 78 && text.contains("neither [job_retry] nor [backoff]"), "{code} {text}");
    }
}

mod sqlite {
    use super::*;

    /// Most keys are there for their last runs alone, and that is said; with `[retention]` they go once they are old.
    #[test]
    fn keys_that_nothing_lists_are_forgotten() {
        let (site, daemon) = listed(1_001);
        site.remove("f.1.txt");
        wait_until("nothing is listed", || site.status()["unlisted_keys"] == 1_001);
        let shown = said(&site, &["status", "-t", "socket"]);
        assert!(shown.contains("\nUnlisted        1001 of 1001 keys\n"), "{shown}");
        let (code, wrong) = all_said(&site.run(&["status", "--check"]));
        assert!(
            code == 0 && wrong.contains("nothing lists 1001 of 1001 keys: [retention] "),
            "{wrong}"
        );
        daemon.stop();
        let aged = "UPDATE keys SET since = 0";
        rusqlite::Connection::open(site.database()).unwrap().execute(aged, ()).unwrap();
        let rules = site.path("rules.toml");
        std::fs::write(&rules, "[retention]\nunlisted_keys = '1hour'\n").unwrap();
        let (code, why) = code_and_error(&site.run(&["check", "--config", "rules.toml"]));
        assert!(
            code == 78 && why.contains("rules.toml:2: ") && why.contains("from \"1day\""),
            "{why}"
        );
        std::fs::write(&rules, "[retention]\nunlisted_keys = '400days'\n").unwrap();
        let _daemon = site.start_with(&["--config", "rules.toml"]);
        wait_until("some are forgotten", || {
            let status = site.status();
            let number = |name: &str| status[name].as_i64().unwrap();
            number("forgotten_keys") > 0 && number("keys") + number("forgotten_keys") == 1_001
        });
    }
}
