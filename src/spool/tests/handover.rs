//! Entries that are asked back from a living process: handed over, refused, and what the dead leave of it.

use std::time::Duration;

use super::support::*;
use crate::spool::*;

/// Two who have the same spool open, each with a record of its own, and the first has `a` checked out.
fn holder_and_asker(site: &Site) -> (Spool, Guard, Spool) {
    let holder = with_entry(site);
    holder.take_requests().unwrap();
    let guard = holder.checkout(&queue("in"), &name("a")).unwrap();
    let asker = Spool::load(&site.path(), options(Durability::None)).unwrap();
    (holder, guard, asker)
}

/// The next request that comes, answered.
fn answer(holder: &Spool, guard: Option<Guard>) {
    wait_until("it is asked for", || holder.requests().unwrap() == [name("a")]);
    holder.answer(&name("a"), guard).unwrap();
}

/// What can be spared goes to whoever asks, who removes it.
#[test]
fn an_entry_is_handed_over() {
    let site = Site::new();
    let (holder, guard, asker) = holder_and_asker(&site);
    assert_eq!(holder.requests().unwrap(), []);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| asker.settle_or_ask(&queue("in"), &name("a")));
        answer(&holder, Some(guard));
        asked.join().unwrap().unwrap().unwrap().complete().unwrap();
    });
    assert_eq!(entries(&holder).len(), 0);
    assert!(asker.fsck(FsckOptions { repair: true, older_than: None }).unwrap().is_clean());
}

/// A refusal is told; who takes no requests is not asked.
#[test]
fn an_entry_is_refused() {
    let site = Site::new();
    let (holder, guard, asker) = holder_and_asker(&site);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| asker.settle_or_ask(&queue("in"), &name("a")));
        answer(&holder, None);
        let held = asked.join().unwrap().unwrap_err();
        assert!(matches!(held, SpoolError::Held { .. }), "{held}");
    });
    guard.release().unwrap();
    let guard = asker.checkout(&queue("in"), &name("a")).unwrap();
    let start = std::time::Instant::now();
    let held = holder.settle_or_ask(&queue("in"), &name("a")).unwrap_err();
    assert!(matches!(held, SpoolError::Held { .. }), "{held}");
    assert!(start.elapsed() < Duration::from_secs(4), "nobody waits for an answer");
    guard.complete().unwrap();
}

/// A request that was made of somebody dead keeps nobody from asking who has the entry now.
#[test]
fn an_old_request_is_no_request() {
    let site = Site::new();
    let (holder, guard, asker) = holder_and_asker(&site);
    let old = site.path().join(".shiftboss/wanted/a");
    std::os::unix::fs::symlink("0123456789abcdef", &old).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| asker.settle_or_ask(&queue("in"), &name("a")));
        answer(&holder, Some(guard));
        asked.join().unwrap().unwrap().unwrap().complete().unwrap();
    });
    std::os::unix::fs::symlink("0123456789abcdef", &old).unwrap();
    holder.take_requests().unwrap();
    assert!(!old.is_symlink(), "whoever takes requests clears those of the dead away");
}

/// What an asker left who died is in nobody's way: the entry comes back, and a request goes with a repair.
#[test]
fn askers_and_holders_die() {
    let site = Site::new();
    let (holder, guard, asker) = holder_and_asker(&site);
    let wanted = site.file(".shiftboss/wanted/a");
    std::os::unix::fs::symlink("0123456789abcdef", &wanted).unwrap();
    assert_eq!(holder.requests().unwrap(), [], "it is for somebody else");
    let found = asker.fsck(FsckOptions { repair: true, older_than: None }).unwrap();
    assert_eq!(found.findings.len(), 1, "{found:#?}");
    assert!(!wanted.exists() && std::fs::symlink_metadata(&wanted).is_err());
    holder.answer(&name("a"), Some(guard)).unwrap();
    let sight = asker.sight(&queue("in"), &name("a")).unwrap();
    assert!(matches!(sight.holding, Holding::Until { .. }), "{sight:?}");
    asker.settle(&queue("in"), &name("a")).unwrap().unwrap().release().unwrap();
    assert_whole(&asker);
}
