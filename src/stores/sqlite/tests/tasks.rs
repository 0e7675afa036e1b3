//! Single tasks in the store: kept until one job of them succeeds, in order, whatever happens in between.

use shiftboss_actors::store::{
    Ack, AddTask, Added, Cancelled, Complete, Dispatch, Dispatched, Request, Retried, Retry,
    SetPaused,
};
use shiftboss_actors::testing::one_by_one::OneByOne;
use shiftboss_protocol::model::{Attempt, Row};

use super::support::{FAIR, Site, holder, key, options, run};
use crate::stores::sqlite::{Options, Policy};

pub fn task(key_text: &str, payload: &str) -> Row {
    Row { key: key(key_text), payload: payload.to_owned() }
}

const GONE: Cancelled = Cancelled { deleted: 1, more: false, in_flight: false };

impl Site {
    pub fn add_task(&mut self, key: &str, payload: &str) -> Added {
        self.commit(|store| store.add_task(&task(key, payload), 1_000)).unwrap()
    }

    fn cancel(&mut self, text: &str) -> Cancelled {
        self.commit(|store| store.cancel_tasks(&key(text), 1_000)).unwrap()
    }

    pub fn take_task(&mut self, now: i64) -> (Attempt, String) {
        let holder = holder("w", 60);
        match self.commit(|store| store.dispatch(now, Some(&holder))).unwrap() {
            Dispatched::Job(attempt, job) => (attempt, format!("{} {}", job.key, job.payload)),
            other => panic!("{other:?}"),
        }
    }

    pub fn end_task(&mut self, attempt: Attempt, code: i64) -> Ack {
        let ack = self.commit(|store| store.finish_attempt(attempt, code, 1_000)).unwrap();
        self.check_kept();
        ack
    }

    /// The table, as `payload status`; oldest first.
    pub fn singles(&self) -> Vec<String> {
        self.rows("SELECT payload || ' ' || status FROM shiftboss_single_tasks ORDER BY task")
    }

    /// The rows of the queue, as `payload dispatched`.
    pub fn derived(&self) -> Vec<String> {
        self.rows(
            "SELECT payload || ' ' || is_dequeued FROM queue WHERE fetcher_id = 0 ORDER BY payload",
        )
    }
}

/// Success deletes, by either protocol; anything else keeps.
#[test]
fn only_success_deletes_a_task() {
    let mut site = Site::new(FAIR);
    assert_eq!(site.add_task("alpha", "1"), Added::Added);
    let tables =
        "SELECT name, run_started, is_complete FROM fetchers JOIN fetcher_runs USING (fetcher_id)";
    assert_eq!(site.rows(tables), ["@tasks|1000|1"]);
    let (attempt, job) = site.take_task(10);
    assert_eq!(job, "alpha 1");
    assert_eq!(site.end_task(attempt, 7), Ack::Recorded);
    assert_eq!((site.singles(), site.derived()), (vec!["1 failed".into()], vec!["1 1".into()]));
    assert_eq!(site.next(1_000_000), None);
    assert_eq!(site.commit(|store| store.retry(&key("alpha"), None)), Ok(Retried::Back(1)));
    let (attempt, _) = site.take_task(20);
    assert_eq!(site.end_task(attempt, 0), Ack::Recorded);
    assert_eq!((site.singles(), site.derived()), (vec![], vec![]));
    assert_eq!(site.rows(tables), [""; 0]);
    assert_eq!(site.rows("SELECT exit_code FROM log"), ["0"]);
    // A classic worker says the same; said again, it is no news.
    site.add_task("alpha", "2");
    assert_eq!(site.next(30).as_deref(), Some("alpha 2"));
    site.commit(|store| store.finish(&key("alpha"), 1, 31)).unwrap();
    site.finish("alpha", 32);
    assert_eq!(site.singles(), ["2 failed"]);
    site.commit(|store| store.retry(&key("alpha"), None)).unwrap();
    site.next(40).unwrap();
    site.finish("alpha", 41);
    assert_eq!(site.singles(), [""; 0]);
    assert_eq!(
        site.rows("SELECT value FROM shiftboss_counters WHERE name LIKE 'single%'"),
        ["0", "0"]
    );
    site.check_kept();
}

/// Of one key they run one after the other, in order, and one that failed holds up nobody.
#[test]
fn tasks_of_a_key_run_in_order() {
    let mut site = Site::new(FAIR);
    for payload in ["1", "2", "3", "2"] {
        site.add_task("alpha", payload);
    }
    assert_eq!(site.singles(), ["1 waiting", "2 waiting", "3 waiting"]);
    assert_eq!(site.rows("SELECT run_started FROM fetcher_runs"), ["1000"]);
    assert_eq!(site.next(10).as_deref(), Some("alpha 1"));
    assert_eq!(site.next(10), None);
    // One in flight does not wait: the same payload again is another task.
    assert_eq!(site.add_task("alpha", "1"), Added::Added);
    site.commit(|store| store.finish(&key("alpha"), 1, 11)).unwrap();
    assert_eq!(site.derived(), ["2 0"]);
    assert_eq!(site.next(12).as_deref(), Some("alpha 2"));
    // What failed is put back behind the one that is out, and before those that came after it.
    assert_eq!(site.commit(|store| store.retry(&key("alpha"), None)), Ok(Retried::Back(1)));
    site.finish("alpha", 13);
    for payload in ["1", "3", "1"] {
        assert_eq!(site.next(14), Some(format!("alpha {payload}")));
        site.finish("alpha", 15);
    }
    assert_eq!((site.singles(), site.next(16)), (vec![], None));
    site.check_kept();
}

/// A list's task of the key is another one: in turns, and never both at once.
#[test]
fn lists_and_tasks_take_turns() {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    site.add_task("alpha", "1");
    site.add_task("alpha", "2");
    let mut jobs = Vec::new();
    for now in 10..13 {
        jobs.extend(site.next(now));
        assert_eq!(site.next(now), None);
        site.finish("alpha", now);
    }
    assert_eq!(jobs, ["alpha 1", "alpha f.1", "alpha 2"]);
    assert_eq!((site.singles(), site.next(20)), (vec![], None));
    site.check_kept();
}

/// Too many expired leases make a dead letter, which holds up nobody either; its late success still counts.
#[test]
fn a_dead_letter_is_kept() {
    let mut site = Site::opened(
        tempfile::tempdir().unwrap(),
        &Options { max_expired_leases: 1, ..options(FAIR) },
    );
    site.add_task("alpha", "1");
    let (attempt, _) = site.take_task(10);
    let lost = site.commit(|store| store.expire(attempt, 20)).unwrap().unwrap();
    assert!(lost.dead_letter && lost.single);
    assert_eq!(
        (site.singles(), site.derived()),
        (vec!["1 dead_letter".into()], vec!["1 1".into()])
    );
    assert_eq!(site.rows("SELECT dead_letter FROM shiftboss_expired_leases"), ["1"]);
    assert_eq!(site.add_task("alpha", "2"), Added::Added);
    assert_eq!(site.derived(), ["2 0"]);
    assert_eq!(site.end_task(attempt, 0), Ack::Recorded);
    assert_eq!((site.singles(), site.derived()), (vec!["2 waiting".into()], vec!["2 0".into()]));
    let (attempt, job) = site.take_task(30);
    assert_eq!(job, "alpha 2");
    site.commit(|store| store.expire(attempt, 40)).unwrap();
    assert_eq!(site.commit(|store| store.retry(&key("alpha"), None)), Ok(Retried::Back(1)));
    assert_eq!(site.rows("SELECT dead_letter FROM shiftboss_expired_leases"), [""; 0]);
    assert_eq!(site.end_task(attempt, 3), Ack::Recorded, "late, and it waits still");
    assert_eq!(site.singles(), ["2 failed"]);
    site.check_kept();
}

/// A late result belongs to its own task, not to the next one of the key.
#[test]
fn a_late_result_is_its_own_task_s() {
    let mut site = Site::new(FAIR);
    site.add_task("alpha", "1");
    let (attempt, _) = site.take_task(10);
    site.commit(|store| store.expire(attempt, 20)).unwrap();
    assert_eq!(site.cancel("alpha"), GONE);
    site.add_task("alpha", "2");
    site.end_task(attempt, 0);
    assert_eq!((site.singles(), site.derived()), (vec!["2 waiting".into()], vec!["2 0".into()]));
    assert_eq!(site.take_task(30).1, "alpha 2");
}

/// Whatever is not in flight can be cancelled, and the list's task of the key stays.
#[test]
fn cancelling_spares_what_is_in_flight() {
    let mut site = Site::new(FAIR);
    assert_eq!(site.cancel("alpha"), Cancelled::default());
    site.add_task("alpha", "1");
    let (attempt, _) = site.take_task(10);
    site.add_task("alpha", "2");
    let spared = Cancelled { in_flight: true, ..GONE };
    assert_eq!(site.cancel("alpha"), spared);
    assert_eq!(site.cancel("alpha"), Cancelled { deleted: 0, ..spared });
    assert_eq!(site.singles(), ["1 waiting"]);
    site.end_task(attempt, 1);
    assert_eq!(site.cancel("alpha"), GONE, "one that failed");
    // One whose classic worker was silent for longer than its lease is nobody's.
    site.list(&run("f", 1), &["bravo"]);
    site.add_task("bravo", "3");
    assert_eq!(site.next(20).as_deref(), Some("bravo 3"));
    let late = site.commit(|store| store.cancel_tasks(&key("bravo"), 20 + 43_201));
    assert_eq!(late, Ok(GONE));
    assert_eq!((site.singles(), site.derived()), (vec![], vec![]));
    assert_eq!(site.next(20 + 43_201).as_deref(), Some("bravo f.1"));
    site.check_kept();
}

/// There is room for so many, whatever their status; a number is never used again.
#[test]
fn there_is_a_limit() {
    let few = Options { max_single_tasks: 2, ..options(FAIR) };
    let mut site = Site::opened(tempfile::tempdir().unwrap(), &few);
    assert_eq!(site.add_task("alpha", "1"), Added::Added);
    assert_eq!(site.add_task("bravo", "1"), Added::Added);
    assert_eq!(site.add_task("alpha", "1"), Added::Known);
    assert_eq!(site.add_task("charlie", "1"), Added::Full);
    assert_eq!(site.cancel("bravo"), GONE);
    let mut site = site.restart(&few, false);
    assert_eq!(site.add_task("charlie", "1"), Added::Added);
    assert_eq!(site.rows("SELECT task FROM shiftboss_single_tasks"), ["1000", "1002"]);
    site.check_kept();
}

/// The reference deletes runs without files. Back here, the rows are made again, each as it stood.
#[test]
fn a_database_that_the_reference_had_keeps_its_tasks() {
    let once = Options { max_expired_leases: 1, ..options(FAIR) };
    let mut site = Site::opened(tempfile::tempdir().unwrap(), &once);
    for (key, payload) in [("alpha", "1"), ("alpha", "2"), ("bravo", "3"), ("charlie", "4")] {
        site.add_task(key, payload);
    }
    let jobs: Vec<_> = (0..3).map(|_| site.take_task(10)).collect();
    let attempt = |key: &str| jobs.iter().find(|(_, job)| job.starts_with(key)).unwrap().0;
    site.end_task(attempt("bravo"), 1);
    site.commit(|store| store.expire(attempt("charlie"), 10)).unwrap();
    site.commit(|store| store.release(attempt("alpha"), 10)).unwrap();
    let before = (site.singles(), site.derived());
    assert_eq!(before.1, ["1 0", "3 1", "4 1"]);
    site.store.close_at_once().unwrap();
    // As it does at its start; and a list of that name may be in its directory.
    site.edit(
        "PRAGMA foreign_keys = ON; PRAGMA user_version = 2; DELETE FROM fetcher_runs;
         INSERT INTO fetchers (name) VALUES ('@tasks');
         INSERT INTO fetcher_runs SELECT fetcher_id, 5, 1 FROM fetchers",
    );
    let mut site = site.restart(&once, false);
    assert_eq!((site.singles(), site.derived()), before);
    assert_eq!(site.rows("SELECT fetcher_id FROM fetchers"), ["0"]);
    assert_eq!(
        site.rows("SELECT attr_path FROM shiftboss_expired_leases WHERE dead_letter"),
        ["charlie"]
    );
    site.check_kept();
    assert_eq!(site.commit(|store| store.retry(&key("charlie"), None)), Ok(Retried::Back(1)));
    assert_eq!(site.store.runs().unwrap(), []);
}

/// The classic rules know no single tasks: they wait for the other ones.
#[test]
fn a_classic_daemon_leaves_tasks_alone() {
    let mut site = Site::new(FAIR);
    site.add_task("alpha", "1");
    let mut site = site.restart(&options(Policy::Classic), true);
    assert_eq!((site.next(10), site.derived()), (None, vec![]));
    let mut site = site.restart(&options(FAIR), true);
    assert_eq!(site.next(20).as_deref(), Some("alpha 1"));
    site.check_kept();
}

/// Edits by hand: the table is the truth, and a job that was ended in the log has ended.
#[test]
fn edits_by_hand_are_made_good() {
    let mut site = Site::new(FAIR);
    for key in ["alpha", "bravo", "charlie"] {
        site.add_task(key, "1");
    }
    let mut site = site.restart(&options(FAIR), true);
    while let Some(job) = site.next(10) {
        site.edit(&format!(
            "UPDATE log SET finished = 11, exit_code = {} WHERE attr_path = '{}'",
            i32::from(job == "bravo 1"),
            job.trim_end_matches(" 1")
        ));
    }
    site.add_task("alpha", "2");
    site.add_task("delta", "1");
    site.edit("DELETE FROM queue WHERE attr_path IN ('charlie', 'delta')");
    let site = site.restart(&options(FAIR), true);
    let mut rows = site.rows("SELECT attr_path || payload || status FROM shiftboss_single_tasks");
    rows.sort();
    assert_eq!(rows, ["alpha2waiting", "bravo1failed", "delta1waiting"]);
    site.edit("DELETE FROM shiftboss_single_tasks");
    let mut site = site.restart(&options(FAIR), true);
    assert_eq!((site.derived(), site.next(20)), (vec![], None));
    site.check_kept();
}

/// The next request sees that a job was ended in the log by hand: its key is free, and a request that waits is
/// told so. It sees it also if it fails at first.
#[test]
fn a_job_that_is_ended_by_hand_frees_its_key() {
    let mut site = Site::new(FAIR);
    site.add_task("alpha", "1");
    site.add_task("alpha", "2");
    site.take_task(10);
    assert_eq!((site.next(11), site.store.has_work(11)), (None, Ok(false)));
    site.edit("UPDATE log SET finished = 11, exit_code = 0 WHERE attr_path = 'alpha'");
    assert_eq!(site.store.has_work(12), Ok(true));
    site.fail(12, SetPaused(false));
    assert_eq!(site.next(12).as_deref(), Some("alpha 2"));
    site.edit("UPDATE log SET finished = 13, exit_code = 3 WHERE attr_path = 'alpha'");
    assert_eq!((site.next(14), site.singles()), (None, vec!["2 failed".into()]));
    site.check_kept();
}

/// Very many tasks of one key are cancelled and put back in steps, and cost a job of it nothing.
#[test]
fn many_tasks_of_a_key() {
    let many = Options { max_single_tasks: 30_000, ..options(FAIR) };
    let mut site = Site::opened(tempfile::tempdir().unwrap(), &many);
    site.commit(|store| {
        for number in 0..25_000 {
            store.add_task(&task("alpha", &number.to_string()), 1_000).unwrap();
        }
    });
    assert_eq!(site.rows("SELECT count(*) FROM queue"), ["1"]);
    let (attempt, job) = site.take_task(10);
    assert_eq!(job, "alpha 0");
    site.end_task(attempt, 0);
    assert_eq!(site.rows("SELECT payload FROM queue"), ["1"]);
    let deleted: Vec<_> = std::iter::repeat_with(|| site.cancel("alpha")).take(3).collect();
    assert_eq!(
        deleted.iter().map(|gone| (gone.deleted, gone.more)).collect::<Vec<_>>(),
        [(10_000, true), (10_000, true), (4_999, false)]
    );
    site.check_kept();
}

/// A job that is out when the rows are made again is out still: its end is its task's, and no more.
#[test]
fn a_restored_row_of_a_job_in_flight_is_not_handed_out_again() {
    let mut site = Site::new(FAIR);
    site.add_task("alpha", "1");
    let (attempt, _) = site.take_task(10);
    site.edit("PRAGMA foreign_keys = ON; DELETE FROM fetcher_runs");
    let mut site = site.restart(&options(FAIR), true);
    assert_eq!((site.derived(), site.next(11)), (vec!["1 1".into()], None));
    assert_eq!(site.end_task(attempt, 1), Ack::Recorded);
    assert_eq!((site.singles(), site.next(12)), (vec!["1 failed".into()], None));
    assert_eq!(site.commit(|store| store.retry(&key("alpha"), None)), Ok(Retried::Back(1)));
    assert_eq!(site.next(13).as_deref(), Some("alpha 1"));
}

/// A task that fails and is put back in the batch of its dispatch waits, and is counted so.
#[test]
fn a_task_put_back_at_once_is_counted() {
    let mut site = Site::new(FAIR);
    let task = Row { key: key("a"), payload: "p".to_owned() };
    let mut batch = Vec::new();
    AddTask(task).push(&mut batch);
    Dispatch { holder: Some(holder("w", 60)) }.push(&mut batch);
    Complete { key: key("a"), exit_code: 1 }.push(&mut batch);
    Retry { key: key("a"), fetcher: None }.push(&mut batch);
    let outcomes = site.store.apply_at_once(100, batch).unwrap();
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(site.rows("SELECT rows, pending FROM shiftboss_runs"), ["1|1"]);
    site.check_kept();
}
