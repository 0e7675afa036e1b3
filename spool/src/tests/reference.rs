//! What the reference's own eighteen tests prove (spec 6, by their numbers), and what ours has beside: a life byte for byte,
//! reserved names, limits.

use std::cell::Cell;
use std::time::Duration;

use super::support::*;
use crate::*;

/// 1. Create refuses a directory with other files in it.
#[test]
fn create_refuses_a_foreign_directory() {
    let site = Site::new();
    site.write("letter.txt", "Dear");
    let refused = Spool::create(&site.path(), Options::default()).unwrap_err();
    assert!(matches!(refused, SpoolError::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("letter.txt"), "{refused}");
    assert_eq!(site.tree(), "letter.txt = \"Dear\"\n");
}

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

/// Tests 2 to 5, 8 and 10: created, reserved, published, claimed, failed, claimed again, delayed, given back, moved with other
/// metadata, removed.
#[test]
fn the_whole_tree_of_a_life() {
    let (site, spool) = Site::created();
    expect(&site, "", "");
    let reservation = spool.reserve(named("a")).unwrap();
    expect(&site, ".registry/a = \"\"\n", "");
    spool.enqueue_reserved(&input(), reservation, &Item::new("meta a", "data a")).unwrap();
    let available = format!("{QUEUE}{ENTRY}in/a = \"meta a\"\n");
    let held = format!("{QUEUE}{ENTRY}in/.checkout/a = \"meta a\"\n.shiftboss/owners/OWNER\n");
    expect(&site, &available, "");

    let guard = take(&spool).unwrap();
    expect(&site, &held, ".shiftboss/claims/a -> OWNER 1 in\n");
    guard.fail().unwrap();
    let available = format!("{available}.shiftboss/owners/OWNER\n");
    expect(&site, &available, ".shiftboss/attempts/a -> 1\n");

    let guard = take(&spool).unwrap();
    assert_eq!(guard.attempt(), 2);
    let ours = ".shiftboss/attempts/a -> 1\n.shiftboss/claims/a -> OWNER 2 in\n";
    expect(&site, &held, ours);
    guard.retry_after(Duration::ZERO).unwrap();
    let tree = site.tree();
    assert!(tree.contains(".shiftboss/claims/a -> until:"), "{tree}");
    assert!(tree.contains("in/.checkout/a = \"meta a\""), "{tree}");
    wait_until("it is due", || !spool.reclaim().unwrap().is_empty());
    expect(&site, &available, ".shiftboss/attempts/a -> 2\n");

    let mut guard = take(&spool).unwrap();
    guard.set_metadata("changed");
    guard.move_to(&queue("out")).unwrap();
    let out = "out/\nout/.checkout/\n.shiftboss/owners/OWNER\n";
    expect(&site, &format!("{QUEUE}{ENTRY}{out}out/a = \"changed\"\n"), "");
    spool.checkout(&queue("out"), &a()).unwrap().complete().unwrap();
    expect(&site, &format!("{QUEUE}{out}"), "");
    drop(spool);
    expect(&site, &format!("{QUEUE}out/\nout/.checkout/\n"), "");
}

/// 6., 7. and 9. Six enqueues whose names collide: the generator is asked again; list and pass go by names, and data can be read.
#[test]
fn six_colliding_names_are_listed_in_order() {
    let (_site, spool) = Site::created();
    let asked = Cell::new(0);
    for number in 0..6 {
        let names = |attempt: u32| {
            asked.set(asked.get() + 1);
            name(&format!("n{}", 9 - attempt))
        };
        spool.enqueue(&input(), names, &Item::new("m", number.to_string())).unwrap();
    }
    assert_eq!(asked.get(), 1 + 2 + 3 + 4 + 5 + 6);
    let listed: Vec<_> = spool.list(&input()).unwrap();
    assert_eq!(listed, ["n4", "n5", "n6", "n7", "n8", "n9"].map(name));
    let data: Vec<_> = pass(&spool, &input()).map(|guard| guard.data().load().unwrap()).collect();
    assert_eq!(data, [b"5", b"4", b"3", b"2", b"1", b"0"]);
}

fn found(spool: &Spool, limits: &Limits) -> Vec<(ProblemKind, Vec<Place>, String)> {
    let problems = spool.monitor(limits).unwrap().problems;
    problems.into_iter().map(|it| (it.kind, it.places, it.name)).collect()
}

/// Tests 12 to 16: a registered name without an entry, a name in two queues, a file without a registered name in each directory;
/// gone with the file.
#[test]
fn misplaced_files_are_reported() {
    use ProblemKind::{Duplicated, Orphaned};
    let (site, spool) = Site::with_entry();
    let (in_, out) = (Place::Queue(input()), Place::Queue(queue("out")));
    for (path, kind, places) in [
        (".registry/x", Orphaned, vec![Place::Registry]),
        ("out/a", Duplicated, vec![in_.clone(), out]),
        (".tmp/x", Orphaned, vec![Place::Tmp]),
        (".data/x", Orphaned, vec![Place::Data]),
        ("in/x", Orphaned, vec![in_]),
        ("in/.checkout/x", Orphaned, vec![Place::Checkout(input())]),
    ] {
        site.write(path, "");
        let name = path.rsplit('/').next().unwrap().to_owned();
        assert_eq!(found(&spool, &Limits::default()), [(kind, places, name)]);
        std::fs::remove_file(site.file(path)).unwrap();
        assert_eq!(problems(&spool), []);
    }
}

/// 11. and 17. A checkout, a temporary file and, where there is a limit, an entry that are too old; before, they are no problem.
#[test]
fn old_files_are_reported() {
    let site = Site::new();
    assert_eq!(problems(&site.create()), []);
    let spool = with_entry(&site);
    site.write(".tmp/a", "half");
    site.write(".tmp/a.tmp.7f3", "half");
    let guard = take(&spool).unwrap();
    assert_eq!(problems(&spool), []);
    let long_ago = Duration::from_secs(601);
    set_age(&site.file(".tmp/a"), long_ago);
    set_age(&site.file("in/.checkout/a"), long_ago);
    let old = |place| (ProblemKind::TooOld, vec![place], "a".to_owned());
    assert_eq!(found(&spool, &Limits::default()), [old(Place::Tmp), old(Place::Checkout(input()))]);
    drop(guard);
    std::fs::remove_file(site.file(".tmp/a")).unwrap();
    assert_eq!(problems(&spool), []);
    let strict = Limits { queues: [(input(), Duration::ZERO)].into(), ..Limits::default() };
    assert_eq!(found(&spool, &strict), [old(Place::Queue(input()))]);
}

/// 18. A wait is ended by the signal; two hundred that come meanwhile come in order.
#[test]
fn waiting_stopping_and_order() {
    let (_site, spool) = Site::created();
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let mut reader = spool.reader(&input(), Order::Strict).unwrap();
        let waiting = scope.spawn({
            let stop = stop.clone();
            move || reader.dequeue(&stop, None).unwrap().is_none()
        });
        stop.stop();
        assert!(waiting.join().unwrap());
    });
    let names: Vec<_> = (0..200).map(|number| format!("e{number:03}")).collect();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let (stop, mut seen) = (Stop::new().unwrap(), Vec::new());
            let mut reader = spool.reader(&input(), Order::Strict).unwrap();
            while seen.len() < names.len() {
                let guard = reader.dequeue(&stop, None).unwrap().unwrap();
                seen.push(guard.name().to_string());
                guard.move_to(&queue("next")).unwrap();
            }
            seen
        });
        names.iter().for_each(|entry| _ = put(&spool, entry).unwrap());
        assert_eq!(mover.join().unwrap(), names);
    });
    assert_eq!(spool.list(&queue("next")).unwrap().len(), names.len());
}

/// A guard gives its entry back when it is dropped, by a panic too; a release does not count, and no other end but a move
/// writes metadata. Only one of two takes an entry, through one handle or two.
#[test]
fn a_guard_holds_and_gives_back() {
    let (site, spool) = Site::with_entry();
    let attempts = || spool.info(&input(), &a()).unwrap().attempts;
    drop(take(&spool).unwrap());
    assert_eq!(attempts(), 1);
    let panicked = std::thread::spawn({
        let spool = spool.clone();
        move || {
            let _guard = take(&spool).unwrap();
            panic!("a consumer's");
        }
    });
    assert!(panicked.join().is_err());
    assert_eq!(attempts(), 2);
    take(&spool).unwrap().release().unwrap();
    assert_eq!(attempts(), 2);
    let mut guard = take(&spool).unwrap();
    for spool in [&spool, &site.load()] {
        assert!(spool.try_checkout(&input(), &a()).unwrap().is_none());
        let gone = take(spool).unwrap_err();
        assert!(matches!(gone, SpoolError::NotFound { .. }), "{gone}");
    }
    guard.set_metadata("never written");
    guard.fail().unwrap();
    assert_eq!(spool.metadata(&input(), &a()).unwrap(), b"meta a");
    assert_whole(&spool);
}

/// Reserved names: given up when dropped, used once, left for another process.
#[test]
fn reserved_names() {
    let (_site, spool) = Site::created();
    drop(spool.reserve(named("a")).unwrap());
    let reservation = spool.reserve(named("a")).unwrap();
    let taken = spool.reserve(named("a")).unwrap_err();
    assert!(matches!(taken, SpoolError::NoFreeName { .. }), "{taken}");
    let kept = reservation.keep();
    let reservation = spool.adopt(kept.clone()).unwrap();
    spool.enqueue_reserved(&input(), reservation, &Item::new("m", "d")).unwrap();
    let again = spool.adopt(kept).unwrap();
    let taken = spool.enqueue_reserved(&input(), again, &Item::new("n", "e")).unwrap_err();
    assert!(matches!(taken, SpoolError::Taken(_)), "{taken}");
    assert_eq!(spool.metadata(&input(), &a()).unwrap(), b"m");
    assert_eq!(spool.data(&a()).load().unwrap(), b"d");
    let missing = spool.adopt(name("b")).unwrap_err();
    assert!(matches!(missing, SpoolError::NotReserved(_)), "{missing}");
    assert_whole(&spool);
}

/// Operations without exclusion; and too much metadata is refused, and leaves nothing.
#[test]
fn direct_operations_and_limits() {
    let (_site, spool) = Site::with_entry();
    let large = vec![b'x'; METADATA_BYTES_MAX as usize + 1];
    let refused = spool.enqueue(&input(), named("b"), &Item::new(large.clone(), "")).unwrap_err();
    assert!(matches!(refused, SpoolError::TooLarge { .. }), "{refused}");
    let mut guard = take(&spool).unwrap();
    guard.set_metadata(large);
    assert!(matches!(guard.move_to(&input()), Err(SpoolError::TooLarge { .. })));
    assert_eq!(spool.list(&input()).unwrap(), [a()]);

    assert_eq!(spool.info(&input(), &a()).unwrap().metadata_bytes, 6);
    assert_eq!(spool.data(&a()).stat().unwrap().unwrap().bytes, 6);
    assert_eq!(std::fs::read(spool.data(&a()).path()).unwrap(), b"data a");
    assert!(spool.remove(&input(), &a()).unwrap());
    assert!(!spool.remove(&input(), &a()).unwrap());
    assert!(matches!(spool.info(&input(), &a()), Err(SpoolError::NotFound { .. })));
    assert!(matches!(spool.metadata(&input(), &a()), Err(SpoolError::NotFound { .. })));
    assert!(spool.data(&a()).stat().unwrap().is_none());
    assert_whole(&spool);
}
