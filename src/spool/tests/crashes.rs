//! Death and failure at every file-system call of every operation: after a repair, everything that
//! was acknowledged is there once, and nothing half-made is left.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::io::Errno;

use super::support::*;
use crate::spool::*;

type State = BTreeMap<(String, String), (String, String)>;
type Operation = fn(&Spool) -> Result<()>;

fn state(entries: &[(&str, &str, &str, &str)]) -> State {
    let owned = |text: &str| text.to_owned();
    let entry = |(queue, name, metadata, data): &(&str, &str, &str, &str)| {
        ((owned(queue), owned(name)), (owned(metadata), owned(data)))
    };
    entries.iter().map(entry).collect()
}

fn set_up(path: &Path) {
    let spool = Spool::create(path, options(Durability::None)).unwrap();
    for name in ["a", "b"] {
        let item = Item::new(format!("meta {name}"), format!("data {name}"));
        spool.enqueue(&queue("in"), named(name), &item).unwrap();
    }
}

fn first(spool: &Spool) -> Result<Guard> {
    spool.checkout(&queue("in"), &name("a"))
}

type Entry = (&'static str, &'static str, &'static str, &'static str);
type Case = (&'static str, Operation, State);

const A: Entry = ("in", "a", "meta a", "data a");
const B: Entry = ("in", "b", "meta b", "data b");
const C: Entry = ("in", "c", "meta c", "data c");
const D: Entry = ("in", "d", "meta d", "data d");

/// The operations, and what is in the spool after each.
fn operations() -> Vec<Case> {
    [publications(), claims(), others()].concat()
}

fn publications() -> Vec<Case> {
    vec![
        ("reserve", |s| s.reserve(named("c")).map(drop), state(&[A, B])),
        (
            "enqueue",
            |s| s.enqueue(&queue("in"), named("c"), &Item::new("meta c", "data c")).map(drop),
            state(&[A, B, C]),
        ),
        (
            "enqueue elsewhere",
            |s| s.enqueue(&queue("new"), named("c"), &Item::new("meta c", "data c")).map(drop),
            state(&[A, B, ("new", "c", "meta c", "data c")]),
        ),
        (
            "batch",
            |s| {
                let items = [Item::new("meta c", "data c"), Item::new("meta d", "data d")];
                let mut names = ["c", "d"].map(name).into_iter();
                s.enqueue_batch(&queue("in"), move |_| names.next().unwrap(), &items).map(drop)
            },
            state(&[A, B, C, D]),
        ),
    ]
}

fn claims() -> Vec<Case> {
    vec![
        ("release", |s| first(s)?.release(), state(&[A, B])),
        ("fail", |s| first(s)?.fail(), state(&[A, B])),
        (
            "fail twice",
            |s| {
                first(s)?.fail()?;
                first(s)?.fail()
            },
            state(&[A, B]),
        ),
        ("drop", |s| first(s).map(drop), state(&[A, B])),
        ("complete", |s| first(s)?.complete(), state(&[B])),
        (
            "fail and complete",
            |s| {
                first(s)?.fail()?;
                first(s)?.complete()
            },
            state(&[B]),
        ),
        (
            "move",
            |s| {
                let mut g = first(s)?;
                g.set_metadata("other");
                g.move_to(&queue("out"))
            },
            state(&[("out", "a", "other", "data a"), B]),
        ),
        (
            "save",
            |s| {
                let mut g = first(s)?;
                g.set_metadata("other");
                g.move_to(&queue("in"))
            },
            state(&[("in", "a", "other", "data a"), B]),
        ),
        (
            "dead letter",
            |s| {
                for _ in 0..3 {
                    first(s)?.fail()?;
                }
                Ok(())
            },
            state(&[("dead-letter", "a", "meta a", "data a"), B]),
        ),
        (
            "retry",
            |s| {
                first(s)?.retry_after(std::time::Duration::ZERO)?;
                s.reclaim().map(drop)
            },
            state(&[A, B]),
        ),
    ]
}

fn others() -> Vec<Case> {
    vec![
        ("remove", |s| s.remove(&queue("in"), &name("a")).map(drop), state(&[B])),
        (
            "save metadata",
            |s| s.save_metadata(&queue("in"), &name("a"), b"other"),
            state(&[("in", "a", "other", "data a"), B]),
        ),
        (
            "save data",
            |s| s.data(&name("a")).save(b"other"),
            state(&[("in", "a", "meta a", "other"), B]),
        ),
        (
            "work through",
            |s| {
                let mut reader = s.reader(&queue("in"), Order::Strict)?;
                while let Some(guard) = reader.dequeue_available()? {
                    guard.complete()?;
                }
                Ok(())
            },
            state(&[]),
        ),
        ("create", |s| layout::create(s.layer(), s.path(), true), state(&[A, B])),
        (
            "fsck",
            |s| s.fsck(FsckOptions { repair: true, older_than: None }).map(drop),
            state(&[A, B]),
        ),
    ]
}

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
