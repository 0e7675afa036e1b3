//! Readers: order, arrivals, the polling fallback, limits, several of them at once.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::support::*;
use crate::*;

fn filled(site: &Site, entries: usize) -> Spool {
    let spool = site.create();
    let items = vec![Item::new("m", ""); entries];
    let mut count = 0;
    let names = |_| {
        count += 1;
        name(&format!("{count:06}"))
    };
    spool.enqueue_batch(&queue("in"), names, &items).unwrap();
    spool
}

/// Several spread consumers of one queue seldom try the same entry.
#[test]
fn spread_readers_do_not_race() {
    let (mut tried, mut lost) = (0, 0);
    for _ in 0..2 {
        let site = Site::new();
        drop(filled(&site, 400));
        let layer = Faulty::new(&site.path(), Fault::Die, u64::MAX);
        let taken: usize = std::thread::scope(|scope| {
            let consumers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let me = Identity::this_process();
                        let spool = layer.spool(&site.path(), options(Durability::None), me);
                        let mut reader = spool.reader(&queue("in"), Order::Spread).unwrap();
                        let mut taken = 0;
                        while let Some(guard) = reader.dequeue_available().unwrap() {
                            guard.complete().unwrap();
                            taken += 1;
                        }
                        taken
                    })
                })
                .collect();
            consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum()
        });
        assert_eq!(taken, 400);
        tried += 400;
        lost += layer.lost.load(Ordering::Relaxed);
        assert_whole(&Spool::load(&site.path(), Options::default()).unwrap());
    }
    println!("{lost} of {tried} renames and links failed");
    assert!(lost * 20 <= tried, "{lost} of {tried} failed");
}

/// A strict reader takes the first by name of what is there, late arrivals too.
#[test]
fn a_strict_reader_is_strict() {
    let site = Site::new();
    let spool = filled(&site, 3);
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    let mut next = || {
        let guard = reader.dequeue_available().unwrap().unwrap();
        let name = guard.name().to_string();
        guard.complete().unwrap();
        name
    };
    assert_eq!(next(), "000001");
    spool.enqueue(&queue("in"), named("000000"), &Item::default()).unwrap();
    assert_eq!(next(), "000000");
    let guard = spool.checkout(&queue("in"), &name("000002")).unwrap();
    assert_eq!(next(), "000003");
    guard.release().unwrap();
    assert_eq!(next(), "000002");
}

/// What is there is passed over once by a spread reader as well.
#[test]
fn a_spread_reader_takes_everything() {
    let site = Site::new();
    let spool = filled(&site, 50);
    let mut reader = spool.reader(&queue("in"), Order::Spread).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(guard) = reader.dequeue_available().unwrap() {
        seen.insert(guard.name().clone());
        guard.complete().unwrap();
    }
    assert_eq!(seen.len(), 50);
}

/// A waiting reader is woken by an arrival, long before it would look by itself.
#[test]
fn arrivals_wake() {
    let site = Site::new();
    let spool = site.create();
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    let stop = Stop::new().unwrap();
    let mut quick = 0;
    for number in 0..10 {
        assert!(reader.dequeue_available().unwrap().is_none());
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let entry = named(&format!("{number}"));
                spool.enqueue(&queue("in"), entry, &Item::default()).unwrap();
            });
            let Some(guard) = reader.dequeue(&stop, Some(DEADLINE)).unwrap() else {
                panic!("it did not come")
            };
            guard.complete().unwrap();
        });
        quick += u32::from(start.elapsed() < Duration::from_millis(500));
    }
    assert!(quick >= 9, "{quick} of 10");
}

/// Without a watch, here since the spool is not where it was opened, it looks every second.
#[test]
fn polling_finds_arrivals() {
    let site = Site::new();
    let spool = site.create();
    std::fs::rename(site.path(), site.directory.path().join("elsewhere")).unwrap();
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    let stop = Stop::new().unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            spool.enqueue(&queue("in"), named("a"), &Item::default()).unwrap();
        });
        let taken = reader.dequeue(&stop, Some(DEADLINE)).unwrap();
        assert!(taken.is_some());
    });
}

/// A watched reader also finds what no event tells: an entry that was linked into the queue.
#[test]
fn arrivals_without_events_are_found() {
    let site = Site::new();
    let spool = with_entry(&site);
    let mut reader = spool.reader(&queue("out"), Order::Strict).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::fs::hard_link(site.file("in/a"), site.file("out/a")).unwrap();
    std::fs::remove_file(site.file("in/a")).unwrap();
    let taken = reader.dequeue(&Stop::new().unwrap(), Some(DEADLINE)).unwrap();
    assert!(taken.is_some());
}

/// A queue that is removed and made again while a reader waits.
#[test]
fn a_queue_that_is_made_again() {
    let site = Site::new();
    let spool = site.create();
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::fs::remove_dir_all(site.file("in")).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::fs::remove_dir_all(site.file("in")).unwrap();
    spool.enqueue(&queue("in"), named("a"), &Item::default()).unwrap();
    let taken = reader.dequeue(&Stop::new().unwrap(), Some(DEADLINE)).unwrap();
    assert!(taken.is_some());
}

/// The time limit is kept, and zero is a look.
#[test]
fn time_limits() {
    let site = Site::new();
    let spool = with_entry(&site);
    let stop = Stop::new().unwrap();
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    let taken = reader.dequeue(&stop, Some(Duration::ZERO)).unwrap();
    let Some(guard) = taken else { panic!("there is one") };
    let start = Instant::now();
    let limit = Duration::from_millis(50);
    assert!(reader.dequeue(&stop, Some(limit)).unwrap().is_none());
    assert!(start.elapsed() >= limit);
    drop(guard);
    stop.stop();
    assert!(reader.dequeue(&stop, None).unwrap().is_none());
}
