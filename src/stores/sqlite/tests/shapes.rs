//! A dispatch costs the same however many rows there are, and a run under deletion is gone at once.

use rusqlite::StatementStatus;
use shiftboss_actors::store::{BeginDeletion, Dispatched, StoreError};
use shiftboss_actors::testing::one_by_one::OneByOne;

use crate::stores::sqlite::candidates::{CANDIDATES, PLAIN};
use crate::stores::sqlite::dispatch::{EXPIRING, OVERDUE, READY, of_partition};

use super::support::{FAIR, Site, batch, key, run};

/// A count of SQLite's over the statements that choose a job, since they were made.
fn choosing_costs(site: &Site, what: StatementStatus) -> i64 {
    let count = |sql: &String| {
        let statement = site.store.connection.prepare_cached(sql).unwrap();
        i64::from(statement.get_status(what))
    };
    let of_each =
        |partition: &i64| [PLAIN, READY, OVERDUE].map(|sql| of_partition(sql, *partition));
    let mut choosing: Vec<String> =
        site.store.queue.partitions.open.iter().flat_map(of_each).collect();
    choosing.extend([EXPIRING, CANDIDATES].map(str::to_owned));
    choosing.iter().map(count).sum()
}

/// Rows of the dispatch order that one request for work steps over, by SQLite's own count of
/// virtual machine steps.
fn steps(site: &mut Site, now: i64) -> i64 {
    let steps = |site: &Site| choosing_costs(site, StatementStatus::VmStep);
    let before = steps(site);
    site.commit(|store| store.dispatch(now, None)).unwrap();
    steps(site) - before
}

fn fill(site: &mut Site, fetcher: &str, started: i64, rows: usize) {
    let keys: Vec<String> = (0..rows).map(|i| format!("key{i}")).collect();
    for keys in keys.chunks(1000) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        site.list(&run(fetcher, started), &keys);
    }
}

/// Makes a queue of a shape and a size.
type Shape = fn(&mut Site, usize);

const SHAPES: [(&str, Shape); 9] = [
    ("all undispatched", |site, rows| fill(site, "f", 1, rows)),
    ("all dispatched", |site, rows| {
        fill(site, "f", 1, rows);
        site.edit("UPDATE queue SET is_dequeued = 1");
    }),
    ("two fetchers with the same keys, all in flight", |site, rows| {
        fill(site, "f", 1, rows);
        fill(site, "g", 1, rows);
        site.edit(
            "UPDATE queue SET is_dequeued = 1 WHERE fetcher_id = 1;
             INSERT INTO log SELECT attr_path, 1000, NULL, NULL FROM queue WHERE fetcher_id = 1",
        );
    }),
    ("an old run undispatched under a newer one dispatched", |site, rows| {
        fill(site, "f", 2, rows);
        site.edit("UPDATE queue SET is_dequeued = 1");
        fill(site, "f", 1, rows);
    }),
    ("all keys unfinished", |site, rows| {
        fill(site, "f", 1, rows);
        site.edit("INSERT INTO log SELECT attr_path, 1000, NULL, NULL FROM queue");
    }),
    ("all held in one second, their leases over", |site, rows| {
        fill(site, "f", 1, rows);
        site.edit("INSERT INTO log SELECT attr_path, -100000, NULL, NULL FROM queue");
    }),
    ("all recorded by their rows in one second, their leases over", |site, rows| {
        fill(site, "f", 1, rows);
        while site.next(-100_000).is_some() {}
    }),
    ("all dispatched and unfinished, their leases over", |site, rows| {
        fill(site, "f", 1, rows);
        site.edit(
            "INSERT INTO log SELECT attr_path, -100000, NULL, NULL FROM queue;
             UPDATE queue SET is_dequeued = 1",
        );
    }),
    ("all unfinished that no list names any more, their leases over", |site, rows| {
        fill(site, "f", 1, rows);
        site.edit(
            "INSERT INTO log SELECT attr_path, -100000, NULL, NULL FROM queue; DELETE FROM queue",
        );
    }),
];

/// In every shape a dispatch takes as many steps at 12,000 rows as at 3,000 (large enough for partitions).
#[test]
fn a_dispatch_does_not_feel_the_size() {
    for (name, shape) in SHAPES {
        let cost = |rows| {
            let mut site = Site::new(FAIR);
            shape(&mut site, rows);
            steps(&mut site, 2_000)
        };
        let (small, large) = (cost(3_000), cost(12_000));
        assert!(large <= small + small / 4 + 50, "{name}: {small} steps, then {large}");
    }
}

/// Statements are compiled once, not anew whenever other values are bound.
#[test]
fn statements_are_compiled_once() {
    let mut site = Site::new(FAIR);
    fill(&mut site, "f", 1, 50);
    for now in 0..50 {
        let job = site.next(now).unwrap();
        site.finish(job.split(' ').next().unwrap(), now);
    }
    assert_eq!(choosing_costs(&site, StatementStatus::RePrepare), 0);
}

/// From the first step of its deletion on nothing of a run is handed out, also after a restart,
/// and what it stood before comes forward.
#[test]
fn a_run_under_deletion_is_gone_at_once() {
    for rows in [3, 2_000] {
        let mut site = Site::new(FAIR);
        fill(&mut site, "f", 2, rows);
        site.list(&run("g", 1), &["other"]);
        assert!(site.delete_step(&run("f", 2), 1), "there is more");
        assert_eq!(site.next(10).as_deref(), Some("other g.1"));
        assert_eq!(site.next(10), None);
        let Site { store, directory, .. } = site;
        drop(store);
        let mut site = Site::in_directory(directory, FAIR);
        assert_eq!(site.next(10), None);
        assert!(site.store.runs().unwrap().iter().any(|run| run.deleting));
        assert!(site.commit(|store| store.register_run(&run("f", 2))).is_err());
        assert!(
            site.commit(|store| store.add_rows(&batch(&run("f", 2), &[("late", "1")], false)))
                .is_err()
        );
        site.delete(&run("f", 2));
        assert_eq!(site.rows("SELECT name FROM fetchers"), ["g"]);
    }
}

/// An older run's row under one that is being deleted is not denied: its turn comes, later.
#[test]
fn what_a_deletion_uncovers_is_waited_for() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 2), &["a", "b", "c"]);
    site.edit("UPDATE queue SET is_dequeued = 1");
    site.list(&run("f", 1), &["a", "b", "c"]);
    assert_eq!(site.next(10), None);
    assert!(site.delete_step(&run("f", 2), 1), "there is more");
    let answers: Vec<_> =
        (0..2).map(|_| site.commit(|store| store.dispatch(10, None)).unwrap()).collect();
    assert!(matches!(answers[0], Dispatched::Job(..)), "{answers:?}");
    assert_eq!(answers[1], Dispatched::Later);
    site.delete(&run("f", 2));
    assert!(site.next(10).is_some() && site.next(10).is_some());
    assert_eq!(site.next(10), None);
}

/// One step takes small runs together, as many as there is room for, and a large one in parts.
#[test]
fn a_step_takes_several_small_runs() {
    let mut site = Site::new(FAIR);
    let runs: Vec<_> = (1..=9).map(|i| run("f", i)).collect();
    for run in &runs {
        site.list(run, &["a", "b"]);
    }
    let mut step =
        |from: usize, limit| site.commit(|store| store.delete_runs(&runs[from..], limit)).unwrap();
    assert_eq!(step(0, 6), 2);
    // Each costs three: its rows and itself. The last one had no room for all of it.
    assert_eq!(step(2, 7), 2);
    assert_eq!(step(4, 100), 5);
    assert_eq!(step(0, 100), 9, "unknown runs are gone");
    assert_eq!(site.rows("SELECT count(*) FROM fetchers"), ["0"]);
}

/// A run that is marked is passed over from then on; a transaction that fails leaves no mark, not
/// even in memory, whoever rolled it back.
#[test]
fn a_mark_is_kept_or_taken_back_whole() {
    let mut site = Site::new(FAIR);
    fill(&mut site, "f", 2, 2_000);
    site.fail(9, BeginDeletion(run("f", 2)));
    assert!(site.next(10).is_some());
    site.commit(|store| store.begin_deletion(&run("f", 2))).unwrap();
    assert_eq!(site.next(10), None);
}

/// An end and the next dispatch happen both or not at all, alone in their transaction or not.
#[test]
fn an_end_without_its_dispatch_is_none() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a", "b"]);
    assert!(site.next(5).is_some());
    let in_flight = site.rows("SELECT attr_path FROM log WHERE finished IS NULL");
    let order = site.rows("SELECT sql FROM sqlite_schema WHERE name = 'shiftboss_ready'").remove(0);
    site.edit("DROP INDEX shiftboss_ready");
    for alone in [true, false] {
        site.commit(|store| {
            if !alone {
                store.forget_rejected("nothing").unwrap();
            }
            let ended = store.finish_and_dispatch(&key(&in_flight[0]), 3, 9);
            assert!(ended.is_err());
        });
        assert_eq!(site.rows("SELECT attr_path FROM log WHERE finished IS NULL"), in_flight);
    }
    site.edit(&order);
    let next = site.commit(|store| store.finish_and_dispatch(&key(&in_flight[0]), 3, 9)).unwrap();
    assert!(matches!(next, Dispatched::Job(..)));
    assert_eq!(site.rows("SELECT exit_code FROM log WHERE finished = 9"), ["3"]);
}

/// The order is one, however the rows lie in partitions, and whatever is remembered of it.
#[test]
fn partitions_share_one_order() {
    let mut site = Site::new(FAIR);
    for fetcher in ["f", "g", "h"] {
        let keys: Vec<String> = (0..1_200).map(|i| format!("{fetcher}{i}")).collect();
        for keys in keys.chunks(300) {
            site.list(&run(fetcher, 1), &keys.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    assert_eq!(site.rows("SELECT count(DISTINCT partition) FROM queue"), ["4"]);
    let order = site.rows("SELECT attr_path FROM queue ORDER BY order_jitter, attr_path");
    let taken: Vec<String> = site.commit(|store| {
        let mut next = || match store.dispatch(10, None).unwrap() {
            Dispatched::Job(_, job) => Some(job.key.to_string()),
            _ => None,
        };
        std::iter::from_fn(&mut next).collect()
    });
    assert_eq!(taken, order);
}

/// An index that does not agree with its table is told, not asked for ever.
#[test]
fn a_damaged_index_is_told() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["a", "b"]);
    let index = "SELECT sql || '|' || rootpage FROM sqlite_schema WHERE name = 'shiftboss_ready'";
    let kept = site.rows(index).remove(0);
    let (sql, root) = kept.split_once('|').unwrap();
    let Site { store, directory, .. } = site;
    drop(store);
    let path = directory.path().join("state.db");
    let schema = |edit: String| {
        let hand = rusqlite::Connection::open(&path).unwrap();
        hand.execute_batch(&format!("PRAGMA writable_schema = ON; {edit}")).unwrap();
    };
    // Without its index the table changes, and then the index is back as it was.
    schema("DELETE FROM sqlite_schema WHERE name = 'shiftboss_ready'".to_owned());
    schema("UPDATE queue SET state = 0".to_owned());
    schema(format!(
        "INSERT INTO sqlite_schema VALUES ('index', 'shiftboss_ready', 'queue', {root}, '{sql}')"
    ));
    let mut site = Site::in_directory(directory, FAIR);
    let asked = site.commit(|store| store.dispatch(10, None));
    assert!(matches!(asked, Err(StoreError::Corrupt(_))), "{asked:?}");
}
