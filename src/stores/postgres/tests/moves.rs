//! Queues that are moved from a file to the server and back: afterwards all is answered as before, and goes on as the model
//! does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rusqlite::Connection;
use shiftboss_actors::store::{
    Dispatched, Installation, JoinRelay, Lane, Operation, Outcome, Reader, RegisterRun, Registered,
    RelayAnswer, Relayed, RetryRules, Runs, Store,
};
use shiftboss_actors::testing::conformance::{History, Step, Subject, step};
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::{OneByOne, wait_for};
use shiftboss_protocol::model::Run;
use shiftboss_sqlite::look_through;

use super::daemons::daemon;
use super::support::{self, Database, Site, cases, options};
use crate::stores::sqlite::transfer::arriving::Arriving;
use crate::stores::sqlite::transfer::leaving::Leaving;
use crate::stores::transfer::carry;
use crate::stores::{SqliteReader, SqliteStore, move_in, move_out};

/// What is in a file, but for what a server does not know: since when keys wait, readings of lists, places in the lane, IDs of single
/// tasks. Ends are numbered anew, in their order.
const KEPT: [&str; 12] = [
    "SELECT * FROM fetchers",
    "SELECT fetcher, run, complete, deleting, position, skipped, stale FROM runs",
    "SELECT * FROM queue",
    "SELECT * FROM log",
    "SELECT keys.key, claimed, (SELECT group_concat(coalesce(name, '@tasks') || substr(value, instr(value, ':')), ' ' ORDER BY name)
            FROM json_each('[\"' || replace(served, ' ', '\",\"') || '\"]') LEFT JOIN names ON names.fetcher = CAST(value AS INTEGER)),
        waiting, failed, dead, last_attempt, attempt, iif(fetcher IN (SELECT fetcher FROM runs UNION SELECT 0), fetcher, NULL), run,
        worker, lease, started_ms, json_remove(before, '$[2]'), CASE WHEN EXISTS (SELECT 1 FROM runs WHERE deleting) THEN 0 WHEN started IS NULL THEN turn IS NULL ELSE turn END FROM keys
    WHERE started IS NOT NULL OR served <> '' OR last_attempt > 0 OR EXISTS (SELECT 1 FROM extras WHERE extras.key = id)
        OR EXISTS (SELECT 1 FROM rows WHERE rows.key = id) OR EXISTS (SELECT 1 FROM tasks WHERE tasks.key = id)",
    "SELECT keys.key, extras ->> '$.hold.since', extras ->> '$.hold.until.at', extras ->> '$.hold.reason', extras ->> '$.hold.by',
        extras ->> '$.backoff.failures', extras ->> '$.backoff.until.at', extras ->> '$.bump.since', extras ->> '$.bump.by',
        lane IS NULL, due, (SELECT group_concat((value ->> '$.task') || (value ->> '$.number') || coalesce(value ->> '$.due.at', ''))
            FROM json_each(extras, '$.retries')),
        (SELECT group_concat(value, ' ' ORDER BY value) FROM json_each(extras, '$.expired') WHERE value ->> '$[0].Row.fetcher' IN (SELECT fetcher FROM runs)),
        (SELECT group_concat(value, ' ' ORDER BY value) FROM json_each(extras, '$.dead'))
    FROM extras JOIN keys ON keys.id = extras.key
    WHERE json_remove(extras, '$.expired') <> '{\"hold\":null,\"backoff\":null,\"bump\":null,\"retries\":[]}' OR extras LIKE '%\"Row\"%'",
    "SELECT attempts.attempt, keys.key, iif(attempts.fetcher IN (SELECT fetcher FROM runs), attempts.fetcher, NULL), attempts.run, attempts.worker, attempts.started_ms, ended_ms, outcome,
        attempts.exit_code, previous, revisit, rank() OVER (ORDER BY ended) FROM attempts JOIN keys ON keys.id = attempts.key",
    "SELECT number, keys.key, status, checksum, payload FROM tasks JOIN keys ON keys.id = tasks.key
    WHERE status NOT IN ('done', 'cancelled')",
    "SELECT * FROM minutes WHERE jobs > 0",
    "SELECT name, hour, outcome, jobs, took_ms, revisits, revisit_seconds FROM hours LEFT JOIN names USING (fetcher) WHERE jobs > 0",
    "SELECT coalesce(name, counts.fetcher), run, rows, waiting, in_flight, leased, redelivered, delayed, dead, failed, held, backed_off, bumped
    FROM counts LEFT JOIN names USING (fetcher)",
    "SELECT last_attempt, last_single, credit, paused, (SELECT value FROM documents WHERE name = 'input') FROM header",
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

/// A queue that was moved from one server to a file, and to another server.
fn goes_on(rules: Rules, [first, second]: &[Vec<Step>; 2]) -> Result<(), TestCaseError> {
    let file = tempfile::tempdir().unwrap();
    let file = file.path().join("state.db");
    let (old, new, mut history) = (Database::new(), Database::new(), History::new(rules.clone()));
    let mut site = Site::on(&old, rules.clone(), 1);
    live(site.store(), &mut history, first)?;
    site.store().close_at_once().unwrap();
    move_out(&old.url(), &file).unwrap();
    move_in(&file, &new.url(), "daemon 0").unwrap();
    let mut site = Site::on(&new, rules, 1);
    live(site.store(), &mut history, second)
}

/// What a file has after a history. Who asks need not know what it comes to.
fn filled(file: PathBuf, rules: Rules, steps: &[Step]) -> PathBuf {
    // Of a key a server tries one task again by itself at a time.
    let rules = Rules { retries: RetryRules::default(), ..rules };
    let mut history = History::new(rules.clone());
    let mut file = InFile::open(file, rules);
    for step in steps {
        match step {
            // A server knows not of a start that its clock was ahead.
            Step::Clock { by } => history.move_clock(by.abs()),
            Step::Restart { .. } => {}
            Step::Batch { words, .. } => {
                let outcomes = file.store.apply_at_once(history.now, history.batch(words));
                for outcome in outcomes.unwrap() {
                    if let Ok(Outcome::Dispatch(Dispatched::Job(attempt, _))) = outcome {
                        history.given.push(attempt.0);
                    }
                }
            }
        }
    }
    file.close()
}

fn comes_back(rules: Rules, steps: &[Step]) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::new();
    let old = filled(directory.path().join("state.db"), rules, steps);
    let new = directory.path().join("new.db");
    move_in(&old, &database.url(), "daemon 0").unwrap();
    move_out(&database.url(), &new).unwrap();
    same(&new, &old)
}

fn same(new: &Path, old: &Path) -> Result<(), TestCaseError> {
    let (new, old) = (kept(new), kept(old));
    let only = |these: &[String], others: &[String]| -> Vec<String> {
        these.iter().filter(|row| !others.contains(row)).cloned().collect()
    };
    prop_assert_eq!(only(&new, &old), only(&old, &new));
    Ok(())
}

/// Without a server in between.
fn arrives(rules: Rules, steps: &[Step]) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().unwrap();
    let old = filled(directory.path().join("state.db"), rules, steps);
    let new = directory.path().join("new.db");
    carry(&mut Leaving::open(&old).unwrap(), &mut Arriving::open(&new).unwrap()).unwrap();
    same(&new, &old)?;
    prop_assert!(look_through(&Connection::open(new).unwrap()).damage.is_empty());
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

/// Random histories on a server, whose queue is moved to a file and to another server after half of them.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn histories_go_on() {
    let steps = || prop::collection::vec(step(), 1..30);
    check(4, [steps(), steps()], |rules, steps| goes_on(rules, &steps));
}

/// What leaves a file is what arrives in another one.
#[test]
fn what_leaves_arrives() {
    check(64, prop::collection::vec(step(), 1..60), |rules, steps| arrives(rules, &steps));
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
