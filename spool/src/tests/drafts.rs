//! Drafts: what a death leaves of them goes with a repair, what is being written stays.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use rustix::io::Errno;

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

/// So does one that comes when the draft was just made.
#[test]
fn what_is_about_to_be_written_stays() {
    for at in 1.. {
        let site = Site::new();
        drop(with_entry(&site));
        let layer = Faulty::new(&site.path(), Fault::Fail(Errno::IO), u64::MAX);
        let spool = layer.spool(&site.path(), options(Durability::None), Identity::this_process());
        let other = Spool::load(&site.path(), options(Durability::None)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        layer.before(at, move || _ = tell.send(repair(&other, None)));
        let draft = spool.draft(&mut &b"slow"[..]).unwrap();
        let Ok(_) = told.try_recv() else { break };
        let reservation = spool.reserve(time_ordered).unwrap();
        let name = spool.enqueue_draft(&queue("in"), reservation, b"m", draft);
        assert_eq!(spool.data(&name.unwrap()).load().unwrap(), b"slow", "{at}");
        assert!(repair(&spool, None).is_clean());
    }
}

/// A repair at any moment leaves to a consumer what it is writing.
#[test]
fn what_a_consumer_writes_stays() {
    for at in 1.. {
        let site = Site::new();
        drop(with_entry(&site));
        let layer = Faulty::new(&site.path(), Fault::Fail(Errno::IO), u64::MAX);
        let spool = layer.spool(&site.path(), options(Durability::None), Identity::this_process());
        let mut guard = spool.checkout(&queue("in"), &name("a")).unwrap();
        guard.set_metadata("other");
        let other = Spool::load(&site.path(), options(Durability::None)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let repaired = move || _ = tell.send(repair(&other, None));
        layer.before(layer.calls() + at, repaired);
        guard.reject("why").unwrap();
        let Ok(found) = told.try_recv() else { break };
        let deleted = |mended: &Mended| mended.finding == Finding::HalfWritten;
        assert!(!found.findings.iter().any(deleted), "{at}: {found:?}");
        let info = spool.info(&queue(DEAD_LETTER), &name("a")).unwrap();
        assert_eq!((info.reason.as_deref(), info.metadata_bytes), (Some("why"), 5));
    }
}

/// A repair leaves alone what other threads of its own process are writing.
#[test]
fn what_the_repairer_writes_stays() {
    let site = Site::new();
    let spool = with_entry(&site);
    let draft = site.path().join(spool.draft_path());
    std::fs::write(&draft, "half").unwrap();
    assert!(repair(&spool, None).is_clean());
    assert!(draft.exists());
}

/// Who makes a spool does not fail because another repairs it meanwhile.
#[test]
fn a_repair_while_a_spool_is_made() {
    for at in 1.. {
        let site = Site::new();
        std::fs::create_dir(site.path()).unwrap();
        let layer = Faulty::new(&site.path(), Fault::Fail(Errno::IO), u64::MAX);
        let spool = layer.spool(&site.path(), options(Durability::None), Identity::this_process());
        let path = site.path();
        let (tell, told) = std::sync::mpsc::channel();
        layer.before(at, move || {
            let other = Spool::load_unchecked(&path, options(Durability::None)).unwrap();
            // Before the first directory is there it is no spool.
            let _ = other.fsck(FsckOptions { repair: true, older_than: None });
            let _ = tell.send(());
        });
        let made = layout::create(spool.layer(), &site.path(), false);
        assert!(made.is_ok(), "{at}: {made:?}");
        assert!(Spool::load(&site.path(), options(Durability::None)).is_ok());
        if told.try_recv().is_err() {
            break;
        }
    }
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
