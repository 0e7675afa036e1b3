//! Relays that are gone: told by `status --check` and metrics, and forgotten with one command.

use super::{Installation, attempt, worker};
use crate::common::said::told;
use crate::common::{Peer, Site, wait_until, wait_within};

/// A relay that is silent is taken for dead after six seconds.
const DEAD: std::time::Duration = std::time::Duration::from_secs(20);

/// The exit code, and what was said.
fn said(site: &Site, arguments: &[&str]) -> (i32, String) {
    let (code, stdout, stderr) = told(&site.run(arguments));
    (code, stdout + &stderr)
}

/// An installation whose relay has a list, and a job that is out.
fn at_work() -> (Installation, Peer) {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", "alpha 1\nbravo 1\n");
    installation.site.wait_count(2);
    let mut worker = worker(&relay.site, 60);
    attempt(&worker.ask("READY"));
    (installation, relay)
}

/// One that was killed is trouble until it is forgotten: then its lists are gone, and its fetchers are free, while the daemon goes
/// on with the job.
#[test]
fn a_killed_relay_is_told_and_forgotten() {
    let (installation, relay) = at_work();
    let site = &installation.site;
    let metrics = || said(site, &["metrics"]).1;
    assert!(metrics().contains("shiftboss_broker_connected 1.0"), "{}", metrics());
    assert!(metrics().contains("shiftboss_relays{state=\"joined\"} 1.0"), "{}", metrics());
    assert_eq!(said(site, &["forget", "--daemon", "r"]).0, 75);
    relay.daemon.kill();
    let check = || said(site, &["status", "--check"]);
    wait_within(DEAD, "it is told", || check().0 == 1);
    assert!(check().1.contains("relay r: it is silent, and was not stopped"), "{:?}", check());
    assert!(metrics().contains("shiftboss_relays{state=\"silent\"} 1.0"), "{}", metrics());
    let (code, forgotten) = said(site, &["forget", "--daemon", "r"]);
    assert!(code == 0 && forgotten.contains("queue: 1. Fetchers that are free: 1."), "{forgotten}");
    assert_eq!((check().0, said(site, &["forget", "--daemon", "r"]).0), (0, 65));
    assert_eq!(site.number("SELECT count(*) FROM queue"), 0);
    assert_eq!(site.number("SELECT count(*) FROM out"), 1);
    let other = installation.relay("s");
    other.site.write("f.2.txt", "charlie 1\n");
    site.wait_sql("SELECT attr_path FROM queue", &["charlie"]);
    // Should it come back, it begins anew.
    drop(installation.start_relay(&relay.site, &super::broker(), "r").ready());
    assert_eq!(site.integrity(), ["ok"]);
}

/// One that was stopped is not missed; it may be forgotten, with the daemon or without.
#[test]
fn a_stopped_relay_is_not_missed() {
    let (installation, relay) = at_work();
    relay.daemon.stop();
    let Installation { daemon, site, .. } = installation;
    let relay = || site.status()["relays"][0].clone();
    wait_until("it is gone", || relay()["gone"] == true && relay()["silent"] == false);
    assert_eq!(said(&site, &["status", "--check"]).0, 0);
    let (_, shown) = said(&site, &["status"]);
    // It may come back in a moment: what is told of one that is gone for good comes after an hour.
    assert!(!shown.contains("gone for good"), "{shown}");
    daemon.stop();
    assert_eq!(said(&site, &["forget", "--daemon", "r"]).0, 0);
    assert_eq!(site.number("SELECT count(*) FROM queue"), 0);
    let _daemon = site.start();
    assert_eq!(said(&site, &["status", "--check"]).0, 0);
}
