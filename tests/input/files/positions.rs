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

/// A `.part` that is still the same file goes on from the stored position, after a clean stop and after a kill: what was read
/// before is not read again. If the last 4 KiB before the position differ it is another file, and read from the start; so is a
/// complete one that was changed far in front of its end. One that was renamed is completed, an unterminated last line included.
/// Nothing is re-armed.
#[test]
fn what_was_changed_while_down() {
    let part = "f.1.txt.part";
    for (name, is_clean, patched, appended, is_renamed, first, rows) in [
        (part, true, &[0][..], "zulu 0 1\n", false, "0 old", 1_001),
        (part, false, &[0], "zulu 0 1\n", false, "0 old", 1_001),
        (part, true, &[0, 999], "", false, "0 new", 1_000),
        ("f.1.txt", true, &[0], "", false, "0 new", 1_000),
        (part, false, &[0], "zulu 0 1", true, "0 new", 1_001),
    ] {
        let (site, daemon) = loaded(name);
        let runs = |is_complete| format!("f|1|{}", u8::from(is_complete));
        site.wait_sql(RUNS, &[&runs(name != part)]);
        if is_clean {
            daemon.stop();
        } else {
            daemon.kill();
        }
        let patch =
            |line: &usize| patch(&site, name, line * LINE, &format!("key{line:03} 0 new\n"));
        patched.iter().for_each(patch);
        site.append(name, appended);
        if is_renamed {
            site.rename(name, "f.1.txt");
        }
        let _daemon = site.start();
        site.wait_count(rows);
        site.wait_sql(FIRST, &[first]);
        site.wait_sql(RUNS, &[&runs(name != part || is_renamed)]);
        assert_eq!(site.sql(DISPATCHED), ["1"]);
    }
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
