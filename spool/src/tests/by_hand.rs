//! Directories made by hand exactly as the reference leaves them, in use, and in each state
//! that its crashes leave: loaded, worked and repaired.

use super::support::*;
use crate::*;

const USED: &[&str] = &[".registry", ".tmp", ".data", "in/.checkout", "out/.checkout"];

fn made(directories: &[&str], files: &[(&str, &str)]) -> Site {
    let site = Site::new();
    for directory in directories {
        std::fs::create_dir_all(site.file(directory)).unwrap();
    }
    files.iter().for_each(|(path, content)| site.write(path, content));
    site
}

/// A healthy entry `ok` in `in`, and what else is there.
fn in_use(more: &[(&str, &str)]) -> Site {
    let ok = [(".registry/ok", ""), (".data/ok", "data"), ("in/ok", "meta")];
    made(USED, &[&ok[..], more].concat())
}

/// In use: entries, one of them checked out by a process of the reference, which makes no note.
#[test]
fn one_in_use() {
    let held = [(".registry/b", ""), (".data/b", "data b"), ("in/.checkout/b", "meta b")];
    let site = in_use(&held);
    let spool = site.load();
    assert_eq!(spool.list(&input()).unwrap(), [name("ok")]);
    assert_eq!(spool.list_checkouts(&input()).unwrap(), [name("b")]);
    assert_eq!(spool.reclaim().unwrap(), []);
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    reader.dequeue_available().unwrap().unwrap().move_to(&queue("out")).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    // It saves back, as the reference does.
    std::fs::rename(site.file("in/.checkout/b"), site.file("in/b")).unwrap();
    let guard = reader.dequeue(&Stop::new().unwrap(), Some(DEADLINE)).unwrap().unwrap();
    assert_eq!(guard.data().load().unwrap(), b"data b");
    guard.complete().unwrap();
    assert!(repair(&spool).is_clean());
    assert_whole(&spool);
}

/// One crash state: what fsck calls it, that only a repair changes anything, and that afterwards all is well; the entry that is
/// there then, beside `ok`, with its queue and metadata.
fn mended(site: &Site, finding: Finding, left: Option<(&str, &str)>) -> Spool {
    let spool = site.load();
    let before = site.tree();
    let looked = spool.fsck(FsckOptions::default()).unwrap();
    assert_eq!(site.tree(), before, "only looking changes nothing");
    let found: Vec<_> = looked.findings.iter().map(|found| found.finding).collect();
    assert_eq!(found, [finding], "{looked:#?}");
    assert!(!looked.is_clean() && !looked.is_mended());
    let repaired = repair(&spool);
    assert!(!repaired.is_clean() && repaired.is_mended(), "{repaired:#?}");
    assert_eq!(repaired.findings.len(), 1);
    assert!(repair(&spool).is_clean());
    let owned = |queue: &str, name: &str, metadata: &str| {
        (queue.to_owned(), name.to_owned(), metadata.to_owned())
    };
    let mut expected = vec![owned("in", "ok", "meta")];
    expected.extend(left.map(|(queue, metadata)| owned(queue, "x", metadata)));
    let found: Vec<_> =
        entries(&spool).into_iter().map(|((queue, name), (meta, _))| (queue, name, meta)).collect();
    assert_eq!(found, expected, "{before}");
    spool
}

/// The states that deaths of producers and consumers leave of an entry `x`.
#[test]
fn every_crash_state_is_mended() {
    use Finding as F;
    const NAME: (&str, &str) = (".registry/x", "");
    const DATA: (&str, &str) = (".data/x", "d");
    const OUT: (&str, &str) = ("in/.checkout/x", "m");
    const IN: (&str, &str) = ("in/x", "m");
    type State =
        (&'static [(&'static str, &'static str)], Finding, Option<(&'static str, &'static str)>);
    let states: [State; 13] = [
        // A producer died after reserving; after writing data; while it wrote a temporary file.
        (&[NAME], F::OrphanedName, None),
        (&[NAME, DATA], F::OrphanedName, None),
        (&[(".tmp/ok.tmp.5d", "ha")], F::HalfWritten, None),
        (&[(".tmp/x", "ha")], F::HalfWritten, None),
        // A consumer left its checkout; or died in the middle of a removal, which takes the data first.
        (&[NAME, DATA, ("out/.checkout/x", "m")], F::Unowned, Some(("out", "m"))),
        (&[NAME, OUT], F::HalfRemoved, None),
        (&[OUT], F::HalfRemoved, None),
        (&[DATA], F::OrphanedData, None),
        // A save died between writing one and taking away the other.
        (
            &[NAME, DATA, ("in/.checkout/x", "old"), ("out/x", "new")],
            F::Duplicated,
            Some(("out", "new")),
        ),
        // What nobody registered: with data it is an entry again, without it a stray.
        (&[DATA, IN], F::Unregistered, Some(("in", "m"))),
        (&[IN], F::Stray, None),
        (&[("in/.x.swp", "editor")], F::Stray, None),
        (&[("in/y/z", "directory")], F::Stray, None),
    ];
    for (files, finding, left) in states {
        let site = in_use(files);
        assert_whole(&mended(&site, finding, left));
        let kept = match finding {
            F::Duplicated => "x = \"old\"",
            F::Stray => files[0].0.trim_start_matches("in/"),
            _ => "",
        };
        assert!(site.tree().contains(&format!(".shiftboss/strays/{kept}")), "{}", site.tree());
    }
}

/// An available entry without data is kept, aside, and healthy from then on.
#[test]
fn an_entry_without_data() {
    let site = in_use(&[(".registry/x", ""), ("in/x", "m")]);
    let spool = mended(&site, Finding::WithoutData, None);
    let report = spool.monitor(&Limits::default()).unwrap();
    assert_eq!((report.problems, report.quarantined), (vec![], vec![name("x")]));
    assert_eq!(repair(&spool).quarantined, [name("x")]);
    std::fs::rename(site.file(".shiftboss/quarantine/x"), site.file("in/x")).unwrap();
    site.write(".data/x", "found again");
    assert_whole(&spool);
}

/// Of two queues the one that was touched last has it.
#[test]
fn an_entry_in_two_queues() {
    let x = [(".registry/x", ""), (".data/x", "d"), ("in/x", "new"), ("out/x", "old")];
    let site = in_use(&x);
    set_age(&site.file("out/x"), std::time::Duration::from_secs(5));
    assert_whole(&mended(&site, Finding::Duplicated, Some(("in", "new"))));
}

/// A directory that is missing: a part of a spool is refused by load, and mended.
#[test]
fn missing_directories() {
    for missing in [".data", ".tmp", ".registry", "in/.checkout"] {
        let site = in_use(&[]);
        std::fs::remove_dir_all(site.file(missing)).unwrap();
        if let Err(refused) = Spool::load(&site.path(), Options::default()) {
            let words = if missing == ".registry" { "is not a spool" } else { "fsck --repair" };
            assert!(refused.to_string().contains(words), "{refused}");
        } else {
            assert_eq!(missing, "in/.checkout");
        }
        let spool = Spool::load_unchecked(&site.path(), options(Durability::None)).unwrap();
        let repaired = repair(&spool);
        assert_eq!(repaired.findings[0].finding, Finding::MissingDirectory, "{repaired:#?}");
        assert!(repaired.is_mended() && repair(&spool).is_clean());
        let expected = if missing == ".data" { 0 } else { 1 };
        assert_eq!(entries(&site.load()).len(), expected, "{missing}");
    }
}

/// With an age, what may be work in progress is left alone.
#[test]
fn young_files_are_left_alone() {
    let young = [
        (".registry/x", ""),
        (".tmp/x", "ha"),
        (".data/y", "d"),
        (".registry/z", ""),
        (".data/z", "d"),
        ("in/.checkout/z", "m"),
    ];
    let site = in_use(&young);
    let spool = site.load();
    let hour = Some(std::time::Duration::from_secs(3600));
    let checked = || spool.fsck(FsckOptions { repair: true, older_than: hour }).unwrap();
    let before = site.format();
    assert!(checked().is_clean());
    assert_eq!(site.format(), before);
    for (path, _) in young {
        set_age(&site.file(path), std::time::Duration::from_secs(3601));
    }
    assert_eq!(checked().findings.len(), 4);
    assert_whole(&spool);
}

#[test]
fn what_is_no_spool_is_left_alone() {
    let site = made(&["Documents"], &[("letter.txt", "Dear")]);
    let spool = Spool::load_unchecked(&site.path(), Options::default()).unwrap();
    let checked = spool.fsck(FsckOptions { repair: true, older_than: None });
    assert!(matches!(checked, Err(SpoolError::NotASpool(_))));
    assert_eq!(site.tree(), "Documents/\nletter.txt = \"Dear\"\n");
}
