//! Lines: ends, white space, splitting, faults and limits.

use super::warned_of_line;
use crate::common::{Daemon, Site, wait_until};

/// Lines of many forms in a complete file; what each means the codec's own tests say.
#[test]
fn every_form_in_a_complete_file() {
    let site = Site::new();
    let text = "\u{feff}bom 0 1\ncr 0 1\rcrlf 0 1\r\n\noneword\ntrailing \n   \t \nnul\0key 0 a\0b\n\
        \u{1c}é日本\u{1F600}  0\u{b}1\u{2028}2\u{2029}\nunterminated 0 1";
    site.write("f.1.txt", text);
    let _daemon = site.start();
    let rows = [
        "bom|0 1",
        "cr|0 1",
        "crlf|0 1",
        "nul\0key|0 a\0b",
        "unterminated|0 1",
        "é日本\u{1F600}| 0\u{b}1\u{2028}2",
    ];
    site.wait_sql("SELECT attr_path, payload FROM queue ORDER BY attr_path", &rows);
}

/// Line numbers go on after a restart.
#[test]
fn line_numbers_go_on_after_a_restart() {
    let (site, daemon) = Site::running(&[]);
    site.write("f.1.txt.part", "alpha 0 1\n".repeat(776));
    site.wait_count(1);
    daemon.stop();
    let daemon = site.start();
    site.append("f.1.txt.part", b"bad \xff 0\n");
    wait_until("line 777 is named", || warned_of_line(&daemon, "f.1.txt", 777));
}

/// One line of 100 MB is skipped in bounded memory, in a growing file, in a complete one, and in
/// one that is moved in whole, so that one event must do for all of it; the lines around it are
/// kept.
#[test]
fn a_line_of_100_mb() {
    let (site, daemon) = Site::running(&[]);
    let before = daemon.memory_kib("VmHWM:");
    let megabyte = vec![b'x'; 1_000_000];
    site.write("g.1.txt.part", "alpha 0 1\n");
    for _ in 0..100 {
        site.append("f.1.txt.part", &megabyte);
        site.append("g.1.txt.part", &megabyte);
    }
    for name in ["f.1.txt.part", "g.1.txt.part"] {
        site.append(name, "\nbravo 0 2\n");
    }
    site.rename("g.1.txt.part", "g.1.txt");
    std::fs::copy(site.file("g.1.txt"), site.path("whole")).unwrap();
    std::fs::rename(site.path("whole"), site.file("h.1.txt")).unwrap();
    site.wait_queue(&[
        "f|1|bravo|0 2|0",
        "g|1|alpha|0 1|0",
        "g|1|bravo|0 2|0",
        "h|1|alpha|0 1|0",
        "h|1|bravo|0 2|0",
    ]);
    assert_bounded(&daemon, before);
    let daemon = {
        daemon.stop();
        site.start()
    };
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_bounded(&daemon, before);
}

fn assert_bounded(daemon: &Daemon, before: u64) {
    let grown = daemon.memory_kib("VmHWM:").saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more than at the start");
}

/// A list of nothing but faults is a complete run without rows.
#[test]
fn a_binary_file_is_a_run_without_rows() {
    let site = Site::new();
    site.write("noise.1.txt", [&[0xff; 96][..], b"\n"].concat().repeat(2_000));
    site.write("empty.1.txt", "");
    site.write("good.1.txt", "alpha 0 1\n");
    let daemon = site.start();
    site.wait_sql(crate::common::sql::RUNS, &["empty|1|1", "good|1|1", "noise|1|1"]);
    site.wait_queue(&["good|1|alpha|0 1|0"]);
    assert!(daemon.log().len() < 1_000_000, "a flood of warnings");
    daemon.stop();
}
