//! What the system may refuse: a full disk, missing rights, another file system. Each refusal says
//! what to do and, unlike a death, leaves nothing to be repaired.

use rustix::io::Errno;

use super::operations::ends;
use super::support::*;
use crate::*;

fn enqueue_draft(spool: &Spool) -> Result<EntryName> {
    let draft = spool.draft(&mut &b"d"[..])?;
    spool.enqueue_draft(&input(), spool.reserve(named("a"))?, b"m", draft)
}

/// Enqueue with each call failing once, also with data that was written before: it is published whole, or nothing is left, without
/// fsck.
#[test]
fn a_failed_enqueue_leaves_nothing() {
    type Enqueue = fn(&Spool) -> Result<EntryName>;
    let errnos = [Errno::NOSPC, Errno::DQUOT, Errno::ACCESS, Errno::XDEV, Errno::IO];
    let ways: [Enqueue; 2] = [|spool| put(spool, "a"), enqueue_draft];
    for (enqueue, errno) in ways.into_iter().flat_map(|way| errnos.map(|errno| (way, errno))) {
        at_each_call(|at| {
            let site = Site::new();
            site.create().ensure_queue(&input()).unwrap();
            let empty = site.format();
            let (layer, spool) = site.faulty(Fault::Fail(errno), at, Durability::Full);
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
            layer.calls()
        });
    }
}

/// The same for a batch, whose error says what is published.
#[test]
fn a_failed_batch_says_what_is_published() {
    at_each_call(|at| {
        let site = Site::new();
        drop(site.create());
        let (layer, spool) = site.faulty(Fault::Fail(Errno::NOSPC), at, Durability::Full);
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
        layer.calls()
    });
}

/// Each end of a claim with each call failing once: the entry is held by nobody afterwards, or is
/// where it was to go.
#[test]
fn a_failed_end_gives_back() {
    let errnos = [Errno::NOSPC, Errno::XDEV];
    for ((what, end), errno) in ends().into_iter().flat_map(|end| errnos.map(|errno| (end, errno)))
    {
        at_each_call(|at| {
            let site = Site::new();
            drop(with_entry(&site));
            let (layer, spool) = site.faulty(Fault::Fail(errno), at, Durability::Full);
            let _ = end(&spool);
            let looked = site.load();
            let held = looked.list_checkouts(&input()).unwrap();
            let there = entries(&looked).len();
            // Removed in part, it is nowhere; fsck ends that. Else it is in one place.
            assert!(there == 1 || there == 0 && what == "complete", "{what} {at}");
            // While the process lives: it may be a daemon.
            assert_eq!(held, [], "{what} at {at}");
            drop(spool);
            // What could not be given back at that moment is, when its process ends.
            looked.reclaim().unwrap();
            assert_eq!(looked.list_checkouts(&input()).unwrap(), [], "{what} at {at}");
            layer.calls()
        });
    }
}

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
