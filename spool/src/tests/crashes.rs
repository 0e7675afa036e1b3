//! Death and failure at every file-system call of every operation: after a repair, everything that
//! was acknowledged is there once, and nothing half-made is left.

use rustix::io::Errno;

use super::operations::*;
use super::support::*;
use crate::*;

fn limited(durability: Durability) -> Options {
    Options { attempts_max: Some(3), ..options(durability) }
}

/// Every state that an operation on two entries may pass through: each entry once, as before or after.
fn is_between(found: &State, before: &State, after: &State) -> bool {
    let of = |state: &State, name: &str| -> Vec<_> {
        let entries = state.iter().filter(|((_, entry), _)| entry == name);
        entries.map(|((queue, _), content)| (queue.clone(), content.clone())).collect()
    };
    let rewrites = after.values().any(|(metadata, _)| metadata == "other");
    [found, before, after].into_iter().flat_map(State::keys).all(|(_, name)| {
        let found = of(found, name);
        let is_rewritten =
            matches!(&found[..], [(queue, (metadata, _))] if queue == "in" && metadata == "other");
        found == of(before, name) || found == of(after, name) || rewrites && is_rewritten
    })
}

/// Runs each operation with a fault at every call, then repairs and judges; those of full durability are all.
fn run(fault: Fault) {
    for (what, operation, after) in operations() {
        let calls = at_each_call(|at| {
            let site = Site::new();
            set_up(&site.path());
            let before = entries(&site.load());
            let (layer, spool) = site.faulty_for(fault, at, limited(Durability::Full), dead());
            let result = operation(&spool);
            drop(spool);
            let case = format!("{what}, {fault:?} at call {at}: {result:?}");
            judge(&site, &case, result.is_ok(), &before, &after);
            assert!(layer.calls() >= at || result.is_ok(), "{case}");
            layer.calls()
        });
        assert!(calls > 2, "{what} makes no calls");
    }
}

fn judge(site: &Site, case: &str, acknowledged: bool, before: &State, after: &State) {
    let damaged = site.tree();
    let spool = Spool::load_unchecked(&site.path(), limited(Durability::None)).unwrap();
    let repaired = repair(&spool);
    assert!(repaired.is_mended(), "{case}: {repaired:#?}\n{damaged}");
    let again = repair(&spool);
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

#[test]
fn death_at_every_call() {
    run(Fault::Die);
}

/// Each call fails once, for want of space or of rights.
#[test]
fn failure_of_every_call() {
    [Errno::NOSPC, Errno::ACCESS].into_iter().for_each(|errno| run(Fault::Fail(errno)));
}

/// A creation that died at any call is never refused, and the next one finishes it.
#[test]
fn a_creation_that_died_is_taken_up() {
    at_each_call(|at| {
        let site = Site::new();
        std::fs::create_dir(site.path()).unwrap();
        let (layer, spool) = site.faulty_for(Fault::Die, at, Options::default(), dead());
        let _ = layout::create(spool.layer(), spool.path(), true);
        put(&site.create(), "a").unwrap();
        repair(&site.load());
        assert_whole(&site.load());
        layer.calls()
    });
}

/// A spool with a bit of every damage, and a dead owner's claim.
fn damaged(site: &Site) {
    set_up(&site.path());
    site.abandon("a", dead());
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
    let whole = [A, B, ("out", "stuck", "meta", "data"), ("out", "twice", "new", "data")];
    let expected = state(&[&whole[..], &[("in", "lost", "meta", "data")]].concat());
    at_each_call(|at| {
        let site = Site::new();
        damaged(&site);
        let (layer, spool) = site.faulty_for(Fault::Die, at, options(Durability::None), dead());
        let first = spool.fsck(REPAIR);
        drop(spool);
        let spool = site.load();
        let second = repair(&spool);
        assert!(second.is_mended(), "at {at}: {second:#?}");
        assert!(repair(&spool).is_clean(), "at {at}");
        assert_eq!(entries(&spool), expected, "at {at}: {first:#?} {second:#?}");
        assert_eq!(spool.quarantined().unwrap(), [name("empty")], "at {at}");
        assert_eq!(problems(&spool), [], "at {at}");
        if layer.calls() < at {
            assert!(first.unwrap().findings.len() >= 10 && second.is_clean());
        }
        layer.calls()
    });
}
