//! Whose turn it is (spec 2 and 5): the order of new keys, leases that run out, and fetchers that
//! list the same key.

use std::time::{Duration, Instant};

use crate::common::sql::LOG;
use crate::common::{Client, Daemon, Site, both_policies, wait_until};

/// A daemon with `alpha` and nothing else.
fn one_job(options: &[&str]) -> (Site, Daemon) {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let daemon = site.start_with(options);
    site.wait_count(1);
    (site, daemon)
}

/// A job whose lease ran out without DONE is eligible again, and its late DONE still counts.
#[test]
fn a_lease_runs_out() {
    let (site, _daemon) = one_job(&["--lease", "1s"]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    for _ in 0..3 {
        wait_until("the lease has run out", || site.ask("READY") == "JOB alpha 0 1\n");
    }
    // One job, however often it was handed out again.
    let status = String::from_utf8(site.run(&["status"]).stdout).unwrap();
    assert!(status.contains("1 running (1 of them again"), "{status}");
    assert_eq!(site.ask("DONE alpha 4"), "NOJOBS\n");
    assert!(site.sql(LOG)[0].ends_with("|4"));
    wait_seconds(2, || assert_eq!(site.ask("READY"), "NOJOBS\n"));
}

/// A lease is not over before its time, outlives a restart, and is 12 h when nothing is said.
#[test]
fn a_lease_holds_over_restarts() {
    let (site, daemon) = one_job(&[]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    daemon.kill();
    let _daemon = site.start();
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    site.edit("UPDATE log SET started = unixepoch() - 43190 WHERE attr_path = 'alpha'");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// A lost lease comes behind the undispatched rows of its key.
#[test]
fn a_lost_lease_comes_behind_undispatched_rows() {
    let site = Site::new();
    site.write("f.1.txt", "alpha f 1\n");
    site.write("g.1.txt", "alpha g 1\n");
    let _daemon = site.start_with(&["--lease", "1s"]);
    site.wait_count(2);
    let mut order = Vec::new();
    wait_until("alpha was handed out four times", || {
        let answer = site.ask("READY");
        if answer != "NOJOBS\n" {
            order.push(answer);
        }
        order.len() == 4
    });
    let first_two = [order[0].clone(), order[1].clone()];
    assert_ne!(first_two[0], first_two[1], "{order:?}");
    assert_ne!(order[2], order[3], "{order:?}");
}

/// Calls `check` for `seconds`.
fn wait_seconds(seconds: u64, mut check: impl FnMut()) {
    let start = Instant::now();
    wait_until("the time is over", || {
        check();
        start.elapsed() > Duration::from_secs(seconds)
    });
}

/// Who was first in each of 20 cycles in which two fetchers list one key and both replace
/// their runs.
fn first_of_twenty_cycles(options: &[&str]) -> String {
    let site = Site::new();
    let _daemon = site.start_with(options);
    let mut order = String::new();
    for cycle in 1..=20 {
        for fetcher in ["a", "b"] {
            site.deliver(fetcher, cycle, format!("alpha {fetcher}\n"));
        }
        let runs = [format!("a|{cycle}|1"), format!("b|{cycle}|1")];
        site.wait_sql(crate::common::sql::RUNS, &[&runs[0], &runs[1]]);
        let answer = site.ask("READY");
        order += answer.strip_prefix("JOB alpha ").unwrap().trim_end();
        // As if the cycle were long: nobody asks again before the lists are replaced.
        site.edit("UPDATE log SET finished = started, exit_code = 0");
    }
    order
}

/// Two fetchers that list one key take turns over 20 cycles, though their runs are replaced in
/// each.
#[test]
fn fetchers_take_turns() {
    let order = first_of_twenty_cycles(&[]);
    let expected = if order.starts_with('a') { "ab" } else { "ba" };
    assert_eq!(order, expected.repeat(10));
}

/// With `--classic` the lower id is first 20 times of 20.
#[test]
fn classic_serves_the_lower_id() {
    assert_eq!(first_of_twenty_cycles(&["--classic"]), "a".repeat(20));
}

/// Keys that never ran go out in the order of their jitter; under both policies.
#[test]
fn never_run_keys_in_their_order() {
    let keys =
        ["python3Packages.requests", "é", "alpha", "echo", "delta", "charlie", "bravo", "zulu"];
    for options in both_policies() {
        let site = Site::new();
        let mut sorted = keys;
        sorted.sort();
        site.write("f.1.txt", sorted.map(|key| format!("{key} 0 1\n")).concat());
        let _daemon = site.start_with(options);
        site.wait_count(keys.len());
        let given: Vec<_> = keys.iter().map_while(|_| site.next_key("READY")).collect();
        assert_eq!(given, keys);
    }
}

/// Twelve hours after a start without an end the key's other rows are eligible, not before; its
/// own row too where there are leases, and not with `--classic`.
#[test]
fn twelve_hours_after_a_start() {
    for options in both_policies() {
        let site = Site::new();
        site.write("f.1.txt", "alpha f\n");
        site.write("g.1.txt", "alpha g\n");
        let _daemon = site.start_with(options);
        site.wait_count(2);
        let first = site.ask("READY");
        site.edit("UPDATE log SET started = unixepoch() - 43190");
        assert_eq!(site.ask("READY"), "NOJOBS\n");
        site.edit("UPDATE log SET started = unixepoch() - 43201");
        let second = site.ask("READY");
        assert!(second.starts_with("JOB alpha ") && second != first, "{second}");
        site.edit("UPDATE log SET started = unixepoch() - 43201");
        let third = site.ask("READY");
        let leased = options.is_empty();
        assert_eq!(third.starts_with("JOB alpha "), leased, "{options:?}: {third}");
    }
}

/// A turn that was undone was not taken: it is the same fetcher's in the next cycle.
#[test]
fn an_undone_turn_was_not_taken() {
    let site = Site::new();
    let _daemon = site.start();
    let lists = |cycle: i64| {
        site.deliver("a", cycle, "alpha a\n");
        site.deliver("b", cycle, "alpha b\n");
        let (a, b) = (format!("a|{cycle}|1"), format!("b|{cycle}|1"));
        site.wait_sql(crate::common::sql::RUNS, &[&a, &b]);
    };
    lists(1);
    let first = site.ask("READY");
    site.edit("UPDATE log SET finished = started");
    for _ in 0..5 {
        drop(Client::unread(&site, "READY", false));
        site.wait_sql("SELECT sum(is_dequeued) FROM queue", &["1"]);
    }
    lists(2);
    let second = site.ask("READY");
    assert_ne!(second, first);
    assert!(second.starts_with("JOB alpha "), "{second}");
}
