//! What the reference gets wrong (spec 5), by its number there, and ours must not; what the other tests do not have: 5, 6, 8,
//! 9 and 11 have files of their own.

use std::time::{Duration, Instant};

use super::support::*;
use crate::*;

/// 1. Four create at once (threads with handles of their own), eighty in all.
#[test]
fn d1_concurrent_creation() {
    for _ in 0..20 {
        let site = Site::new();
        std::thread::scope(|scope| {
            for maker in ["a", "b", "c", "d"] {
                let path = site.path();
                scope.spawn(move || {
                    let spool = Spool::create(&path, options(Durability::None)).unwrap();
                    put(&spool, maker).unwrap();
                });
            }
        });
        assert_eq!(site.load().list(&input()).unwrap().len(), 4);
        assert_whole(&site.load());
        drop(site.create());
    }
}

/// 2. An entry without data is iterated over, and can be removed.
#[test]
fn d2_a_missing_file_is_no_error() {
    let (site, spool) = Site::with_entry();
    put(&spool, "b").unwrap();
    std::fs::remove_file(site.file(".data/a")).unwrap();
    let loaded = pass(&spool, &input()).map(|guard| {
        let is_loaded = guard.data().load().is_ok();
        guard.complete().unwrap();
        is_loaded
    });
    assert_eq!(loaded.collect::<Vec<_>>(), [false, true]);
    drop(with_entry(&site));
    std::fs::remove_file(site.file(".data/a")).unwrap();
    std::fs::remove_file(site.file(".registry/a")).unwrap();
    assert!(spool.remove(&input(), &a()).unwrap());
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
    let (site, spool) = Site::created();
    for path in ["in/stray", "in/.hidden", "in/directory/file"] {
        site.write(path, "");
    }
    std::os::unix::fs::symlink("nowhere", site.file("in/link")).unwrap();
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    let (before, start) = (processor_time(), Instant::now());
    let limit = Duration::from_millis(1500);
    assert!(reader.dequeue(&Stop::new().unwrap(), Some(limit)).unwrap().is_none());
    assert!(start.elapsed() >= limit);
    let spent = processor_time() - before;
    assert!(spent < Duration::from_millis(150), "{spent:?}");
    let names: Vec<_> = problems(&spool).into_iter().map(|problem| problem.name).collect();
    assert_eq!(names, ["stray", ".hidden", "directory", "link"]);
}

/// 4. Unreadable metadata is set aside, and the iteration goes on.
#[test]
fn d4_unreadable_metadata_is_set_aside() {
    let (site, spool) = Site::created();
    ["a", "b", "c"].iter().for_each(|entry| _ = put(&spool, entry).unwrap());
    // More than may be: what no rights would do to others, for the superuser can read everything.
    let file = std::fs::File::options().write(true).open(site.file("in/b")).unwrap();
    file.set_len(METADATA_BYTES_MAX + 1).unwrap();
    let mut reader = spool.reader(&input(), Order::Strict).unwrap();
    let mut seen = Vec::new();
    while let Some(guard) = reader.dequeue_available().unwrap() {
        seen.push(guard.name().to_string());
        guard.complete().unwrap();
    }
    assert_eq!(seen, ["a", "c"]);
    let report = spool.monitor(&Limits::default()).unwrap();
    assert_eq!((report.problems, report.quarantined), (vec![], vec![name("b")]));
    assert!(spool.fsck(FsckOptions::default()).unwrap().is_clean());
}

/// 7. What has the name already is not overwritten.
#[test]
fn d7_publication_overwrites_nothing() {
    let (site, spool) = Site::created();
    site.write("in/a", "somebody's");
    let refused = put(&spool, "a").unwrap_err();
    assert_eq!(refused.errno(), Some(rustix::io::Errno::EXIST.raw_os_error()), "{refused}");
    let tree = ".data/\n.registry/\n.tmp/\nin/\nin/.checkout/\nin/a = \"somebody's\"\n";
    assert_eq!(site.format(), tree);
    let (site, spool) = Site::with_entry();
    let guard = take(&spool).unwrap();
    site.write("out/a", "somebody's");
    assert!(guard.move_to(&queue("out")).is_err());
    assert_eq!(std::fs::read(site.file("out/a")).unwrap(), b"somebody's");
    assert_eq!(spool.list(&input()).unwrap(), [a()]);
}
