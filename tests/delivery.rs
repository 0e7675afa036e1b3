//! Delivery (spec 5): what becomes of a dispatch whose answer or end never arrives, and whose
//! turn it is.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::sql::LOG;
use common::{BOTH_POLICIES, Client, Daemon, Site, child, wait_until};

const STATE: &str = "SELECT attr_path, is_dequeued, last_started FROM queue ORDER BY attr_path";

/// A daemon with `alpha`, finished long ago, and nothing else.
fn one_old_job(options: &[&str]) -> (Site, Daemon) {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let daemon = site.start_with(options);
    site.wait_count(1);
    site.edit("INSERT INTO log VALUES ('alpha', 1000, 1005, 3)");
    assert_eq!(site.sql(STATE), ["alpha|0|1000"]);
    (site, daemon)
}

/// Sends `line` and waits until its answer has arrived; the caller decides what becomes of it.
fn unread(site: &Site, line: &str, half_close: bool) -> Client {
    let mut client = Client::connect(site);
    client.write(format!("{line}\n").as_bytes());
    if half_close {
        client.half_close();
    }
    client.wait_unread();
    client
}

/// Waits until the dispatch of `alpha` has left no trace.
fn wait_undone(site: &Site) {
    site.wait_sql(STATE, &["alpha|0|1000"]);
    assert_eq!(site.sql(LOG), ["alpha|1000|1005|3"]);
}

/// A peer that closes with its answer unread, half-closed before or not: the dispatch never
/// happened, and the next request gets the same key.
#[test]
fn an_answer_left_unread_is_undone() {
    let (site, _daemon) = one_old_job(&[]);
    for round in 0..50 {
        let client = unread(&site, "READY", round % 2 == 0);
        assert!(site.sql(LOG)[0].ends_with("|-|-"));
        drop(client);
        wait_undone(&site);
    }
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// A peer that closes without waiting for its answer: never is the job lost.
#[test]
fn an_answer_not_waited_for_is_undone() {
    let (site, _daemon) = one_old_job(&[]);
    for round in 0..100 {
        let mut client = Client::connect(&site);
        client.write(b"READY\n");
        if round % 2 == 0 {
            client.half_close();
        }
        drop(client);
    }
    // The last dispatches may still be on their way; each is undone when it arrives nowhere.
    wait_until("the job is handed out", || site.ask("READY") == "JOB alpha 0 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// A worker that is killed with its answer unread.
#[test]
fn a_killed_peer_s_answer_is_undone() {
    let (site, _daemon) = one_old_job(&[]);
    let mut command = child::command("role_unread");
    let mut peer = command.env("SITE_SOCKET", site.socket()).spawn().unwrap();
    child::wait_word(&mut peer, "answered");
    peer.kill().unwrap();
    peer.wait().unwrap();
    wait_undone(&site);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
}

/// The killed worker: asks, and never reads.
#[test]
fn role_unread() {
    use std::io::{Read, Write};
    if child::plays("role_unread") {
        let socket = std::env::var_os("SITE_SOCKET").unwrap();
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        stream.write_all(b"READY\n").unwrap();
        let mut byte = [0_u8];
        rustix::net::recv(&stream, &mut byte, rustix::net::RecvFlags::PEEK).unwrap();
        println!("\nanswered");
        let mut rest = Vec::new();
        // Holds the connection until the kill.
        std::io::stdin().read_to_end(&mut rest).unwrap();
        wait_until("killed", || false);
    }
}

/// An answer that was read to its end stands, however the connection ends.
#[test]
fn an_answer_that_was_read_stands() {
    for half_close in [false, true] {
        let (site, _daemon) = one_old_job(&[]);
        let mut client = unread(&site, "READY", half_close);
        assert_eq!(client.line(), "JOB alpha 0 1\n");
        drop(client);
        for _ in 0..50 {
            assert_eq!(site.ask("READY"), "NOJOBS\n");
        }
        assert!(site.sql(LOG)[0].ends_with("|-|-"));
    }
}

/// Of several answers on one connection only those left unread are undone.
#[test]
fn of_several_answers_only_the_unread_are_undone() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\ncharlie 0 3\n");
    let _daemon = site.start();
    site.wait_count(3);
    let mut client = Client::connect(&site);
    assert_eq!(client.ask("READY"), "JOB alpha 0 1\n");
    client.write(b"DONE alpha 0\nREADY\n");
    client.wait_unread();
    wait_until("three jobs are out", || site.number("SELECT count(*) FROM log") == 3);
    drop(client);
    site.wait_sql("SELECT attr_path, exit_code FROM log", &["alpha|0"]);
    let mut again = [site.ask("READY"), site.ask("READY")];
    again.sort();
    assert_eq!(again, ["JOB bravo 0 2\n", "JOB charlie 0 3\n"]);
}

/// A job of a key that never ran leaves no log row when undone, in every fetcher's row.
#[test]
fn a_first_dispatch_leaves_no_trace_when_undone() {
    let site = Site::new();
    site.write("f.1.txt", "alpha f 1\n");
    site.write("f.2.txt", "alpha f 2\n");
    site.write("g.1.txt", "alpha g 1\n");
    let _daemon = site.start();
    site.wait_count(3);
    let before = site.sql(STATE);
    for _ in 0..10 {
        drop(unread(&site, "READY", true));
        site.wait_sql(STATE, &["alpha|0|-", "alpha|0|-", "alpha|0|-"]);
        assert_eq!(site.sql(LOG), Vec::<String>::new());
    }
    assert_eq!(before, site.sql(STATE));
    assert!(site.ask("READY").starts_with("JOB alpha "));
}

/// An undo happens only while the log row is still that dispatch's: a DONE from elsewhere, or
/// an operator's edit, stands.
#[test]
fn an_undo_does_not_overwrite_what_came_after() {
    let (site, _daemon) = one_old_job(&[]);
    let client = unread(&site, "READY", false);
    assert_eq!(site.ask("DONE alpha 7"), "NOJOBS\n");
    drop(client);
    for _ in 0..50 {
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    assert!(site.sql(LOG)[0].ends_with("|7"));
    site.write("f.2.txt", "alpha 0 2\n");
    site.wait_count(2);
    let client = unread(&site, "READY", false);
    site.edit("UPDATE log SET started = started - 5 WHERE attr_path = 'alpha'");
    let edited = site.sql(LOG);
    drop(client);
    for _ in 0..50 {
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    assert_eq!(site.sql(LOG), edited);
}

/// With `--classic` nothing is undone.
#[test]
fn classic_undoes_nothing() {
    let (site, _daemon) = one_old_job(&["--classic"]);
    drop(unread(&site, "READY", false));
    for _ in 0..50 {
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    assert!(site.sql(LOG)[0].ends_with("|-|-"));
}

/// A job whose lease ran out without DONE is eligible again, and its late DONE still counts.
#[test]
fn a_lease_runs_out() {
    let (site, _daemon) = one_old_job(&["--lease", "1s"]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    for _ in 0..3 {
        wait_until("the lease has run out", || site.ask("READY") == "JOB alpha 0 1\n");
    }
    assert_eq!(site.ask("DONE alpha 4"), "NOJOBS\n");
    assert!(site.sql(LOG)[0].ends_with("|4"));
    wait_seconds(2, || assert_eq!(site.ask("READY"), "NOJOBS\n"));
}

/// A lease is not over before its time, outlives a restart, and is 12 h when nothing is said.
#[test]
fn a_lease_holds_over_restarts() {
    let (site, daemon) = one_old_job(&[]);
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

/// The stock worker repeats a DONE that got no answer: twice does no harm, and the job that
/// the lost answer named is handed out again.
#[test]
fn a_repeated_done_is_harmless() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let _daemon = site.start();
    site.wait_count(2);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    drop(unread(&site, "DONE alpha 5", true));
    site.wait_sql("SELECT count(*) FROM log", &["1"]);
    assert_eq!(site.ask("DONE alpha 5"), "JOB bravo 0 2\n");
    let codes = "SELECT attr_path, exit_code FROM log ORDER BY attr_path";
    assert_eq!(site.sql(codes), ["alpha|5", "bravo|-"]);
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
        site.wait_sql(common::sql::RUNS, &[&runs[0], &runs[1]]);
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
    for options in BOTH_POLICIES {
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
    for options in BOTH_POLICIES {
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
        site.wait_sql(common::sql::RUNS, &[&a, &b]);
    };
    lists(1);
    let first = site.ask("READY");
    site.edit("UPDATE log SET finished = started");
    for _ in 0..5 {
        drop(unread(&site, "READY", false));
        site.wait_sql("SELECT sum(is_dequeued) FROM queue", &["1"]);
    }
    lists(2);
    let second = site.ask("READY");
    assert_ne!(second, first);
    assert!(second.starts_with("JOB alpha "), "{second}");
}
