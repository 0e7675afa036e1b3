//! Death and failure at every file-system call of every operation: after a repair, everything that
//! was acknowledged is there once, and nothing half-made is left.

use rustix::io::Errno;

use super::operations::*;
use super::support::*;
use crate::*;

fn limited(durability: Durability) -> Options {
    Options { attempts_max: Some(3), ..options(durability) }
}

/// Every state that an operation on two entries may pass through: each entry before or after.
fn is_between(found: &State, before: &State, after: &State) -> bool {
    let names = |state: &State, name: &str| -> Option<(String, (String, String))> {
        let entry = state.iter().find(|((_, entry), _)| entry == name);
        entry.map(|((queue, _), content)| (queue.clone(), content.clone()))
    };
    let keys = ["a", "b", "c", "d"];
    let known = found.keys().all(|(_, name)| keys.contains(&&**name));
    // Two of one name would be two keys here.
    let once = keys.iter().all(|key| found.keys().filter(|(_, name)| name == key).count() <= 1);
    known
        && once
        && keys.iter().all(|key| {
            let found = names(found, key);
            let rewritten = found
                .as_ref()
                .is_some_and(|(queue, (metadata, _))| queue == "in" && metadata == "other")
                && after.values().any(|(metadata, _)| metadata == "other");
            found == names(before, key) || found == names(after, key) || rewritten
        })
}

/// Runs an operation with a fault at every call, then repairs and judges.
fn run(fault: Fault, durability: Durability) {
    for (what, operation, after) in operations() {
        let mut at = 1;
        loop {
            let site = Site::in_memory();
            set_up(&site.path());
            let before = entries(&Spool::load(&site.path(), options(durability)).unwrap());
            let layer = Faulty::new(&site.path(), fault, at);
            let spool = layer.spool(&site.path(), limited(durability), dead());
            let result = operation(&spool);
            drop(spool);
            let reached = layer.calls() >= at;
            let case = format!("{what}, {fault:?} at call {at}: {result:?}");
            judge(&site, &case, result.is_ok(), &before, &after);
            if !reached {
                assert!(result.is_ok(), "{case}");
                break;
            }
            at += 1;
        }
        assert!(at > 2, "{what} makes no calls");
    }
}

fn judge(site: &Site, case: &str, acknowledged: bool, before: &State, after: &State) {
    let damaged = site.tree();
    let spool = Spool::load_unchecked(&site.path(), limited(Durability::None)).unwrap();
    let repaired = spool.fsck(FsckOptions { repair: true, older_than: None }).unwrap();
    assert!(repaired.is_mended(), "{case}: {repaired:#?}\n{damaged}");
    let again = spool.fsck(FsckOptions { repair: true, older_than: None }).unwrap();
    assert!(again.is_clean(), "{case}: {again:#?}\n{damaged}");
    // An entry whose metadata could not be read was set aside; it is given back by hand.
    let aside = spool.quarantined().unwrap();
    for name in &aside {
        let from = site.file(&format!(".shiftboss/quarantine/{name}"));
        std::fs::rename(from, site.file(&format!("in/{name}"))).unwrap();
    }
    let found = entries(&spool);
    if acknowledged && aside.is_empty() {
        assert_eq!(&found, after, "{case}\n{damaged}");
    } else {
        assert!(is_between(&found, before, after), "{case}: {found:#?}\n{damaged}");
    }
    assert_whole(&spool);
}

/// A process dies at any call.
#[test]
fn death_at_every_call() {
    run(Fault::Die, Durability::None);
}

/// The same with the calls of full durability.
#[test]
fn death_at_every_call_of_full_durability() {
    run(Fault::Die, Durability::Full);
}

/// Each call fails once, for want of space, of rights, of a disk that works.
#[test]
fn failure_of_every_call() {
    for errno in [Errno::NOSPC, Errno::IO, Errno::ACCESS] {
        run(Fault::Fail(errno), Durability::Full);
    }
}

/// A creation that died at any call is refused by nobody, and finished by the next.
#[test]
fn a_creation_that_died_is_taken_up() {
    for at in 1..30 {
        let site = Site::in_memory();
        std::fs::create_dir(site.path()).unwrap();
        let layer = Faulty::new(&site.path(), Fault::Die, at);
        let spool = layer.spool(&site.path(), Options::default(), dead());
        let _ = layout::create(spool.layer(), spool.path(), true);
        let created = Spool::create(&site.path(), options(Durability::None)).unwrap();
        created.enqueue(&queue("in"), named("a"), &Item::new("m", "d")).unwrap();
        created.fsck(FsckOptions { repair: true, older_than: None }).unwrap();
        assert_whole(&Spool::load(&site.path(), Options::default()).unwrap());
    }
}

/// A spool with a bit of every damage, and a dead owner's claim.
fn damaged(site: &Site) {
    set_up(&site.path());
    let layer = std::sync::Arc::new(Disk::open(&site.path()).unwrap());
    let gone = Spool::on(layer, &site.path(), options(Durability::None), dead());
    std::mem::forget(first(&gone).unwrap());
    let files = [
        (".registry/orphan", ""),
        (".data/orphan", "half"),
        (".data/unnamed", "d"),
        (".tmp/half", "ha"),
        (".registry/stuck", ""),
        (".data/stuck", "data"),
        ("out/.checkout/stuck", "meta"),
        (".registry/removed", ""),
        ("in/.checkout/removed", "m"),
        (".registry/twice", ""),
        (".data/twice", "data"),
        ("in/.checkout/twice", "old"),
        ("out/twice", "new"),
        (".data/lost", "data"),
        ("in/lost", "meta"),
        ("in/stray", "letter"),
        (".registry/empty", ""),
        ("in/empty", "no data"),
        (".shiftboss/attempts/none", ""),
    ];
    files.iter().for_each(|(path, content)| site.write(path, content));
}

/// A repair that dies at any call is taken up by the next, with the same result.
#[test]
fn a_repair_that_died_is_taken_up() {
    let repair = FsckOptions { repair: true, older_than: None };
    let whole = [A, B, ("out", "stuck", "meta", "data"), ("out", "twice", "new", "data")];
    let expected = state(&[&whole[..], &[("in", "lost", "meta", "data")]].concat());
    for at in 1.. {
        let site = Site::in_memory();
        damaged(&site);
        let layer = Faulty::new(&site.path(), Fault::Die, at);
        let spool = layer.spool(&site.path(), options(Durability::None), dead());
        let first = spool.fsck(repair);
        drop(spool);
        let spool = Spool::load(&site.path(), options(Durability::None)).unwrap();
        let second = spool.fsck(repair).unwrap();
        assert!(second.is_mended(), "at {at}: {second:#?}");
        assert!(spool.fsck(repair).unwrap().is_clean(), "at {at}");
        assert_eq!(entries(&spool), expected, "at {at}: {first:#?} {second:#?}");
        assert_eq!(spool.quarantined().unwrap(), [name("empty")], "at {at}");
        assert_eq!(spool.monitor(&Limits::default()).unwrap().problems, [], "at {at}");
        if layer.calls() < at {
            assert!(first.unwrap().findings.len() >= 10 && second.is_clean());
            break;
        }
    }
}
