//! Delivery (spec 5): what becomes of a dispatch whose answer never arrives. What an undo restores the engine's tests say, and
//! which answers were read those of the connection.

use crate::common::said::said;
use crate::common::sql::LOG;
use crate::common::{Client, Site, wait_until};

const STATE: &str = "SELECT attr_path, is_dequeued, last_started FROM queue ORDER BY attr_path";

mod sqlite {
    use super::*;
    use crate::common::Daemon;

    /// A daemon with `alpha`, finished long ago, and nothing else.
    fn one_old_job(options: &[&str]) -> (Site, Daemon) {
        let (site, daemon) = Site::serving("alpha 0 1\n", options);
        site.edit("INSERT INTO log VALUES ('alpha', 1000, 1005, 3)");
        assert_eq!(site.sql(STATE), ["alpha|0|1000"]);
        (site, daemon)
    }

    /// A peer that closes with its answer unread, half-closed before or not: the dispatch never
    /// happened, and the next request gets the same key.
    #[test]
    fn an_answer_left_unread_is_undone() {
        let (site, _daemon) = one_old_job(&[]);
        for round in 0..20 {
            let client = Client::unread(&site, "READY", round % 2 == 0);
            assert!(site.sql(LOG)[0].ends_with("|-|-"));
            drop(client);
            site.wait_sql(STATE, &["alpha|0|1000"]);
            assert_eq!(site.sql(LOG), ["alpha|1000|1005|3"]);
        }
        assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }

    /// A lease is not over before its time, outlives a restart, and is 12 h when nothing is said.
    #[test]
    fn a_lease_holds_over_restarts() {
        let (site, daemon) = Site::serving("alpha 0 1\n", &[]);
        assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
        daemon.kill();
        let _daemon = site.start();
        assert_eq!(site.ask("READY"), "NOJOBS\n");
        for (seconds, answer) in [(43_190, "NOJOBS\n"), (43_201, "JOB alpha 0 1\n")] {
            site.edit(&format!("UPDATE log SET started = unixepoch() - {seconds}"));
            assert_eq!(site.ask("READY"), answer);
        }
    }

    /// With `--classic` nothing is undone.
    #[test]
    fn classic_undoes_nothing() {
        let (site, _daemon) = one_old_job(&["--classic"]);
        drop(Client::unread(&site, "READY", false));
        for _ in 0..20 {
            assert_eq!(site.ask("READY"), "NOJOBS\n");
        }
        assert!(site.sql(LOG)[0].ends_with("|-|-"));
    }
}

/// A peer that closes without waiting for its answer: never is the job lost.
#[test]
fn an_answer_not_waited_for_is_undone() {
    let (site, _daemon) = Site::serving("alpha 0 1\n", &[]);
    for round in 0..50 {
        let mut client = Client::connect(&site);
        client.write(b"READY\n");
        if round % 2 == 0 {
            client.half_close();
        }
        drop(client);
    }
    // The last dispatches may still be on their way; each is undone when it arrives nowhere.
    wait_until("the job is handed out", || site.ask("READY") == "JOB alpha 0 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// Of several answers on one connection only those left unread are undone.
#[test]
fn of_several_answers_only_the_unread_are_undone() {
    let (site, _daemon) = Site::serving("alpha 0 1\nbravo 0 2\ncharlie 0 3\n", &[]);
    let mut client = Client::connect(&site);
    assert_eq!(client.ask("READY"), "JOB alpha 0 1\n");
    client.write(b"DONE alpha 0\nREADY\n");
    client.wait_unread();
    wait_until("three jobs are out", || site.number("SELECT count(*) FROM log") == 3);
    drop(client);
    site.wait_sql("SELECT attr_path, exit_code FROM log", &["alpha|0"]);
    let mut again = [site.ask("READY"), site.ask("READY")];
    again.sort();
    assert_eq!(again, ["JOB bravo 0 2\n", "JOB charlie 0 3\n"]);
}

/// A job of a key that never ran leaves no log row when undone, in every fetcher's row.
#[test]
fn a_first_dispatch_leaves_no_trace_when_undone() {
    let site = Site::new();
    site.write("f.1.txt", "alpha f 1\n");
    site.write("f.2.txt", "alpha f 2\n");
    site.write("g.1.txt", "alpha g 1\n");
    let _daemon = site.start();
    site.wait_count(3);
    for _ in 0..5 {
        drop(Client::unread(&site, "READY", true));
        site.wait_sql(STATE, &["alpha|0|-", "alpha|0|-", "alpha|0|-"]);
        assert_eq!(site.sql(LOG), Vec::<String>::new());
    }
    assert!(site.ask("READY").starts_with("JOB alpha "));
}

/// The stock worker repeats a DONE that got no answer: twice does no harm, and the job that
/// the lost answer named is handed out again.
#[test]
fn a_repeated_done_is_harmless() {
    let (site, _daemon) = Site::serving("alpha 0 1\nbravo 0 2\n", &[]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    drop(Client::unread(&site, "DONE alpha 5", true));
    site.wait_sql("SELECT count(*) FROM log", &["1"]);
    assert_eq!(site.ask("DONE alpha 5"), "JOB bravo 0 2\n");
    let codes = "SELECT attr_path, exit_code FROM log ORDER BY attr_path";
    assert_eq!(site.sql(codes), ["alpha|5", "bravo|-"]);
}

/// A job whose lease ran out without DONE is eligible again, and its late DONE still counts.
#[test]
fn a_lease_runs_out() {
    let (site, _daemon) = Site::serving("alpha 0 1\n", &["--lease", "1s"]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    for _ in 0..2 {
        wait_until("the lease has run out", || site.ask("READY") == "JOB alpha 0 1\n");
    }
    // One job, however often it was handed out again.
    let status = said(&site, &["status"]);
    assert!(status.contains("1 running (1 of them again"), "{status}");
    assert_eq!(site.ask("DONE alpha 4"), "NOJOBS\n");
    assert!(site.sql(LOG)[0].ends_with("|4"));
}
