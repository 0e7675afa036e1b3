//! The whole tree, byte for byte, at each step of a life, and each operation by itself.

use std::time::Duration;

use super::support::*;
use crate::*;

/// The tree with these lines among those that are always there.
fn expect(site: &Site, own: &str, ours: &str) {
    let always = ".data/\n.registry/\n.shiftboss/\n.shiftboss/attempts/\n.shiftboss/claims/\n\
        .shiftboss/moving/\n.shiftboss/owners/\n.shiftboss/quarantine/\n.shiftboss/reasons/\n.shiftboss/strays/\n.shiftboss/tmp/\n\
        .shiftboss/version = \"1\\\\x0a\"\n.tmp/\n";
    let text = format!("{always}{own}{ours}");
    let mut lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.sort_unstable();
    assert_eq!(site.tree().lines().collect::<Vec<_>>(), lines);
}

const QUEUE: &str = "in/\nin/.checkout/\n";
const ENTRY: &str = ".data/a = \"data a\"\n.registry/a = \"\"\n";

/// Created, reserved, published, claimed, failed, claimed again, delayed, given back, moved with
/// other metadata, removed.
#[test]
fn the_whole_tree_of_a_life() {
    let site = Site::new();
    let spool = site.create();
    let input = queue("in");
    expect(&site, "", "");
    let reservation = spool.reserve(named("a")).unwrap();
    expect(&site, ".registry/a = \"\"\n", "");
    spool.enqueue_reserved(&input, reservation, &Item::new("meta a", "data a")).unwrap();
    let available = format!("{QUEUE}{ENTRY}in/a = \"meta a\"\n");
    let held = format!("{QUEUE}{ENTRY}in/.checkout/a = \"meta a\"\n.shiftboss/owners/OWNER\n");
    expect(&site, &available, "");

    let guard = spool.checkout(&input, &name("a")).unwrap();
    expect(&site, &held, ".shiftboss/claims/a -> OWNER 1 in\n");
    guard.fail().unwrap();
    let available = format!("{available}.shiftboss/owners/OWNER\n");
    expect(&site, &available, ".shiftboss/attempts/a -> 1\n");

    let guard = spool.checkout(&input, &name("a")).unwrap();
    assert_eq!(guard.attempt(), 2);
    let ours = ".shiftboss/attempts/a -> 1\n.shiftboss/claims/a -> OWNER 2 in\n";
    expect(&site, &held, ours);
    guard.retry_after(Duration::ZERO).unwrap();
    let tree = site.tree();
    assert!(tree.contains(".shiftboss/claims/a -> until:"), "{tree}");
    assert!(tree.contains("in/.checkout/a = \"meta a\""), "{tree}");
    wait_until("it is due", || !spool.reclaim().unwrap().is_empty());
    expect(&site, &available, ".shiftboss/attempts/a -> 2\n");

    let mut guard = spool.checkout(&input, &name("a")).unwrap();
    guard.set_metadata("changed");
    guard.move_to(&queue("out")).unwrap();
    let out = "out/\nout/.checkout/\n.shiftboss/owners/OWNER\n";
    expect(&site, &format!("{QUEUE}{ENTRY}{out}out/a = \"changed\"\n"), "");
    spool.checkout(&queue("out"), &name("a")).unwrap().complete().unwrap();
    expect(&site, &format!("{QUEUE}{out}"), "");
    drop(spool);
    expect(&site, &format!("{QUEUE}out/\nout/.checkout/\n"), "");
}

/// A guard gives its entry back when it is dropped, by a panic too; a release does not count.
#[test]
fn a_guard_gives_back() {
    let site = Site::new();
    let spool = with_entry(&site);
    let input = queue("in");
    drop(spool.checkout(&input, &name("a")).unwrap());
    assert_eq!(spool.info(&input, &name("a")).unwrap().attempts, 1);
    let panicked = std::thread::spawn({
        let spool = spool.clone();
        move || {
            let _guard = spool.checkout(&queue("in"), &name("a")).unwrap();
            panic!("a consumer's");
        }
    });
    assert!(panicked.join().is_err());
    assert_eq!(spool.info(&input, &name("a")).unwrap().attempts, 2);
    spool.checkout(&input, &name("a")).unwrap().release().unwrap();
    assert_eq!(spool.info(&input, &name("a")).unwrap().attempts, 2);
    let mut guard = spool.checkout(&input, &name("a")).unwrap();
    guard.set_metadata("never written");
    guard.fail().unwrap();
    assert_eq!(spool.metadata(&input, &name("a")).unwrap(), b"meta a");
    assert_whole(&spool);
}

/// Only one of two takes an entry, through one handle or two.
#[test]
fn one_of_two_takes_it() {
    let site = Site::new();
    let spool = with_entry(&site);
    let other = Spool::load(&site.path(), Options::default()).unwrap();
    let guard = spool.checkout(&queue("in"), &name("a")).unwrap();
    for spool in [&spool, &other] {
        assert!(spool.try_checkout(&queue("in"), &name("a")).unwrap().is_none());
        let gone = spool.checkout(&queue("in"), &name("a")).unwrap_err();
        assert!(matches!(gone, SpoolError::NotFound { .. }), "{gone}");
    }
    assert_eq!(other.list_checkouts(&queue("in")).unwrap(), [name("a")]);
    guard.release().unwrap();
    assert!(other.try_checkout(&queue("in"), &name("a")).unwrap().is_some());
}

/// Reserved names: given up when dropped, used once, left for another process.
#[test]
fn reserved_names() {
    let site = Site::new();
    let spool = site.create();
    let input = queue("in");
    drop(spool.reserve(named("a")).unwrap());
    let reservation = spool.reserve(named("a")).unwrap();
    let taken = spool.reserve(named("a")).unwrap_err();
    assert!(matches!(taken, SpoolError::NoFreeName { .. }), "{taken}");
    let kept = reservation.keep();
    let reservation = spool.adopt(kept.clone()).unwrap();
    spool.enqueue_reserved(&input, reservation, &Item::new("m", "d")).unwrap();
    let again = spool.adopt(kept).unwrap();
    let taken = spool.enqueue_reserved(&input, again, &Item::new("n", "e")).unwrap_err();
    assert!(matches!(taken, SpoolError::Taken(_)), "{taken}");
    assert_eq!(spool.metadata(&input, &name("a")).unwrap(), b"m");
    assert_eq!(spool.data(&name("a")).load().unwrap(), b"d");
    let missing = spool.adopt(name("b")).unwrap_err();
    assert!(matches!(missing, SpoolError::NotReserved(_)), "{missing}");
    assert_whole(&spool);
}

/// Operations without exclusion.
#[test]
fn direct_operations() {
    let site = Site::new();
    let spool = with_entry(&site);
    let (input, a) = (queue("in"), name("a"));
    let stat = spool.info(&input, &a).unwrap();
    assert_eq!((stat.metadata_bytes, stat.attempts), (6, 0));
    assert_eq!(spool.metadata(&input, &a).unwrap(), b"meta a");
    assert_eq!(spool.data(&a).stat().unwrap().unwrap().bytes, 6);
    assert_eq!(std::fs::read(spool.data(&a).path()).unwrap(), b"data a");
    assert!(spool.remove(&input, &a).unwrap());
    assert!(!spool.remove(&input, &a).unwrap());
    assert!(matches!(spool.info(&input, &a), Err(SpoolError::NotFound { .. })));
    assert!(matches!(spool.metadata(&input, &a), Err(SpoolError::NotFound { .. })));
    assert!(spool.data(&a).stat().unwrap().is_none());
    assert_whole(&spool);
}

/// Too much metadata is refused, and leaves nothing.
#[test]
fn limits_are_kept() {
    let site = Site::new();
    let spool = with_entry(&site);
    let large = vec![b'x'; METADATA_BYTES_MAX as usize + 1];
    let refused =
        spool.enqueue(&queue("in"), named("b"), &Item::new(large.clone(), "")).unwrap_err();
    assert!(matches!(refused, SpoolError::TooLarge { .. }), "{refused}");
    let mut guard = spool.checkout(&queue("in"), &name("a")).unwrap();
    guard.set_metadata(large);
    assert!(matches!(guard.move_to(&queue("in")), Err(SpoolError::TooLarge { .. })));
    assert_eq!(spool.list(&queue("in")).unwrap(), [name("a")]);
    assert_whole(&spool);
}

/// Durability changes what is waited for, not what is there.
#[test]
fn every_durability_leaves_the_same() {
    for durability in [Durability::None, Durability::File, Durability::Full] {
        let site = Site::new();
        let spool = Spool::create(&site.path(), options(durability)).unwrap();
        let items = [Item::new("m", "d"), Item::new("m", ""), Item::default()];
        spool.enqueue(&queue("in"), named("a"), &items[0]).unwrap();
        spool.enqueue_batch(&queue("in"), time_ordered, &items).unwrap();
        assert_eq!(spool.list(&queue("in")).unwrap().len(), 4);
        for mut guard in pass(&spool, &queue("in")) {
            guard.set_metadata("changed");
            guard.move_to(&queue("out")).unwrap();
        }
        pass(&spool, &queue("out")).for_each(|guard| guard.complete().unwrap());
        assert_eq!(entries(&spool).len(), 0);
        assert_whole(&spool);
    }
}
