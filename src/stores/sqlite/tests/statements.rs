//! Statements 1 to 21 of spec 8: what the reference's own tests say of its storage.

use super::support::{FAIR, Site, batch, run};
use shiftboss_actors::testing::one_by_one::OneByOne;

const QUEUE: &str = "SELECT name, fetcher_run_started, attr_path, payload FROM queue
    JOIN fetchers USING (fetcher_id) ORDER BY 1, 2, 3";
const STARTED: &str = "SELECT name, attr_path, last_started FROM queue
    JOIN fetchers USING (fetcher_id) ORDER BY 1, 2";

/// f1 lists alpha and bravo, f2 alpha and charlie.
fn two_fetchers() -> Site {
    let mut site = Site::new(FAIR);
    site.list(&run("f1", 1), &["alpha", "bravo"]);
    site.list(&run("f2", 1), &["alpha", "charlie"]);
    site
}

/// Takes jobs until there are none; ends each at once.
fn drain(site: &mut Site, now: i64) -> Vec<String> {
    let mut jobs = Vec::new();
    while let Some(job) = site.next(now) {
        site.finish(job.split(' ').next().unwrap(), now);
        jobs.push(job);
    }
    jobs
}

/// Re-registering a known run keeps its rows and its fetcher's id.
#[test]
fn statement_01_registering_again_keeps_rows() {
    let mut site = Site::new(FAIR);
    let f = run("f", 1);
    site.list(&f, &["alpha"]);
    let ids = site.rows("SELECT * FROM fetchers");
    site.commit(|store| store.add_rows(&batch(&f, &[], true))).unwrap();
    let stored = site.commit(|store| store.register_run(&f)).unwrap();
    assert!(stored.complete);
    assert_eq!(site.rows(QUEUE), ["f|1|alpha|f.1"]);
    assert_eq!(site.rows("SELECT * FROM fetchers"), ids);
}

/// Two runs of one fetcher hold separate rows of a key.
#[test]
fn statement_02_runs_hold_separate_rows() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    site.list(&run("f", 2), &["alpha"]);
    assert_eq!(site.rows(QUEUE), ["f|1|alpha|f.1", "f|2|alpha|f.2"]);
}

/// A row gets last_started from the log, in every fetcher; NULL when there is none.
#[test]
fn statement_03_and_04_rows_know_when_their_key_started() {
    let mut site = Site::new(FAIR);
    site.edit("INSERT INTO log VALUES ('alpha', 7, 8, 0)");
    site.list(&run("f", 1), &["alpha", "bravo"]);
    site.list(&run("g", 1), &["alpha"]);
    assert_eq!(site.rows(STARTED), ["f|alpha|7", "f|bravo|-", "g|alpha|7"]);
}

/// Log rows inserted or updated later reach all rows of that key, and only those.
#[test]
fn statement_05_and_06_the_log_reaches_queued_rows() {
    let site = two_fetchers();
    site.edit("INSERT INTO log VALUES ('alpha', 7, 8, 0)");
    assert_eq!(site.rows(STARTED), ["f1|alpha|7", "f1|bravo|-", "f2|alpha|7", "f2|charlie|-"]);
    site.edit("UPDATE log SET started = 9 WHERE attr_path = 'alpha'");
    assert_eq!(site.rows(STARTED), ["f1|alpha|9", "f1|bravo|-", "f2|alpha|9", "f2|charlie|-"]);
}

/// Deleting a run removes exactly its rows.
#[test]
fn statement_07_deleting_a_run_removes_its_rows() {
    let mut site = two_fetchers();
    site.list(&run("f1", 1), &["delta"]);
    site.delete(&run("f1", 1));
    assert_eq!(site.rows(QUEUE), ["f2|1|alpha|f2.1", "f2|1|charlie|f2.1"]);
    assert_eq!(site.rows("SELECT name FROM fetchers"), ["f2"]);
}

/// Three dispatches give three keys, a fourth nothing; the finish of alpha frees the other
/// fetcher's alpha in the same second; then nothing.
#[test]
fn statement_08_to_11_a_key_is_in_flight_once() {
    let mut site = two_fetchers();
    let mut jobs: Vec<_> = (0..3).map(|_| site.next(100).unwrap()).collect();
    jobs.sort();
    assert_eq!(jobs, ["alpha f1.1", "bravo f1.1", "charlie f2.1"]);
    assert_eq!(site.next(100), None);
    site.finish("alpha", 100);
    assert_eq!(site.next(100).as_deref(), Some("alpha f2.1"));
    assert_eq!(site.next(100), None);
}

/// Deleting and adding a run again makes its keys available again; a new key goes first.
#[test]
fn statement_12_and_13_a_run_added_again_is_armed_again() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    assert_eq!(drain(&mut site, 10), ["alpha f.1"]);
    site.delete(&run("f", 1));
    site.list(&run("f", 1), &["alpha", "zulu"]);
    assert_eq!(drain(&mut site, 20), ["zulu f.1", "alpha f.1"]);
}

/// A re-armed key that is in flight still is withheld, and released by its finish.
#[test]
fn statement_14_a_key_in_flight_is_withheld() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    assert!(site.next(10).is_some());
    site.list(&run("f", 2), &["alpha"]);
    assert_eq!(site.next(20), None);
    site.finish("alpha", 20);
    assert_eq!(site.next(20).as_deref(), Some("alpha f.2"));
}

/// Among re-armed keys the least recently started goes first.
#[test]
fn statement_15_the_longest_waiting_goes_first() {
    let mut site = Site::new(FAIR);
    site.edit(
        "INSERT INTO log VALUES ('late', 30, 31, 0), ('early', 10, 11, 0), ('mid', 20, 21, 0)",
    );
    site.list(&run("f", 1), &["late", "mid", "early"]);
    assert_eq!(drain(&mut site, 100), ["early f.1", "mid f.1", "late f.1"]);
}

/// A second run re-arms keys dispatched from the first; those in flight stay withheld.
#[test]
fn statement_16_a_second_run_arms_again() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha", "bravo"]);
    assert_eq!(site.next(10).as_deref(), Some("alpha f.1"));
    assert_eq!(site.next(11).as_deref(), Some("bravo f.1"));
    site.finish("bravo", 12);
    site.list(&run("f", 2), &["alpha", "bravo"]);
    assert_eq!(site.next(13).as_deref(), Some("bravo f.2"));
    assert_eq!(site.next(13), None);
}

/// A key unfinished for more than 12 h is free for the other fetcher's row: strictly more.
#[test]
fn statement_17_twelve_hours_free_a_key() {
    let mut site = Site::new(FAIR);
    site.list(&run("f1", 1), &["alpha"]);
    site.list(&run("f2", 1), &["alpha"]);
    assert_eq!(site.next(10_000).as_deref(), Some("alpha f1.1"));
    assert_eq!(site.next(10_000), None);
    assert_eq!(site.next(10_000 + 43_200), None);
    assert_eq!(site.next(10_000 + 43_201).as_deref(), Some("alpha f2.1"));
}

/// Both fetchers' payloads are delivered in the end, each once.
#[test]
fn statement_18_every_payload_is_delivered() {
    let mut site = two_fetchers();
    let mut jobs = drain(&mut site, 100);
    jobs.sort();
    assert_eq!(jobs, ["alpha f1.1", "alpha f2.1", "bravo f1.1", "charlie f2.1"]);
}

/// Never-started keys first, then by the time of their start.
#[test]
fn statement_19_order_is_by_last_start() {
    let mut site = Site::new(FAIR);
    site.edit("INSERT INTO log VALUES ('b', 20, 21, 0), ('c', 10, 11, 0)");
    site.list(&run("f", 1), &["a", "b", "c"]);
    assert_eq!(drain(&mut site, 100), ["a f.1", "c f.1", "b f.1"]);
}

/// A newer run in mid-cycle: its payload wins where it lists a key; a key dispatched before is
/// re-armed and queued by its new start.
#[test]
fn statement_20_and_21_a_newer_run_in_mid_cycle() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha", "bravo", "charlie"]);
    assert_eq!(site.next(10).as_deref(), Some("alpha f.1"));
    site.finish("alpha", 11);
    site.list(&run("f", 2), &["alpha", "bravo"]);
    assert_eq!(drain(&mut site, 20), ["charlie f.1", "bravo f.2", "alpha f.2"]);
}
