//! The desk on a spool of its own.

use super::*;
use crate::spool::{Durability, Item, Options, time_ordered};

fn spool() -> (tempfile::TempDir, Spool) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::None, ..Options::default() };
    let spool = Spool::create(&directory.path().join("spool"), options).unwrap();
    (directory, spool)
}

fn put(spool: &Spool, line: &str) -> EntryName {
    spool.enqueue(&QueueName::new(QUEUE).unwrap(), time_ordered, &Item::new(line, "")).unwrap()
}

fn listed(spool: &Spool, queue: &str) -> usize {
    spool.list(&QueueName::new(queue).unwrap()).unwrap().len()
}

/// What is a task, and why other metadata is none.
#[test]
fn metadata_is_one_line_of_a_fetcher_file() {
    let row = task(b"alpha  1 2\r\n").unwrap();
    assert_eq!((row.key.as_str(), row.payload.as_str()), ("alpha", " 1 2"));
    for (metadata, reason) in [
        ("", "empty"),
        ("\n", "empty"),
        ("alpha", "one word"),
        ("alpha 1\nbravo 2\n", "more than one line"),
        ("alpha 1\n\n", "more than one line"),
    ] {
        assert!(task(metadata.as_bytes()).unwrap_err().contains(reason), "{metadata:?}");
    }
}

/// Entries are kept until they are ended or given back; those that are no task go to the dead letters.
#[test]
fn entries_are_held_until_they_end() {
    let (_directory, spool) = spool();
    let (first, second) = (put(&spool, "alpha 1"), put(&spool, "bravo 2"));
    put(&spool, "nonsense");
    let mut desk = Desk::new(spool.clone(), Stop::new().unwrap()).unwrap();
    assert_eq!(desk.take(Duration::ZERO).unwrap(), 3);
    assert_eq!(listed(&spool, crate::spool::DEAD_LETTER), 1);
    let names: Vec<_> = desk.rows().map(|(name, ..)| name.clone()).collect();
    assert_eq!(names, [first.clone(), second.clone()]);
    let done = BTreeSet::from([first.clone()]);
    assert_eq!(desk.complete(&done).unwrap(), [], "it was not in the queue, as far as is known");
    desk.confirm(&done);
    assert_eq!(desk.complete(&done).unwrap(), [first]);
    assert_eq!(listed(&spool, QUEUE), 0);
    drop(desk);
    let queue = QueueName::new(QUEUE).unwrap();
    assert_eq!(spool.list(&queue).unwrap(), std::slice::from_ref(&second));
    assert_eq!(spool.stat(&queue, &second).unwrap().attempts, 0);
}

/// An entry whose taker died before he had it is not gone: it is had later, and only then known to be.
#[test]
fn a_claim_that_a_death_broke_off_does_not_make_an_entry_gone() {
    let (_directory, spool) = spool();
    let name = put(&spool, "alpha 1");
    let claim = spool.path().join(".shiftboss/claims").join(name.as_os_str());
    std::os::unix::fs::symlink("0123456789abcdef 1 tasks", claim).unwrap();
    let mut desk = Desk::new(spool.clone(), Stop::new().unwrap()).unwrap();
    assert_eq!(desk.take_known(vec![name.clone()]).unwrap(), []);
    assert_eq!(desk.take(Duration::from_secs(10)).unwrap(), 1);
    assert!(desk.holds(&name));
    let other = EntryName::new("other").unwrap();
    assert_eq!(desk.take_known(vec![other.clone()]).unwrap(), [other]);
}

/// No more are checked out than may be at once.
#[test]
fn checkouts_are_bounded() {
    let (_directory, spool) = spool();
    let items = vec![Item::new("alpha 1", ""); ENTRIES_MAX + 10];
    let queue = QueueName::new(QUEUE).unwrap();
    spool.enqueue_batch(&queue, time_ordered, &items).unwrap();
    let mut desk = Desk::new(spool.clone(), Stop::new().unwrap()).unwrap();
    while desk.take(Duration::ZERO).unwrap() > 0 {}
    assert_eq!(desk.rows().count(), ENTRIES_MAX);
    assert_eq!(listed(&spool, QUEUE), 10);
}

fn checked_out(spool: &Spool, name: &EntryName) -> std::path::PathBuf {
    spool.path().join(QUEUE).join(".checkout").join(name.as_os_str())
}

/// An entry that somebody gave back by hand is not one that was taken away: it stays, with its data, and is
/// had again.
#[test]
fn what_is_given_back_by_hand_stays() {
    let (_directory, spool) = spool();
    let queue = QueueName::new(QUEUE).unwrap();
    let name = spool.enqueue(&queue, time_ordered, &Item::new("alpha 1", "data")).unwrap();
    let mut desk = Desk::new(spool.clone(), Stop::new().unwrap()).unwrap();
    assert_eq!(desk.take(Duration::ZERO).unwrap(), 1);
    let back = spool.path().join(QUEUE).join(name.as_os_str());
    std::fs::rename(checked_out(&spool, &name), &back).unwrap();
    desk.looked -= LOOK_EVERY;
    assert_eq!(desk.vanished().unwrap(), []);
    assert_eq!(spool.data(&name).load().unwrap(), b"data");
    assert_eq!(desk.take_known(vec![name.clone()]).unwrap(), []);
    assert!(desk.holds(&name));
    std::fs::remove_file(checked_out(&spool, &name)).unwrap();
    desk.looked -= LOOK_EVERY;
    assert_eq!(desk.vanished().unwrap(), [name]);
    assert!(spool.monitor(&crate::spool::Limits::default()).unwrap().problems.is_empty());
}

/// Whoever was taken for dead loses its claims and nothing else.
#[test]
fn what_was_given_back_for_a_process_taken_for_dead_stays() {
    let (_directory, spool) = spool();
    let names = [put(&spool, "alpha 1"), put(&spool, "bravo 2")];
    let mut desk = Desk::new(spool.clone(), Stop::new().unwrap()).unwrap();
    assert_eq!(desk.take(Duration::ZERO).unwrap(), 2);
    std::fs::remove_dir_all(spool.path().join(".shiftboss/owners")).unwrap();
    std::fs::create_dir(spool.path().join(".shiftboss/owners")).unwrap();
    let other = Spool::load(spool.path(), spool.options().clone()).unwrap();
    assert_eq!(other.reclaim().unwrap().len(), 2);
    desk.looked -= LOOK_EVERY;
    assert_eq!(desk.vanished().unwrap(), []);
    assert_eq!(listed(&spool, QUEUE), 2);
    assert_eq!(desk.take_known(names.to_vec()).unwrap(), []);
    assert!(names.iter().all(|name| desk.holds(name)));
    assert_eq!(other.reclaim().unwrap(), [], "it has a record again");
}

/// One that is no task and cannot be moved stands in nobody's way.
#[test]
fn what_cannot_be_moved_holds_up_nobody() {
    let (_directory, spool) = spool();
    let (bad, good) = (put(&spool, "nonsense"), put(&spool, "alpha 1"));
    let dead = spool.path().join(crate::spool::DEAD_LETTER);
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::write(dead.join(bad.as_os_str()), "a stranger").unwrap();
    let mut desk = Desk::new(spool.clone(), Stop::new().unwrap()).unwrap();
    assert_eq!(desk.take(Duration::ZERO).unwrap(), 2);
    assert!(desk.holds(&good));
    assert_eq!(desk.take(Duration::ZERO).unwrap(), 0);
    drop(desk);
    assert_eq!(listed(&spool, QUEUE), 2);
}
