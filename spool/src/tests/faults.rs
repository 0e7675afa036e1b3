//! What the system may refuse: a full disk, missing rights, another file system. Each refusal says
//! what to do and, unlike a death, leaves nothing to be repaired.

use rustix::io::Errno;

use super::support::*;
use crate::*;

type Enqueue = fn(&Spool) -> Result<EntryName>;

fn enqueue_draft(spool: &Spool) -> Result<EntryName> {
    let draft = spool.draft(&mut &b"d"[..])?;
    let reservation = spool.reserve(named("a"))?;
    spool.enqueue_draft(&input(), reservation, b"m", draft)
}

/// Enqueue with each call failing once, also with data that was written before: it is published whole, or nothing is left, without
/// fsck.
#[test]
fn a_failed_enqueue_leaves_nothing() {
    leaves_nothing(|spool| put(spool, "a"));
    leaves_nothing(enqueue_draft);
}

fn leaves_nothing(enqueue: Enqueue) {
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ACCESS, Errno::XDEV, Errno::IO] {
        for at in 1.. {
            let site = Site::new();
            let spool = site.create();
            spool.ensure_queue(&input()).unwrap();
            let empty = site.format();
            let layer = Faulty::new(&site.path(), Fault::Fail(errno), at);
            let me = Identity::this_process();
            let spool = layer.spool(&site.path(), options(Durability::Full), me);
            let result = enqueue(&spool);
            let spool = site.load();
            match &result {
                Ok(_) => assert_whole(&spool),
                Err(SpoolError::NotDurable { .. }) => assert_eq!(entries(&spool).len(), 1),
                Err(error) => {
                    assert_eq!(site.format(), empty, "{error} at {at}");
                    let drafts = std::fs::read_dir(site.file(".shiftboss/tmp")).unwrap();
                    assert_eq!(drafts.count(), 0, "{error} at {at}");
                    assert_eq!(error.errno(), Some(errno.raw_os_error()), "{error}");
                    assert!(enqueue(&spool).is_ok());
                }
            }
            if layer.calls() < at {
                break;
            }
        }
    }
}

/// The same for a batch, whose error says what is published.
#[test]
fn a_failed_batch_says_what_is_published() {
    for at in 1.. {
        let site = Site::new();
        drop(site.create());
        let layer = Faulty::new(&site.path(), Fault::Fail(Errno::NOSPC), at);
        let me = Identity::this_process();
        let spool = layer.spool(&site.path(), options(Durability::Full), me);
        let mut names = ["a", "b", "c"].map(name).into_iter();
        let items = vec![Item::new("m", "d"); 3];
        let result = spool.enqueue_batch(&input(), |_| names.next().unwrap(), &items);
        let spool = site.load();
        let there = spool.list(&input()).unwrap();
        match result {
            Ok(published) => assert_eq!(published, there),
            Err(SpoolError::Batch(published, 3, _)) => assert_eq!(published, there),
            Err(SpoolError::NotDurable { .. }) => assert_eq!(there.len(), 3),
            Err(_) => assert_eq!(there, []),
        }
        assert_whole(&spool);
        if layer.calls() < at {
            break;
        }
    }
}

/// Each end of a claim with each call failing once: the entry is held by nobody afterwards, or is
/// where it was to go.
#[test]
fn a_failed_end_gives_back() {
    type End = fn(Guard) -> Result<()>;
    let ends: [(&str, End); 5] = [
        ("drop", |guard| {
            drop(guard);
            Ok(())
        }),
        ("complete", Guard::complete),
        ("release", Guard::release),
        ("fail", Guard::fail),
        ("move", |mut guard| {
            guard.set_metadata("other");
            guard.move_to(&queue("out"))
        }),
    ];
    let errnos = [Errno::NOSPC, Errno::XDEV];
    for ((what, end), errno) in ends.into_iter().flat_map(|end| errnos.map(|errno| (end, errno))) {
        for at in 1.. {
            let site = Site::new();
            drop(with_entry(&site));
            let layer = Faulty::new(&site.path(), Fault::Fail(errno), at);
            let me = Identity::this_process();
            let spool = layer.spool(&site.path(), options(Durability::Full), me);
            let taken = take(&spool);
            let _ = taken.and_then(end);
            let looked = Spool::load(&site.path(), Options::default()).unwrap();
            let held = looked.list_checkouts(&input()).unwrap();
            let there = entries(&looked).len();
            // Removed in part, it is nowhere; fsck ends that. Else it is in one place.
            assert!(
                there <= 1 && (there == 1 || what == "complete" || !held.is_empty()),
                "{what} {at}"
            );
            // While the process lives: it may be a daemon.
            assert_eq!(held, [], "{what} at {at}");
            drop(spool);
            // What could not be given back at that moment is, when its process ends.
            looked.reclaim().unwrap();
            assert_eq!(looked.list_checkouts(&input()).unwrap(), [], "{what} at {at}");
            if layer.calls() < at {
                break;
            }
        }
    }
}

/// A spool of a later version is left alone.
#[test]
fn a_later_version_is_refused() {
    let site = Site::new();
    drop(site.create());
    site.write(".shiftboss/version", "2\n");
    let refused = Spool::load(&site.path(), Options::default()).unwrap_err();
    assert!(matches!(refused, SpoolError::Version { .. }), "{refused}");
    assert!(Spool::create(&site.path(), Options::default()).is_err());
    assert!(Spool::load(&site.file("nowhere"), Options::default()).is_err());
}
