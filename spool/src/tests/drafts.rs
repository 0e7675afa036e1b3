//! Drafts: what a death leaves of them goes with a repair, what is being written stays.

use std::io::{self, BufRead, Read};
use std::sync::mpsc;
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

/// Publishes a draft; its data.
fn publish(spool: &Spool, draft: Draft) -> Vec<u8> {
    let reservation = spool.reserve(time_ordered).unwrap();
    let name = spool.enqueue_draft(&input(), reservation, b"m", draft).unwrap();
    spool.data(&name).load().unwrap()
}

/// A repair of whatever age leaves a draft alone that is being written, by another process or a thread of its own.
#[test]
fn what_is_being_written_stays() {
    let site = Site::new();
    let (spool, other) = (with_entry(&site), site.load());
    let zero = FsckOptions { repair: true, older_than: Some(Duration::ZERO) };
    let check = || assert!(other.fsck(zero).unwrap().is_clean() && repair(&other).is_clean());
    let draft = spool.draft(&mut Meanwhile(Some(check), b"slow")).unwrap();
    assert_eq!(publish(&spool, draft), b"slow");
    let own = site.path().join(spool.draft_path());
    std::fs::write(&own, "half").unwrap();
    assert!(repair(&spool).is_clean());
    assert!(own.exists());
}

/// A spool with `a`, before whose Nth call somebody repairs it: what that finds comes out of the channel.
fn repaired_at(site: &Site, at: u64) -> (Spool, mpsc::Receiver<Fsck>) {
    drop(with_entry(site));
    let layer = Faulty::new(&site.path(), Fault::Fail(Errno::IO), u64::MAX);
    let spool = layer.spool(&site.path(), options(Durability::None), Identity::this_process());
    let (other, (tell, told)) = (site.load(), mpsc::channel());
    layer.before(at, move || _ = tell.send(repair(&other)));
    (spool, told)
}

/// So does one that comes when the draft was just made.
#[test]
fn what_is_about_to_be_written_stays() {
    for at in 1.. {
        let site = Site::new();
        let (spool, told) = repaired_at(&site, at);
        let draft = spool.draft(&mut &b"slow"[..]).unwrap();
        let Ok(_) = told.try_recv() else { break };
        assert_eq!(publish(&spool, draft), b"slow", "{at}");
        assert!(repair(&spool).is_clean());
    }
}

/// A repair at any moment leaves to a consumer what it is writing.
#[test]
fn what_a_consumer_writes_stays() {
    for at in 1.. {
        let site = Site::new();
        let (spool, told) = repaired_at(&site, at);
        let mut guard = take(&spool).unwrap();
        guard.set_metadata("other");
        guard.reject("why").unwrap();
        let Ok(found) = told.try_recv() else { break };
        let deleted = |mended: &Mended| mended.finding == Finding::HalfWritten;
        assert!(!found.findings.iter().any(deleted), "{at}: {found:?}");
        let info = spool.info(&queue(DEAD_LETTER), &a()).unwrap();
        assert_eq!((info.reason.as_deref(), info.metadata_bytes), (Some("why"), 5));
    }
}

/// Who makes a spool does not fail because another repairs it meanwhile.
#[test]
fn a_repair_while_a_spool_is_made() {
    for at in 1.. {
        let site = Site::new();
        std::fs::create_dir(site.path()).unwrap();
        let layer = Faulty::new(&site.path(), Fault::Fail(Errno::IO), u64::MAX);
        let spool = layer.spool(&site.path(), options(Durability::None), Identity::this_process());
        let (path, (tell, told)) = (site.path(), mpsc::channel());
        layer.before(at, move || {
            let other = Spool::load_unchecked(&path, options(Durability::None)).unwrap();
            // Before the first directory is there it is no spool.
            let _ = other.fsck(FsckOptions { repair: true, older_than: None });
            let _ = tell.send(());
        });
        let made = layout::create(spool.layer(), &site.path(), false);
        assert!(made.is_ok(), "{at}: {made:?}");
        drop(site.load());
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
    let guard = take(&spool).unwrap();
    let left = site.path().join(".shiftboss/tmp/0123456789abcdef-7.data");
    std::fs::write(&left, "half").unwrap();
    assert!(!repair(&site.load()).is_clean());
    assert!(!left.exists());
    assert!(repair(&site.load()).is_clean());
    guard.complete().unwrap();
}
