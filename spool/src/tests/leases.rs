//! Checkouts that outlive their process: they stay, are settled by others, and end with their lease.

use std::time::{Duration, SystemTime};

use super::support::*;
use crate::*;

fn lend(spool: &Spool, lease: Option<Duration>) {
    spool.checkout(&queue("in"), &name("a")).unwrap().detach(lease).unwrap();
}

/// Without a lease it stays, whoever reclaims and repairs, until another process settles it.
#[test]
fn it_stays_until_it_is_settled() {
    let site = Site::new();
    let spool = with_entry(&site);
    lend(&spool, None);
    drop(spool);
    let other = Spool::load(&site.path(), options(Durability::None)).unwrap();
    assert_eq!(other.reclaim().unwrap(), []);
    assert!(other.fsck(FsckOptions { repair: true, older_than: None }).unwrap().is_clean());
    assert_eq!(other.info(&queue("in"), &name("a")).unwrap().holding, Holding::Detached);
    assert!(other.try_checkout(&queue("in"), &name("a")).unwrap().is_none());
    let guard = other.resolve(&queue("in"), &name("a")).unwrap().unwrap();
    assert_eq!(guard.attempt(), 1);
    guard.release().unwrap();
    let sight = other.info(&queue("in"), &name("a")).unwrap();
    assert_eq!((sight.holding, sight.attempts), (Holding::Available, 0));
    assert_whole(&other);
}

/// A lease that is over gives the entry back, and counts; before, it says until when.
#[test]
fn a_lease_ends() {
    let site = Site::new();
    let spool = with_entry(&site);
    lend(&spool, Some(Duration::from_secs(1000)));
    let sight = spool.info(&queue("in"), &name("a")).unwrap();
    let Holding::Until { until } = sight.holding else { panic!("{sight:?}") };
    assert!(until > SystemTime::now() + Duration::from_secs(900));
    assert_eq!(spool.reclaim().unwrap(), []);
    spool.resolve(&queue("in"), &name("a")).unwrap().unwrap().release().unwrap();
    lend(&spool, Some(Duration::ZERO));
    let given = spool.reclaim().unwrap();
    assert_eq!(given[0].whence, "whose delay is over, to in");
    assert_eq!(spool.info(&queue("in"), &name("a")).unwrap().attempts, 1);
}

/// One of several that settle at once has it; what a living process holds is not settled, what a
/// dead one held is.
#[test]
fn what_others_hold() {
    let site = Site::new();
    let spool = with_entry(&site);
    assert!(spool.resolve(&queue("in"), &name("a")).unwrap().is_none());
    lend(&spool, None);
    let guard = spool.resolve(&queue("in"), &name("a")).unwrap().unwrap();
    let held = spool.resolve(&queue("in"), &name("a")).unwrap_err();
    assert!(held.to_string().contains("which still works on it"), "{held}");
    guard.release().unwrap();
    let layer = std::sync::Arc::new(Disk::open(&site.path()).unwrap());
    let gone = Spool::on(layer, &site.path(), options(Durability::None), dead());
    std::mem::forget(gone.checkout(&queue("in"), &name("a")).unwrap());
    assert!(matches!(
        spool.info(&queue("in"), &name("a")).unwrap().holding,
        Holding::Process { alive: false, .. }
    ));
    spool.resolve(&queue("in"), &name("a")).unwrap().unwrap().complete().unwrap();
    assert_whole(&spool);
}

/// What has no note is another program's; it is not settled, and the error says what can be done.
#[test]
fn what_nobody_noted() {
    let site = Site::new();
    let spool = with_entry(&site);
    std::fs::rename(site.file("in/a"), site.file("in/.checkout/a")).unwrap();
    assert_eq!(spool.info(&queue("in"), &name("a")).unwrap().holding, Holding::Unknown);
    let held = spool.resolve(&queue("in"), &name("a")).unwrap_err();
    assert!(held.to_string().contains("fsck --repair"), "{held}");
}

/// A checkout that was lent for good is too old some day; one with a lease is not.
#[test]
fn the_monitor_tells_the_forgotten() {
    let site = Site::new();
    let spool = with_entry(&site);
    for (lease, problems) in [(None, 1), (Some(Duration::from_secs(1000)), 0)] {
        lend(&spool, lease);
        set_age(&site.file("in/.checkout/a"), Duration::from_secs(1000));
        assert_eq!(spool.monitor(&Limits::default()).unwrap().problems.len(), problems);
        spool.resolve(&queue("in"), &name("a")).unwrap().unwrap().release().unwrap();
    }
}
