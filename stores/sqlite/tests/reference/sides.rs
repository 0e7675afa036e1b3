//! Two queues side by side: the Python supervisor's tables under its own statements, and ours with `--classic`. Both
//! get the same requests, and then the four tables must be equal.

use std::path::Path;

use proptest::prelude::*;
use rusqlite::{Connection, OptionalExtension};
use shiftboss_protocol::model::{Key, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::{AddRows, Complete, DeleteRuns, Operation, RegisterRun, RowBatch};
use shiftboss_sqlite::SqliteRecords;

use crate::reference;
use crate::words::{answer, dispatch, ready};

/// All that outsiders see; ids and jitter, too.
const PUBLIC: &str = "SELECT 'q', fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued, last_started, order_jitter FROM queue
    UNION ALL SELECT 'l', attr_path, started, finished, exit_code, '', '', '' FROM log
    UNION ALL SELECT 'r', fetcher_id, run_started, is_complete, '', '', '', '' FROM fetcher_runs
    UNION ALL SELECT 'f', fetcher_id, name, '', '', '', '', '' FROM fetchers ORDER BY 1, 2, 3, 4";

/// The rows of a query, as text.
pub fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut query = connection.prepare(sql).unwrap();
    let count = query.column_count();
    let rows = query.query_map([], |row| {
        let values = (0..count).map(|at| row.get::<_, rusqlite::types::Value>(at));
        Ok(format!("{:?}", values.collect::<Result<Vec<_>, _>>()?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

pub fn public(connection: &Connection) -> Vec<String> {
    rows(connection, PUBLIC)
}

/// What happens.
#[derive(Debug, Clone)]
pub enum Step {
    Ready,
    Done(&'static str, i64),
    Add(&'static str, i64, Vec<&'static str>, &'static str),
    Delete(&'static str, i64),
    Passes(i64),
    /// Edits by another program, each in one transaction.
    Edits(Vec<String>),
}

pub fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "d", "e"])
}

pub fn step() -> impl Strategy<Value = Step> {
    let fetcher = || prop::sample::select(vec!["f", "g"]);
    let payload = prop::sample::select(vec!["x", " y z"]);
    prop_oneof![
        6 => Just(Step::Ready),
        3 => (key(), 0..3_i64).prop_map(|(key, code)| Step::Done(key, code)),
        3 => (fetcher(), 1..4_i64, prop::collection::vec(key(), 1..5), payload)
            .prop_map(|(fetcher, run, keys, payload)| Step::Add(fetcher, run, keys, payload)),
        1 => (fetcher(), 1..4_i64).prop_map(|(fetcher, run)| Step::Delete(fetcher, run)),
        2 => prop::sample::select(vec![1, 10, 43_200, 43_201]).prop_map(Step::Passes),
    ]
}

/// The supervisor's side: its database, and what it does to it.
pub struct Supervisor(pub Connection);

impl Supervisor {
    pub fn new(path: &Path) -> Self {
        let it = Self(reference::version_2(path));
        // Fetchers keep their ids; a fetcher that goes and comes back is not tested here.
        ["f", "g"].iter().for_each(|fetcher| reference::register(&it.0, fetcher, 0, true));
        it
    }

    /// One that is there.
    pub fn again(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = OFF").unwrap();
        Self(connection)
    }

    fn next(&self, now: i64) -> Option<(String, String)> {
        let sql = "SELECT name, attr_path, payload FROM queue JOIN fetchers USING (fetcher_id) LEFT JOIN log USING (attr_path)
            WHERE is_dequeued = 0
                AND NOT EXISTS (SELECT 1 FROM queue newer WHERE newer.attr_path = queue.attr_path
                    AND newer.fetcher_id = queue.fetcher_id AND newer.fetcher_run_started > queue.fetcher_run_started)
                AND (log.started IS NULL OR log.finished IS NOT NULL OR log.started + 43200 < ?1)
            ORDER BY last_started, order_jitter, attr_path, fetcher_id LIMIT 1";
        type Job = (String, String, String);
        let job = self.0.query_row(sql, [now], |row| <Job>::try_from(row));
        let (fetcher, key, payload): Job = job.optional().unwrap()?;
        reference::dispatch(&self.0, &fetcher, &key, now);
        Some((key, payload))
    }

    pub fn perform(&self, step: &Step, now: i64) -> String {
        match step {
            Step::Ready => {
                return self
                    .next(now)
                    .map_or("nothing".into(), |(key, text)| format!("{key} {text}"));
            }
            Step::Done(key, code) => reference::finish(&self.0, key, now, *code),
            Step::Add(fetcher, run, keys, payload) => {
                reference::register(&self.0, fetcher, *run, true);
                for key in keys {
                    reference::enqueue(&self.0, fetcher, *run, key, payload);
                }
            }
            Step::Delete(fetcher, run) => reference::delete(&self.0, fetcher, *run),
            Step::Passes(_) => {}
            Step::Edits(edits) => return edit(&self.0, edits),
        }
        String::new()
    }
}

/// Which of the edits were carried out.
pub fn edit(connection: &Connection, edits: &[String]) -> String {
    edits.iter().map(|sql| if connection.execute_batch(sql).is_ok() { '+' } else { '-' }).collect()
}

/// A connection to a database of ours, which need not outlive the machine.
pub fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
    connection
}

/// Our side.
pub struct Ours {
    engine: Engine<SqliteRecords>,
    /// Another program's connection.
    pub outside: Connection,
}

impl Ours {
    pub fn open(path: &Path) -> Self {
        let store = SqliteRecords::new(open(path)).unwrap();
        let engine = Engine::new(store, Settings { is_fair: false, ..Settings::default() });
        Self { engine, outside: open(path) }
    }

    /// With the two fetchers.
    pub fn new(path: &Path) -> Self {
        let mut it = Self::open(path);
        for fetcher in ["f", "g"] {
            it.perform(&Step::Add(fetcher, 0, Vec::new(), ""), 1_000_000);
        }
        it
    }

    pub fn ask(&mut self, operations: Vec<Operation>, now: i64) -> String {
        let answers = ready(self.engine.apply(now * 1_000, operations)).unwrap();
        answers.last().map(answer).unwrap_or_default()
    }

    pub fn perform(&mut self, step: &Step, now: i64) -> String {
        let run = |fetcher: &str, started| Run { fetcher: fetcher.into(), started };
        let operations = match step {
            Step::Ready => {
                let job = self.ask(vec![dispatch(None)], now);
                return job.splitn(3, ' ').nth(2).map_or(job.clone(), ToOwned::to_owned);
            }
            Step::Edits(edits) => return edit(&self.outside, edits),
            Step::Passes(_) => return String::new(),
            Step::Done(key, exit_code) => {
                vec![Complete { key: Key::new(key).unwrap(), exit_code: *exit_code }.into()]
            }
            Step::Add(fetcher, started, keys, payload) => {
                let row =
                    |key: &&str| Row { key: Key::new(key).unwrap(), payload: (*payload).into() };
                let (rows, run) = (keys.iter().map(row).collect(), run(fetcher, *started));
                let rows = AddRows(RowBatch::of(run.clone(), rows)).into();
                vec![RegisterRun(run).into(), rows]
            }
            Step::Delete(fetcher, started) => {
                vec![DeleteRuns { runs: vec![run(fetcher, *started)], limit: 1_000 }.into()]
            }
        };
        self.ask(operations, now);
        String::new()
    }
}
