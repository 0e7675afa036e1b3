//! Complete files that are written to again, in place, without getting longer (spec 4: events are
//! hints, the file's content decides). What they list no longer leaves later: see `reconciled`.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use crate::common::Site;
use crate::common::sql::{QUEUE, RUNS};

/// Overwrites the beginning of a file, whose inode and length stay.
fn overwrite(site: &Site, name: &str, text: &str) {
    let file = OpenOptions::new().write(true).open(site.file(name)).unwrap();
    file.write_all_at(text.as_bytes(), 0).unwrap();
}

/// A complete file that is overwritten by other lines of the same length is read anew, also when
/// it gets its old time of change back.
#[test]
fn overwritten_with_the_same_length() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_sql(RUNS, &["f|1|1"]);
    let modified = std::fs::metadata(site.file("f.1.txt")).unwrap().modified().unwrap();
    overwrite(&site, "f.1.txt", "bravo 0 1\n");
    site.wait_queue(&["f|1|bravo|0 1|0"]);
    overwrite(&site, "f.1.txt", "delta 0 1\n");
    let file = OpenOptions::new().write(true).open(site.file("f.1.txt")).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    site.wait_queue(&["f|1|delta|0 1|0"]);
    site.wait_sql(RUNS, &["f|1|1"]);
}

/// Faulty lines of a file that is read anew are counted anew, as often as that is.
#[test]
fn faulty_lines_are_counted_once() {
    let (site, _daemon) = Site::running(&[]);
    let skipped = "SELECT skipped FROM lists";
    site.write("f.1.txt", "faulty\nalpha 0 1\nfaulty\n");
    site.wait_sql(skipped, &["2"]);
    site.write("f.1.txt", "faulty\nbravo 0 1\nfaulty\ncharlie 0 1\nfaulty\n");
    site.wait_queue(&["f|1|bravo|0 1|0", "f|1|charlie|0 1|0"]);
    site.wait_sql(skipped, &["3"]);
}

/// The next request sees what a complete file was overwritten with, like any other line.
#[test]
fn overwritten_before_a_request() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", "key00 0 1\n");
    assert_eq!(site.ask("READY"), "JOB key00 0 1\n");
    for round in 1..15 {
        overwrite(&site, "f.1.txt", &format!("key{round:02} 0 1\n"));
        assert_eq!(site.ask("READY"), format!("JOB key{round:02} 0 1\n"));
    }
}

/// Emptied and written again at once with as many bytes, which the clock of a file's times may be
/// too coarse to show: each of many files is read anew.
#[test]
fn emptied_and_written_again_with_the_same_length() {
    const FILES: usize = 100;
    let (site, _daemon) = Site::running(&[]);
    for round in 0..4 {
        for file in 0..FILES {
            site.write(format!("f{file}.1.txt"), format!("key-{file}-{round} 0 1\n"));
        }
        if round == 0 {
            site.wait_sql("SELECT sum(is_complete) FROM fetcher_runs", &["100"]);
        }
    }
    let last = "SELECT count(*) FROM queue WHERE attr_path LIKE 'key-%-3'";
    site.wait_sql(last, &[&FILES.to_string()]);
}

/// A complete file that is only touched is looked into, and nothing changes.
#[test]
fn a_touched_file_stays_as_it_is() {
    let (site, daemon) = Site::running(&[]);
    site.write("f.1.txt", "alpha 0 1\n");
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    for _ in 0..10 {
        let file = OpenOptions::new().append(true).open(site.file("f.1.txt")).unwrap();
        file.set_modified(SystemTime::now()).unwrap();
        drop(file);
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    assert_eq!(site.sql(QUEUE), ["f|1|alpha|0 1|1"]);
    assert!(daemon.warnings(&["f.1.txt"]).is_empty(), "{}", daemon.log());
}
