//! Checkouts that outlive their process: they stay, are settled by others, and end with their lease.

use std::time::{Duration, SystemTime};

use super::support::*;
use crate::*;

fn lend(spool: &Spool, lease: Option<Duration>) {
    take(spool).unwrap().detach(lease).unwrap();
}

fn resolved(spool: &Spool) -> Guard {
    spool.resolve(&input(), &a()).unwrap().unwrap()
}

fn info(spool: &Spool) -> EntryInfo {
    spool.info(&input(), &a()).unwrap()
}

/// Without a lease it stays through reclaims and repairs, until another process settles it.
#[test]
fn it_stays_until_it_is_settled() {
    let site = Site::new();
    lend(&with_entry(&site), None);
    let other = site.load();
    assert_eq!(other.reclaim().unwrap(), []);
    assert!(repair(&other).is_clean());
    assert_eq!(info(&other).holding, Holding::Detached);
    assert!(other.try_checkout(&input(), &a()).unwrap().is_none());
    let guard = resolved(&other);
    assert_eq!(guard.attempt(), 1);
    // One of several that settle at once has it.
    let held = other.resolve(&input(), &a()).unwrap_err();
    assert!(held.to_string().contains("which still works on it"), "{held}");
    guard.release().unwrap();
    assert_eq!((info(&other).holding, info(&other).attempts), (Holding::Available, 0));
    assert!(other.resolve(&input(), &a()).unwrap().is_none());
    assert_whole(&other);
}

/// A lease that is over gives the entry back, and counts; before, it says until when.
#[test]
fn a_lease_ends() {
    let (_site, spool) = Site::with_entry();
    lend(&spool, Some(Duration::from_secs(1000)));
    let Holding::Until { until } = info(&spool).holding else { panic!("{:?}", info(&spool)) };
    assert!(until > SystemTime::now() + Duration::from_secs(900));
    assert_eq!(spool.reclaim().unwrap(), []);
    resolved(&spool).release().unwrap();
    lend(&spool, Some(Duration::ZERO));
    assert_eq!(spool.reclaim().unwrap()[0].whence, "whose delay is over, to in");
    assert_eq!(info(&spool).attempts, 1);
}

/// What a dead process held can be settled; what has no note is another program's, and the error says what can be done.
#[test]
fn what_others_hold() {
    let (site, spool) = Site::with_entry();
    site.abandon("a", dead());
    assert!(matches!(info(&spool).holding, Holding::Process { alive: false, .. }));
    resolved(&spool).release().unwrap();
    std::fs::rename(site.file("in/a"), site.file("in/.checkout/a")).unwrap();
    assert_eq!(info(&spool).holding, Holding::Unknown);
    let held = spool.resolve(&input(), &a()).unwrap_err();
    assert!(held.to_string().contains("fsck --repair"), "{held}");
}

/// A checkout that was lent for good is too old some day; one with a lease is not.
#[test]
fn the_monitor_tells_the_forgotten() {
    let (site, spool) = Site::with_entry();
    for (lease, told) in [(None, 1), (Some(Duration::from_secs(1000)), 0)] {
        lend(&spool, lease);
        set_age(&site.file("in/.checkout/a"), Duration::from_secs(1000));
        assert_eq!(problems(&spool).len(), told);
        resolved(&spool).release().unwrap();
    }
}
