//! `shiftboss serve --spool DIR`: entries of the spool become jobs, once each, and leave when done.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use common::random::Random;
use common::worker::key_of;
use common::{BOTH_POLICIES, Client, Daemon, Site, wait_until, wait_within};
use shiftboss::spool::{Durability, EntryName, Item, Options, QueueName, Spool, time_ordered};

const SPOOLED: &str = "SELECT attr_path, payload, is_dequeued FROM queue \
    JOIN fetchers USING (fetcher_id) WHERE name = '@spool' ORDER BY attr_path";

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// The spool of a site, made if it is not there.
fn spool(site: &Site) -> Spool {
    Spool::create(&site.path("spool"), Options::default()).unwrap()
}

fn put(spool: &Spool, line: &str) -> EntryName {
    spool.enqueue(&queue("tasks"), time_ordered, &Item::new(line, "")).unwrap()
}

fn start(site: &Site, options: &[&str]) -> Daemon {
    site.start_with(&[&["--spool", "spool"], options].concat())
}

/// No entry is left of a spool's tasks, nor a run of them.
fn wait_empty(site: &Site, spool: &Spool) {
    wait_until("the spool's tasks are done", || {
        let there = spool.list(&queue("tasks")).unwrap();
        let out = spool.list_checkouts(&queue("tasks")).unwrap();
        there.is_empty() && out.is_empty()
    });
    site.wait_sql("SELECT count(*) FROM shiftboss_spool", &["0"]);
    site.wait_sql("SELECT count(*) FROM fetchers WHERE name = '@spool'", &["0"]);
}

/// An entry reaches a worker, and leaves queue and spool when its job is done; under both policies.
#[test]
fn an_entry_is_a_job_until_it_is_done() {
    for policy in BOTH_POLICIES {
        let site = Site::new();
        site.write("f.1.txt", "bravo 1\n");
        let daemon = start(&site, policy);
        let spool = spool(&site);
        put(&spool, "alpha  0 1\n");
        site.wait_sql(SPOOLED, &["alpha| 0 1|0"]);
        let status = String::from_utf8(site.run(&["status", "state.db"]).stdout).unwrap();
        assert!(status.contains("@spool"), "{status}");
        let mut client = Client::connect(&site);
        let mut jobs = [client.ask("READY"), client.ask("READY")];
        jobs.sort();
        assert_eq!(jobs, ["JOB alpha  0 1\n", "JOB bravo 1\n"]);
        assert_eq!(spool.list_checkouts(&queue("tasks")).unwrap().len(), 1);
        assert_eq!(client.ask("DONE alpha 0"), "NOJOBS\n");
        wait_empty(&site, &spool);
        site.wait_sql("SELECT name FROM fetchers", &["f"]);
        assert!(fs::read_dir(site.path("spool/.registry")).unwrap().next().is_none());
        daemon.stop();
    }
}

/// A job in flight at a restart, by stop or by kill, is not handed out again, and its end counts.
#[test]
fn a_restart_keeps_what_is_in_flight() {
    for policy in BOTH_POLICIES {
        let site = Site::new();
        let spool = spool(&site);
        let mut daemon = start(&site, policy);
        put(&spool, "alpha 1");
        site.wait_sql(SPOOLED, &["alpha|1|0"]);
        assert_eq!(site.ask("READY"), "JOB alpha 1\n");
        for clean in [true, false] {
            if clean {
                daemon.stop();
                assert_eq!(spool.list(&queue("tasks")).unwrap().len(), 1, "it is given back");
            } else {
                daemon.kill();
            }
            daemon = start(&site, policy);
            wait_until("the entry is checked out again", || {
                spool.list_checkouts(&queue("tasks")).unwrap().len() == 1
                    && spool.list(&queue("tasks")).unwrap().is_empty()
            });
            assert_eq!(site.ask("READY"), "NOJOBS\n");
        }
        assert_eq!(site.ask("DONE alpha 3"), "NOJOBS\n");
        wait_empty(&site, &spool);
        drop(daemon);
    }
}

/// Entries with one key are done one after the other, each of them.
#[test]
fn entries_with_the_same_key_take_turns() {
    let site = Site::new();
    let spool = spool(&site);
    put(&spool, "alpha 1");
    put(&spool, "alpha 2");
    let _daemon = start(&site, &[]);
    site.wait_sql(SPOOLED, &["alpha|1|0"]);
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    site.wait_sql(SPOOLED, &["alpha|2|0"]);
    assert_eq!(site.ask("READY"), "JOB alpha 2\n");
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    wait_empty(&site, &spool);
}

/// Metadata that is no task goes to the dead letters, with a warning; a file cannot pose as an entry.
#[test]
fn what_is_no_task_is_laid_aside() {
    let site = Site::new();
    let spool = spool(&site);
    let name = put(&spool, "nonsense");
    put(&spool, "alpha 1");
    site.write("@spool.5.txt", "bravo 1\n");
    let daemon = start(&site, &[]);
    site.wait_sql(SPOOLED, &["alpha|1|0"]);
    assert_eq!(spool.list(&queue("dead-letter")).unwrap(), [name]);
    assert!(daemon.log().contains("is no task"), "{}", daemon.log());
    site.wait_sql("SELECT name FROM shiftboss_aside", &["@spool.5.txt"]);
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// An entry that is taken away while it waits leaves the queue, whether the daemon runs or not.
#[test]
fn a_removed_entry_leaves_the_queue() {
    let site = Site::new();
    let spool = spool(&site);
    let daemon = start(&site, &[]);
    let first = put(&spool, "alpha 1");
    let second = put(&spool, "bravo 2");
    site.wait_sql(SPOOLED, &["alpha|1|0", "bravo|2|0"]);
    fs::remove_file(site.path("spool/tasks/.checkout").join(first.as_os_str())).unwrap();
    site.wait_sql(SPOOLED, &["bravo|2|0"]);
    daemon.stop();
    assert!(spool.remove(&queue("tasks"), &second).unwrap());
    let _daemon = start(&site, &[]);
    wait_empty(&site, &spool);
}

/// `spool rm` and `move` have a task that nobody works on from a running daemon, and only such a one.
#[test]
fn a_daemon_hands_over_what_nobody_works_on() {
    for policy in BOTH_POLICIES {
        let site = Site::new();
        let spool = spool(&site);
        let _daemon = start(&site, policy);
        let names = ["alpha 1", "bravo 2", "charlie 3"].map(|line| put(&spool, line).to_string());
        site.wait_sql(SPOOLED, &["alpha|1|0", "bravo|2|0", "charlie|3|0"]);
        let first = key_of(&site.ask("READY")).unwrap();
        let told = |words: &[&str]| site.run(&[&["spool"], words].concat());
        let keys = ["alpha", "bravo", "charlie"];
        let (mut others, mut taken) = (Vec::new(), None);
        for (key, name) in keys.iter().zip(&names) {
            if *key == first { taken = Some(name) } else { others.push(name) }
        }
        for words in [&["rm", "spool", "tasks"][..], &["move", "spool", "tasks"]] {
            let mut words = [words, &[taken.unwrap()]].concat();
            words.extend((words[0] == "move").then_some("other"));
            let refused = told(&words);
            assert_eq!(refused.status.code(), Some(75), "{words:?} {refused:?}");
            let text = String::from_utf8(refused.stderr).unwrap();
            assert!(text.contains("still works on it"), "{text}");
        }
        assert!(told(&["rm", "spool", "tasks", others[0]]).status.success());
        let moved = told(&["move", "spool", "tasks", others[1], "other"]);
        assert!(moved.status.success(), "{moved:?}");
        let count = "SELECT count(*) FROM queue";
        site.wait_sql(count, &["1"]);
        assert_eq!(site.ask(&format!("DONE {first} 0")), "NOJOBS\n");
        wait_empty(&site, &spool);
        let left = spool.list(&queue("other")).unwrap();
        assert_eq!(left.iter().map(ToString::to_string).collect::<Vec<_>>(), [others[1].as_str()]);
        // Back in its queue it is a task again.
        assert!(told(&["move", "spool", "other", others[1], "tasks"]).status.success());
        site.wait_sql(count, &["1"]);
    }
}

/// A name that is used again while the daemon is down is another entry, done or not.
#[test]
fn a_name_that_is_used_again_is_another_entry() {
    let site = Site::new();
    let spool = spool(&site);
    let name = EntryName::new("mine").unwrap();
    let put = |line: &str| {
        let item = Item::new(line, "");
        spool.enqueue(&queue("tasks"), |_| name.clone(), &item).unwrap();
    };
    put("alpha 1");
    let daemon = start(&site, &[]);
    site.wait_sql(SPOOLED, &["alpha|1|0"]);
    daemon.stop();
    spool.remove(&queue("tasks"), &name).unwrap();
    put("alpha 2");
    let _daemon = start(&site, &[]);
    site.wait_sql(SPOOLED, &["alpha|2|0"]);
    assert_eq!(site.ask("READY"), "JOB alpha 2\n");
}

/// Many more entries than are checked out at once all get their turn, each once, at a rate and in memory
/// that do not depend on how many there are. A hundred thousand are `make soak`'s.
#[test]
fn more_entries_than_may_be_checked_out() {
    let count: usize = std::env::var("SHIFTBOSS_ENTRIES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000);
    let site = Site::new();
    // In memory where there is such a place: how long a disk takes is not the question.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let options = Options { durability: Durability::None, ..Options::default() };
    let spool = Spool::create(&place.path().join("spool"), options).unwrap();
    let items: Vec<_> = (0..count).map(|n| Item::new(format!("job{n} {n}"), "")).collect();
    spool.enqueue_batch(&queue("tasks"), time_ordered, &items).unwrap();
    let options = ["--durability", "process", "--spool", spool.path().to_str().unwrap()];
    let daemon = site.start_with(&options);
    let (mut client, mut done, mut slowest) = (Client::connect(&site), 0, Duration::ZERO);
    let (begun, mut job, mut seen) = (Instant::now(), None, HashSet::new());
    wait_within(Duration::from_secs(600), "all are done", || {
        loop {
            let line = job.take().map_or("READY".to_owned(), |key| format!("DONE {key} 0"));
            done += usize::from(line != "READY");
            let asked = Instant::now();
            job = key_of(&client.ask(&line));
            slowest = slowest.max(asked.elapsed());
            let Some(key) = job.clone() else { break };
            assert!(seen.insert(key), "{job:?} again");
        }
        done == count
    });
    let (took, memory) = (begun.elapsed(), daemon.memory_kib("VmHWM:") / 1024);
    wait_empty(&site, &spool);
    println!("{count} entries in {took:?}; the slowest answer took {slowest:?}; {memory} MiB");
    assert!(memory < 256, "{memory} MiB");
    // Generous, for a machine at work: it is about a tenth of that.
    assert!(took < Duration::from_millis(5) * u32::try_from(count).unwrap(), "{took:?}");
    assert_eq!(fs::read_dir(spool.path().join(".data")).unwrap().count(), 0);
}

/// The daemon is killed again and again under fifty entries: each is done once, and none is lost.
#[test]
fn each_entry_is_done_once_whatever_dies() {
    const ENTRIES: usize = 50;
    let site = Site::new();
    let spool = spool(&site);
    let mut random = Random::seeded();
    let (mut done, mut job, mut put_so_far) = (BTreeSet::new(), None, 0);
    let mut daemon = start(&site, &["--lease", "1h"]);
    wait_until("all entries were done", || {
        if put_so_far < ENTRIES {
            put(&spool, &format!("job{put_so_far} {put_so_far}"));
            put_so_far += 1;
        }
        let line = match &job {
            Some(key) => format!("DONE {key} 0"),
            None => "READY".to_owned(),
        };
        let next = key_of(&site.ask(&line));
        done.extend(job.take());
        assert!(next.as_ref().is_none_or(|key| !done.contains(key)), "{next:?} after its DONE");
        job = next;
        if random.below(8) == 0 {
            // Wherever the intake is by now: nothing here waits for it.
            daemon.signal(rustix::process::Signal::KILL);
            daemon.exit();
            daemon = start(&site, &["--lease", "1h"]);
        }
        done.len() == ENTRIES
    });
    wait_empty(&site, &spool);
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert_eq!(site.integrity(), ["ok"]);
}
