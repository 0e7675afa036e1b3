//! Queues that are moved from a file to the server and back: afterwards all is answered as before, and goes on as the model
//! does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rusqlite::Connection;
use shiftboss_actors::store::{
    Installation, JoinRelay, Lane, Operation, Outcome, Probe, Reader, RegisterRun, Registered,
    RelayAnswer, Relayed, Runs, Store,
};
use shiftboss_actors::testing::conformance::{History, Step, Subject, step};
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::{OneByOne, wait_for};
use shiftboss_protocol::model::Run;

use super::both::Pair;
use super::daemons::daemon;
use super::support::{self, Database, Site, cases, options};
use crate::stores::sqlite::{SqliteReader, SqliteStore};
use crate::stores::{move_in, move_out};

/// What may stand in a file, but for the marks, what a daemon notes of itself, places in the file, and what is derived. Ends are
/// numbered anew, in their order.
const KEPT: [&str; 14] = [
    "SELECT * FROM fetchers",
    "SELECT * FROM fetcher_runs",
    "SELECT fetcher_id, fetcher_run_started, attr_path, payload, is_dequeued, last_started, order_jitter,
        last_served FROM queue",
    "SELECT * FROM log",
    "SELECT fetcher_id, run_started, rows, pending, skipped, deleting, offset, lines, device, inode, checksum,
        content, modified, changed, stale FROM shiftboss_runs",
    "SELECT * FROM shiftboss_in_flight",
    "SELECT attempt, attr_path, fetcher_id, run_started, worker, started, finished, outcome, exit_code, took_ms,
        rank() OVER (ORDER BY ended), previous FROM shiftboss_attempts",
    "SELECT * FROM shiftboss_last_served WHERE NOT EXISTS (SELECT 1 FROM queue JOIN fetchers USING (fetcher_id)
        WHERE queue.attr_path = shiftboss_last_served.attr_path AND fetchers.name = shiftboss_last_served.name)",
    "SELECT * FROM shiftboss_expired_leases",
    "SELECT task, attr_path, checksum, added, status, payload FROM shiftboss_single_tasks",
    "SELECT * FROM shiftboss_completions WHERE jobs > 0",
    "SELECT * FROM shiftboss_holds",
    "SELECT attr_path, since, by, attempt, last_attempt, kind, due, fetcher_id, run_started, retries, rank() OVER (ORDER BY place) FROM shiftboss_bumps",
    "SELECT * FROM shiftboss_counters WHERE name NOT IN ('row', 'ended')
        UNION ALL SELECT name, value FROM shiftboss_state WHERE name IN ('paused', 'input_directory') AND value <> '0'",
];

/// Each row as a text, sorted.
fn kept(file: &Path) -> Vec<String> {
    let connection = Connection::open(file).unwrap();
    let mut rows = Vec::new();
    for (number, sql) in KEPT.iter().enumerate() {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let read = |row: &rusqlite::Row<'_>| {
            let values: Vec<rusqlite::types::Value> =
                (0..columns).map(|at| row.get(at).unwrap()).collect();
            Ok(format!("{number} {values:?}"))
        };
        rows.extend(statement.query_map([], read).unwrap().map(Result::unwrap));
    }
    rows.sort();
    rows
}

/// A queue in a file.
struct InFile {
    file: PathBuf,
    store: SqliteStore,
}

impl InFile {
    fn open(file: PathBuf, rules: Rules) -> Self {
        let store = SqliteStore::open(&file, &options(rules)).unwrap();
        Self { file, store }
    }

    fn close(mut self) -> PathBuf {
        self.store.close_at_once().unwrap();
        self.file
    }
}

fn read(file: &Path) -> Arc<dyn Reader> {
    Arc::new(SqliteReader::new(file.to_owned()))
}

/// A store goes on with a history.
fn live(store: &mut dyn Store, history: &mut History, steps: &[Step]) -> Result<(), TestCaseError> {
    for step in steps {
        match step {
            Step::Clock { by } => history.move_clock(*by),
            Step::Restart { .. } => {}
            Step::Batch { words, .. } => {
                let batch = history.batch(words);
                let outcomes = store.apply_at_once(history.now, batch.clone()).unwrap();
                history.follow(&batch, outcomes)?;
            }
        }
    }
    history.check(store)
}

fn goes_on(rules: Rules, [first, second, third]: &[Vec<Step>; 3]) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let (database, mut history) = (Database::new(), History::new(rules.clone()));
    let mut file = InFile::open(directory.path().join("state.db"), rules.clone());
    live(&mut file.store, &mut history, first)?;
    let old = file.close();
    move_in(&old, &database.url(), "daemon 0").unwrap();

    let mut site = Site::on(&database, rules.clone(), 1);
    site.store().ask(history.now, Probe).unwrap();
    Pair { readers: [read(&old), site.reader()], now: history.now }.compare()?;
    live(site.store(), &mut history, second)?;
    site.store().ask(history.now, Probe).unwrap();
    site.store().close_at_once().unwrap();
    let new = directory.path().join("new.db");
    move_out(&database.url(), &new).unwrap();

    Pair { readers: [read(&new), site.reader()], now: history.now }.compare()?;
    let mut file = InFile::open(new, rules);
    live(&mut file.store, &mut history, third)
}

fn comes_back(rules: Rules, steps: &[Step]) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let (database, mut history) = (Database::new(), History::new(rules.clone()));
    let mut file = InFile::open(directory.path().join("state.db"), rules);
    live(&mut file.store, &mut history, steps)?;
    let (old, new) = (file.close(), directory.path().join("new.db"));
    move_in(&old, &database.url(), "daemon 0").unwrap();
    move_out(&database.url(), &new).unwrap();
    prop_assert_eq!(kept(&new), kept(&old));
    Ok(())
}

fn check<T: std::fmt::Debug>(
    few: u32,
    strategy: impl Strategy<Value = T>,
    holds: impl Fn(Rules, T) -> Result<(), TestCaseError>,
) {
    let outcome = TestRunner::new(cases(few)).run(&(2..4_i64, strategy), |(max, input)| {
        holds(Rules { max_expired_leases: max, ..Rules::after_failures() }, input)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A daemon may join as soon as a move has ended, however it ended.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_move_that_ended_holds_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::new();
    let old = InFile::open(directory.path().join("state.db"), Rules::default()).close();
    // Connected before, it asks before the server has noticed that a connection is gone.
    let outside = wait_for(support::connect(&database.url));
    let is_free = || {
        let locks =
            "SELECT NOT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
            WHERE locktype = 'advisory' AND datname = current_database())";
        wait_for(outside.query_one(locks, &[])).unwrap().get::<_, bool>(0)
    };
    move_in(&old, &database.url(), "daemon 0").unwrap();
    assert!(is_free());
    move_out(&database.url(), &directory.path().join("new.db")).unwrap();
    assert!(is_free());
    assert!(move_out(&database.url(), &directory.path().join("again.db")).is_err());
    assert!(is_free());
}

/// Random histories, moved to the server after a third of them, and back after another one.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn histories_go_on() {
    let steps = || prop::collection::vec(step(), 1..30);
    check(4, [steps(), steps(), steps()], |rules, steps| goes_on(rules, &steps));
}

/// A file that was moved to the server and back has the rows that it had.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_round_trip_changes_nothing() {
    check(8, prop::collection::vec(step(), 1..60), |rules, steps| comes_back(rules, &steps));
}

/// The daemon whose lists these will be had been killed there, and is as one that was stopped: the others adopt what is out.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_daemon_that_was_killed_has_what_is_moved() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::new();
    drop(wait_for(daemon(&database.server, 0)));
    let file = InFile::open(directory.path().join("state.db"), Rules::default()).close();
    move_in(&file, &database.url(), "daemon 0").unwrap();
    let is_stopped = "SELECT pid IS NULL AND NOT lost AND gone_at IS NOT NULL FROM daemons";
    let row = wait_for(async { database.outside().await.query_one(is_stopped, &[]).await });
    assert!(row.unwrap().get::<_, bool>(0));
}

/// What is moved out has the rules of the daemon that was there last.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn the_last_daemons_rules_are_moved_out() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::new();
    wait_for(async {
        let rules = |lease_seconds| options(Rules { lease_seconds, ..Rules::default() });
        let mut last = support::open(&database.server, 0, rules(100)).await;
        support::open(&database.server, 1, rules(200)).await.close().await.unwrap();
        last.close().await.unwrap();
        let earlier = "UPDATE daemons SET beat_at = beat_at - 10 WHERE name = 'daemon 1'";
        database.outside().await.batch_execute(earlier).await.unwrap();
    });
    let file = directory.path().join("state.db");
    move_out(&database.url(), &file).unwrap();
    assert_eq!(read(&file).status(0).unwrap().lease_seconds, Some(100));
}

/// A relay goes on with its lists, and in the same installation, wherever its queue is moved.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn relays_move_with_the_queue() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["old.db", "new.db"].map(|name| directory.path().join(name));
    let database = Database::new();
    let mut file = InFile::open(paths[0].clone(), Rules::default());
    let installation = file.store.ask(1, Installation).unwrap();
    assert_eq!(relay_s_runs(&mut file.store, None, &installation), 1);
    move_in(&file.close(), &database.url(), "daemon 0").unwrap();
    let mut site = Site::on(&database, Rules::default(), 1);
    let known = Some(&installation);
    assert_eq!(relay_s_runs(site.store(), known, &installation), 1);
    site.store().close_at_once().unwrap();
    move_out(&database.url(), &paths[1]).unwrap();
    let mut file = InFile::open(paths[1].clone(), Rules::default());
    assert_eq!(relay_s_runs(&mut file.store, known, &installation), 1);
}

/// The relay joins, registers its list, and says how many it has.
fn relay_s_runs(store: &mut dyn Store, known: Option<&Arc<str>>, installation: &str) -> usize {
    let join = JoinRelay { name: "r".into(), process: "p".into(), installation: known.cloned() };
    let joined = store.ask(2, join).unwrap();
    assert_eq!(&*joined.installation, installation);
    let register = RegisterRun(Run { fetcher: "f".into(), started: 1 });
    let operations = vec![Operation::RegisterRun(register), Operation::Runs(Runs)];
    let batch = Relayed { epoch: joined.epoch, lane: Lane::Lists, number: 1, operations };
    match store.ask(3, batch).unwrap() {
        RelayAnswer::Answered(outcomes) => match &outcomes[..] {
            [Ok(Outcome::RegisterRun(Registered::Run(_))), Ok(Outcome::Runs(runs))] => runs.len(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
