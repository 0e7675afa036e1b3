//! The life of a run: registered, growing, complete, grown again, gone.

use std::fs;
use std::io::Write;

use crate::common::sql::RUNS;
use crate::common::{Site, wait_until};

/// A run is registered when its file is first seen, empty or not; at start before the socket
/// accepts.
#[test]
fn a_run_is_registered_when_first_seen() {
    let site = Site::new();
    site.write("empty.1.txt.part", "");
    site.write("full.1.txt.part", "alpha 0 1\n");
    let _daemon = site.start();
    assert_eq!(site.sql(RUNS), ["empty|1|0", "full|1|0"]);
    site.write("later.1.txt.part", "");
    site.wait_sql(RUNS, &["empty|1|0", "full|1|0", "later|1|0"]);
}

/// Renaming a `.part` reads what is left, an unterminated last line included, and completes
/// the run.
#[test]
fn a_rename_completes_with_the_unterminated_line() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt.part", "alpha 0 1\nbravo 0");
    site.wait_queue(&["f|1|alpha|0 1|0"]);
    site.append("f.1.txt.part", " 2");
    site.rename("f.1.txt.part", "f.1.txt");
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 2|0"]);
    site.wait_sql(RUNS, &["f|1|1"]);
}

/// A complete file that is opened again and appended to is read on, as often as that happens,
/// and complete again.
#[test]
fn a_complete_file_that_grows_is_read_on() {
    let (site, daemon) = Site::running(&[]);
    site.write("f.1.txt", "alpha 0 1\n");
    site.wait_sql(RUNS, &["f|1|1"]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    site.append("f.1.txt", "bravo 0 2\n");
    assert_eq!(site.ask("READY"), "JOB bravo 0 2\n");
    site.append("f.1.txt", "charlie 0 3\n");
    assert_eq!(site.ask("READY"), "JOB charlie 0 3\n");
    site.wait_sql(RUNS, &["f|1|1"]);
    daemon.stop();
    site.append("f.1.txt", "delta 0 4");
    let _daemon = site.start();
    // Nobody saw its writer close it: an unterminated line counts once the file is at rest.
    site.wait_count(4);
    assert_eq!(site.ask("READY"), "JOB delta 0 4\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
    site.wait_sql(RUNS, &["f|1|1"]);
    site.wait_count(4);
}

/// Deleting a growing file deletes its run; what was dispatched of it stays in the log.
#[test]
fn deleting_a_growing_file_deletes_the_run() {
    let (site, _daemon) = Site::running(&[]);
    let mut file = fs::File::create(site.file("f.1.txt.part")).unwrap();
    file.write_all(b"alpha 0 1\nbravo 0 2\n").unwrap();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    site.remove("f.1.txt.part");
    // A failed fetcher may still be writing into what it deleted.
    file.write_all(b"charlie 0 3\n").unwrap();
    site.wait_sql(RUNS, &[]);
    assert_eq!(site.ask("DONE alpha 0"), "NOJOBS\n");
    assert_eq!(site.sql("SELECT attr_path, exit_code FROM log"), ["alpha|0"]);
}

/// The newer run is there before the older goes; the whole delivery of a fetcher's script
/// keeps the fetcher's id and leaves exactly the new list.
#[test]
fn a_fetchers_whole_delivery() {
    let (site, _daemon) = Site::running(&[]);
    site.deliver("f", 1, "alpha 0 1\nbravo 0 1\n");
    site.wait_queue(&["f|1|alpha|0 1|0", "f|1|bravo|0 1|0"]);
    let id = site.sql("SELECT fetcher_id FROM fetchers");
    for run in 2..10 {
        site.deliver("f", run, format!("alpha 0 {run}\ncharlie 0 {run}\n"));
    }
    site.wait_queue(&["f|9|alpha|0 9|0", "f|9|charlie|0 9|0"]);
    site.wait_sql(RUNS, &["f|9|1"]);
    assert_eq!(site.sql("SELECT fetcher_id FROM fetchers"), id);
}

/// A `.part` renamed to another fetcher's name leaves the old run and becomes the new one.
#[test]
fn renamed_to_another_run() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt.part", "alpha 0 1\n");
    site.wait_count(1);
    site.rename("f.1.txt.part", "g.2.txt");
    site.wait_queue(&["g|2|alpha|0 1|0"]);
    site.wait_sql(RUNS, &["g|2|1"]);
    site.rename("g.2.txt", "nothing of ours");
    site.wait_sql(RUNS, &[]);
}

/// A deletion that a kill interrupted goes on at the next start; a file that was made anew
/// meanwhile is loaded whole, with nothing of the old life.
#[test]
fn killed_while_deleting() {
    const COUNT: &str = "SELECT count(*) FROM queue";
    let list =
        |payload: &str| (0..6_000).map(|i| format!("key{i} 0 {payload}\n")).collect::<String>();
    for made_anew in [false, true] {
        let site = Site::new();
        site.write("f.1.txt.part", list("old"));
        let daemon = site.start();
        site.wait_count(6_000);
        assert!(site.ask("READY").starts_with("JOB "));
        site.remove("f.1.txt.part");
        wait_until("some rows are gone", || site.number(COUNT) < 6_000);
        daemon.kill();
        if made_anew {
            site.write("f.1.txt.part", list("new"));
        }
        let _daemon = site.start();
        site.wait_count(if made_anew { 6_000 } else { 0 });
        let of_old = "SELECT count(*) FROM queue WHERE payload = '0 old' OR is_dequeued <> 0";
        site.wait_sql(of_old, &["0"]);
        site.wait_sql("SELECT count(*) FROM fetchers", &[if made_anew { "1" } else { "0" }]);
    }
}

/// A file that is moved out and another one moved in under its name, without a pause between, are a
/// run that goes and a new one.
#[test]
fn moved_out_and_another_moved_in() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", "alpha 0 1\nbravo 0 1\n");
    for round in 2..10 {
        assert!(site.ask("READY").starts_with("JOB alpha"));
        assert!(site.ask("DONE alpha 0").starts_with("JOB bravo"));
        assert_eq!(site.ask("DONE bravo 0"), "NOJOBS\n");
        fs::write(site.path("next"), format!("alpha 0 {round}\nbravo 0 {round}\n")).unwrap();
        fs::rename(site.file("f.1.txt"), site.path("out")).unwrap();
        fs::rename(site.path("next"), site.file("f.1.txt")).unwrap();
        site.wait_queue(&[&format!("f|1|alpha|0 {round}|0"), &format!("f|1|bravo|0 {round}|0")]);
    }
}

/// A directory made anew is found by the request that needs it, not a second later.
#[test]
fn a_directory_made_anew() {
    let (site, _daemon) = Site::running(&[]);
    for round in 0..5 {
        std::fs::remove_dir_all(site.input()).unwrap();
        std::fs::create_dir(site.input()).unwrap();
        site.write(format!("f.{round}.txt"), format!("key{round} 1\n"));
        assert_eq!(site.ask("READY"), format!("JOB key{round} 1\n"));
    }
}

/// A file that is removed and made again at once: the next request gets what is in it.
#[test]
fn removed_and_made_again_at_once() {
    let (site, _daemon) = Site::running(&[]);
    for round in 0..20 {
        site.write("f.1.txt", format!("key{round} 1\n"));
        assert_eq!(site.ask("READY"), format!("JOB key{round} 1\n"));
        site.remove("f.1.txt");
    }
}
