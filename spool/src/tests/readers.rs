//! Readers: order, arrivals, the polling fallback, limits, several of them at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::support::*;
use crate::*;

fn filled(site: &Site, entries: usize) -> Spool {
    let spool = site.create();
    let items = vec![Item::new("m", ""); entries];
    let mut names = (1..).map(|number| name(&format!("{number:06}")));
    spool.enqueue_batch(&input(), |_| names.next().unwrap(), &items).unwrap();
    spool
}

/// Several spread consumers of one queue seldom try the same entry.
#[test]
fn spread_readers_do_not_race() {
    let (mut tried, mut lost) = (0, 0);
    for _ in 0..2 {
        let site = Site::new();
        drop(filled(&site, 400));
        let (layer, _) = site.faulty(Fault::Die, u64::MAX, Durability::None);
        let taken = AtomicU64::new(0);
        let consume = || {
            let me = Identity::this_process();
            let spool = Spool::on(layer.clone(), &site.path(), options(Durability::None), me);
            let mut reader = spool.reader(&input(), Order::Spread).unwrap();
            while let Some(guard) = reader.dequeue_available().unwrap() {
                guard.complete().unwrap();
                taken.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(consume)));
        assert_eq!(taken.into_inner(), 400);
        tried += 400;
        lost += layer.lost.load(Ordering::Relaxed);
        assert_whole(&site.load());
    }
    println!("{lost} of {tried} renames and links failed");
    assert!(lost * 20 <= tried, "{lost} of {tried} failed");
}

/// A strict reader takes the first by name of what is there, late arrivals too.
#[test]
fn a_strict_reader_is_strict() {
    let site = Site::new();
    let spool = filled(&site, 3);
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    let mut next = || {
        let guard = reader.dequeue_available().unwrap().unwrap();
        let name = guard.name().to_string();
        guard.complete().unwrap();
        name
    };
    assert_eq!(next(), "000001");
    put(&spool, "000000").unwrap();
    assert_eq!(next(), "000000");
    let guard = spool.checkout(&input(), &name("000002")).unwrap();
    assert_eq!(next(), "000003");
    guard.release().unwrap();
    assert_eq!(next(), "000002");
}

/// A waiting reader is woken by an arrival, long before it would look by itself.
#[test]
fn arrivals_wake() {
    let (_site, spool) = Site::created();
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    let stop = Stop::new().unwrap();
    let mut quick = 0;
    for number in 0..10 {
        assert!(reader.dequeue_available().unwrap().is_none());
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| put(&spool, &number.to_string()).unwrap());
            reader.dequeue(&stop, Some(DEADLINE)).unwrap().unwrap().complete().unwrap();
        });
        quick += u32::from(start.elapsed() < Duration::from_millis(500));
    }
    assert!(quick >= 9, "{quick} of 10");
}

/// Without a watch, here since the spool is not where it was opened, it looks every second.
#[test]
fn polling_finds_arrivals() {
    let (site, spool) = Site::created();
    std::fs::rename(site.path(), site.directory.path().join("elsewhere")).unwrap();
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    let stop = Stop::new().unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| put(&spool, "a").unwrap());
        assert!(reader.dequeue(&stop, Some(DEADLINE)).unwrap().is_some());
    });
}

/// A watched reader also finds what no event tells: an entry that was linked into the queue.
#[test]
fn arrivals_without_events_are_found() {
    let (site, spool) = Site::with_entry();
    let mut reader = spool.reader(&queue("out"), Order::Strict).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::fs::hard_link(site.file("in/a"), site.file("out/a")).unwrap();
    std::fs::remove_file(site.file("in/a")).unwrap();
    assert!(reader.dequeue(&Stop::new().unwrap(), Some(DEADLINE)).unwrap().is_some());
}

/// A queue that is removed and made again while a reader waits.
#[test]
fn a_queue_that_is_made_again() {
    let (site, spool) = Site::created();
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::fs::remove_dir_all(site.file("in")).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    std::fs::remove_dir_all(site.file("in")).unwrap();
    put(&spool, "a").unwrap();
    assert!(reader.dequeue(&Stop::new().unwrap(), Some(DEADLINE)).unwrap().is_some());
}
