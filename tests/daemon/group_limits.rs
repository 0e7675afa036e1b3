//! `[[group]]` through the program: limits that hold over kills, what a command asks for, what is refused, and what
//! `check` says of a list.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::said::{all_said, failure, json, said};
use crate::common::wait::wait_equal;
use crate::common::{Daemon, Site, wait_until};

const HOSTS: usize = 4;
const PAGES: usize = 5;
const DELAY_MS: i64 = 300;

/// Says when it begins and ends, in milliseconds.
const JOB: &str = "echo $(date +%s%3N) begin $SHIFTBOSS_KEY >> ran; sleep 0.03; \
    echo $(date +%s%3N) end $SHIFTBOSS_KEY >> ran";

fn ruled(rules: &str, list: &str) -> (Site, Daemon) {
    let site = Site::new();
    fs::write(site.path("groups.toml"), rules).unwrap();
    site.write("f.1.txt", list);
    let daemon = site.start_with(&["--config", "groups.toml"]);
    site.wait_count(list.lines().count());
    (site, daemon)
}

fn urls(hosts: usize, pages: usize) -> String {
    let pages = |host| (0..pages).map(move |page| format!("http://h{host}.test/{page} -\n"));
    (0..hosts).flat_map(pages).collect()
}

fn work(site: &Site, options: &[&str], script: &str) -> Command {
    let mut command = site.program();
    command.args(["work", "-t", "socket"]).args(options).args(["--", "sh", "-c", script]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// What jobs wrote, in the order of time: when, whether it is a begin, and of which host and key.
fn ran(site: &Site) -> Vec<(i64, bool, String, String)> {
    let text = fs::read_to_string(site.path("ran")).unwrap_or_default();
    let line = |line: &str| {
        let [time, word, key] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let host = key.split('/').nth(2)?.to_owned();
        Some((time.parse().ok()?, word == "begin", host, key.to_owned()))
    };
    let mut all: Vec<_> = text.lines().filter_map(line).collect();
    all.sort();
    all
}

fn ended(site: &Site) -> usize {
    ran(site).iter().filter(|it| !it.1).map(|it| &it.3).collect::<HashSet<_>>().len()
}

fn end(mut worker: Child) {
    kill_process(Pid::from_child(&worker), Signal::TERM).unwrap();
    worker.wait().unwrap();
}

/// One job at a time of a host, and so far from start to start, whatever becomes of the daemon.
#[test]
fn limits_hold_over_kills() {
    let rules = format!(
        "[[group]]\nname = 'host'\nby = 'host'\nmax_in_flight = 1\ndelay = '{DELAY_MS}ms'\n"
    );
    let (site, mut daemon) = ruled(&rules, &urls(HOSTS, PAGES));
    let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let options = ["-n", "2", "--lease", "2s"];
    let workers = [(); 3].map(|()| work(&site, &options, JOB).spawn().unwrap());
    for part in 1..4 {
        wait_until("some have run", || ended(&site) >= part * HOSTS * PAGES / 5);
        daemon.kill();
        daemon = site.start_with(&["--config", "groups.toml"]);
    }
    wait_until("all have run", || ended(&site) == HOSTS * PAGES);
    workers.into_iter().for_each(end);
    drop(daemon);
    let (mut out, mut begun) = (HashMap::<_, i32>::new(), HashMap::<_, i64>::new());
    for (time, is_begin, host, key) in ran(&site) {
        let now = out.entry(host.clone()).or_default();
        *now += if is_begin { 1 } else { -1 };
        assert!(*now <= 1, "two jobs of {host} at once: {key}");
        if is_begin {
            // A shell may begin late, which makes the time to the next one shorter, but none too early.
            let before = begun.entry(host).or_default();
            let after = time - first + 10;
            assert!(after >= *before * DELAY_MS, "{key} began after {after} ms, {before} before");
            *before += 1;
        }
    }
}

/// A pause is that of the host whose job asked for it, and `work --once` leaves it, or waits.
#[test]
fn a_command_pauses_its_host() {
    let rules = "[[group]]\nname = 'host'\nby = 'host'\nmax_in_flight = 1\n";
    let (site, _daemon) = ruled(rules, &urls(2, 3));
    let script = "case $SHIFTBOSS_KEY in *h0*) echo group-wait=2 > $SHIFTBOSS_CONTROL;; esac; \
        echo $(date +%s%3N) begin $SHIFTBOSS_KEY >> ran";
    let begun = |host: &str| ran(&site).iter().filter(|it| it.2 == host).count();
    assert!(work(&site, &["--once", "-n", "2"], script).status().unwrap().success());
    assert_eq!([begun("h0.test"), begun("h1.test")], [1, 3]);
    assert!(work(&site, &["--once", "--until-done"], script).status().unwrap().success());
    assert_eq!([begun("h0.test"), begun("h1.test")], [3, 3]);
    let times: Vec<i64> = ran(&site).iter().filter(|it| it.2 == "h0.test").map(|it| it.0).collect();
    let gaps: Vec<i64> = times.windows(2).map(|it| it[1] - it[0]).collect();
    assert!(gaps.iter().all(|gap| *gap > 1_900), "{gaps:?}");
}

/// However many slots wait for one host, its jobs start as soon as they may.
#[test]
fn a_host_alone_is_not_kept_waiting() {
    let rules = "[[group]]\nname = 'host'\nby = 'host'\nmax_in_flight = 1\ndelay = '100ms'\n";
    let (site, _daemon) = ruled(rules, &urls(1, 20));
    let begun = Instant::now();
    let options = ["--once", "--until-done", "-n", "4"];
    assert!(work(&site, &options, "sleep 0.02").status().unwrap().success());
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?} for what takes 2 s");
}

/// What waits for a group is listed with it, as are the reason and no turn, and what has another group or none is not.
#[test]
fn the_tasks_of_a_group_are_listed() {
    let rules = "[[group]]\nname = 'host'\nby = 'host'\ndelay = '1h'\n";
    let (site, _daemon) =
        ruled(rules, "http://a.test/1 -\nhttp://a.test/2 -\nhttp://b.test/1 -\nc -\n");
    assert!(work(&site, &["--once"], "true").status().unwrap().success());
    let told = said(&site, &["tasks", "--group", "host:a.test", "--status", "waiting"]);
    let (opens, shown) = ("its group opens in ", told.lines().count());
    assert!(shown == 2 && told.contains("http://a.test/") && told.contains(opens), "{told}");
    let next = said(&site, &["tasks", "--next"]);
    assert!(next.contains("group opens in ") && !next.contains("next"), "{next}");
    let next = json(&site, &["tasks", "--next"])["keys"].take();
    assert!(next[0]["group"]["state"] == "delayed" && next[1].is_null(), "{next}");
    let none = said(&site, &["tasks", "--group", "host:b.test"]);
    assert!(!none.contains("http"), "{none}");
    for words in [&["tasks", "--group", "host:c.test"][..], &["retry", "--yes", "--group", "c"]] {
        let (code, why) = failure(&site.run(words));
        assert!(code == 65 && why.contains("no task is in a group "), "{code} {why}");
    }
}

/// A reload: other limits hold at once, and other tables as soon as keys are sorted, which status tells.
#[test]
fn a_reload_is_followed() {
    let head = "[[group]]\nname = 'host'\nby = 'host'\n";
    let (site, daemon) = ruled(&format!("{head}delay = '1h'\n"), &urls(2, 3));
    let work_once =
        || assert!(work(&site, &["--once", "-n", "2"], JOB).status().unwrap().success());
    let reload = |rules: &str| {
        fs::write(site.path("groups.toml"), rules).unwrap();
        daemon.signal(Signal::HUP);
    };
    let closed = || {
        let status = site.status();
        let groups = status["groups"].as_array().unwrap().iter();
        let closed =
            groups.filter(|it| it["state"] != "open").filter_map(|it| it["groups"].as_i64());
        (closed.sum::<i64>(), status["groups_carried"].as_i64())
    };
    work_once();
    assert_eq!(ended(&site), 2);
    wait_equal("they are closed", &(2, None), closed);
    reload(head);
    wait_equal("they open", &(0, None), closed);
    work_once();
    assert_eq!(ended(&site), 6);
    reload("[[group]]\nname = 'page'\nby = {regex = '[^/]+$'}\n");
    let names = || {
        let groups = json(&site, &["groups"]);
        let name = |it: &Value| it["group"].as_str().unwrap().to_owned();
        let mut names: Vec<_> = groups["groups"].as_array().unwrap().iter().map(name).collect();
        names.sort();
        names
    };
    wait_equal(
        "all are sorted",
        &["page:0", "page:1", "page:2"].map(str::to_owned).to_vec(),
        names,
    );
    wait_equal("status says so", &None, || site.status()["groups_carried"].as_i64());
}

/// What is no table is refused with its line, and the classic rules know none.
#[test]
fn what_may_be_a_group() {
    let site = Site::new();
    let refused = |rules: &str, options: &[&str]| {
        fs::write(site.path("groups.toml"), rules).unwrap();
        site.refused(site.serve(&[&["--config", "groups.toml"], options].concat()))
    };
    let head = "[[group]]\nname = 'host'\nby = 'host'\n";
    for (line, word) in [
        ("max_in_flight = 0", ":4: max_in_flight: 0 is not in 1..=1000"),
        ("keys = '('", ":4: keys: \"(\" is no regular expression"),
        ("[[group.limit]]\nmatch = 'a'\ndelay = '-5s'", ":6: delay: "),
        (head, ":4: there is a group \"host\" already"),
    ] {
        let (code, text) = refused(&format!("{head}{line}\n"), &[]);
        assert!(code == 78 && text.contains(word), "{code} {text}");
    }
    if site.server().is_none() {
        let (code, text) = refused(head, &["--classic"]);
        assert!(code == 78 && text.contains("nor [[group]]"), "{code} {text}");
    }
}

/// A list is sorted before a daemon has it, and a pass that takes too long is seen.
#[test]
fn check_says_how_a_list_is_sorted() {
    let site = Site::new();
    let rules = "[[group]]\nname = 'host'\nby = 'host'\nmax_in_flight = 1\ndelay = '5s'\n\
        [[fetcher]]\nname = 'f'\ncommand = ['true']\nevery = '1min'\n";
    fs::write(site.path("groups.toml"), rules).unwrap();
    site.write("f.1.txt", format!("{}http://h0.test/more -\nnone -\n", urls(12, 15)));
    let check = |more: &[&str]| {
        let words = ["check", "--config", "groups.toml", "--list", "input/f.1.txt"];
        said(&site, &[&words, more].concat())
    };
    let told = check(&["--job-time", "2s"]);
    let first = "list input/f.1.txt: 182 keys, in 12 groups and 1 without one\n  \
        host:h0.test: 16 keys, 1m 17s\n  host:h1.test: 15 keys, 1m 12s\n";
    assert!(told.contains(first) && told.matches("  host:").count() == 10, "{told}");
    let longest = "  one pass takes 1m 17s at least, for host:h0.test; a job taken to last 2s\n";
    let warning = "  warning: its fetcher makes a new list every 1m, before one pass is over";
    assert!(told.contains(&format!("{longest}{warning}")), "{told}");
    let told = check(&["--job-time", "10s"]);
    assert!(told.contains("one pass takes 2m 40s at least"), "{told}");
    let (code, why) = all_said(&site.run(&["check", "--config", "groups.toml", "--list", "none"]));
    assert!(code == 78 && why.contains("cannot read the list none: "), "{why}");
}
