//! What the reference's own tests assert of its daemon: statements 22 to 39 of spec 8.

use crate::common::sql::{LOG, RUNS};
use crate::common::{Client, Site};

/// Starts with neither directory nor database and makes both; a `.part` made afterwards is
/// read, and its later appends.
#[test]
fn statement_22_starts_from_nothing_and_follows_a_part() {
    let site = Site::bare();
    let daemon = site.start();
    assert!(site.database().is_file() && site.input().is_dir());
    site.write("f.1.txt.part", "alpha 0 1\n");
    site.wait_queue(&["f|1|alpha|0 1|0"]);
    site.append("f.1.txt.part", "bravo 0 2\n");
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0"]);
    assert_eq!(site.sql(RUNS), ["f|1|0"]);
    daemon.stop();
}

/// A complete file present at start is loaded.
#[test]
fn statement_23_a_complete_file_present_at_start() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let _daemon = site.start();
    site.wait_sql(RUNS, &["f|1|1"]);
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0"]);
}

/// Deleting a complete file while running removes its rows.
#[test]
fn statement_24_deletion_removes_the_rows() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    site.write("g.1.txt", "charlie 0 3\n");
    let _daemon = site.start();
    site.wait_count(3);
    site.remove("f.1.txt");
    site.wait_queue(&["g|1|charlie|0 3|0"]);
    site.wait_sql("SELECT name FROM fetchers", &["g"]);
}

/// A `.part` present at start is loaded, later appends too.
#[test]
fn statement_25_a_part_present_at_start() {
    let site = Site::new();
    site.write("f.1.txt.part", "alpha 0 1\n");
    let _daemon = site.start();
    site.wait_queue(&["f|1|alpha|0 1|0"]);
    site.append("f.1.txt.part", "bravo 0 2\n");
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0"]);
}

/// Rename keeps rows; a newer `.part` of the same fetcher adds rows beside them; unlink of the
/// old file removes only its own.
#[test]
fn statement_26_old_and_new_run_side_by_side() {
    let site = Site::new();
    site.write("f.1.txt.part", "alpha 0 1\nbravo 0 2\n");
    let _daemon = site.start();
    site.wait_count(2);
    let id = site.sql("SELECT fetcher_id FROM fetchers");
    site.rename("f.1.txt.part", "f.1.txt");
    site.wait_sql(RUNS, &["f|1|1"]);
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0"]);
    site.write("f.2.txt.part", "bravo 2 3\n");
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0", "f|2|bravo|2 3|0"]);
    site.remove("f.1.txt");
    site.wait_queue(&["f|2|bravo|2 3|0"]);
    assert_eq!(site.sql("SELECT fetcher_id FROM fetchers"), id);
}

/// A partial line (also the first, also split over three writes) is queued only when its
/// newline arrives, whole.
#[test]
fn statement_27_only_whole_lines_count() {
    let site = Site::new();
    let _daemon = site.start();
    for written in ["al", "pha 0", " 1"] {
        site.append("f.1.txt.part", written);
        assert_eq!(site.ask("READY"), "NOJOBS\n", "after {written:?}");
    }
    site.append("f.1.txt.part", "\nbra");
    site.wait_queue(&["f|1|alpha|0 1|0"]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    site.append("f.1.txt.part", "vo 0 2\n");
    assert_eq!(site.ask("READY"), "JOB bravo 0 2\n");
    site.wait_queue(&["f|1|alpha|0 1|1", "f|1|bravo|0 2|1"]);
}

/// A `.txt` made while running in one write is loaded.
#[test]
fn statement_28_a_complete_file_made_while_running() {
    let site = Site::new();
    let _daemon = site.start();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0"]);
    site.wait_sql(RUNS, &["f|1|1"]);
}

/// A run deleted while the daemon was down is dropped at start; others keep rows and fetcher
/// ids.
#[test]
fn statement_29_a_run_deleted_while_down() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    site.write("g.1.txt", "bravo 0 2\ncharlie 0 3\n");
    let daemon = site.start();
    site.wait_count(3);
    site.wait_sql(RUNS, &["f|1|1", "g|1|1"]);
    let id = site.sql("SELECT fetcher_id FROM fetchers WHERE name = 'g'");
    daemon.stop();
    site.remove("f.1.txt");
    let _daemon = site.start();
    site.wait_queue(&["g|1|bravo|0 2|0", "g|1|charlie|0 3|0"]);
    assert_eq!(site.sql("SELECT fetcher_id FROM fetchers"), id);
}

/// A run replaced while down: old rows gone, new loaded, the fetcher keeps its id.
#[test]
fn statement_30_a_run_replaced_while_down() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    site.write("g.1.txt", "bravo 0 2\n");
    let daemon = site.start();
    site.wait_count(2);
    let ids = site.sql("SELECT name, fetcher_id FROM fetchers ORDER BY name");
    daemon.stop();
    site.deliver("f", 2, "charlie 0 3\n");
    let _daemon = site.start();
    site.wait_queue(&["f|2|charlie|0 3|0", "g|1|bravo|0 2|0"]);
    let after = site.sql("SELECT name, fetcher_id FROM fetchers ORDER BY name");
    assert_eq!(after, ids);
}

/// Appends to a `.part` while down are read at start without duplicates.
#[test]
fn statement_31_appends_while_down() {
    let site = Site::new();
    site.write("f.1.txt.part", "alpha 0 1\nbra");
    let daemon = site.start();
    site.wait_queue(&["f|1|alpha|0 1|0"]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    daemon.stop();
    site.append("f.1.txt.part", "vo 0 2\ncharlie 0 3\n");
    let _daemon = site.start();
    let expected = ["f|1|alpha|0 1|1", "f|1|bravo|0 2|0", "f|1|charlie|0 3|0"];
    site.wait_queue(&expected);
}

/// READY on an empty queue gives exactly `NOJOBS\n`.
#[test]
fn statement_32_nojobs_exactly() {
    let site = Site::new();
    let _daemon = site.start();
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// Requests are answered on a connection whose write side is shut after one line.
#[test]
fn statement_33_half_closed_after_one_line() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let _daemon = site.start();
    site.wait_count(1);
    for (line, answer) in [("READY", "JOB alpha 0 1\n"), ("DONE alpha 0", "NOJOBS\n")] {
        let mut client = Client::connect(&site);
        client.write(format!("{line}\n").as_bytes());
        client.half_close();
        assert_eq!(client.rest(), answer);
    }
}

/// Never-started key first, then by started; among equals either fetcher's row.
#[test]
fn statement_34_longest_waiting_first() {
    let site = Site::new();
    site.write("f.1.txt", "alpha f 1\nbravo f 2\nzulu f 3\n");
    site.write("g.1.txt", "alpha g 1\ncharlie g 2\n");
    let _daemon = site.start();
    site.wait_count(5);
    site.edit(
        "INSERT INTO log VALUES ('alpha', 3000, 3001, 0), ('bravo', 1000, 1001, 0),
        ('charlie', 2000, 2001, 0)",
    );
    let mut keys = Vec::new();
    let mut request = "READY".to_owned();
    while let Some(key) = site.next_key(&request) {
        request = format!("DONE {key} 0");
        keys.push(key);
    }
    assert_eq!(keys, ["zulu", "bravo", "charlie", "alpha", "alpha"]);
}

/// DONE records the code and returns the next job in the same exchange, also for a job
/// dispatched on another connection.
#[test]
fn statement_35_done_records_and_asks_for_more() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\ncharlie 0 3\n");
    let _daemon = site.start();
    site.wait_count(3);
    let mut kept = Client::connect(&site);
    assert_eq!(kept.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(kept.ask("DONE alpha 7"), "JOB charlie 0 3\n");
    assert_eq!(site.ask("DONE charlie -1"), "JOB bravo 0 2\n");
    let codes =
        "SELECT attr_path, exit_code, sign(finished - started + 1) FROM log ORDER BY attr_path";
    assert_eq!(site.sql(codes), ["alpha|7|1", "bravo|-|-", "charlie|-1|1"]);
}

/// A key in two fetchers is handed out once for each, the second only after DONE.
#[test]
fn statement_36_a_key_in_two_fetchers() {
    let site = Site::new();
    site.write("f.1.txt", "alpha f 1\n");
    site.write("g.1.txt", "alpha g 1\n");
    let _daemon = site.start();
    site.wait_count(2);
    let first = site.ask("READY");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    let second = site.ask("DONE alpha 0");
    let mut both = [first, second];
    both.sort();
    assert_eq!(both, ["JOB alpha f 1\n", "JOB alpha g 1\n"]);
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
}

/// A second DONE for a key is accepted and answered; the last code stands.
#[test]
fn statement_37_a_second_done() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let _daemon = site.start();
    site.wait_count(2);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("DONE alpha 1"), "JOB bravo 0 2\n");
    assert_eq!(site.ask("DONE alpha 2"), "NOJOBS\n");
    let code = "SELECT exit_code FROM log WHERE attr_path = 'alpha'";
    assert_eq!(site.sql(code), ["2"]);
}

/// A line appended to a `.part` is available to the very next request: 1,000 times of 1,000,
/// without a pause between write and request.
#[test]
fn statement_38_the_very_next_request_sees_it() {
    let site = Site::new();
    let _daemon = site.start();
    for i in 0..1_000 {
        site.append("f.1.txt.part", format!("key{i} 0 {i}\n"));
        assert_eq!(site.ask("READY"), format!("JOB key{i} 0 {i}\n"));
    }
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// exit_code is NULL while in flight; log rows written by another SQLite connection while
/// running are honoured.
#[test]
fn statement_39_the_log_in_flight_and_from_outside() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\ncharlie 0 3\n");
    let _daemon = site.start();
    site.wait_count(3);
    site.edit("INSERT INTO log VALUES ('alpha', 1000, 1001, 0)");
    assert_eq!(site.ask("READY"), "JOB charlie 0 3\n");
    let log = site.sql(LOG);
    assert_eq!(log[0], "alpha|1000|1001|0");
    assert!(log[1].starts_with("charlie|") && log[1].ends_with("|-|-"), "{log:?}");
    site.edit("UPDATE log SET started = unixepoch(), finished = NULL WHERE attr_path = 'alpha'");
    assert_eq!(site.ask("READY"), "JOB bravo 0 2\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    site.edit("UPDATE log SET finished = started WHERE attr_path = 'alpha'");
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
}
