//! Directories made by hand exactly as the reference leaves them, fresh, in use, and in each state
//! that its crashes leave: loaded, worked and repaired.

use super::support::*;
use crate::*;

const REPAIR: FsckOptions = FsckOptions { repair: true, older_than: None };

fn made(directories: &[&str], files: &[(&str, &str)]) -> Site {
    let site = Site::new();
    for directory in directories {
        std::fs::create_dir_all(site.file(directory)).unwrap();
    }
    files.iter().for_each(|(path, content)| site.write(path, content));
    site
}

const FRESH: &[&str] = &[".registry", ".tmp", ".data"];
const USED: &[&str] = &[".registry", ".tmp", ".data", "in/.checkout", "out/.checkout"];

fn load(site: &Site) -> Spool {
    Spool::load(&site.path(), options(Durability::None)).unwrap()
}

/// A healthy entry `ok` in `in`, and what else is there.
fn in_use(more: &[(&str, &str)]) -> Site {
    let ok = [(".registry/ok", ""), (".data/ok", "data"), ("in/ok", "meta")];
    made(USED, &[&ok[..], more].concat())
}

/// Fresh: loaded and worked, without a trace in the reference's own directories.
#[test]
fn a_fresh_one() {
    let site = made(FRESH, &[]);
    let spool = load(&site);
    spool.enqueue(&queue("in"), named("a"), &Item::new("m", "d")).unwrap();
    spool.checkout(&queue("in"), &name("a")).unwrap().complete().unwrap();
    assert_eq!(site.format(), ".data/\n.registry/\n.tmp/\nin/\nin/.checkout/\n");
    assert!(spool.fsck(REPAIR).unwrap().is_clean());
}

/// In use: entries, one of them checked out by a process of the reference, which makes no note.
#[test]
fn one_in_use() {
    let held = [(".registry/b", ""), (".data/b", "data b"), ("in/.checkout/b", "meta b")];
    let site = in_use(&held);
    let spool = load(&site);
    assert_eq!(spool.list(&queue("in")).unwrap(), [name("ok")]);
    assert_eq!(spool.list_checkouts(&queue("in")).unwrap(), [name("b")]);
    assert_eq!(spool.reclaim().unwrap(), []);
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    reader.dequeue_available().unwrap().unwrap().move_to(&queue("out")).unwrap();
    assert!(reader.dequeue_available().unwrap().is_none());
    // It saves back, as the reference does.
    std::fs::rename(site.file("in/.checkout/b"), site.file("in/b")).unwrap();
    let stop = Stop::new().unwrap();
    let Some(guard) = reader.dequeue(&stop, Some(DEADLINE)).unwrap() else {
        panic!("it did not come")
    };
    assert_eq!(guard.data().load().unwrap(), b"data b");
    guard.complete().unwrap();
    assert!(spool.fsck(REPAIR).unwrap().is_clean());
    assert_whole(&spool);
}

/// One crash state: what fsck calls it, that only a repair changes anything, and that afterwards all
/// is well; the entries that are there then, beside `ok`.
fn mended(site: &Site, finding: Finding, left: &[(&str, &str, &str)]) -> Spool {
    let spool = load(site);
    let before = site.tree();
    let looked = spool.fsck(FsckOptions::default()).unwrap();
    assert_eq!(site.tree(), before, "only looking changes nothing");
    let found: Vec<_> = looked.findings.iter().map(|found| found.finding).collect();
    assert_eq!(found, [finding], "{looked:#?}");
    assert!(!looked.is_clean() && !looked.is_mended());
    let repaired = spool.fsck(REPAIR).unwrap();
    assert!(!repaired.is_clean() && repaired.is_mended(), "{repaired:#?}");
    assert_eq!(repaired.findings.len(), 1);
    assert!(spool.fsck(REPAIR).unwrap().is_clean());
    let mut expected = vec![("in".to_owned(), "ok".to_owned(), "meta".to_owned())];
    let owned = |text: &str| text.to_owned();
    expected
        .extend(left.iter().map(|(queue, name, meta)| (owned(queue), owned(name), owned(meta))));
    expected.sort();
    let found: Vec<_> =
        entries(&spool).into_iter().map(|((queue, name), (meta, _))| (queue, name, meta)).collect();
    assert_eq!(found, expected);
    spool
}

/// A producer died after reserving.
#[test]
fn an_orphaned_name() {
    assert_whole(&mended(&in_use(&[(".registry/x", "")]), Finding::OrphanedName, &[]));
}

/// It died after writing data.
#[test]
fn an_orphaned_name_with_data() {
    let site = in_use(&[(".registry/x", ""), (".data/x", "half")]);
    assert_whole(&mended(&site, Finding::OrphanedName, &[]));
}

/// It died while it wrote a temporary file, of an entry that is there, or of none.
#[test]
fn half_written_files() {
    assert_whole(&mended(&in_use(&[(".tmp/ok.tmp.5d", "ha")]), Finding::HalfWritten, &[]));
    assert_whole(&mended(&in_use(&[(".tmp/x", "ha")]), Finding::HalfWritten, &[]));
}

/// A consumer died and left its checkout.
#[test]
fn a_stuck_checkout() {
    let site = in_use(&[(".registry/x", ""), (".data/x", "d"), ("out/.checkout/x", "m")]);
    assert_whole(&mended(&site, Finding::Unowned, &[("out", "x", "m")]));
}

/// It died in the middle of a removal, which takes the data first.
#[test]
fn a_removal_that_did_not_end() {
    let site = in_use(&[(".registry/x", ""), ("in/.checkout/x", "m")]);
    assert_whole(&mended(&site, Finding::HalfRemoved, &[]));
    let site = in_use(&[("in/.checkout/x", "m")]);
    assert_whole(&mended(&site, Finding::HalfRemoved, &[]));
    let site = in_use(&[(".data/x", "d")]);
    assert_whole(&mended(&site, Finding::OrphanedData, &[]));
}

/// An available entry without data is kept, aside, and healthy from then on.
#[test]
fn an_entry_without_data() {
    let site = in_use(&[(".registry/x", ""), ("in/x", "m")]);
    let spool = mended(&site, Finding::WithoutData, &[]);
    assert_eq!(spool.quarantined().unwrap(), [name("x")]);
    let report = spool.monitor(&Limits::default()).unwrap();
    assert_eq!((report.problems, report.quarantined), (vec![], vec![name("x")]));
    assert_eq!(spool.fsck(REPAIR).unwrap().quarantined, [name("x")]);
    std::fs::rename(site.file(".shiftboss/quarantine/x"), site.file("in/x")).unwrap();
    site.write(".data/x", "found again");
    assert_whole(&spool);
}

/// A save that died between writing one and taking away the other; one of two queues.
#[test]
fn duplicates() {
    let x = [(".registry/x", ""), (".data/x", "d"), ("in/.checkout/x", "old"), ("out/x", "new")];
    let site = in_use(&x);
    assert_whole(&mended(&site, Finding::Duplicated, &[("out", "x", "new")]));
    assert!(site.tree().contains(".shiftboss/strays/x = \"old\""));
    let x = [(".registry/x", ""), (".data/x", "d"), ("in/x", "new"), ("out/x", "old")];
    let site = in_use(&x);
    set_age(&site.file("out/x"), std::time::Duration::from_secs(5));
    assert_whole(&mended(&site, Finding::Duplicated, &[("in", "x", "new")]));
}

/// What nobody registered: with data it is an entry again, without it a stray.
#[test]
fn unregistered_files() {
    let site = in_use(&[(".data/x", "d"), ("in/x", "m")]);
    assert_whole(&mended(&site, Finding::Unregistered, &[("in", "x", "m")]));
    let site = in_use(&[("in/x", "letter")]);
    assert_whole(&mended(&site, Finding::Stray, &[]));
    assert!(site.tree().contains(".shiftboss/strays/x = \"letter\""));
    let site = in_use(&[("in/.x.swp", "editor"), ("in/y/z", "directory")]);
    let spool = load(&site);
    assert_eq!(spool.fsck(REPAIR).unwrap().findings.len(), 2);
    assert_whole(&spool);
    assert!(site.tree().contains(".shiftboss/strays/y/z = \"directory\""));
}

/// A directory that is missing.
#[test]
fn missing_directories() {
    for missing in [".data", ".tmp", ".registry", "in/.checkout"] {
        let site = in_use(&[]);
        let full = ["in/.checkout", "out/.checkout"].contains(&missing);
        std::fs::remove_dir_all(site.file(missing)).unwrap();
        if !full {
            assert!(Spool::load(&site.path(), Options::default()).is_err(), "{missing}");
        }
        let spool = Spool::load_unchecked(&site.path(), options(Durability::None)).unwrap();
        let repaired = spool.fsck(REPAIR).unwrap();
        assert_eq!(repaired.findings[0].finding, Finding::MissingDirectory, "{repaired:#?}");
        assert!(repaired.is_mended());
        assert!(spool.fsck(REPAIR).unwrap().is_clean());
        let expected = if missing == ".data" { 0 } else { 1 };
        assert_eq!(entries(&load(&site)).len(), expected, "{missing}");
    }
}

/// With an age, what may be somebody's work is left alone.
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
    let spool = load(&site);
    let hour = Some(std::time::Duration::from_secs(3600));
    let before = site.format();
    assert!(spool.fsck(FsckOptions { repair: true, older_than: hour }).unwrap().is_clean());
    assert_eq!(site.format(), before);
    for (path, _) in young {
        set_age(&site.file(path), std::time::Duration::from_secs(3601));
    }
    assert_eq!(
        spool.fsck(FsckOptions { repair: true, older_than: hour }).unwrap().findings.len(),
        4
    );
    assert_whole(&spool);
}

/// What is no spool is not repaired.
#[test]
fn what_is_no_spool_is_left_alone() {
    let site = made(&["Documents"], &[("letter.txt", "Dear")]);
    let spool = Spool::load_unchecked(&site.path(), Options::default()).unwrap();
    assert!(matches!(spool.fsck(REPAIR), Err(SpoolError::NotASpool(_))));
    assert_eq!(site.tree(), "Documents/\nletter.txt = \"Dear\"\n");
}
