//! Where reading goes on after a restart (spec 4, "At start").

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::common::sql::RUNS;
use crate::common::{Daemon, Site};

const FIRST: &str = "SELECT payload FROM queue WHERE attr_path = 'key000'";
const DISPATCHED: &str = "SELECT count(*) FROM queue WHERE is_dequeued <> 0";

/// About 14 KB: more than the 4 KiB before the position that are compared.
fn long_list(payload: &str) -> String {
    (0..1_000).map(|i| format!("key{i:03} 0 {payload}\n")).collect()
}

/// A daemon that has read a long list as `name`, and one job of it is out.
fn loaded(name: &str) -> (Site, Daemon) {
    let site = Site::new();
    site.write(name, long_list("old"));
    let daemon = site.start();
    site.wait_count(1_000);
    assert!(site.ask("READY").starts_with("JOB "));
    (site, daemon)
}

/// Overwrites `text` at `offset` of a file, which keeps its length and inode.
fn patch(site: &Site, name: &str, offset: usize, text: &str) {
    let file = OpenOptions::new().write(true).open(site.file(name)).unwrap();
    file.write_all_at(text.as_bytes(), offset as u64).unwrap();
}

const LINE: usize = "key000 0 old\n".len();

/// A `.part` that is still the same file goes on from the stored position: what was read
/// before is not read again. After a clean stop and after a kill.
#[test]
fn a_part_goes_on_from_the_stored_position() {
    for clean in [true, false] {
        let (site, daemon) = loaded("f.1.txt.part");
        if clean {
            daemon.stop();
        } else {
            daemon.kill();
        }
        patch(&site, "f.1.txt.part", 0, "key000 0 new\n");
        site.append("f.1.txt.part", "zulu 0 1\n");
        let _daemon = site.start();
        site.wait_count(1_001);
        assert_eq!(site.sql(FIRST), ["0 old"]);
        assert_eq!(site.sql(DISPATCHED), ["1"]);
    }
}

/// A `.part` whose last 4 KiB before the position differ is another file and read from the
/// start; nothing is re-armed.
#[test]
fn a_part_with_another_checksum_is_read_from_the_start() {
    let (site, daemon) = loaded("f.1.txt.part");
    daemon.stop();
    patch(&site, "f.1.txt.part", 0, "key000 0 new\n");
    patch(&site, "f.1.txt.part", 999 * LINE, "key999 0 new\n");
    let _daemon = site.start();
    site.wait_sql(FIRST, &["0 new"]);
    site.wait_count(1_000);
    assert_eq!(site.sql(DISPATCHED), ["1"]);
}

/// A `.part` emptied and written anew while down keeps its inode and is read from the start,
/// whether it is now shorter, as long, or longer.
#[test]
fn a_part_rewritten_while_down_is_read_from_the_start() {
    for text in [long_list("new")[..500 * LINE].to_owned(), long_list("new"), long_list("newer")] {
        let (site, daemon) = loaded("f.1.txt.part");
        daemon.stop();
        site.write("f.1.txt.part", &text);
        let expected = text.lines().next().unwrap().split_once(' ').unwrap().1;
        let _daemon = site.start();
        site.wait_sql(FIRST, &[expected]);
    }
}

/// A complete run that was changed far in front of its end while down is read again, and stays complete.
#[test]
fn a_complete_run_changed_while_down_is_read_again() {
    let (site, daemon) = loaded("f.1.txt");
    site.wait_sql(RUNS, &["f|1|1"]);
    daemon.stop();
    patch(&site, "f.1.txt", 0, "key000 0 new\n");
    let _daemon = site.start();
    site.wait_sql(FIRST, &["0 new"]);
    site.wait_count(1_000);
    assert_eq!(site.sql(RUNS), ["f|1|1"]);
    assert_eq!(site.sql(DISPATCHED), ["1"]);
}

/// A `.part` renamed while down is completed at start: the rest is read, an unterminated last
/// line included. What was changed before the stored position is taken when the file has rested.
#[test]
fn a_part_renamed_while_down_is_completed() {
    let (site, daemon) = loaded("f.1.txt.part");
    daemon.kill();
    patch(&site, "f.1.txt.part", 0, "key000 0 new\n");
    site.append("f.1.txt.part", "zulu 0 1");
    site.rename("f.1.txt.part", "f.1.txt");
    let _daemon = site.start();
    site.wait_sql(RUNS, &["f|1|1"]);
    site.wait_count(1_001);
    site.wait_sql(FIRST, &["0 new"]);
    assert_eq!(site.sql(DISPATCHED), ["1"]);
}

/// A restart between any two bytes loses and doubles nothing: the list grows by one byte at a
/// time over a row of restarts.
#[test]
fn restarts_between_any_two_bytes() {
    let site = Site::new();
    let text = "alpha 0 1\r\né 0 2\n";
    for byte in text.bytes() {
        site.append("f.1.txt.part", [byte]);
        let daemon = site.start();
        assert!(site.ask("DONE nobody 0").ends_with('\n'));
        daemon.kill();
    }
    let daemon = site.start();
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    assert_eq!(site.sql(crate::common::sql::QUEUE), ["f|1|alpha|0 1|1", "f|1|é|0 2|1"]);
    assert!(daemon.warnings(&["f.1.txt"]).is_empty());
}
