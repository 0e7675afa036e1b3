//! The reference's own eighteen tests (spec 6), each in one of these.

use std::cell::Cell;
use std::time::Duration;

use super::support::*;
use crate::*;

fn problems(spool: &Spool, limits: &Limits) -> Vec<(ProblemKind, Vec<Place>, String)> {
    let report = spool.monitor(limits).unwrap();
    report.problems.into_iter().map(|p| (p.kind, p.places, p.name)).collect()
}

fn healthy(spool: &Spool) {
    assert_eq!(problems(spool, &Limits::default()), []);
}

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

/// 2. to 5. The tree after creation, enqueue, checkout and removal.
#[test]
fn the_tree_of_a_life() {
    let site = Site::new();
    let spool = site.create();
    assert_eq!(site.format(), ".data/\n.registry/\n.tmp/\n");
    spool.enqueue(&queue("in"), named("a"), &Item::new("m", "d")).unwrap();
    let available = ".data/\n.data/a = \"d\"\n.registry/\n.registry/a = \"\"\n.tmp/\nin/\n\
        in/.checkout/\nin/a = \"m\"\n";
    assert_eq!(site.format(), available);
    let guard = spool.checkout(&queue("in"), &name("a")).unwrap();
    let checked_out = ".data/\n.data/a = \"d\"\n.registry/\n.registry/a = \"\"\n.tmp/\nin/\n\
        in/.checkout/\nin/.checkout/a = \"m\"\n";
    assert_eq!(site.format(), checked_out);
    guard.complete().unwrap();
    assert_eq!(site.format(), ".data/\n.registry/\n.tmp/\nin/\nin/.checkout/\n");
}

/// 6. and 7. Six enqueues whose names collide: the generator is asked again; the list is sorted.
#[test]
fn six_colliding_names_are_listed_in_order() {
    let site = Site::new();
    let spool = site.create();
    let asked = Cell::new(0);
    for _ in 0..6 {
        let names = |attempt: u32| {
            asked.set(asked.get() + 1);
            name(&format!("n{}", 9 - attempt))
        };
        spool.enqueue(&queue("in"), names, &Item::default()).unwrap();
    }
    assert_eq!(asked.get(), 1 + 2 + 3 + 4 + 5 + 6);
    let listed: Vec<_> = spool.list(&queue("in")).unwrap();
    assert_eq!(listed, ["n4", "n5", "n6", "n7", "n8", "n9"].map(name));
}

/// 8. A checkout that is saved to another queue moves.
#[test]
fn a_checkout_moves_to_another_queue() {
    let site = Site::new();
    let spool = with_entry(&site);
    spool.checkout(&queue("in"), &name("a")).unwrap().move_to(&queue("out")).unwrap();
    assert_eq!(spool.list(&queue("in")).unwrap(), []);
    assert_eq!(spool.list(&queue("out")).unwrap(), [name("a")]);
    assert_whole(&spool);
}

/// 9. One pass goes in the order of names, and data can be read.
#[test]
fn one_pass_in_order_with_data() {
    let site = Site::new();
    let spool = site.create();
    for text in ["c", "a", "b"] {
        spool.enqueue(&queue("in"), named(text), &Item::new("", text)).unwrap();
    }
    let mut seen = Vec::new();
    for guard in pass(&spool, &queue("in")) {
        seen.push(guard.data().load().unwrap());
        guard.complete().unwrap();
    }
    assert_eq!(seen, [b"a", b"b", b"c"]);
}

/// 10. What one pass writes, a second pass sees.
#[test]
fn rewritten_metadata_is_seen() {
    let site = Site::new();
    let spool = with_entry(&site);
    let mut guard = spool.checkout(&queue("in"), &name("a")).unwrap();
    guard.set_metadata([guard.metadata(), b", seen"].concat());
    guard.move_to(&queue("in")).unwrap();
    let seen: Vec<_> = pass(&spool, &queue("in")).map(|guard| guard.metadata().to_vec()).collect();
    assert_eq!(seen, [b"meta a, seen"]);
}

/// 11. The monitor has nothing against an empty spool, an entry, a checkout, a file in `.tmp`.
#[test]
fn a_healthy_spool_has_no_problems() {
    let site = Site::new();
    let spool = site.create();
    healthy(&spool);
    let spool2 = with_entry(&site);
    healthy(&spool2);
    site.write(".tmp/a", "half");
    site.write(".tmp/a.tmp.7f3", "half");
    healthy(&spool2);
    let guard = spool2.checkout(&queue("in"), &name("a")).unwrap();
    healthy(&spool2);
    drop(guard);
}

/// 12. A registered name without an entry.
#[test]
fn an_orphaned_name_is_reported() {
    let site = Site::new();
    let spool = site.create();
    let kept = spool.reserve(named("a")).unwrap().keep();
    let orphaned = (ProblemKind::Orphaned, vec![Place::Registry], "a".to_owned());
    assert_eq!(problems(&spool, &Limits::default()), [orphaned]);
    drop(spool.adopt(kept).unwrap());
    healthy(&spool);
}

/// 13. A name in two queues.
#[test]
fn a_duplicate_is_reported() {
    let site = Site::new();
    let spool = with_entry(&site);
    site.write("out/a", "meta a");
    let places = vec![Place::Queue(queue("in")), Place::Queue(queue("out"))];
    let found = problems(&spool, &Limits::default());
    assert_eq!(found, [(ProblemKind::Duplicated, places, "a".to_owned())]);
    std::fs::remove_file(site.file("out/a")).unwrap();
    healthy(&spool);
}

/// 14. to 16. A file without a registered name, in each directory, gone with it.
#[test]
fn unregistered_files_are_reported() {
    let site = Site::new();
    let spool = with_entry(&site);
    let places = [
        (".tmp/x", Place::Tmp),
        (".data/x", Place::Data),
        ("in/x", Place::Queue(queue("in"))),
        ("in/.checkout/x", Place::Checkout(queue("in"))),
    ];
    for (path, place) in places {
        site.write(path, "");
        let found = problems(&spool, &Limits::default());
        assert_eq!(found, [(ProblemKind::Orphaned, vec![place], "x".to_owned())]);
        std::fs::remove_file(site.file(path)).unwrap();
        healthy(&spool);
    }
}

/// 17. A checkout, a temporary file and, where there is a limit, an entry that are too old.
#[test]
fn old_files_are_reported() {
    let site = Site::new();
    let spool = with_entry(&site);
    site.write(".tmp/a", "half");
    let guard = spool.checkout(&queue("in"), &name("a")).unwrap();
    let long_ago = Duration::from_secs(601);
    set_age(&site.file(".tmp/a"), long_ago);
    set_age(&site.file("in/.checkout/a"), long_ago);
    let old = |place| (ProblemKind::TooOld, vec![place], "a".to_owned());
    let found = problems(&spool, &Limits::default());
    assert_eq!(found, [old(Place::Tmp), old(Place::Checkout(queue("in")))]);
    drop(guard);
    std::fs::remove_file(site.file(".tmp/a")).unwrap();
    healthy(&spool);
    let queues = [(queue("in"), Duration::ZERO)].into();
    let strict = Limits { queues, ..Limits::default() };
    assert_eq!(problems(&spool, &strict), [old(Place::Queue(queue("in")))]);
}

/// 18. A wait is ended by the signal; ten that come meanwhile, and a thousand, come in order.
#[test]
fn waiting_stopping_and_order() {
    let site = Site::new();
    let spool = site.create();
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
        let waiting = scope.spawn({
            let stop = stop.clone();
            move || reader.dequeue(&stop, None).unwrap().is_none()
        });
        stop.stop();
        assert!(waiting.join().unwrap());
    });
    ten_are_moved_on(&spool);
    let items: Vec<_> = (0..1000).map(|number| Item::new(number.to_string(), "")).collect();
    let order = |count: &Cell<u32>| {
        let number = count.replace(count.get() + 1);
        name(&format!("{number:05}"))
    };
    let count = Cell::new(0);
    spool.enqueue_batch(&queue("many"), |_| order(&count), &items).unwrap();
    let mut reader = spool.reader(&queue("many"), Order::Strict).unwrap();
    for number in 0..1000 {
        let guard = reader.dequeue_available().unwrap().unwrap();
        assert_eq!(guard.metadata(), number.to_string().as_bytes());
        guard.complete().unwrap();
    }
    assert!(reader.dequeue_available().unwrap().is_none());
}

fn ten_are_moved_on(spool: &Spool) {
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
            let mut seen = Vec::new();
            while let Some(guard) = reader.dequeue(&stop, None).unwrap() {
                seen.push(guard.name().to_string());
                guard.move_to(&queue("next")).unwrap();
                if seen.len() == 10 {
                    break;
                }
            }
            seen
        });
        for number in 0..10 {
            spool.enqueue(&queue("in"), named(&format!("e{number}")), &Item::default()).unwrap();
        }
        let seen = mover.join().unwrap();
        assert_eq!(seen, (0..10).map(|number| format!("e{number}")).collect::<Vec<_>>());
    });
    assert_eq!(spool.list(&queue("next")).unwrap().len(), 10);
}
