//! A relay, the daemon, or what is between them, fails.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::Signal;
use shiftboss_testbed::proxy::Proxy;

use super::{Installation, attempt, broker, prefix, worker};
use crate::common::unread::Unread;
use crate::common::wait::pause;
use crate::common::{Daemon, Peer, Site, wait_within};

/// A relay that is silent is taken for dead after six seconds.
const DEAD: Duration = Duration::from_secs(20);

/// A claim whose answer is lost is no job: it goes back to its place, and nobody waits for a lease.
#[test]
fn a_claim_whose_answer_is_lost_is_undone() {
    let installation = Installation::start();
    let proxy = Proxy::to_broker(&broker()).unwrap();
    let relay = installation.relay_by(&proxy.url, "r");
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    let leased = "SELECT count(*) FROM out";
    // Behind another request that is held up, the claim does not get as far as the daemon.
    while installation.site.number(leased) == 0 {
        proxy.release();
        let mut worker = worker(&relay.site, 60);
        proxy.hold_answers();
        assert!(!worker.ask("READY").starts_with("JOB"));
    }
    proxy.release();
    wait_within(DEAD, "it is undone", || installation.site.number(leased) == 0);
    assert_eq!(installation.site.ask("READY"), "JOB alpha 1\n");
    let attempts = "SELECT outcome FROM ended";
    assert_eq!(installation.site.sql(attempts), ["undone"]);
}

/// A relay whose log nobody reads serves on, and ends when it is asked to.
#[test]
fn a_log_nobody_reads() {
    let installation = Installation::start();
    let site = Site::bare();
    let mut relay = Unread::start(installation.relay_command(&site, &broker(), "r"));
    wait_within(DEAD, "it listens", || UnixStream::connect(site.socket()).is_ok());
    site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    assert_eq!(site.ask("READY"), "JOB alpha 1\n");
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    relay.stop("the relay");
}

/// While a relay is cut off its workers' jobs may be others': no beat is answered with OK; and it is as before afterwards.
#[test]
fn a_relay_that_is_cut_off() {
    let installation = Installation::start();
    let proxy = Proxy::to_broker(&broker()).unwrap();
    let relay = installation.relay_by(&proxy.url, "r");
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    let mut worker = worker(&relay.site, 60);
    let (taken, _) = attempt(&worker.ask("READY"));
    proxy.refuse();
    let beat = worker.ask(&format!("BEAT {taken}"));
    assert!(beat.starts_with("ERROR busy") && !beat.contains("database"), "{beat}");
    proxy.release();
    let mut done = String::new();
    wait_within(DEAD, "it is recorded", || {
        done = worker.ask(&format!("DONE {taken} 0"));
        !done.starts_with("ERROR busy")
    });
    assert_eq!(done, "OK\n");
    relay.site.append("g.1.txt.part", "bravo 1\n");
    wait_within(DEAD, "lists go on", || relay.site.ask("READY") == "JOB bravo 1\n");
}

/// A relay says whether the broker or the daemon does not answer.
#[test]
fn who_does_not_answer_is_named() {
    let installation = Installation::start();
    let proxy = Proxy::to_broker(&broker()).unwrap();
    let near = installation.relay("near");
    let far = installation.relay_by(&proxy.url, "far");
    installation.daemon.kill();
    proxy.refuse();
    for (relay, who) in [(&near, "no daemon answered"), (&far, "the connection to the broker")] {
        relay.site.ask("READY");
        wait_within(DEAD, who, || !relay.daemon.warnings(&["Requests fail", who]).is_empty());
        assert!(!relay.daemon.log().contains("server"), "{}", relay.daemon.log());
    }
}

/// A relay that was killed leaves its leases to the daemon, and its lists to its next process, which goes on where they stand.
#[test]
fn a_relay_is_killed() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.append("f.1.txt.part", "alpha 1\nbravo 1\n");
    installation.site.wait_count(2);
    let mut taker = worker(&relay.site, 3);
    let (_, job) = attempt(&taker.ask("READY"));
    let Peer { daemon, site } = relay;
    daemon.kill();
    let died = |log: String| log.contains("A relay is silent: its leased jobs are this daemon's.");
    wait_within(DEAD, "it is taken for dead", || died(installation.daemon.log()));
    let back = "SELECT count(*) FROM ended WHERE outcome = 'expired'";
    wait_within(DEAD, "the job is back", || installation.site.number(back) == 1);
    assert_eq!(installation.site.ask("READY"), format!("JOB {job}"));
    site.append("f.1.txt.part", "charlie 1\n");
    let again = installation.start_relay(&site, &broker(), "r").ready();
    installation.site.wait_count(3);
    assert!(!again.log().contains("WARN"), "{}", again.log());
}

/// A relay that was killed, and then its daemon: the next daemon takes the dead one for alive at first, and its successor waits for
/// that.
#[test]
fn a_relay_and_the_daemon_are_killed() {
    let installation = Installation::start();
    let Peer { daemon, site } = installation.relay("r");
    daemon.kill();
    let again = installation.start_relay(&site, &broker(), "r");
    // Into the time for which the successor waits.
    pause(Duration::from_secs(4));
    let installation = installation.restart();
    let again = again.ready();
    site.append("f.1.txt.part", "alpha 1\n");
    installation.site.wait_count(1);
    drop(again);
}

/// A relay that is started before its daemon, or beside one that is away, waits, says so, and is ready when a daemon comes. A
/// signal ends the wait.
#[test]
fn a_relay_starts_before_its_daemon() {
    let (near, prefix) = (Site::bare(), prefix());
    let start = |site: &Site, prefix: &str| {
        let url = broker().replace("%2f", "");
        let mut command = site.program();
        command.args(["relay", "--name", "r", "--broker-prefix", prefix, &url]);
        command.args([site.input(), site.socket()]);
        site.spawn(command)
    };
    let waits = |relay: &Daemon| {
        wait_within(DEAD, "it says so", || relay.log().contains("Waiting for a daemon"));
    };
    let far = Site::bare();
    let relay = start(&far, &prefix);
    waits(&relay);
    assert!(relay.log().contains("start one with --broker"), "{}", relay.log());
    // Longer than the delay between two tries.
    pause(Duration::from_secs(5));
    assert_eq!(relay.log().matches("Waiting for a daemon").count(), 1, "{}", relay.log());
    let daemon = super::serve(&near, &prefix, &[]);
    let relay = relay.ready();
    relay.stop();
    // The queues are there, and nobody takes what is asked.
    daemon.kill();
    let relay = start(&far, &prefix);
    waits(&relay);
    assert!(relay.log().contains("no daemon answered"), "{}", relay.log());
    let _daemon = super::serve(&near, &prefix, &[]);
    let _relay = relay.ready();
    assert_eq!(far.ask("READY"), "NOJOBS\n");
    let never = Site::bare();
    let mut relay = start(&never, &format!("{prefix}another."));
    waits(&relay);
    relay.signal(Signal::TERM);
    assert_eq!(relay.exit().code(), Some(0));
    assert!(!never.socket().exists() && !never.input().exists());
}

/// A relay that is stopped leaves its leases at once, and its worker may end the job anywhere.
#[test]
fn a_relay_is_stopped() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    let (taken, _) = attempt(&worker(&relay.site, 60).ask("READY"));
    let own = || installation.site.status()["relays"][0]["in_flight"].clone();
    assert_eq!(own(), 1);
    relay.daemon.stop();
    assert_eq!(own(), 0);
    assert_eq!(worker(&installation.site, 60).ask(&format!("DONE {taken} 0")), "OK\n");
}

/// The daemon is killed with a job out at a relay and a list half read: the relay joins the next one, and nothing is lost.
#[test]
fn the_daemon_is_killed() {
    let mut installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.append("f.1.txt.part", "alpha 1\n");
    installation.site.wait_count(1);
    let mut worker = worker(&relay.site, 60);
    for round in 0..3 {
        let (taken, _) = attempt(&worker.ask("READY 20"));
        relay.site.append("f.1.txt.part", format!("key-{round} 1\n"));
        installation = installation.restart();
        installation.site.wait_count(round + 2);
        assert_eq!(worker.ask(&format!("DONE {taken} 0")), "OK\n");
    }
    let codes = "SELECT DISTINCT exit_code FROM ended";
    assert_eq!(installation.site.sql(codes), ["0"]);
}
