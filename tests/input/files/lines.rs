//! Lines: ends, white space, splitting, faults and limits.

use super::warned_of_line;
use crate::common::{Daemon, Site, wait_until};

/// A list with every form of line, without its last line's end, and the rows it means.
fn every_form() -> (String, Vec<String>) {
    let text = [
        "\u{feff}bom 0 1\n",
        "newline 0 1\n",
        "crlf 0 1\r\n",
        "cr 0 1\r",
        "\n",
        "oneword\n",
        "trailing \n",
        "   \t \n",
        " leading 0 1\n",
        "\u{1c}\u{1d}separators 0 1\u{1e}\u{1f}\n",
        "\u{b}\u{c}\u{85}\u{a0}\u{2003}\u{3000}wide 0 1\u{2028}\u{2029}\n",
        "\u{200b}zerowidth 0 1\n",
        "tab\t0 1\n",
        "double  0 1\n",
        "inner 0  1   2\tx\n",
        "# comment\n",
        "twice old 1\n",
        "twice new 2\n",
        "\u{feff}later 0 1\n",
        "nul\0key 0 a\0b\n",
        "vertical 0\u{b}1\u{2028}2\n",
        "é日本\u{1F600} 0 ü\n",
        "unterminated 0 1",
    ];
    let rows = [
        "#|comment",
        "bom|0 1",
        "cr|0 1",
        "crlf|0 1",
        "double| 0 1",
        "inner|0  1   2\tx",
        "leading|0 1",
        "newline|0 1",
        "nul\0key|0 a\0b",
        "separators|0 1",
        "tab\t0|1",
        "twice|new 2",
        "unterminated|0 1",
        "vertical|0\u{b}1\u{2028}2",
        "wide|0 1",
        "é日本\u{1F600}|0 ü",
        "\u{200b}zerowidth|0 1",
        "\u{feff}later|0 1",
    ];
    (text.concat(), rows.map(str::to_owned).to_vec())
}

const ROWS: &str = "SELECT attr_path, payload FROM queue ORDER BY attr_path";

fn wait_rows(site: &Site, rows: &[String]) {
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    site.wait_sql(ROWS, &rows);
}

/// Every form of line in a complete file means what spec 4 says.
#[test]
fn every_form_in_a_complete_file() {
    let (text, rows) = every_form();
    let site = Site::new();
    site.write("f.1.txt", text);
    let _daemon = site.start();
    wait_rows(&site, &rows);
}

/// A skipped line is a warning that names the file and the line number, counted over all kinds
/// of line ends, also when one is split over two writes.
#[test]
fn skipped_lines_are_named() {
    let site = Site::new();
    let daemon = site.start();
    site.write("f.1.txt.part", "a 0 1\r\nb 0 2\rc 0 3\nd 0 4\r");
    assert!(site.ask("READY").starts_with("JOB "));
    let more = format!("\n{}oneword\n", "d 0 4\n".repeat(94));
    site.append("f.1.txt.part", more);
    wait_until("line 99 is named", || warned_of_line(&daemon, "f.1.txt", 99));
    site.append("f.1.txt.part", "e 0 5\n");
    site.wait_count(5);
    assert_eq!(daemon.warnings(&["f.1.txt"]).len(), 1);
}

/// Line numbers go on after a restart.
#[test]
fn line_numbers_go_on_after_a_restart() {
    let site = Site::new();
    let daemon = site.start();
    site.write("f.1.txt.part", "alpha 0 1\n".repeat(776));
    site.wait_count(1);
    daemon.stop();
    let daemon = site.start();
    site.append("f.1.txt.part", b"bad \xff 0\n");
    wait_until("line 777 is named", || warned_of_line(&daemon, "f.1.txt", 777));
}

/// A line of 1 MiB is taken and handed out whole, a longer one is skipped with a warning.
#[test]
fn lines_up_to_1_mib() {
    const MIB: usize = 1024 * 1024;
    let site = Site::new();
    let payload = "p".repeat(MIB - "key \n".len());
    let daemon = site.start();
    site.write("f.1.txt", format!("longer {}\nkey {payload}\n", "q".repeat(MIB)));
    site.wait_count(1);
    assert_eq!(site.ask("READY"), format!("JOB key {payload}\n"));
    assert!(warned_of_line(&daemon, "f.1.txt", 1), "{}", daemon.log());
}

/// One line of 100 MB is skipped in bounded memory, in a growing file, in a complete one, and in
/// one that is moved in whole, so that one event must do for all of it; the lines around it are
/// kept.
#[test]
fn a_line_of_100_mb() {
    let site = Site::new();
    let daemon = site.start();
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

/// No UTF-8, with a line end now and then.
fn noise_byte(i: u64) -> u8 {
    let byte = u8::try_from(i * i % 127).unwrap() | 0x80;
    if i.is_multiple_of(97) { b'\n' } else { byte }
}

/// A list of nothing but faults is a complete run without rows.
#[test]
fn a_binary_file_is_a_run_without_rows() {
    let site = Site::new();
    let noise: Vec<u8> = (0..200_000_u64).map(noise_byte).collect();
    site.write("noise.1.txt", &noise);
    site.write("empty.1.txt", "");
    site.write("good.1.txt", "alpha 0 1\n");
    let daemon = site.start();
    site.wait_sql(crate::common::sql::RUNS, &["empty|1|1", "good|1|1", "noise|1|1"]);
    site.wait_queue(&["good|1|alpha|0 1|0"]);
    assert!(daemon.log().len() < 1_000_000, "a flood of warnings");
    daemon.stop();
}
