//! The monitor: its events, and that it says nothing of a healthy spool under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::support::*;
use crate::*;

/// Ends what comes into a queue, until it is over.
fn consume(spool: &Spool, from: &str, over: &AtomicBool, end: impl Fn(Guard) -> Result<()>) {
    let mut reader = spool.reader(&queue(from), Order::Spread).unwrap();
    while !over.load(Ordering::Relaxed) {
        if let Some(guard) = reader.dequeue_available().unwrap() {
            end(guard).unwrap();
        }
    }
}

/// Forty looks at a spool where entries come, are held, move to and fro and go: no problem.
#[test]
fn no_false_report_under_load() {
    let site = Site::new();
    let (spool, over) = (&site.create(), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (from, to) in [("one", Some("two")), ("two", Some("one")), ("one", None)] {
            let end = move |guard: Guard| match to {
                _ if guard.name().as_bytes().ends_with(b"7") => guard.complete(),
                Some(to) => guard.move_to(&queue(to)),
                None => guard.fail(),
            };
            scope.spawn(move || consume(spool, from, over, end));
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let few = spool.list(&queue("one")).unwrap().len() < 300;
                let item = Item::new("m", "d");
                let name = spool.enqueue(&queue("one"), time_ordered, &item).unwrap();
                if !few && spool.remove(&queue("one"), &name).unwrap() {
                    spool.reserve(time_ordered).unwrap();
                }
            }
        });
        let found: Vec<_> = (0..40).flat_map(|_| problems(spool)).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(found, []);
    });
    assert_whole(spool);
}

/// A repair beside consumers at work finds nothing and takes nothing from them.
#[test]
fn a_repair_beside_consumers() {
    let site = Site::new();
    let (spool, over) = (site.create(), &AtomicBool::new(false));
    let items = vec![Item::new("m", "d"); 300];
    spool.enqueue_batch(&queue("one"), time_ordered, &items).unwrap();
    std::thread::scope(|scope| {
        for (from, to) in [("one", "two"), ("two", "one"), ("one", "three"), ("three", "two")] {
            let own = site.load();
            let end = move |mut guard: Guard| {
                let more = [guard.metadata(), b"."].concat();
                guard.set_metadata(&more[more.len() / 9..]);
                guard.move_to(&queue(to))
            };
            scope.spawn(move || consume(&own, from, over, end));
        }
        let found: Vec<_> = (0..30).flat_map(|_| repair(&spool).findings).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(found, []);
    });
    assert_eq!(entries(&spool).len(), 300);
    assert_whole(&spool);
}

fn report(spool: &Spool) -> Report {
    spool.monitor(&Limits::default()).unwrap()
}

/// A problem begins at the third look that sees it, and ends at the first that does not; one that
/// goes before is never told. Ends come first.
#[test]
fn problems_begin_and_end() {
    let (site, spool) = Site::created();
    let mut monitor = Monitor::new(2);
    let now = SystemTime::now();
    site.write(".data/x", "");
    let problem = report(&spool).problems.remove(0);
    assert_eq!(monitor.update(&report(&spool), now), []);
    assert_eq!(monitor.update(&report(&spool), now), []);
    let start = Event { event: Turn::Start, time: now, problem: problem.clone() };
    assert_eq!(monitor.update(&report(&spool), now), [start]);
    assert_eq!(monitor.update(&report(&spool), now), []);
    site.write(".data/y", "");
    assert_eq!(monitor.update(&report(&spool), now), []);
    assert_eq!(monitor.update(&report(&spool), now), []);
    std::fs::remove_file(site.file(".data/x")).unwrap();
    let events = monitor.update(&report(&spool), now);
    assert_eq!(events[0], Event { event: Turn::End, time: now, problem });
    assert!(
        matches!(&events[1..], [Event { event: Turn::Start, problem, .. }] if problem.name == "y")
    );
    std::fs::remove_file(site.file(".data/y")).unwrap();
    site.write(".data/z", "");
    assert_eq!(monitor.update(&report(&spool), now).len(), 1);
    std::fs::remove_file(site.file(".data/z")).unwrap();
    assert_eq!(monitor.update(&report(&spool), now), []);
}

/// A file that is touched is another problem, so that it begins anew.
#[test]
fn a_touched_file_is_another_problem() {
    let (site, spool) = Site::created();
    site.write(".data/x", "");
    let mut monitor = Monitor::new(0);
    assert_eq!(monitor.update(&report(&spool), SystemTime::now()).len(), 1);
    set_age(&site.file(".data/x"), Duration::from_secs(9));
    let events = monitor.update(&report(&spool), SystemTime::now());
    assert!(
        matches!(&events[..], [Event { event: Turn::End, .. }, Event { event: Turn::Start, .. }]),
        "{events:?}"
    );
}
