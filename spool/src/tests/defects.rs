//! What the reference gets wrong (spec 5), by its number there, and ours must not.

use std::time::{Duration, Instant};

use super::support::*;
use crate::*;

/// 1. Four processes create at once (threads with handles of their own), eighty times.
#[test]
fn d1_concurrent_creation() {
    for _ in 0..20 {
        let site = Site::new();
        std::thread::scope(|scope| {
            for maker in 0..4 {
                let path = site.path();
                scope.spawn(move || {
                    let spool = Spool::create(&path, options(Durability::None)).unwrap();
                    let name = named(&format!("m{maker}"));
                    spool.enqueue(&queue("in"), name, &Item::new("m", "d")).unwrap();
                });
            }
        });
        let spool = Spool::load(&site.path(), options(Durability::None)).unwrap();
        assert_eq!(spool.list(&queue("in")).unwrap().len(), 4);
        assert_whole(&spool);
        drop(site.create());
    }
}

/// 1. A part of a spool is created to its end, and refused by load with words.
#[test]
fn d1_a_part_of_a_spool() {
    for missing in [".data", ".tmp", ".registry"] {
        let site = Site::new();
        drop(site.create());
        std::fs::remove_dir(site.file(missing)).unwrap();
        let refused = Spool::load(&site.path(), Options::default()).unwrap_err();
        let words = if missing == ".registry" { "is not a spool" } else { "fsck --repair" };
        assert!(refused.to_string().contains(words), "{refused}");
        let spool = with_entry(&site);
        assert_whole(&spool);
    }
}

/// 2. An entry without data is iterated over, and can be removed.
#[test]
fn d2_a_missing_file_is_no_error() {
    let site = Site::new();
    let spool = with_entry(&site);
    spool.enqueue(&queue("in"), named("b"), &Item::new("", "")).unwrap();
    std::fs::remove_file(site.file(".data/a")).unwrap();
    let mut seen = 0;
    for guard in pass(&spool, &queue("in")) {
        seen += 1;
        assert_eq!(guard.data().load().is_err(), seen == 1);
        guard.complete().unwrap();
    }
    assert_eq!(seen, 2);
    assert_whole(&spool);
    drop(with_entry(&site));
    std::fs::remove_file(site.file(".data/a")).unwrap();
    std::fs::remove_file(site.file(".registry/a")).unwrap();
    assert!(spool.remove(&queue("in"), &name("a")).unwrap());
    assert_whole(&spool);
}

/// This thread's time on a processor.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// 3. Stray files make no reader spin, and are reported.
#[test]
fn d3_stray_files_cost_no_time() {
    let site = Site::new();
    let spool = site.create();
    for path in ["in/stray", "in/.hidden", "in/directory/file"] {
        site.write(path, "");
    }
    std::os::unix::fs::symlink("nowhere", site.file("in/link")).unwrap();
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    let (before, start) = (processor_time(), Instant::now());
    let limit = Duration::from_millis(1500);
    let taken = reader.dequeue(&Stop::new().unwrap(), Some(limit)).unwrap();
    assert!(taken.is_none());
    assert!(start.elapsed() >= limit);
    let spent = processor_time() - before;
    assert!(spent < Duration::from_millis(150), "{spent:?}");
    let report = spool.monitor(&Limits::default()).unwrap();
    let names: Vec<_> = report.problems.iter().map(|problem| &*problem.name).collect();
    assert_eq!(names, ["stray", ".hidden", "directory", "link"]);
}

/// 4. Unreadable metadata is set aside, and the iteration goes on.
#[test]
fn d4_unreadable_metadata_is_set_aside() {
    let site = Site::new();
    let spool = site.create();
    for text in ["a", "b", "c"] {
        spool.enqueue(&queue("in"), named(text), &Item::new(text, "")).unwrap();
    }
    // More than may be: what no rights would do to others, for the superuser can read everything.
    std::fs::File::options()
        .write(true)
        .open(site.file("in/b"))
        .unwrap()
        .set_len(METADATA_BYTES_MAX + 1)
        .unwrap();
    let mut reader = spool.reader(&queue("in"), Order::Strict).unwrap();
    let mut seen = Vec::new();
    while let Some(guard) = reader.dequeue_available().unwrap() {
        seen.push(guard.name().to_string());
        guard.complete().unwrap();
    }
    assert_eq!(seen, ["a", "c"]);
    let report = spool.monitor(&Limits::default()).unwrap();
    assert_eq!((report.problems, report.quarantined), (vec![], vec![name("b")]));
    let checked = spool.fsck(FsckOptions::default()).unwrap();
    assert!(checked.is_clean());
    assert_eq!(checked.quarantined, [name("b")]);
}

/// 7. What has the name already is not overwritten.
#[test]
fn d7_publication_overwrites_nothing() {
    let site = Site::new();
    let spool = site.create();
    site.write("in/a", "somebody's");
    let refused = spool.enqueue(&queue("in"), named("a"), &Item::new("m", "d")).unwrap_err();
    assert_eq!(refused.errno(), Some(rustix::io::Errno::EXIST.raw_os_error()), "{refused}");
    let tree = ".data/\n.registry/\n.tmp/\nin/\nin/.checkout/\nin/a = \"somebody's\"\n";
    assert_eq!(site.format(), tree);
    let site = Site::new();
    let spool = with_entry(&site);
    let guard = spool.checkout(&queue("in"), &name("a")).unwrap();
    std::fs::create_dir(site.file("out")).unwrap();
    std::fs::write(site.file("out/a"), "somebody's").unwrap();
    assert!(guard.move_to(&queue("out")).is_err());
    assert_eq!(std::fs::read(site.file("out/a")).unwrap(), b"somebody's");
    assert_eq!(spool.list(&queue("in")).unwrap(), [name("a")]);
}

/// 10. A problem is not clean, and is JSON on demand.
#[test]
fn d10_problems_are_told() {
    let site = Site::new();
    let spool = with_entry(&site);
    std::fs::write(site.file(".data/\u{1}x"), "").unwrap();
    let report = serde_json::to_value(spool.monitor(&Limits::default()).unwrap()).unwrap();
    let problem = &report["problems"][0];
    assert_eq!(problem["kind"], "orphaned");
    assert_eq!(problem["name"], "\\x01x");
    assert_eq!(problem["places"][0], "data");
    let repaired = spool.fsck(FsckOptions { repair: true, older_than: None }).unwrap();
    assert!(!repaired.is_clean());
    let json = serde_json::to_value(&repaired).unwrap();
    assert_eq!(json["findings"][0]["finding"], "orphaned_data");
    assert_eq!(json["findings"][0]["mended"], true);
    assert!(spool.fsck(FsckOptions::default()).unwrap().is_clean());
}
