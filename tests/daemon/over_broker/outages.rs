//! A relay, the daemon, or what is between them, fails.

use rustix::process::Signal;
use shiftboss_testbed::proxy::Proxy;

use super::{
    Away, Installation, PATIENCE, attempt, broker, prefix, relay_command, wait_said, worker,
};
use crate::common::said::said;
use crate::common::{Peer, Site, wait_within};

/// An installation with a relay behind a proxy, and a list of one line.
fn proxied() -> (Installation, Peer, Proxy) {
    let installation = Installation::start();
    let proxy = Proxy::to_broker(&broker()).unwrap();
    let relay = installation.relay_by(&proxy.url, "r");
    relay.site.write("f.1.txt", "alpha 1\n");
    installation.site.wait_count(1);
    (installation, relay, proxy)
}

/// A claim whose answer is lost is no job: it goes back to its place, and nobody waits for a lease.
#[test]
fn a_claim_whose_answer_is_lost_is_undone() {
    let (installation, relay, proxy) = proxied();
    let leased = "SELECT count(*) FROM out";
    // Behind another request that is held up, the claim does not get as far as the daemon.
    while installation.site.number(leased) == 0 {
        proxy.release();
        let mut worker = worker(&relay.site, 60);
        proxy.hold_answers();
        assert!(!worker.ask("READY").starts_with("JOB"));
    }
    proxy.release();
    wait_within(PATIENCE, "it is undone", || installation.site.number(leased) == 0);
    assert_eq!(installation.site.ask("READY"), "JOB alpha 1\n");
    let attempts = "SELECT outcome FROM ended";
    assert_eq!(installation.site.sql(attempts), ["undone"]);
}

/// While a relay is cut off its workers' jobs may be others': no beat is answered with OK, and it is the broker that is named; and it is
/// as before afterwards.
#[test]
fn a_relay_that_is_cut_off() {
    let (_installation, relay, proxy) = proxied();
    let mut worker = worker(&relay.site, 60);
    let (taken, _) = attempt(&worker.ask("READY"));
    proxy.refuse();
    let beat = worker.ask(&format!("BEAT {taken}"));
    assert!(beat.starts_with("ERROR busy") && !beat.contains("database"), "{beat}");
    let told = || relay.daemon.warnings(&["Requests fail", "the connection to the broker"]);
    wait_within(PATIENCE, "it is named", || !told().is_empty());
    assert!(!relay.daemon.log().contains("server"), "{}", relay.daemon.log());
    proxy.release();
    let mut done = String::new();
    wait_within(PATIENCE, "it is recorded", || {
        done = worker.ask(&format!("DONE {taken} 0"));
        !done.starts_with("ERROR busy")
    });
    assert_eq!(done, "OK\n");
    relay.site.append("g.1.txt.part", "bravo 1\n");
    wait_within(PATIENCE, "lists go on", || relay.site.ask("READY") == "JOB bravo 1\n");
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
    wait_said(&installation.daemon, "A relay is silent: its leased jobs are this daemon's.");
    let back = "SELECT count(*) FROM ended WHERE outcome = 'expired'";
    wait_within(PATIENCE, "the job is back", || installation.site.number(back) == 1);
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
    let silent = || {
        let heard = installation.site.status_of("socket")["live"]["broker"]["relays"][0].clone();
        heard["silent_seconds"].as_u64().unwrap()
    };
    wait_within(PATIENCE, "nothing is heard of the dead one", || silent() >= 4);
    let installation = installation.kill().restart();
    let again = again.ready();
    site.append("f.1.txt.part", "alpha 1\n");
    installation.site.wait_count(1);
    drop(again);
}

/// A relay that is started before its daemon, or beside one that is away, waits, says so, and is ready when a daemon comes. A
/// signal ends the wait.
#[test]
fn a_relay_starts_before_its_daemon() {
    let (away, far) = (Away { site: Site::bare(), prefix: prefix() }, Site::bare());
    let url = broker().replace("%2f", "");
    let start = |site: &Site, prefix: &str| {
        let relay = site.spawn(relay_command(site, prefix, &url, "r"));
        wait_said(&relay, "Waiting for a daemon");
        relay
    };
    let relay = start(&far, &away.prefix);
    assert!(relay.log().contains("start one with --broker"), "{}", relay.log());
    let away = {
        let installation = away.restart();
        let log = relay.ready().stop();
        assert_eq!(log.matches("Waiting for a daemon").count(), 1, "{log}");
        installation.kill()
    };
    // The queues are there, and nobody takes what is asked.
    let relay = start(&far, &away.prefix);
    assert!(relay.log().contains("no daemon answered"), "{}", relay.log());
    let installation = away.restart();
    let _relay = relay.ready();
    assert_eq!(far.ask("READY"), "NOJOBS\n");
    let never = Site::bare();
    let mut relay = start(&never, &format!("{}another.", installation.prefix));
    relay.signal(Signal::TERM);
    assert_eq!(relay.exit().code(), Some(0));
    assert!(!never.socket().exists() && !never.input().exists());
}

/// A relay that is stopped leaves its leases at once, and its worker may end the job anywhere. It is not missed, and may be forgotten,
/// also without a daemon.
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
    said(&installation.site, &["status", "--check"]);
    let away = installation.stop();
    said(&away.site, &["forget", "--daemon", "r"]);
    assert_eq!(away.site.number("SELECT count(*) FROM queue"), 0);
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
        installation = installation.kill().restart();
        installation.site.wait_count(round + 2);
        assert_eq!(worker.ask(&format!("DONE {taken} 0")), "OK\n");
    }
    let codes = "SELECT DISTINCT exit_code FROM ended";
    assert_eq!(installation.site.sql(codes), ["0"]);
}
