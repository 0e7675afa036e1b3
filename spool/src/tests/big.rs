//! Very many entries in one queue.

use std::time::{Duration, Instant};

use super::support::*;
use crate::*;

const MANY: usize = 20_000;

/// The median time of a take, from a queue of that size.
fn time_of_a_take(spool: &Spool, order: Order) -> Duration {
    let mut reader = spool.reader(&input(), order).unwrap();
    reader.dequeue_available().unwrap().unwrap().release().unwrap();
    let mut times: Vec<_> = (0..80)
        .map(|_| {
            let start = Instant::now();
            let guard = reader.dequeue_available().unwrap().unwrap();
            let time = start.elapsed();
            guard.complete().unwrap();
            time
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// They are published at once, listed, looked at, checked, and taken as fast as from a hundred.
#[test]
fn very_many_entries() {
    let (_site, spool) = Site::created();
    let fill = |entries: usize| {
        let items = vec![Item::default(); entries];
        spool.enqueue_batch(&input(), time_ordered, &items).unwrap();
    };
    fill(100);
    let few = time_of_a_take(&spool, Order::Strict);
    let (filling, start) = (MANY - spool.list(&input()).unwrap().len(), Instant::now());
    fill(filling);
    let filled = start.elapsed();
    assert_eq!(spool.list(&input()).unwrap().len(), MANY);
    let start = Instant::now();
    assert_eq!(problems(&spool), []);
    let looked = start.elapsed();
    let start = Instant::now();
    assert!(repair(&spool).is_clean());
    let checked = start.elapsed();
    let strict = time_of_a_take(&spool, Order::Strict);
    let spread = time_of_a_take(&spool, Order::Spread);
    println!("filled {filled:?}, looked {looked:?}, checked {checked:?}");
    println!("a take: {few:?} of 100, {strict:?} strict and {spread:?} spread of {MANY}");
    // Generous, for a machine at work: a listing would take a hundred times as long.
    let limit = few * 5 + Duration::from_millis(1);
    assert!(strict < limit && spread < limit, "{few:?} {strict:?} {spread:?}");
}
