//! What the reference's own tests assert of its daemon (statements 22 to 39 of spec 8), as far as no test of files, of the
//! protocol or of the engine asserts the same.

use crate::common::sql::{LOG, RUNS};
use crate::common::{Client, Site};

mod sqlite {
    use super::*;

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

    /// Never-started key first, then by started, which log rows of another SQLite connection tell as well as a job's; and these
    /// are in flight until somebody says that they ended.
    #[test]
    fn statements_34_and_39_longest_waiting_first() {
        let (site, _daemon) = Site::serving("alpha 0 1\nbravo 0 2\ncharlie 0 3\nzulu 0 4\n", &[]);
        site.edit(
            "INSERT INTO log VALUES ('alpha', 3000, 3001, 0), ('bravo', 1000, 1001, 0),
            ('charlie', unixepoch(), NULL, NULL)",
        );
        for key in ["zulu", "bravo", "alpha"] {
            assert_eq!(site.next_key("READY").as_deref(), Some(key));
        }
        assert_eq!(site.ask("READY"), "NOJOBS\n");
        let log = site.sql(LOG);
        assert!(log[0].starts_with("alpha|") && log[0].ends_with("|-|-"), "{log:?}");
        site.edit("UPDATE log SET finished = started WHERE attr_path = 'charlie'");
        assert_eq!(site.ask("READY"), "JOB charlie 0 3\n");
    }
}

/// A complete file present at start is loaded. A newer `.part` of the same fetcher adds rows beside them; unlink of the old
/// file removes only its own.
#[test]
fn statements_23_to_26_old_and_new_run_side_by_side() {
    let (site, _daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    site.wait_sql(RUNS, &["f|1|1"]);
    let id = site.sql("SELECT fetcher_id FROM fetchers");
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
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    site.append("f.1.txt.part", "vo 0 2\n");
    assert_eq!(site.ask("READY"), "JOB bravo 0 2\n");
    site.wait_queue(&["f|1|alpha|0 1|1", "f|1|bravo|0 2|1"]);
}

/// While the daemon was down a run was deleted, one replaced, and one appended to: rows and fetchers' ids are as if it had seen
/// that.
#[test]
fn statements_29_to_31_files_change_while_down() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    site.write("g.1.txt", "bravo 0 2\n");
    site.write("h.1.txt.part", "charlie 0 3\ndel");
    let daemon = site.start();
    site.wait_count(3);
    let ids = "SELECT fetcher_id FROM fetchers WHERE name <> 'f' ORDER BY name";
    let before = site.sql(ids);
    daemon.stop();
    site.remove("f.1.txt");
    site.deliver("g", 2, "echo 0 5\n");
    site.append("h.1.txt.part", "ta 0 4\n");
    let _daemon = site.start();
    site.wait_queue(&["g|2|echo|0 5|0", "h|1|charlie|0 3|0", "h|1|delta|0 4|0"]);
    assert_eq!(site.sql(ids), before);
}

/// DONE records the code and returns the next job in the same exchange, also for a job
/// dispatched on another connection; said again, the last code stands.
#[test]
fn statements_35_and_37_done_records_and_asks_for_more() {
    let (site, _daemon) = Site::serving("alpha 0 1\nbravo 0 2\ncharlie 0 3\n", &[]);
    let mut kept = Client::connect(&site);
    assert_eq!(kept.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(kept.ask("DONE alpha 7"), "JOB charlie 0 3\n");
    assert_eq!(site.ask("DONE charlie -1"), "JOB bravo 0 2\n");
    assert_eq!(site.ask("DONE alpha 2"), "NOJOBS\n");
    let codes =
        "SELECT attr_path, exit_code, sign(finished - started + 1) FROM log ORDER BY attr_path";
    assert_eq!(site.sql(codes), ["alpha|2|1", "bravo|-|-", "charlie|-1|1"]);
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
    let mut both = [first, site.ask("DONE alpha 0")];
    both.sort();
    assert_eq!(both, ["JOB alpha f 1\n", "JOB alpha g 1\n"]);
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
}

/// A line appended to a `.part` is available to the very next request, each time,
/// without a pause between write and request.
#[test]
fn statement_38_the_very_next_request_sees_it() {
    let site = Site::new();
    let _daemon = site.start();
    for i in 0..300 {
        site.append("f.1.txt.part", format!("key{i} 0 {i}\n"));
        assert_eq!(site.ask("READY"), format!("JOB key{i} 0 {i}\n"));
    }
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}
