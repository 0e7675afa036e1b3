//! `shiftboss metrics`: the families that docs/metrics.md lists, counts that are true, names of all kinds.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::random::Random;
use crate::common::said::json;
use crate::common::{Client, Site, attempt_of, wait_until};

const DOCUMENTED: &str = include_str!("../../docs/metrics.md");
/// Those of fetchers that the daemon runs itself.
const MANAGED: &str = "fetcher_last_run_";
/// Those of what not every queue has: relays, a broker.
const OTHERS: [&str; 2] = ["relays|", "broker_"];
/// A queue in a file has one daemon.
const DAEMONS: &str = "daemons|gauge|";
/// A queue on a server has no files of its own.
const FILES: [&str; 2] = ["database_bytes|gauge|bytes", "wal_bytes|gauge|bytes"];

/// What the program prints of a daemon that runs. On a server a daemon is found by its socket.
fn metrics(site: &Site) -> String {
    printed(site, "socket")
}

fn printed(site: &Site, target: &str) -> String {
    let output = site.run(&["metrics", "-t", target]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}

/// Each family's name, type and unit.
fn families(text: &str) -> BTreeSet<String> {
    let mut families: BTreeMap<&str, [&str; 2]> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "TYPE", name, kind] => families.entry(name).or_default()[0] = kind,
            ["#", "UNIT", name, unit] => families.entry(name).or_default()[1] = unit,
            _ => {}
        }
    }
    let line = |(name, [kind, unit]): (&str, [&str; 2])| {
        format!("{}|{kind}|{unit}", name.strip_prefix("shiftboss_").unwrap())
    };
    families.into_iter().map(line).collect()
}

/// The same of the document; its words of those that the database tells begin with `d`.
fn documented(site: &Site, of_database_alone: bool) -> BTreeSet<String> {
    let families = DOCUMENTED.split("\n## ").next().unwrap();
    let rows = families.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let is_of_database = cells[5] == "d" || cells[5].starts_with("d: ");
        let family = format!("{}|{}|{}", cells[1].trim_matches('`'), cells[2], cells[3]);
        (is_of_database || !of_database_alone).then_some(family)
    };
    let has_files = site.server().is_none();
    rows.filter_map(row)
        .filter(|family| !family.starts_with(MANAGED))
        .filter(|family| !OTHERS.iter().any(|other| family.starts_with(other)))
        .filter(|family| !has_files || family != DAEMONS)
        .filter(|family| has_files || !FILES.contains(&&**family))
        .collect()
}

/// The value of a series; none counts as nothing.
fn series(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// Names, types and units are those of the document, with a daemon and without.
#[test]
fn the_families_are_as_documented() {
    let (site, daemon) = Site::running(&[]);
    site.deliver("f", 1_700_000_000, "alpha 1\nbravo 2\n");
    site.wait_count(2);
    let mut worker = Client::opted_in(&site, "HELLO 2 w");
    let attempt = attempt_of(&worker.ask("READY"));
    assert_eq!(worker.ask(&format!("DONE {attempt} 0")), "OK\n");
    wait_until("the end is counted", || {
        series(&metrics(&site), "shiftboss_jobs_total{fetcher=\"f\",outcome=\"success\"}") == 1.0
    });
    let text = metrics(&site);
    assert_eq!(families(&text), documented(&site, false));
    assert_eq!(series(&text, "shiftboss_up"), 1.0);
    assert_eq!(series(&text, "shiftboss_requests_total{request=\"DONE\"}"), 1.0);
    assert_eq!(series(&text, "shiftboss_tasks{fetcher=\"f\",status=\"waiting\"}"), 1.0);
    assert_eq!(series(&text, "shiftboss_connections"), 2.0);
    assert_eq!(series(&text, "shiftboss_job_duration_seconds_count{fetcher=\"f\"}"), 1.0);
    let list = "shiftboss_fetcher_list_timestamp_seconds{fetcher=\"f\"}";
    assert_eq!(series(&text, list), 1_700_000_000.0);
    daemon.stop();
    let text = printed(&site, "state.db");
    assert_eq!((families(&text), series(&text, "shiftboss_up")), (documented(&site, true), 0.0));
}

/// A daemon under `--classic` counts nothing for others; it is up all the same.
#[test]
fn a_classic_daemon_is_up() {
    let (site, _daemon) = Site::running(&["--classic"]);
    site.deliver("f", 1_700_000_000, "alpha 1\n");
    site.wait_count(1);
    let text = metrics(&site);
    assert_eq!((families(&text), series(&text, "shiftboss_up")), (documented(&site, true), 1.0));
}

/// Ten thousand jobs of workers that finish, fail, give back, or vanish: each is counted as it ended.
#[test]
fn counters_are_what_happened() {
    const JOBS: usize = 10_000;
    const WORKERS: usize = 16;
    let (site, _daemon) = Site::running(&[]);
    let lines: String = (0..JOBS).map(|number| format!("key{number} x\n")).collect();
    site.deliver("f", 1, lines);
    site.wait_count(JOBS);
    let mut random = Random::seeded();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let greeted = |lease| Client::leased(&site, lease);
    // What many ask at once shares commits.
    let mut workers: Vec<Client> = (0..WORKERS).map(|_| greeted(600)).collect();
    for _ in 0..JOBS / WORKERS {
        // A connection that is dropped with its job leaves it to its lease.
        let vanishes = random.below(30) == 0;
        if vanishes {
            workers[0] = greeted(1);
        }
        workers.iter_mut().for_each(|worker| worker.write(b"READY\n"));
        for (at, worker) in workers.iter_mut().enumerate() {
            let attempt = attempt_of(&worker.line());
            let (outcome, answer) = match random.below(10) {
                _ if vanishes && at == 0 => ("expired", String::new()),
                0 => ("released", format!("RELEASE {attempt}\n")),
                1 => ("failure", format!("DONE {attempt} 7\n")),
                2 => ("timeout", format!("DONE {attempt} 124\n")),
                _ => ("success", format!("DONE {attempt} 0\n")),
            };
            worker.write(answer.as_bytes());
            *counts.entry(outcome).or_default() += 1;
        }
        let answering = usize::from(vanishes);
        workers[answering..].iter_mut().for_each(|worker| assert_eq!(worker.line(), "OK\n"));
        if vanishes {
            workers[0] = greeted(600);
        }
    }
    let expired = counts["expired"];
    wait_until("all leases have expired", || {
        let requeued = "shiftboss_leases_expired_total{result=\"requeued\"}";
        series(&metrics(&site), requeued) == f64::from(expired)
    });
    let text = metrics(&site);
    for (outcome, count) in counts {
        let name = format!("shiftboss_jobs_total{{fetcher=\"f\",outcome=\"{outcome}\"}}");
        assert_eq!(series(&text, &name), f64::from(count), "{outcome}");
    }
    assert_eq!(json(&site, &["log", "--sum"])["groups"][0]["expired"], expired);
}

/// Names that would break a line are escaped.
#[test]
fn names_of_all_kinds() {
    let (site, _daemon) = Site::running(&[]);
    site.deliver("a\"b\\c {x=1} \u{202e}", 1, "alpha 1\nbravo 2\n");
    site.wait_count(2);
    let text = metrics(&site);
    let hostile = "shiftboss_tasks{fetcher=\"a\\\"b\\\\c {x=1} \u{202e}\",status=\"waiting\"}";
    assert_eq!(series(&text, hostile), 2.0, "{text}");
}
