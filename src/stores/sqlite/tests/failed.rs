//! Which tasks have failed, where several of one key have ended.

use rusqlite::StatementStatus;
use shiftboss_actors::store::TasksWith;
use shiftboss_actors::store::answers::TaskStatus;
use shiftboss_actors::testing::one_by_one::OneByOne;

use super::support::{FAIR, Site, key, run};
use crate::stores::sqlite::views::tasks::FAILED;

/// A list row and a single task of one key, which end with those codes in that order; who failed then.
fn failed_of(list_code: i64, single_code: i64) -> (Vec<String>, Site) {
    let mut site = Site::new(FAIR);
    site.list(&run("f", 1), &["alpha"]);
    let (attempt, job) = site.take_task(10);
    assert_eq!(job, "alpha f.1");
    site.end_task(attempt, list_code);
    site.add_task("alpha", "1");
    let (attempt, _) = site.take_task(20);
    site.end_task(attempt, single_code);
    (failed(&site), site)
}

fn failed(site: &Site) -> Vec<String> {
    let asked = TasksWith { status: TaskStatus::Failed, fetcher: None, since: None, count: 10 };
    let found = site.ask(30, |reader, now| reader.tasks(now, &asked)).unwrap();
    found.tasks.iter().map(|task| format!("{} {}", task.fetcher, task.reason)).collect()
}

/// A task is judged by its own last attempt, not by another one's of its key.
#[test]
fn each_task_fails_for_itself() {
    assert_eq!(failed_of(0, 7).0, ["@tasks failure 7"]);
    assert_eq!(failed_of(3, 0).0, ["f failure 3"]);
    let (both, mut site) = failed_of(3, 7);
    assert_eq!(both, ["f failure 3", "@tasks failure 7"]);
    site.commit(|store| store.retry(&key("alpha"), Some("f"))).unwrap();
    assert_eq!(failed(&site), ["@tasks failure 7"]);
    // What is said again of the last attempt counts; without any attempt, the log does.
    let (_, site) = failed_of(0, 0);
    site.edit("UPDATE log SET exit_code = 9");
    assert_eq!(failed(&site), [""; 0], "the single task's");
    site.edit("DELETE FROM shiftboss_attempts WHERE fetcher_id = 0");
    assert_eq!(failed(&site), ["f failure 9"]);
    site.edit("DELETE FROM shiftboss_attempts; UPDATE log SET exit_code = 8");
    assert_eq!(failed(&site), ["f failure 8"]);
}

/// So does `why`: each row says how its own last attempt ended.
#[test]
fn each_row_says_how_it_ended() {
    let codes = |list_code, single_code| {
        let site = failed_of(list_code, single_code).1;
        let found = site.ask(30, |reader, now| reader.why(now, "alpha", 10)).unwrap().unwrap();
        let rows = found.rows.iter().map(|row| (row.fetcher.clone(), row.exit_code));
        (rows.collect::<Vec<_>>(), found.failed_single_tasks)
    };
    let [list, single] = ["f", "@tasks"].map(str::to_owned);
    assert_eq!(codes(0, 7), (vec![(single, Some(7)), (list.clone(), Some(0))], 1));
    assert_eq!(codes(3, 0), (vec![(list, Some(3))], 0));
}

/// Jobs that are in flight are not gone through to find those that failed.
#[test]
fn jobs_in_flight_cost_nothing() {
    let steps = |in_flight: usize| {
        let mut site = Site::new(FAIR);
        let keys: Vec<String> = (0..=in_flight).map(|number| format!("key{number}")).collect();
        site.list(&run("f", 1), &keys.iter().map(String::as_str).collect::<Vec<_>>());
        let (attempt, _) = site.take_task(10);
        site.end_task(attempt, 3);
        while site.next(20).is_some() {}
        let mut statement = site.store.connection.prepare(FAILED).unwrap();
        let failed = statement.query_map((10, None::<String>, 0), |_| Ok(())).unwrap().count();
        assert_eq!(failed, 1);
        statement.get_status(StatementStatus::VmStep)
    };
    let (few, many) = (steps(10), steps(500));
    assert!(many <= few + few / 4, "{few} steps, then {many}");
}
