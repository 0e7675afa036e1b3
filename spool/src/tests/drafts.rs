//! Drafts of data: what a death leaves of them goes with a repair, what is being written stays.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use super::support::*;
use crate::*;

/// A source of data during which something is done.
struct Meanwhile<F>(Option<F>, &'static [u8]);

impl<F: FnOnce()> Read for Meanwhile<F> {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        unreachable!("it is read by its buffer")
    }
}

impl<F: FnOnce()> BufRead for Meanwhile<F> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.1.is_empty()
            && let Some(act) = self.0.take()
        {
            act();
        }
        Ok(self.1)
    }

    fn consume(&mut self, amount: usize) {
        self.1 = &self.1[amount..];
    }
}

fn repair(spool: &Spool, older_than: Option<Duration>) -> Fsck {
    spool.fsck(FsckOptions { repair: true, older_than }).unwrap()
}

/// A repair of whatever age leaves a draft alone that is being written.
#[test]
fn what_is_being_written_stays() {
    let site = Site::new();
    let spool = with_entry(&site);
    let other = Spool::load(&site.path(), options(Durability::None)).unwrap();
    let check = || {
        assert!(repair(&other, Some(Duration::ZERO)).is_clean());
        assert!(repair(&other, None).is_clean());
    };
    let draft = spool.draft(&mut Meanwhile(Some(check), b"slow")).unwrap();
    let reservation = spool.reserve(time_ordered).unwrap();
    let name = spool.enqueue_draft(&queue("in"), reservation, b"m", draft).unwrap();
    assert_eq!(spool.data(&name).load().unwrap(), b"slow");
}

/// A dead writer's draft is told of and deleted, also while a consumer lives.
#[test]
fn what_a_death_left_goes() {
    let site = Site::new();
    let spool = with_entry(&site);
    let guard = spool.checkout(&queue("in"), &name("a")).unwrap();
    let other = Spool::load(&site.path(), options(Durability::None)).unwrap();
    let left = site.path().join(".shiftboss/tmp/0123456789abcdef-7.data");
    std::fs::write(&left, "half").unwrap();
    assert!(!repair(&other, None).is_clean());
    assert!(!left.exists());
    assert!(repair(&other, None).is_clean());
    guard.complete().unwrap();
}
