//! Daemons of one queue that come at once, whose clocks differ, or that are cut off from their server.

use std::process::Command;
use std::time::{Duration, Instant};

use shiftboss_testbed::clock;
use shiftboss_testbed::proxy::Proxy;

use super::together::lock;
use crate::common::said::{code_and_error, object, told};
use crate::common::wait::pause;
use crate::common::{Client, Daemon, Peer, Site, attempt_of, wait_until};

/// A lease that ends within a test.
const LEASE: Duration = Duration::from_secs(5);
/// A claim's answer is too late after this.
const LATE: Duration = Duration::from_secs(5);
/// `status` waits no longer for a server that does not answer.
const STATUS_MAX: Duration = Duration::from_secs(8);
const BEAT_EVERY: Duration = Duration::from_millis(300);

fn command(site: &Site, program: Command, url: &str, name: &str) -> Command {
    let mut command = program;
    command.args(["serve", url, "input", "socket", "--daemon-name", name]);
    command.current_dir(site.path(""));
    command
}

/// Another daemon of a queue, by this URL and under this name, with a directory of its own.
pub fn beside(url: &str, name: &str) -> Peer {
    beside_with(url, name, &[])
}

pub fn beside_with(url: &str, name: &str, options: &[&str]) -> Peer {
    let site = Site::new();
    let mut serve = command(&site, site.program(), url, name);
    serve.args(options);
    let daemon = site.spawn(serve).ready();
    Peer { daemon, site }
}

/// A worker with a short lease.
pub fn worker(site: &Site) -> Client {
    Client::leased(site, 5)
}

/// One number that the database has.
pub fn number(queue: &Site, question: &str) -> i64 {
    queue.server().unwrap().ask(question).parse().unwrap()
}

pub fn wait_listed(queue: &Site, rows: i64) {
    wait_until("it is listed", || {
        number(queue, "SELECT count(*) FROM shiftboss_public.queue") == rows
    });
}

fn wait_owner(queue: &Site, attempt: i64, name: &str) {
    wait_until(&format!("the job is {name}'s"), || {
        let owner = format!("SELECT substr(owner, 8) FROM keys WHERE attempt = {attempt}");
        queue.server().unwrap().ask(&owner) == name
    });
}

/// All three find an empty database at once.
#[test]
fn three_daemons_make_one_schema() {
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let sites = [Site::new(), Site::new(), Site::new()];
    let start = |(number, site): (usize, &Site)| {
        site.spawn(command(site, site.program(), &url, &format!("daemon{number}")))
    };
    let started: Vec<_> = sites.iter().enumerate().map(start).collect();
    let _daemons: Vec<_> = started.into_iter().map(Daemon::ready).collect();
    sites[0].write("f.1.txt", "alpha 1\nbravo 1\ncharlie 1\n");
    wait_listed(&queue, 3);
    let mut jobs: Vec<_> = sites.iter().map(|site| site.ask("READY")).collect();
    jobs.sort();
    assert_eq!(jobs, ["JOB alpha 1\n", "JOB bravo 1\n", "JOB charlie 1\n"]);
}

/// One daemon's clock is a day ahead, another one's a day behind: leases last as long as the server says, nobody is
/// taken for dead, and what is stored is the server's time.
#[test]
fn clocks_that_differ_by_days_change_nothing() {
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let start = |offset: &str, name: &str| {
        let site = Site::new();
        let mut faked = site.program();
        clock::set(&mut faked, offset).expect("faketime is installed");
        let daemon = site.spawn(command(&site, faked, &url, name)).ready();
        Peer { site, daemon }
    };
    let (ahead, behind) = (start("+1d", "ahead"), start("-1d", "behind"));
    ahead.site.write("f.1.txt", "alpha 1\nbravo 1\n");
    wait_listed(&queue, 2);
    let (mut leased, mut other) = (worker(&ahead.site), worker(&behind.site));
    let attempt = attempt_of(&leased.ask("READY"));
    assert!(behind.site.ask("READY").starts_with("JOB "), "a classic job, for 12 hours");
    let beats = number(&queue, "SELECT max(beat) FROM daemons");
    let mut began = Instant::now();
    wait_until("everybody had time to be taken for dead", || {
        began = Instant::now();
        assert_eq!(leased.ask(&format!("BEAT {attempt}")), "OK\n");
        pause(BEAT_EVERY);
        number(&queue, "SELECT min(beat) FROM daemons") > beats + 7
    });
    wait_owner(&queue, attempt, "ahead");
    assert_eq!(other.ask("READY"), "NOJOBS busy 2\n");
    assert!(attempt_of(&other.ask("READY 15")) > attempt);
    assert!(began.elapsed() > LEASE, "{:?}", began.elapsed());
    let off = "SELECT max(abs(started - extract(epoch FROM now()))) < 60 FROM shiftboss_public.log";
    assert_eq!(queue.server().unwrap().ask(off), "t");
}

/// A daemon is cut off from the server, not from its worker, which goes on to beat: from then on no OK, and another daemon has
/// the job when the lease that it gave is over.
#[test]
fn a_daemon_that_is_cut_off_extends_no_lease() {
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let proxy = Proxy::new(&url).unwrap();
    let (cut, other) = (beside(&proxy.url, "cut"), beside(&url, "other"));
    other.site.write("f.1.txt", "alpha 1\n");
    wait_listed(&queue, 1);
    let attempt = attempt_of(&worker(&cut.site).ask("READY"));
    let beat = || {
        let mut client = Client::connect(&cut.site);
        client.write(format!("HELLO 2 worker 5\nBEAT {attempt}\n").as_bytes());
        client.line();
        client.line()
    };
    assert_eq!(beat(), "OK\n");
    proxy.hold();
    let mut waiting = worker(&other.site);
    waiting.write(b"READY 25\n");
    let again = loop {
        assert_ne!(beat(), "OK\n", "a daemon that is cut off cannot promise anything");
        pause(BEAT_EVERY);
        if let Some(answer) = waiting.take_line() {
            break attempt_of(&answer);
        }
    };
    assert!(again > attempt);
    proxy.release();
    wait_until("the job is lost", || beat() == "LOST\n");
}

/// A claim was carried out, and its answer reaches a daemon that was frozen meanwhile, and taken for dead: no worker is told.
#[test]
fn a_claim_whose_answer_is_late_is_told_to_nobody() {
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let proxy = Proxy::new(&url).unwrap();
    let (frozen, other) = (beside(&proxy.url, "frozen"), beside(&url, "other"));
    other.site.write("f.1.txt", "alpha 1\n");
    wait_listed(&queue, 1);
    let mut untold = worker(&frozen.site);
    // All statements are known to the server from here on, so that a claim is one message.
    let first = attempt_of(&untold.ask("READY"));
    assert_eq!(untold.ask(&format!("RELEASE {first}")), "OK\n");
    // What is to be kept is asked for with a second call, which waits.
    let locks = lock(&queue, "LOCK TABLE places IN SHARE MODE; SELECT FROM header");
    let claimed = Instant::now();
    untold.write(b"READY\n");
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND datname = current_database()";
    wait_until("it is to be claimed", || number(&queue, waits) == 1);
    proxy.hold_answers();
    drop(locks);
    let is_out = "SELECT count(*) FROM keys WHERE attempt IS NOT NULL";
    wait_until("it is claimed", || number(&queue, is_out) == 1);
    let attempt = number(&queue, "SELECT attempt FROM keys");
    frozen.daemon.freeze();
    proxy.release();
    wait_owner(&queue, attempt, "other");
    pause(LATE.saturating_sub(claimed.elapsed()));
    frozen.daemon.thaw();
    let told = untold.line();
    assert!(!told.starts_with("JOB "), "{told:?} after {:?}", claimed.elapsed());
    // The lease that the other one gave is over before somebody else has the job.
    assert!(attempt_of(&worker(&other.site).ask("READY 15")) > attempt);
}

/// A server that is away is told of once, by the daemon and by a worker, and so is its end; `status` says since when it is away.
#[test]
fn an_outage_is_told_once() {
    let queue = Site::bare();
    let proxy = Proxy::new(&queue.server().unwrap().url()).unwrap();
    let Peer { site, daemon } = beside(&proxy.url, "only");
    let mut working = site.program();
    working.args(["work", "-t", "socket", "--", "touch", "ran"]).current_dir(site.path(""));
    let worker = site.spawn(working);
    site.write("f.1.txt", "alpha 1\n");
    wait_until("it works", || site.path("ran").exists());
    proxy.refuse();
    wait_until("the outage lasts", || {
        let (code, error) = code_and_error(&site.run(&["status", "-t", "socket"]));
        code == 69 && error.contains(") has been without it for ")
    });
    let (_, shown, _) = told(&site.run(&["status", "-t", "socket"]));
    assert!(shown.contains("\nStorage         nothing can be written since "), "{shown}");
    let (code, shown, _) = told(&site.run(&["status", "--json", "-t", "socket"]));
    let found = object(&shown);
    assert!(code == 69 && found["live"]["outage"]["since"].is_i64(), "{found}");
    assert!(found["rows"].is_null(), "{found}");
    proxy.hold();
    let asked = Instant::now();
    let (code, error) = code_and_error(&site.run(&["status", "-t", "socket"]));
    assert!(code == 69 && error.contains(") has been without it for "), "{code} {error}");
    assert!(asked.elapsed() < STATUS_MAX, "{:?}", asked.elapsed());
    proxy.release();
    wait_until("it is over", || daemon.log().contains("All requests are carried out again."));
    wait_until("the worker knows", || worker.log().contains("The daemon answers again."));
    assert_eq!(daemon.log().matches("WARN").count(), 1, "{}", daemon.log());
    assert_eq!(worker.log().matches("WARN").count(), 1, "{}", worker.log());
    assert_eq!(worker.log().matches("answers again").count(), 1, "{}", worker.log());
    // The next one is told as the first was, however soon it comes.
    proxy.refuse();
    let told = || daemon.log().matches("Requests fail and lists wait").count() == 2;
    wait_until("it is told, too", told);
    proxy.release();
    let over = || daemon.log().matches("All requests are carried out again.").count() == 2;
    wait_until("that is over, too", over);
    worker.stop();
    daemon.stop();
}
