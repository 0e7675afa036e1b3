//! `shiftboss serve --spool DIR`: entries of the spool are accepted as tasks, once each.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::random::Random;
use crate::common::wait::pause;
use crate::common::worker::key_of;
use crate::common::{Client, Daemon, Site, wait_until, wait_within};
use shiftboss_spool::{Durability, EntryName, Item, Options, QueueName, Spool, time_ordered};

/// The tasks that are kept.
const TASKS: &str = "SELECT attr_path, payload, status FROM singles ORDER BY task";

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// The spool of a site, made if it is not there.
fn spool(site: &Site) -> Spool {
    let spool = Spool::create(&site.path("spool"), Options::default()).unwrap();
    spool.ensure_queue(&queue("tasks")).unwrap();
    spool
}

fn put(spool: &Spool, line: &str) -> EntryName {
    spool.enqueue(&queue("tasks"), time_ordered, &Item::new(line, "")).unwrap()
}

fn start(site: &Site, options: &[&str]) -> Daemon {
    site.start_with(&[&["--spool", "spool"], options].concat())
}

fn left(spool: &Spool, directory: &str) -> usize {
    fs::read_dir(spool.path().join(directory)).unwrap().count()
}

/// Every entry was accepted, and nothing is left of any of them.
fn wait_accepted(site: &Site, spool: &Spool) {
    wait_within(Duration::from_secs(60), "the spool's entries are accepted", || {
        left(spool, "tasks") == 1 && left(spool, "tasks/.checkout") == 0
    });
    site.wait_sql("SELECT count(*) FROM accepted", &["0"]);
    for directory in [
        ".registry",
        ".data",
        ".tmp",
        ".shiftboss/claims",
        ".shiftboss/moving",
        ".shiftboss/attempts",
    ] {
        wait_until("nothing is left of them", || left(spool, directory) == 0);
    }
}

fn shown(site: &Site, words: &[&str]) -> (i32, String) {
    let output = site.run(words);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// An entry becomes a task, leaves the spool at once, and reaches a worker; a task that is done is gone.
#[test]
fn an_entry_becomes_a_task() {
    let site = Site::new();
    site.write("f.1.txt", "bravo 1\n");
    let daemon = start(&site, &[]);
    let spool = spool(&site);
    put(&spool, "alpha  0 1\n");
    site.wait_sql(TASKS, &["alpha| 0 1|waiting"]);
    wait_accepted(&site, &spool);
    let mut client = Client::connect(&site);
    let mut jobs = [client.ask("READY"), client.ask("READY")];
    jobs.sort();
    assert_eq!(jobs, ["JOB alpha  0 1\n", "JOB bravo 1\n"]);
    assert_eq!(client.ask("DONE alpha 0"), "NOJOBS\n");
    site.wait_sql(TASKS, &[]);
    daemon.stop();
}

/// A job that failed keeps its task over a restart, and `retry` finds it.
#[test]
fn a_failure_keeps_the_task() {
    let site = Site::new();
    let spool = spool(&site);
    let daemon = start(&site, &[]);
    put(&spool, "alpha 1");
    site.wait_sql(TASKS, &["alpha|1|waiting"]);
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("DONE alpha 3"), "NOJOBS\n");
    site.wait_sql(TASKS, &["alpha|1|failed"]);
    daemon.kill();
    let _daemon = start(&site, &[]);
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    let (code, text) = shown(&site, &["retry", "alpha"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    site.wait_sql(TASKS, &[]);
}

/// Entries with one key are done one after the other, each of them, in the order of their names.
#[test]
fn entries_with_the_same_key_take_turns() {
    let site = Site::new();
    let spool = spool(&site);
    put(&spool, "alpha 1");
    put(&spool, "alpha 2");
    let _daemon = start(&site, &[]);
    site.wait_sql(TASKS, &["alpha|1|waiting", "alpha|2|waiting"]);
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert_eq!(site.ask("DONE alpha 0"), "JOB alpha 2\n");
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    wait_accepted(&site, &spool);
}

/// A spool that is moved away or replaced under the daemon is told, and no task comes from what is in its place;
/// when it is back, tasks come from it again.
#[test]
fn a_spool_that_is_not_at_its_path() {
    let site = Site::new();
    let daemon = start(&site, &[]);
    let known = spool(&site);
    let check = || shown(&site, &["status", "--check", "-t", "socket"]);
    assert_eq!(check(), (0, String::new()));
    fs::rename(site.path("spool"), site.path("away")).unwrap();
    let (code, text) = check();
    assert!(code == 1 && text.starts_with("error: spool: LOST: "), "{text}");
    assert!(shown(&site, &["status", "-t", "socket"]).1.contains("\nSpool           LOST: "));
    put(&spool(&site), "alpha 1");
    wait_until("it is told", || daemon.log().contains("not at its path"));
    fs::remove_dir_all(site.path("spool")).unwrap();
    fs::rename(site.path("away"), site.path("spool")).unwrap();
    put(&known, "bravo 1");
    site.wait_sql(TASKS, &["bravo|1|waiting"]);
    assert_eq!(check(), (0, String::new()));
    assert_eq!(daemon.warnings(&["not at its path"]).len(), 1);
    daemon.stop();
}

/// What has data, or metadata that is no task, goes to the dead letters, and `spool show` says why.
#[test]
fn what_is_no_task_is_laid_aside() {
    let site = Site::new();
    let spool = spool(&site);
    let nonsense = put(&spool, "nonsense");
    let item = Item::new("bravo 1", "payload");
    let data = spool.enqueue(&queue("tasks"), time_ordered, &item).unwrap();
    put(&spool, "alpha 1");
    let daemon = start(&site, &[]);
    site.wait_sql(TASKS, &["alpha|1|waiting"]);
    assert_eq!(spool.list(&queue("dead-letter")).unwrap(), [nonsense.clone(), data.clone()]);
    assert!(daemon.log().contains("is no task"), "{}", daemon.log());
    for (name, reason) in [(nonsense, "no space after the key"), (data, "it has 7 bytes of data")] {
        let (code, text) =
            shown(&site, &["spool", "show", "spool", "dead-letter", &name.to_string()]);
        assert!(code == 0 && text.contains(reason), "{text}");
    }
    let told =
        format!("2 entries in dead-letter: `shiftboss spool list {}", spool.path().display());
    let (code, text) = shown(&site, &["status", "-t", "socket"]);
    assert!(code == 0 && text.contains(&told), "{text}");
    let (code, text) = shown(&site, &["status", "--check", "-t", "socket"]);
    assert!(code == 0 && text.contains(&format!("warning: spool: {told}")), "{text}");
    let (_, text) = shown(&site, &["status", "--json", "-t", "socket"]);
    assert!(text.contains("\"dead_letters\":2"), "{text}");
}

/// `spool rm` and `move` have what was not accepted yet, and nothing else; the task is the daemon's.
#[test]
fn what_is_accepted_is_the_daemons() {
    let site = Site::new();
    let spool = spool(&site);
    let names = ["alpha 1", "bravo 2"].map(|line| put(&spool, line).to_string());
    let told = |words: &[&str]| shown(&site, &[&["spool"], words].concat());
    assert_eq!(told(&["rm", "spool", "tasks", &names[0]]), (0, String::new()));
    let _daemon = start(&site, &[]);
    site.wait_sql(TASKS, &["bravo|2|waiting"]);
    wait_accepted(&site, &spool);
    let (code, text) = told(&["move", "spool", "tasks", &names[1], "dead-letter"]);
    assert!(code == 65 && text.contains("there is no entry"), "{code} {text}");
}

/// A name that is used again is another entry.
#[test]
fn a_name_may_be_used_again() {
    let site = Site::new();
    let spool = spool(&site);
    let name = EntryName::new("mine").unwrap();
    let put = |line: &str| {
        let item = Item::new(line, "");
        spool.enqueue(&queue("tasks"), |_| name.clone(), &item).unwrap();
    };
    let _daemon = start(&site, &[]);
    for line in ["alpha 1", "alpha 2"] {
        put(line);
        wait_accepted(&site, &spool);
    }
    site.wait_sql(TASKS, &["alpha|1|waiting", "alpha|2|waiting"]);
}

/// A spool has one daemon: a second one is refused, until the first is gone.
#[test]
fn a_spool_has_one_daemon() {
    let (site, other) = (Site::new(), Site::new());
    let spool = spool(&site);
    let path = site.path("spool");
    let second = || other.serve(&["--spool", path.to_str().unwrap()]);
    let first = start(&site, &[]);
    let (code, log) = other.refused(second());
    assert!(code == 75 && log.contains("another daemon accepts the entries of"), "{code} {log}");
    assert!(log.contains(path.to_str().unwrap()), "{log}");
    put(&spool, "alpha 1");
    site.wait_sql(TASKS, &["alpha|1|waiting"]);
    // The next one has another database: it would accept what still lies in the spool.
    wait_accepted(&site, &spool);
    first.kill();
    put(&spool, "bravo 1");
    let _next = other.spawn(second()).ready();
    other.wait_sql(TASKS, &["bravo|1|waiting"]);
}

/// Lines are tasks when they are put as metadata.
#[test]
fn lines_are_put_as_tasks() {
    let site = Site::new();
    let spool = spool(&site);
    fs::write(site.path("lines"), "alpha 1\nbravo 2\n").unwrap();
    let _daemon = start(&site, &[]);
    let (code, names) = shown(&site, &["spool", "put", "spool", "tasks", "--meta-lines", "lines"]);
    assert_eq!((code, names.lines().count()), (0, 2), "{names}");
    site.wait_sql(TASKS, &["alpha|1|waiting", "bravo|2|waiting"]);
    wait_accepted(&site, &spool);
    assert!(!spool.path().join("dead-letter").exists());
}

/// A limit on single tasks leaves entries where they are, says so once, and takes them when there is room.
#[test]
fn a_limit_leaves_entries_in_the_spool() {
    let site = Site::new();
    let spool = spool(&site);
    for number in 0..3 {
        put(&spool, &format!("job{number} {number}"));
    }
    let daemon = start(&site, &["--max-single-tasks", "2"]);
    let told = || daemon.warnings(&["Tasks of the spool must wait", "max_single_tasks"]).len();
    wait_until("it is told", || told() == 1);
    wait_until("it is given back", || spool.list(&queue("tasks")).unwrap().len() == 1);
    assert_eq!(site.ask("READY"), "JOB job0 0\n");
    assert_eq!(site.ask("DONE job0 0"), "JOB job1 1\n");
    wait_accepted(&site, &spool);
    assert_eq!(told(), 1);
    site.wait_sql("SELECT count(*) FROM singles", &["2"]);
}

/// Many entries all become tasks, each once, at a rate and in memory that do not depend on how many there
/// are. A hundred thousand are `make soak`'s.
#[test]
fn many_entries() {
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
    let path = spool.path().to_str().unwrap();
    let daemon = site.start_with(&[
        "--durability",
        "process",
        "--max-single-tasks",
        "1000000",
        "--spool",
        path,
    ]);
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
    wait_accepted(&site, &spool);
    println!("{count} entries in {took:?}; the slowest answer took {slowest:?}; {memory} MiB");
    assert!(memory < 256, "{memory} MiB");
    // Generous, for a machine at work and a build without optimizations: it is about a tenth of that.
    assert!(took < Duration::from_millis(20) * u32::try_from(count).unwrap(), "{took:?}");
}

/// Does every job that there is, each of which must come once; their keys.
fn work_off(site: &Site) -> BTreeSet<String> {
    let mut jobs = BTreeSet::new();
    let mut next = key_of(&site.ask("READY"));
    while let Some(key) = next {
        next = key_of(&site.ask(&format!("DONE {key} 0")));
        assert!(jobs.insert(key.clone()), "{key} again");
    }
    jobs
}

/// The daemon is killed a hundred times while entries come: each is accepted once, done once, and nothing is
/// left in the spool by the dead.
#[test]
fn each_entry_is_accepted_once_whatever_dies() {
    const KILLS: usize = 100;
    let site = Site::new();
    let spool = spool(&site);
    let mut random = Random::seeded();
    let mut put_so_far = 0;
    for _ in 0..KILLS {
        for _ in 0..=random.below(3) {
            put(&spool, &format!("job{put_so_far} {put_so_far}"));
            put_so_far += 1;
        }
        let daemon = site.spawn(site.serve(&["--spool", "spool"]));
        // Wherever it is by then: in its start, or anywhere in a round.
        wait_until("it has begun", || site.path("input").exists());
        pause(Duration::from_millis(random.below(250)));
        daemon.kill();
    }
    let _daemon = start(&site, &[]);
    wait_accepted(&site, &spool);
    wait_within(Duration::from_secs(60), "the dead's files are gone", || {
        left(&spool, ".shiftboss/tmp") == 0 && left(&spool, ".shiftboss/owners") <= 2
    });
    assert_eq!(work_off(&site).len(), put_so_far);
    assert_eq!(site.integrity(), ["ok"]);
}

/// A process of Multispool at work on the same queue, as its system calls are; what it took.
fn multispool(spool: &Path, random: &mut Random) -> Option<String> {
    let listed = fs::read_dir(spool.join("tasks")).unwrap();
    let names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
    let mut names: Vec<_> = names.into_iter().filter(|name| name != ".checkout").collect();
    names.sort();
    let name = names.get(usize::try_from(random.below(names.len().max(1) as u64)).unwrap())?;
    let (from, to) = (spool.join("tasks").join(name), spool.join("tasks/.checkout").join(name));
    let file = fs::File::options().write(true).open(&from).ok()?;
    file.set_modified(std::time::SystemTime::now()).unwrap();
    fs::rename(&from, &to).ok()?;
    let line = fs::read_to_string(&to).unwrap();
    fs::remove_file(spool.join(".data").join(name)).unwrap();
    fs::remove_file(&to).unwrap();
    fs::remove_file(spool.join(".registry").join(name)).unwrap();
    Some(line.split_once(' ').unwrap().0.to_owned())
}

/// Beside a daemon that is killed again and again Multispool takes entries too: each is one's or the other's.
#[test]
fn a_program_of_multispool_shares_the_queue() {
    let site = Site::new();
    let spool = spool(&site);
    let mut random = Random::seeded();
    let (mut put_so_far, mut others) = (0, BTreeSet::new());
    for round in 0..20 {
        let mut daemon = site.spawn(site.serve(&["--spool", "spool"]));
        // It begins beside the other one, or finds it at work.
        if round % 2 == 0 {
            daemon = daemon.ready();
        }
        for _ in 0..20 {
            put(&spool, &format!("job{put_so_far} {put_so_far}"));
            put_so_far += 1;
            if let Some(key) = multispool(spool.path(), &mut random) {
                assert!(others.insert(key));
            }
        }
        pause(Duration::from_millis(random.below(100)));
        daemon.kill();
        others.extend(multispool(spool.path(), &mut random));
    }
    let _daemon = start(&site, &[]);
    wait_accepted(&site, &spool);
    let jobs = work_off(&site);
    assert_eq!(jobs.intersection(&others).collect::<Vec<_>>(), [""; 0], "Multispool's");
    assert_eq!(jobs.len() + others.len(), put_so_far, "some are lost");
    assert!(!jobs.is_empty() && !others.is_empty(), "{} {}", jobs.len(), others.len());
}
