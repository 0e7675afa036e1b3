//! Drafts: what a death leaves of them goes with a repair, what is being written stays.

use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;

use super::support::*;
use crate::*;

/// A spool with `a`, before whose Nth call somebody repairs it, with an age and without: what that finds comes out of the channel.
fn repaired_at(site: &Site, at: u64) -> (Spool, mpsc::Receiver<Vec<Mended>>) {
    drop(with_entry(site));
    let (layer, spool) = site.faulty(Fault::Fail(Errno::IO), u64::MAX, Durability::None);
    let (other, (tell, told)) = (site.load(), mpsc::channel());
    layer.before(at, move || {
        let aged = FsckOptions { older_than: Some(Duration::ZERO), ..REPAIR };
        let found = [other.fsck(aged).unwrap(), repair(&other)].map(|fsck| fsck.findings);
        let _ = tell.send(found.concat());
    });
    (spool, told)
}

/// A repair leaves a draft alone that was just made, or is being written: by another process, or by a thread of its own.
#[test]
fn what_is_being_written_stays() {
    for at in 1.. {
        let site = Site::new();
        let (spool, told) = repaired_at(&site, at);
        let draft = spool.draft(&mut &b"slow"[..]).unwrap();
        let Ok(_) = told.try_recv() else { break };
        let reservation = spool.reserve(time_ordered).unwrap();
        let name = spool.enqueue_draft(&input(), reservation, b"m", draft).unwrap();
        assert_eq!(spool.data(&name).load().unwrap(), b"slow", "{at}");
        assert!(repair(&spool).is_clean());
    }
    let (_site, spool) = Site::created();
    let own = spool.path().join(spool.draft_path());
    std::fs::write(&own, "half").unwrap();
    assert!(repair(&spool).is_clean());
    assert!(own.exists());
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
        assert!(!found.iter().any(deleted), "{at}: {found:?}");
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
        let (layer, spool) = site.faulty(Fault::Fail(Errno::IO), u64::MAX, Durability::None);
        let (path, (tell, told)) = (site.path(), mpsc::channel());
        layer.before(at, move || {
            // Before the first directory is there it is no spool.
            let other = Spool::load_unchecked(&path, options(Durability::None)).unwrap();
            let _ = (other.fsck(REPAIR), tell.send(()));
        });
        let made = layout::create(spool.layer(), &site.path(), false);
        assert!(made.is_ok(), "{at}: {made:?}");
        drop(site.load());
        let Ok(_) = told.try_recv() else { break };
    }
}

/// A dead writer's draft is reported and deleted, also while a consumer lives.
#[test]
fn what_a_death_left_goes() {
    let (site, spool) = Site::with_entry();
    let guard = take(&spool).unwrap();
    let left = site.file(".shiftboss/tmp/0123456789abcdef-7.data");
    std::fs::write(&left, "half").unwrap();
    assert!(!repair(&site.load()).is_clean());
    assert!(!left.exists());
    assert!(repair(&site.load()).is_clean());
    guard.complete().unwrap();
}
