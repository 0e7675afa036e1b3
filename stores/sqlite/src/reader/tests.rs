//! No question scans a whole table, whatever is in it.

use std::path::Path;

use rusqlite::{Connection, params_from_iter};
use shiftboss_protocol::answers::TaskStatus;
use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{DAEMON, Daemon, Policy};
use shiftboss_queue::engine::Engine;
use shiftboss_queue::listings::Listings;
use shiftboss_queue::operation::*;
use shiftboss_queue::reader::{
    EndedAttempts, FailedTasks, Grouping, Order, Reader, Selection, StatsOf, TasksWith,
};
use shiftboss_queue::records::at_once;

use super::SqliteReader;
use crate::SqliteRecords;
use crate::ask::asked;
use crate::code;
use crate::snapshot::Moment;

const NOW: i64 = 1_700_000_000;

fn ready<T>(future: impl Future<Output = T>) -> T {
    at_once(future).unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// A queue that has something of everything.
fn engine(path: &Path) -> Engine<SqliteRecords> {
    let store = SqliteRecords::new(Connection::open(path).unwrap()).unwrap();
    let mut engine = Engine::new(store, Settings { max_expired_leases: 1, ..Settings::default() });
    let run = Run { fetcher: "f".into(), started: 1 };
    let row = |text: &str| Row { key: key(text), payload: text.to_owned() };
    let rows = ["a", "b", "c", "d", "e", "f"].map(row).to_vec();
    let dispatch = || Dispatch { holder: None, fetchers: None }.into();
    let end = |attempt, exit_code| {
        CompleteAttempt { attempt: shiftboss_protocol::model::Attempt(attempt), exit_code }.into()
    };
    let single = |text: &str| AddTask { task: row(text), id: None }.into();
    let lines = RowBatch::of(run.clone(), rows);
    let batch: Vec<Operation> = vec![
        RegisterRun(run).into(),
        AddRows(lines).into(),
        dispatch(),
        dispatch(),
        dispatch(),
        end(1, 0),
        end(2, 7),
        Expire(shiftboss_protocol::model::Attempt(3)).into(),
        dispatch(),
        single("d"),
        single("z"),
        Hold { key: key("e"), seconds: Some(9), reason: String::new(), by: "o".into() }.into(),
        Bump { key: key("f"), by: "o".into() }.into(),
    ];
    for answer in ready(engine.apply(NOW * 1_000, batch)).unwrap() {
        answer.unwrap();
    }
    let sums = "INSERT OR REPLACE INTO minutes VALUES (1700000000 / 60, 0, 1);
        INSERT OR REPLACE INTO hours VALUES (1700000000 / 3600, 1, 'success', 1, 5, 0, 0)";
    engine.store().connection().execute_batch(sums).unwrap();
    engine
}

fn ask_everything(path: &Path) {
    let reader = SqliteReader::new(path.to_owned());
    reader.status(NOW).unwrap();
    for key in ["a", "b", "c", "d", "e", "f", "z", "?"] {
        reader.why(NOW, key, 10).unwrap();
    }
    reader.next_jobs(NOW, 10).unwrap();
    reader.turns(NOW, &[key("z")]).unwrap();
    let since = NOW - 9_999;
    let all = EndedAttempts { count: 9, since: Some(since), ..EndedAttempts::default() };
    reader.ended_attempts(&all).unwrap();
    reader.ended_attempts(&EndedAttempts { among: Some(2), ..all.clone() }).unwrap();
    reader.ended_attempts(&EndedAttempts { key: Some("a".into()), ..all }).unwrap();
    reader.ends_after(Some(0), 9).unwrap();
    for status in [
        TaskStatus::Waiting,
        TaskStatus::InFlight,
        TaskStatus::Delayed,
        TaskStatus::Failed,
        TaskStatus::DeadLetter,
    ] {
        for fetcher in [None, Some("f"), Some("@tasks")] {
            let fetcher = fetcher.map(str::to_owned);
            reader
                .tasks(
                    NOW,
                    &TasksWith {
                        status: Some(status),
                        fetcher,
                        group: None,
                        since: None,
                        count: 99,
                    },
                )
                .unwrap();
        }
    }
    for fetchers in [vec![], vec!["f".to_owned()]] {
        reader.stats(&StatsOf { since, by: Grouping::FetcherDay, fetchers }).unwrap();
    }
    for order in [Order::Unhold, Order::Retry, Order::RetryFailed(FailedTasks::default())] {
        for fetcher in [None, Some("f"), Some("@tasks")] {
            let fetcher = fetcher.map(str::to_owned);
            let asked = Selection { order, prefix: "a".to_owned(), fetcher, group: None };
            reader.select(NOW, &asked, None).unwrap();
        }
    }
    reader.search("a", 9).unwrap();
    reader.held(9).unwrap();
    reader.last_starts().unwrap();
    let mut moment = Moment::of(path, None).unwrap();
    at_once(moment.sample(9)).unwrap().unwrap();
}

/// Tables that may be large. Sums by hour and minute are scanned for a period.
const LARGE: [&str; 7] = ["keys", "rows", "extras", "tasks", "attempts", "hours", "minutes"];

/// Each statement goes along an index or a primary key, and sorts nothing, except sums of groups, and results that are
/// always few.
#[test]
fn no_question_goes_through_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let engine = engine(&path);
    let connection = engine.store().connection();
    ask_everything(&path);
    let classic = Daemon { policy: Policy::Classic, ..Daemon::default() };
    let sql = "INSERT INTO documents VALUES (?1, ?2)";
    connection.execute(sql, (DAEMON.name(), code::json(&classic).unwrap())).unwrap();
    ask_everything(&path);
    let asked = asked::all();
    assert!(asked.len() > 30, "{asked:?}");
    for sql in asked.iter().filter(|sql| *sql != super::listings::LISTED) {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![1; statement.parameter_count()];
        let plan = statement.query_map(params_from_iter(parameters), |row| row.get(3));
        let plan: Vec<String> = plan.unwrap().map(Result::unwrap).collect();
        let is_wrong = |step: &String| {
            let goes_through = LARGE.iter().any(|table| *step == format!("SCAN {table}"));
            goes_through || step.contains("FOR ORDER BY") && !sql.contains("GROUP BY")
        };
        assert!(!plan.iter().any(is_wrong), "{sql}: {plan:?}");
    }
}
