//! Two daemons of one queue, as their workers see them: who answers what while the other one is frozen, dead, or has work.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shiftboss_testbed::processes::Children;

use super::apart::{beside, beside_with, number, wait_listed, worker};
use crate::common::{Client, Peer, Site, attempt_of, wait_until, wait_within};

/// A worker that waits at one daemon has what another one made ready after this, at most; alone it would wait for longer.
const SOON: Duration = Duration::from_secs(10);
const WAITING: &str = "READY 20";

/// A queue in a database of its own, and two daemons.
fn two() -> (Site, Peer, Peer) {
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let (one, other) = (beside(&url, "one"), beside(&url, "other"));
    (queue, one, other)
}

/// A connection that has locked something, until it is dropped.
pub fn lock(queue: &Site, statement: &str) -> Children {
    let mut client = Command::new("psql");
    client.args(["-Xq", &queue.server().unwrap().url()]).stdout(Stdio::null());
    let mut client = client.stdin(Stdio::piped()).spawn().unwrap();
    let text = format!("SET search_path = shiftboss; BEGIN; {statement};\n");
    // Not closed: with its end the transaction ends.
    client.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    let has_them = "SELECT count(*) FROM pg_stat_activity
        WHERE state = 'idle in transaction' AND query LIKE 'SELECT FROM%' AND datname = current_database()";
    let locks = Children(vec![client]);
    wait_until("it is locked", || number(queue, has_them) == 1);
    locks
}

/// A line that a fetcher wrote just before is found by its own daemon, each time, also while another one asks the same server.
#[test]
fn a_daemon_looks_at_its_own_files_before_nojobs() {
    let (_queue, one, other) = two();
    for line in 0..20 {
        assert_eq!(other.site.ask("READY"), "NOJOBS\n");
        one.site.append("f.1.txt.part", format!("key-{line} 1\n"));
        assert_eq!(one.site.ask("READY"), format!("JOB key-{line} 1\n"));
    }
}

/// What only a frozen daemon could read holds up nobody's NOJOBS.
#[test]
fn unread_files_of_others_do_not_count() {
    let (_queue, one, other) = two();
    one.daemon.freeze();
    one.site.write("f.1.txt", "alpha 1\n");
    assert_eq!(other.site.ask("READY"), "NOJOBS\n");
    assert_eq!(worker(&other.site).ask("READY"), "NOJOBS\n");
    one.daemon.thaw();
    assert!(worker(&other.site).ask(WAITING).ends_with(" alpha 1\n"));
}

/// Somebody has locked all there is for longer than a worker waits: that is no NOJOBS, in either protocol.
#[test]
fn what_is_locked_is_not_said_to_be_nothing() {
    let (queue, one, other) = two();
    one.site.write("f.1.txt", "alpha 1\n");
    wait_listed(&queue, 1);
    let locks = lock(&queue, "SELECT FROM keys FOR UPDATE");
    let (mut classic, mut second) = (Client::connect(&one.site), worker(&other.site));
    classic.write(b"READY\n");
    second.write(b"READY\n");
    assert_eq!(classic.line(), "");
    let refused = second.line();
    assert!(refused.starts_with("ERROR busy "), "{refused}");
    drop(locks);
    assert!(worker(&one.site).ask(WAITING).ends_with(" alpha 1\n"));
}

/// A daemon is killed: its workers beat, end and give back their jobs at another one, at once.
#[test]
fn workers_of_a_killed_daemon_go_on_at_another_one() {
    let (queue, one, other) = two();
    other.site.write("f.1.txt", "alpha 1\nbravo 2\ncharlie 3\n");
    wait_listed(&queue, 3);
    let mut asking = worker(&one.site);
    let attempts: Vec<_> = (0..3).map(|_| attempt_of(&asking.ask("READY"))).collect();
    let [beats, gives_back, ends] = attempts[..] else { unreachable!() };
    one.daemon.kill();
    let mut client = worker(&other.site);
    assert_eq!(client.ask(&format!("BEAT {beats}")), "OK\n");
    assert_eq!(client.ask(&format!("DONE {beats} 7")), "OK\n");
    assert_eq!(client.ask(&format!("DONE {ends} 8")), "OK\n");
    let logged =
        "SELECT string_agg(exit_code::text, ' ' ORDER BY exit_code) FROM shiftboss_public.log";
    assert_eq!(queue.server().unwrap().ask(logged), "7 8");
    assert_eq!(client.ask("READY"), "NOJOBS busy 1\n");
    assert_eq!(client.ask(&format!("RELEASE {gives_back}")), "OK\n");
    assert!(attempt_of(&client.ask("READY")) > gives_back);
    assert!(client.ask(&format!("DONE {gives_back} 0")).starts_with("ERROR stale "));
}

/// Asks one daemon's worker to wait, has something made ready, and returns how long the worker waited for it from then on.
fn waited(client: &mut Client, key: &str, make_ready: impl FnOnce()) -> Duration {
    client.write(format!("{WAITING}\n").as_bytes());
    make_ready();
    let began = Instant::now();
    let answer = client.line();
    assert!(answer.contains(&format!(" {key} ")), "{answer}");
    began.elapsed()
}

/// The connection on which a daemon listens ends in the moment in which another one has work.
#[test]
fn a_daemon_whose_listening_ends_misses_nothing() {
    let (queue, one, other) = two();
    let mut client = worker(&one.site);
    let listening = "FROM pg_stat_activity WHERE application_name = 'shiftboss one' AND datname = current_database()
        AND query ~ 'LISTEN|UPDATE daemons|pg_notify'";
    for round in 0..4 {
        wait_within(SOON, "it listens", || {
            number(&queue, &format!("SELECT count(*) {listening}")) > 0
        });
        let key = format!("key-{round}");
        let took = waited(&mut client, &key, || {
            let ended =
                number(&queue, &format!("SELECT count(pg_terminate_backend(pid)) {listening}"));
            // One that was ended before may be there still.
            assert!(ended > 0);
            let added = other.site.run(&["add", "-t", "socket", &key, "1"]);
            assert!(added.status.success(), "{added:?}");
        });
        assert!(took < SOON, "{took:?}");
    }
}

/// Work that nobody tells of: a daemon whose worker waits looks for itself, as often as it was told to.
#[test]
fn work_that_nobody_told_of_is_found() {
    let queue = Site::bare();
    let url = queue.server().unwrap().url();
    let one = beside_with(&url, "one", &["--poll-notified", "1s"]);
    let mut client = worker(&one.site);
    let server = queue.server().unwrap();
    let pause = |is_paused: bool| {
        server.edit(&format!("UPDATE header SET paused = {is_paused}, version = version + 1"));
    };
    for round in 0..3 {
        let key = format!("key-{round}");
        pause(true);
        assert!(one.site.run(&["add", "-t", "socket", &key, "1"]).status.success());
        let took = waited(&mut client, &key, || pause(false));
        assert!(took < SOON, "{took:?}");
    }
}
