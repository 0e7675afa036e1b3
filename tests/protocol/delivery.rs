//! Delivery (spec 5): what becomes of a dispatch whose answer never arrives.

use crate::common::sql::LOG;
use crate::common::{Client, Daemon, Site, child, wait_until};

const STATE: &str = "SELECT attr_path, is_dequeued, last_started FROM queue ORDER BY attr_path";

/// A daemon with `alpha`, finished long ago, and nothing else.
fn one_old_job(options: &[&str]) -> (Site, Daemon) {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    let daemon = site.start_with(options);
    site.wait_count(1);
    site.edit("INSERT INTO log VALUES ('alpha', 1000, 1005, 3)");
    assert_eq!(site.sql(STATE), ["alpha|0|1000"]);
    (site, daemon)
}

/// Waits until the dispatch of `alpha` has left no trace.
fn wait_undone(site: &Site) {
    site.wait_sql(STATE, &["alpha|0|1000"]);
    assert_eq!(site.sql(LOG), ["alpha|1000|1005|3"]);
}

/// A peer that closes with its answer unread, half-closed before or not: the dispatch never
/// happened, and the next request gets the same key.
#[test]
fn an_answer_left_unread_is_undone() {
    let (site, _daemon) = one_old_job(&[]);
    for round in 0..50 {
        let client = Client::unread(&site, "READY", round % 2 == 0);
        assert!(site.sql(LOG)[0].ends_with("|-|-"));
        drop(client);
        wait_undone(&site);
    }
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}

/// A peer that closes without waiting for its answer: never is the job lost.
#[test]
fn an_answer_not_waited_for_is_undone() {
    let (site, _daemon) = one_old_job(&[]);
    for round in 0..100 {
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

/// A worker that is killed with its answer unread.
#[test]
fn a_killed_peer_s_answer_is_undone() {
    let (site, _daemon) = one_old_job(&[]);
    let mut command = child::command("delivery::role_unread");
    let mut peer = command.env("SITE_SOCKET", site.socket()).spawn().unwrap();
    child::wait_word(&mut peer, "answered");
    peer.kill().unwrap();
    peer.wait().unwrap();
    wait_undone(&site);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
}

/// The killed worker: asks, and never reads.
#[test]
fn role_unread() {
    use std::io::{Read, Write};
    if child::plays("delivery::role_unread") {
        let socket = std::env::var_os("SITE_SOCKET").unwrap();
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        stream.write_all(b"READY\n").unwrap();
        let mut byte = [0_u8];
        rustix::net::recv(&stream, &mut byte, rustix::net::RecvFlags::PEEK).unwrap();
        println!("\nanswered");
        let mut rest = Vec::new();
        // Holds the connection until the kill.
        std::io::stdin().read_to_end(&mut rest).unwrap();
        wait_until("killed", || false);
    }
}

/// An answer that was read to its end stands, however the connection ends.
#[test]
fn an_answer_that_was_read_stands() {
    for half_close in [false, true] {
        let (site, _daemon) = one_old_job(&[]);
        let mut client = Client::unread(&site, "READY", half_close);
        assert_eq!(client.line(), "JOB alpha 0 1\n");
        drop(client);
        for _ in 0..50 {
            assert_eq!(site.ask("READY"), "NOJOBS\n");
        }
        assert!(site.sql(LOG)[0].ends_with("|-|-"));
    }
}

/// Of several answers on one connection only those left unread are undone.
#[test]
fn of_several_answers_only_the_unread_are_undone() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\ncharlie 0 3\n");
    let _daemon = site.start();
    site.wait_count(3);
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
    let before = site.sql(STATE);
    for _ in 0..10 {
        drop(Client::unread(&site, "READY", true));
        site.wait_sql(STATE, &["alpha|0|-", "alpha|0|-", "alpha|0|-"]);
        assert_eq!(site.sql(LOG), Vec::<String>::new());
    }
    assert_eq!(before, site.sql(STATE));
    assert!(site.ask("READY").starts_with("JOB alpha "));
}

/// An undo happens only while the log row is still that dispatch's: a DONE from elsewhere, or
/// an operator's edit, stands.
#[test]
fn an_undo_does_not_overwrite_what_came_after() {
    let (site, _daemon) = one_old_job(&[]);
    let client = Client::unread(&site, "READY", false);
    assert_eq!(site.ask("DONE alpha 7"), "NOJOBS\n");
    drop(client);
    for _ in 0..50 {
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    assert!(site.sql(LOG)[0].ends_with("|7"));
    site.write("f.2.txt", "alpha 0 2\n");
    site.wait_count(2);
    let client = Client::unread(&site, "READY", false);
    site.edit("UPDATE log SET started = started - 5 WHERE attr_path = 'alpha'");
    let edited = site.sql(LOG);
    drop(client);
    for _ in 0..50 {
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    assert_eq!(site.sql(LOG), edited);
}

/// With `--classic` nothing is undone.
#[test]
fn classic_undoes_nothing() {
    let (site, _daemon) = one_old_job(&["--classic"]);
    drop(Client::unread(&site, "READY", false));
    for _ in 0..50 {
        assert_eq!(site.ask("READY"), "NOJOBS\n");
    }
    assert!(site.sql(LOG)[0].ends_with("|-|-"));
}

/// The stock worker repeats a DONE that got no answer: twice does no harm, and the job that
/// the lost answer named is handed out again.
#[test]
fn a_repeated_done_is_harmless() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let _daemon = site.start();
    site.wait_count(2);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    drop(Client::unread(&site, "DONE alpha 5", true));
    site.wait_sql("SELECT count(*) FROM log", &["1"]);
    assert_eq!(site.ask("DONE alpha 5"), "JOB bravo 0 2\n");
    let codes = "SELECT attr_path, exit_code FROM log ORDER BY attr_path";
    assert_eq!(site.sql(codes), ["alpha|5", "bravo|-"]);
}
