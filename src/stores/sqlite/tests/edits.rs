//! Edits by hand of what the daemon remembers: rows that are renamed, moved, deleted, or copied.

use shiftboss_actors::store::Dispatched;
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::support::{FAIR, Site, run};

/// The next key.
fn next_key(site: &mut Site, now: i64) -> String {
    let job = site.next(now).unwrap();
    job.split(' ').next().unwrap().to_owned()
}

/// An operator who wants a key to come first.
#[test]
fn an_edit_of_last_started_stops_nobody() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a", "b"]);
    for _ in 0..2 {
        let text = next_key(&mut site, 10);
        site.finish(&text, 20);
    }
    site.edit("UPDATE queue SET is_dequeued = 0; UPDATE queue SET last_started = NULL WHERE attr_path = 'b'");
    let asked = site.commit(|store| store.dispatch(100, None));
    assert!(matches!(asked, Ok(Dispatched::Job(..))), "{asked:?}");
    let asked = site.commit(|store| store.dispatch(100, None));
    assert!(matches!(asked, Ok(Dispatched::Job(..))), "{asked:?}");
}

/// A key that is renamed by hand to one that another fetcher lists is out once.
#[test]
fn a_renamed_row_is_out_once() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a", "x"]);
    site.list(&run("g", 1), &["b", "y"]);
    site.edit("UPDATE queue SET attr_path = 'a' WHERE attr_path = 'b'");
    site.check_kept();
    let mut out: Vec<String> = Vec::new();
    while let Dispatched::Job(_, job) = site.commit(|store| store.dispatch(100, None)).unwrap() {
        out.push(job.key.to_string());
    }
    out.sort();
    assert_eq!(out, ["a", "x", "y"]);
}

/// Fairness over a deletion by hand, with and without foreign keys.
#[test]
fn turns_survive_a_deletion_by_hand() {
    for (fk, edit) in [
        ("ON", "DELETE FROM fetcher_runs WHERE fetcher_id = 1"),
        ("OFF", "DELETE FROM fetcher_runs WHERE fetcher_id = 1"),
        ("OFF", "VACUUM; DELETE FROM fetcher_runs WHERE fetcher_id = 1"),
        ("OFF", "DELETE FROM fetchers WHERE fetcher_id = 1; DELETE FROM fetcher_runs WHERE fetcher_id = 1"),
        ("ON", "DELETE FROM queue WHERE fetcher_id = 1"),
        ("ON", "INSERT OR REPLACE INTO fetcher_runs VALUES (1, 1, 1)"),
        ("ON", "INSERT OR IGNORE INTO queue SELECT * FROM queue"),
        ("ON", "INSERT OR REPLACE INTO queue (fetcher_id, fetcher_run_started, attr_path, payload, order_jitter)
            VALUES (1, 1, 'a', 'new', 5)"),
    ] {
        let mut site = Site::new(FAIR);
        site.list(&run("f", 1), &["a"]);
        assert_eq!(site.next(5).as_deref(), Some("a f.1"));
        site.finish("a", 6);
        site.edit(&format!("PRAGMA foreign_keys = {fk}; {edit}"));
        site.list(&run("g", 1), &["a"]);
        site.list(&run("f", 2), &["a"]);
        assert_eq!(site.next(7).as_deref(), Some("a g.1"), "{fk} {edit}");
        site.finish("a", 8);
        assert_eq!(site.next(9).as_deref(), Some("a f.2"), "{fk} {edit}");
    }
}

/// VACUUM by another connection while jobs are out and the window is full.
#[test]
fn a_vacuum_moves_rowids() {
    let mut site = Site::new(FAIR);
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    site.list(&run("f", 1), &keys);
    let mut out = Vec::new();
    for _ in 0..10 {
        out.push(next_key(&mut site, 10));
    }
    site.edit("DELETE FROM log WHERE rowid IN (SELECT rowid FROM log LIMIT 1)");
    for _ in 0..2 {
        next_key(&mut site, 10);
    }
    site.edit("VACUUM");
    for text in &out {
        site.finish(text, 11);
        site.check_kept();
    }
    assert_eq!(site.rows("SELECT count(*) FROM log WHERE finished = 11"), ["9"]);
    let rest = std::iter::from_fn(|| site.next(12)).count();
    assert!(rest >= 28, "{rest}");
    site.check_kept();
}

/// The same of keys that ran before.
#[test]
fn a_renamed_row_that_ran_is_out_once() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a"]);
    site.list(&run("g", 1), &["b"]);
    for _ in 0..2 {
        let text = next_key(&mut site, 10);
        site.finish(&text, 20);
    }
    site.edit(
        "UPDATE queue SET is_dequeued = 0; UPDATE queue SET attr_path = 'a' WHERE attr_path = 'b'",
    );
    let out = std::iter::from_fn(|| site.next(100)).count();
    assert_eq!(out, 1);
}

/// Something that happens to a key.
type Touch = (&'static str, fn(&mut Site));

/// A plain row records its dispatch itself. The record moves to the table with whatever else happens to its key, whoever
/// does it, and says the same.
#[test]
fn the_record_of_a_plain_dispatch() {
    let touches: [Touch; 11] = [
        ("its log row is written", |site| site.edit("UPDATE log SET started = started")),
        ("its log row is replaced", |site| {
            site.edit("INSERT OR REPLACE INTO log (attr_path, started) SELECT attr_path, started FROM log");
        }),
        ("it is armed by hand", |site| site.edit("UPDATE queue SET is_dequeued = 0")),
        ("its row is deleted by hand", |site| site.edit("DELETE FROM queue")),
        ("its row becomes another's", |site| site.edit("UPDATE queue SET attr_path = 'bravo'")),
        ("another list names it by hand", |site| {
            site.edit(
                "INSERT INTO queue (fetcher_id, fetcher_run_started, attr_path, payload, order_jitter)
                 VALUES (1, 2, 'alpha', '', 1)",
            );
        }),
        ("another row takes its name", |site| {
            site.list(&run("g", 7), &["bravo"]);
            site.edit("UPDATE queue SET attr_path = 'alpha' WHERE attr_path = 'bravo'");
        }),
        ("another row takes its place", |site| {
            site.list(&run("f", 1), &["bravo"]);
            site.edit("UPDATE OR REPLACE queue SET attr_path = 'alpha' WHERE attr_path = 'bravo'");
            site.edit("UPDATE shiftboss_runs SET rows = 1 WHERE rows = 2");
        }),
        ("another log row takes the place of its", |site| {
            site.edit(
                "INSERT INTO log VALUES ('bravo', 1, 2, 0);
                 UPDATE OR REPLACE log SET attr_path = 'alpha' WHERE attr_path = 'bravo'",
            );
        }),
        ("another list names it", |site| site.list(&run("g", 7), &["alpha"])),
        ("its run is deleted", |site| site.delete(&run("f", 1))),
    ];
    for (what, touch) in touches {
        let mut site = Site::new(FAIR);
        site.list(&run("f", 1), &["alpha"]);
        site.add(&run("f", 2), &[]);
        assert!(site.next(5).is_some());
        site.finish("alpha", 6);
        site.edit("UPDATE queue SET is_dequeued = 0");
        assert!(site.next(7).is_some());
        assert_eq!(site.rows("SELECT * FROM shiftboss_deliveries"), [""; 0]);
        let recorded = site.rows("SELECT * FROM shiftboss_in_flight");
        assert_eq!(recorded, ["alpha|2|1|1|7|1|5|6|0|1|[1]|-|-"]);
        touch(&mut site);
        assert_eq!(site.rows("SELECT * FROM shiftboss_deliveries"), recorded, "{what}");
        assert_eq!(site.rows("SELECT * FROM shiftboss_row_deliveries"), [""; 0], "{what}");
        site.check_kept();
    }
}

/// What an operator says of a row's turn ends no lease and begins none.
#[test]
fn an_edit_of_last_started_moves_no_lease() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a"]);
    assert!(site.next(10).is_some());
    for started in ["NULL", "1", "100000"] {
        site.edit(&format!("UPDATE queue SET last_started = {started}"));
        assert_eq!(site.next(10 + 43_200), None, "{started}");
    }
    assert_eq!(site.next(10 + 43_201).as_deref(), Some("a f.1"));
}

/// `OR REPLACE` deletes what is in the new row's way, and only that says so.
#[test]
fn replaced_rows_are_counted_out() {
    for (insert, left) in [
        ("OR REPLACE INTO queue (fetcher_id, fetcher_run_started, attr_path, payload) VALUES (1, 1, 'b', 'new')",
            ["a|f.1", "b|new", "c|f.1"].as_slice()),
        ("OR REPLACE INTO queue (rowid, fetcher_id, fetcher_run_started, attr_path, payload)
            SELECT rowid, 1, 1, 'd', 'new' FROM queue WHERE attr_path = 'a'", &["b|f.1", "c|f.1", "d|new"]),
        ("OR REPLACE INTO queue (rowid, fetcher_id, fetcher_run_started, attr_path, payload)
            SELECT rowid, 1, 1, 'b', 'new' FROM queue WHERE attr_path = 'a'", &["b|new", "c|f.1"]),
        ("OR IGNORE INTO queue (fetcher_id, fetcher_run_started, attr_path, payload)
            VALUES (1, 1, 'b', 'new'), (1, 1, 'd', 'new')", &["a|f.1", "b|f.1", "c|f.1", "d|new"]),
        ("INTO queue (fetcher_id, fetcher_run_started, attr_path, payload) VALUES (1, 1, 'b', 'new')
            ON CONFLICT DO UPDATE SET payload = 'updated'", &["a|f.1", "b|updated", "c|f.1"]),
    ] {
        let mut site = Site::new(FAIR);
        site.list(&run("f", 1), &["a", "b", "c"]);
        while site.next(7).is_some() {}
        let deliveries = "SELECT attr_path, attempt, started FROM shiftboss_in_flight ORDER BY 1";
        let recorded = site.rows(deliveries);
        assert_eq!(recorded.len(), 3);
        site.edit(&format!("INSERT {insert}"));
        assert_eq!(site.rows("SELECT attr_path, payload FROM queue ORDER BY 1"), left, "{insert}");
        assert_eq!(site.rows(deliveries), recorded, "{insert}");
        site.check_kept();
    }
}
