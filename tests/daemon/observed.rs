//! What `status` and `backup` tell of a running daemon is true (spec 4 "visibly", spec 6).

use std::fs;

use crate::common::random::Random;
use crate::common::{Site, wait_equal, wait_until};

/// The same is told by way of the database and of the socket, while the daemon runs and, by the
/// database, when it does not.
#[test]
fn status_of_a_running_and_of_a_stopped_daemon() {
    let site = Site::new();
    site.write("f.1.txt.part", "alpha 0 1\noneword\nbravo 0 2\n");
    site.write("g.7.txt.part", "charlie 0 3\n");
    let daemon = site.start_with(&["--lease", "1h", "--durability", "process"]);
    site.wait_count(3);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("DONE alpha 3"), "JOB charlie 0 3\n");
    let status = site.status();
    assert_eq!(status["daemon"]["pid"], daemon.pid().as_raw_nonzero().get());
    assert_eq!((&status["policy"], &status["durability"]), (&"fair".into(), &"process".into()));
    assert_eq!(status["lease_seconds"], 3_600);
    assert_eq!(status["rows"]["pending"], 1);
    assert_eq!(status["rows"]["dispatched"], 2);
    assert_eq!(status["rows"]["in_flight"], 1);
    assert_eq!(status["fetchers"][0]["skipped"], 1);
    assert_eq!(status["fetchers"][1]["run"], 7);
    assert_eq!(status["done_last_hour"][0]["exit_code"], 3);
    assert_eq!(site.status_of("socket"), status);
    daemon.stop();
    let stopped = site.status();
    assert!(stopped["daemon"].is_null());
    assert_eq!(stopped["rows"], status["rows"]);
    assert_eq!(site.run(&["status", "-t", "socket"]).status.code(), Some(69));
}

/// A lost input directory and files that are left out are shown, until they are back or gone.
#[test]
fn what_is_lost_and_left_out_is_shown() {
    let site = Site::new();
    let _daemon = site.start();
    site.write("bad.name.txt", "alpha 0 1\n");
    fs::create_dir(site.file("d.1.txt")).unwrap();
    let names = || {
        let status = site.status();
        let aside = status["rejected_files"].as_array().unwrap().clone();
        aside.iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    wait_until("both are shown", || names() == ["bad.name.txt", "d.1.txt"]);
    site.remove("bad.name.txt");
    wait_until("one is shown", || names() == ["d.1.txt"]);
    fs::remove_dir_all(site.input()).unwrap();
    wait_until("the loss is shown", || site.status()["directory_lost_since"].is_number());
    assert!(!site.input().exists());
    fs::create_dir(site.input()).unwrap();
    wait_until("it is back", || site.status()["directory_lost_since"].is_null());
    wait_until("nothing is left out", || names().is_empty());
}

/// What is counted equals `count(*)` after any mixture of work, edits from outside, and files
/// that come and go.
#[test]
fn counts_are_true_under_outside_edits() {
    let site = Site::new();
    let daemon = site.start();
    let mut random = Random::seeded();
    site.write("f.1.txt.part", keys(0..8));
    site.write("g.1.txt.part", keys(4..12));
    site.wait_count(16);
    for round in 0..40_i64 {
        for _ in 0..5 {
            one_change(&site, &mut random, round);
        }
        compare(&site);
    }
    daemon.stop();
    compare(&site);
}

fn keys(range: std::ops::Range<u64>) -> String {
    range.map(|i| format!("key{i} 0 {i}\n")).collect()
}

/// One step of a worker, an operator or a fetcher.
fn one_change(site: &Site, random: &mut Random, round: i64) {
    let key = format!("key{}", random.below(12));
    // A start of long ago would be that of a lease that is over.
    let now = site.number("SELECT unixepoch()") + round;
    match random.below(9) {
        0 => drop(site.ask("READY")),
        1 => drop(site.ask(&format!("DONE {key} {round}"))),
        2 => site.edit(&format!("INSERT OR IGNORE INTO log VALUES ('{key}', {now}, NULL, NULL)")),
        3 => site.edit(&format!("INSERT OR REPLACE INTO log VALUES ('{key}', {now}, NULL, NULL)")),
        4 => site.edit(&format!("UPDATE log SET finished = {now} WHERE attr_path = '{key}'")),
        5 => site.edit(&format!("UPDATE log SET finished = NULL WHERE attr_path >= '{key}'")),
        6 => site.edit(&format!("UPDATE queue SET is_dequeued = 1 WHERE attr_path = '{key}'")),
        7 => site.edit(&format!("UPDATE queue SET is_dequeued = 0 WHERE attr_path >= '{key}'")),
        _ => another_list(site, random),
    }
}

/// A newer list of `g` replaces the older one.
fn another_list(site: &Site, random: &mut Random) {
    let run = site.number("SELECT max(run_started) FROM fetcher_runs") + 1;
    let from = random.below(8);
    site.deliver("g", run, keys(from..from + 5));
    if site.file("g.1.txt.part").exists() {
        site.remove("g.1.txt.part");
    }
    site.wait_sql(crate::common::sql::RUNS, &["f|1|0", &format!("g|{run}|1")]);
}

/// Status against the tables themselves; a daemon carries edits out soon.
fn compare(site: &Site) {
    let count = |sql: &str| Some(site.number(sql));
    let counted = [
        count("SELECT count(*) FROM queue WHERE is_dequeued = 0"),
        count("SELECT count(*) FROM queue WHERE is_dequeued <> 0"),
        count("SELECT count(*) FROM log WHERE finished IS NULL"),
    ];
    wait_equal("what is counted", &counted, || {
        let rows = &site.status()["rows"];
        ["pending", "dispatched", "in_flight"].map(|field| rows[field].as_i64())
    });
    let wrong = "SELECT count(*) FROM queue JOIN log USING (attr_path) \
        WHERE last_started IS NOT log.started";
    assert_eq!(site.sql(wrong), ["0"]);
}

/// A copy made while the daemon works is whole and sound, and never replaces a file.
#[test]
fn a_backup_of_a_working_daemon() {
    let site = Site::new();
    site.write("f.1.txt.part", (0..5_000).map(|i| format!("key{i} 0 {i}\n")).collect::<String>());
    let _daemon = site.start();
    site.wait_count(5_000);
    for i in 0..5 {
        assert!(site.ask("READY").starts_with("JOB "));
        let name = format!("backup{i}.db");
        let output = site.run(&["backup", &name]);
        assert!(output.status.success(), "{output:?}");
        let copy = crate::common::sql::reader(&site.path(&name)).unwrap();
        let found = crate::common::sql::rows(&copy, "SELECT count(*), sum(is_dequeued) FROM queue");
        assert_eq!(found.unwrap(), [format!("5000|{}", i + 1)]);
        assert_eq!(crate::common::sql::rows(&copy, "PRAGMA integrity_check").unwrap(), ["ok"]);
        let again = site.run(&["backup", &name]);
        assert_eq!(again.status.code(), Some(73), "{again:?}");
    }
}

/// Names with every character that means something to a shell, to SQL or in a URI.
#[test]
fn odd_names_of_database_and_directories() {
    let site = Site::bare();
    let odd = "a?b=c&d%20#e 'f' \"g\" *\n\u{e9}";
    let (database, input) = (format!("{odd}.db"), format!("{odd}/in"));
    fs::create_dir(site.path(odd)).unwrap();
    let mut command = site.program();
    command.args(["serve", &database, &input, "socket"]);
    let daemon = site.spawn(command).ready();
    fs::write(site.path(&input).join("f.1.txt.part"), "alpha 0 1\n").unwrap();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.status_of("socket")["rows"]["dispatched"], 1);
    assert_eq!(site.status_of(&database)["rows"]["dispatched"], 1);
    assert!(site.run(&["backup", "-t", &database, "copy.db"]).status.success());
    daemon.stop();
    assert_eq!(site.status_of(&database)["rows"]["dispatched"], 1);
    assert!(site.path(&database).is_file());
}
