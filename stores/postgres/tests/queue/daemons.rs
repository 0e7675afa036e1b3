//! Several daemons on one queue: their batches in turn, against the model; and at once, with a ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use shiftboss_protocol::model::{Attempt, Key, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::error::Rejected;
use shiftboss_queue::operation::*;
use shiftboss_queue::records::{Outset, Records, StoreError};

use crate::histories::{self, history};
use crate::subject::{self, connect};
use crate::words::{holder, ready};

proptest! {
    /// Two daemons that take turns answer as one does.
    #[test]
    fn two_daemons_are_the_models(history in history(true)) {
        let schema = subject::schema();
        histories::check(history, vec![subject::store(&schema, 1), subject::store(&schema, 2)])?;
    }
}

const NOW: i64 = 1_700_000_000_000;

/// A relay is one relay, whichever daemon hears it: if it repeats a batch to another daemon, it gets the first answer.
#[test]
fn a_relay_is_known_to_all() {
    let schema = subject::schema();
    let engine = |daemon| Engine::new(subject::store(&schema, daemon), Settings::default());
    let mut daemons = [1, 2].map(engine);
    let mut ask = |daemon: usize, operation: Operation| {
        ready(daemons[daemon].apply(NOW, vec![operation])).unwrap().remove(0).unwrap()
    };
    let keys = ask(0, RegisterRun(Run { fetcher: "f".into(), started: 1 }).into());
    assert!(matches!(keys, Outcome::RegisterRun(Registered::Run(_))));
    assert_eq!(ask(1, Relays.into()), Outcome::Relays(vec![]));
    let join = JoinRelay { name: "r".into(), process: "p".into(), installation: None };
    let Outcome::JoinRelay(JoinedRelay { epoch, .. }) = ask(0, join.into()) else { panic!() };
    let register = RegisterRun(Run { fetcher: "g".into(), started: 1 }).into();
    let relayed = Relayed { epoch, lane: Lane::Lists, number: 1, operations: vec![register] };
    let first = ask(1, relayed.clone().into());
    assert!(matches!(first, Outcome::Relayed(RelayAnswer::Answered(_))), "{first:?}");
    assert_eq!(ask(0, relayed.clone().into()), first);
    let Outcome::Relays(known) = ask(0, Relays.into()) else { panic!() };
    assert!(known[0].beat > 0, "the other daemon heard it");
    let taken = ask(0, RegisterRun(Run { fetcher: "g".into(), started: 2 }).into());
    assert!(matches!(taken, Outcome::RegisterRun(Registered::Elsewhere(_))), "{taken:?}");
    ask(0, LoseRelay { epoch, is_stopped: true }.into());
    assert_eq!(ask(1, relayed.into()), Outcome::Relayed(RelayAnswer::Lost));
}

fn list(run: i64, keys: impl Iterator<Item = usize>) -> Vec<Operation> {
    let run = Run { fetcher: "f".into(), started: run };
    let row = |key: usize| Row { key: Key::new(&format!("k{key}")).unwrap(), payload: "p".into() };
    let rows = AddRows(RowBatch::of(run.clone(), keys.map(row).collect())).into();
    vec![RegisterRun(run).into(), rows]
}

fn dispatch() -> Operation {
    crate::words::dispatch(Some(holder()))
}

/// A job that was handed out.
type Job = (Attempt, Row);

fn jobs(answers: Vec<Result<Outcome, Rejected>>) -> Vec<Job> {
    let job = |answer| match answer {
        Ok(Outcome::Dispatch(Dispatched::Job(attempt, row, _))) => Some((attempt, row)),
        _ => None,
    };
    answers.into_iter().filter_map(job).collect()
}

/// What all daemons of a test know together.
#[derive(Default)]
struct Ledger {
    /// Who has the key.
    out: BTreeMap<Key, Attempt>,
    /// The last attempt of each.
    last: BTreeMap<Key, Attempt>,
    /// How often each was.
    done: BTreeMap<Key, u32>,
}

const DAEMONS: usize = 4;
const KEYS: usize = 800;
/// Lines that are loaded at once.
const STEP: usize = 10;

/// Daemons that work at the same time: no key is out twice, attempts of a key ascend, each line is done once, and sums
/// are right.
#[test]
fn daemons_at_once() {
    let (schema, ledger) = (subject::schema(), Mutex::new(Ledger::default()));
    thread::scope(|threads| {
        for daemon in 0..DAEMONS {
            let (schema, ledger) = (&schema, &ledger);
            threads.spawn(move || work(daemon, schema, ledger));
        }
    });
    let Ledger { out, done, .. } = ledger.into_inner().unwrap();
    assert!(out.is_empty() && done.len() == KEYS, "{out:?} {}", done.len());
    assert!(done.values().all(|times| *times == 1), "{done:?}");
    let counts = subject::counts(&subject::store(&schema, 9));
    assert_eq!(counts.len(), 2);
    assert_eq!(counts[&(1, 1)][..3], [KEYS as i64, 0, 0]);
    assert_eq!(counts[&(0, -1)][11..], [KEYS as i64, 0], "all keys, and none is unlisted");
}

/// Loads its part of the list, and works until everything is done: some jobs are given back.
fn work(daemon: usize, schema: &str, ledger: &Mutex<Ledger>) {
    let mut engine = Engine::new(subject::store(schema, daemon as i64), Settings::default());
    let mut loads = (0..KEYS / (DAEMONS * STEP)).map(|step| (step * DAEMONS + daemon) * STEP);
    let (mut hand, mut round): (Vec<Job>, usize) = (Vec::new(), 0);
    while !hand.is_empty() || ledger.lock().unwrap().done.values().sum::<u32>() < KEYS as u32 {
        round += 1;
        if let Some(first) = loads.next() {
            ready(engine.apply(NOW, list(1, first..first + STEP))).unwrap();
        }
        let is_back = |at: usize| (at + round).is_multiple_of(7);
        let ends = hand.iter().enumerate().map(|(at, job)| match is_back(at) {
            true => Release(job.0).into(),
            false => CompleteAttempt { attempt: job.0, exit_code: 0 }.into(),
        });
        let batch: Vec<Operation> = ends.chain((0..1 + round % 5).map(|_| dispatch())).collect();
        for job in &hand {
            ledger.lock().unwrap().out.remove(&job.1.key);
        }
        let mut answers = ready(engine.apply(NOW, batch)).unwrap();
        let given = jobs(answers.split_off(hand.len()));
        let mut ledger = ledger.lock().unwrap();
        for (at, (answer, job)) in answers.iter().zip(&hand).enumerate() {
            let right = match is_back(at) {
                true => Outcome::Release(Ack::Recorded),
                false => Outcome::CompleteAttempt(Ack::Recorded),
            };
            assert_eq!(*answer, Ok(right), "{}", job.1.key);
            *ledger.done.entry(job.1.key.clone()).or_default() += u32::from(!is_back(at));
        }
        for (attempt, row) in &given {
            let other = ledger.out.insert(row.key.clone(), *attempt);
            assert_eq!(other, None, "{} is out twice", row.key);
            let last = ledger.last.insert(row.key.clone(), *attempt);
            assert!(last.is_none_or(|last| last < *attempt), "{}: {last:?}, {attempt:?}", row.key);
        }
        hand = given;
    }
}

/// Changes by another daemon to a key while we waited for its lock are seen, in other tables, too.
#[test]
fn a_record_that_changes_while_its_lock_is_waited_for() {
    let schema = subject::schema();
    let mut engine = Engine::new(subject::store(&schema, 1), Settings::default());
    ready(engine.apply(NOW, list(1, 0..1))).unwrap();
    let (attempt, _) = jobs(ready(engine.apply(NOW, vec![dispatch()])).unwrap()).remove(0);
    ready(async {
        let other = connect().await;
        let change = "BEGIN; UPDATE keys SET since = since;
            INSERT INTO runs SELECT fetcher, 2, since, complete, deleting, listing, reading, position, skipped, stale FROM runs;
            INSERT INTO rows SELECT key, fetcher, 2, 1000000, reading, payload FROM rows";
        other.batch_execute(&format!("SET search_path = {schema}; {change}")).await.unwrap();
        let done = engine.apply(NOW, vec![CompleteAttempt { attempt, exit_code: 0 }.into()]);
        let commit = async {
            let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted
                AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'keys'::regclass)";
            while other.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other.batch_execute("COMMIT").await.unwrap();
        };
        let (answers, ()) = futures_util::future::join(done, commit).await;
        assert_eq!(answers.unwrap()[0], Ok(Outcome::CompleteAttempt(Ack::Recorded)));
    });
    let again = jobs(ready(engine.apply(NOW, vec![dispatch()])).unwrap());
    assert_eq!(again.len(), 1, "the row of the second run waits");
}

/// Sums of lists that were deleted while their jobs were out do not stay: the next deletion removes them.
#[test]
fn sums_of_lists_that_are_gone_go() {
    let schema = subject::schema();
    let engine = |daemon| Engine::new(subject::store(&schema, daemon), Settings::default());
    let mut daemons = [1, 2].map(engine);
    for run in 1..=10 {
        let mut ask = |at: usize, batch| ready(daemons[at].apply(NOW, batch)).unwrap();
        ask(0, list(run, 0..1));
        let (attempt, _) = jobs(ask(1, vec![dispatch()])).remove(0);
        let runs = vec![Run { fetcher: "f".into(), started: run }];
        ask(0, vec![DeleteRuns { runs, limit: 10 }.into()]);
        ask(1, vec![CompleteAttempt { attempt, exit_code: 0 }.into()]);
    }
    let sql = "SELECT DISTINCT run FROM counts WHERE fetcher <> 0";
    let left = ready(daemons[0].store().client().query(sql, &[])).unwrap();
    assert!(left.len() <= 1, "{left:?}");
}

/// A batch takes two round trips: for what it needs, and to store its results.
#[test]
fn a_batch_is_two_round_trips() {
    let mut engine = Engine::new(subject::new(), Settings::default());
    let mut trips = |batch: Vec<Operation>| {
        let before = engine.store().round_trips();
        let answers = ready(engine.apply(NOW, batch)).unwrap();
        (engine.store().round_trips() - before, jobs(answers))
    };
    // The first one reads names and runs, too.
    trips(list(1, 0..10));
    assert_eq!(trips(list(1, 10..100)).0, 2);
    let (count, out) = trips((0..16).map(|_| dispatch()).collect());
    assert_eq!((count, out.len()), (2, 16));
    let ends = out.iter().map(|it| CompleteAttempt { attempt: it.0, exit_code: 0 }.into());
    let (count, out) = trips(ends.chain((0..16).map(|_| dispatch())).collect());
    assert_eq!((count, out.len()), (2, 16));
    // A look at what is due costs only its own questions, and does not make others' work be looked up again.
    let ends = out.iter().map(|it| CompleteAttempt { attempt: it.0, exit_code: 0 }.into());
    let looks = ends.chain([NextHoldEnd.into()]).chain((0..16).map(|_| dispatch())).collect();
    let (count, out) = trips(looks);
    assert!(count <= 6 && out.len() == 16, "{count} round trips, {} jobs", out.len());
}

/// A step of a deletion does not ask for each key either.
#[test]
fn a_step_of_a_deletion_asks_once() {
    let mut engine = Engine::new(subject::new(), Settings::default());
    ready(engine.apply(NOW, list(1, 0..200))).unwrap();
    let run = Run { fetcher: "f".into(), started: 1 };
    let before = engine.store().round_trips();
    ready(engine.apply(NOW, vec![DeleteRuns { runs: vec![run], limit: 100 }.into()])).unwrap();
    assert_eq!(engine.store().round_trips() - before, 3);
}

/// A daemon that hangs in the middle of a batch is disconnected, and others go on.
#[test]
fn a_daemon_that_stands_still() {
    let schema = subject::schema();
    let mut still = subject::store(&schema, 1);
    let outset = Outset { next: 1, ..Outset::default() };
    ready(still.begin(&outset)).unwrap();
    let mut engine = Engine::new(subject::store(&schema, 2), Settings::default());
    ready(engine.apply(NOW, list(1, 0..1))).unwrap();
    assert!(matches!(ready(still.commit()), Err(StoreError::Busy(_))));
}

/// With the server's clock, the caller's does not count.
#[test]
fn time_is_the_servers() {
    let schema = subject::schema();
    let mut engine = Engine::new(ready(subject::made(&schema, 1)), Settings::default());
    let now = "SELECT extract(epoch FROM now())::int8";
    let now: i64 = ready(engine.store().client().query_one(now, &[])).unwrap().get(0);
    ready(engine.apply(NOW, list(1, 0..1))).unwrap();
    ready(engine.apply(NOW, vec![dispatch()])).unwrap();
    let started = subject::log(engine.store())["k0"].0;
    assert!((now - 1..now + 60).contains(&started), "{started}, {now}");
}

fn next(engine: &mut Engine<subject::Store>) -> Option<Job> {
    jobs(ready(engine.apply(NOW, vec![dispatch()])).unwrap()).pop()
}

/// While a snapshot is open, keys handed out since are not passed over again and again.
#[test]
fn a_snapshot_makes_jobs_no_slower() {
    const JOBS: usize = 500;
    let schema = subject::schema();
    let mut engine = Engine::new(subject::store(&schema, 1), Settings::default());
    ready(engine.apply(NOW, list(1, 0..2 * JOBS))).unwrap();
    let _reader = subject::wait(async {
        let reader = connect().await;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
        reader.batch_execute(begin).await.unwrap();
        reader
    });
    (0..JOBS).for_each(|_| assert!(next(&mut engine).is_some()));
    let read = subject::wait(async {
        let client = engine.store().client();
        client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        let sql = "SELECT idx_tup_read FROM pg_stat_user_indexes
            WHERE schemaname = current_schema() AND indexrelname = 'places_pkey'";
        client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)
    });
    assert!(read > 0 && read < 20 * JOBS as i64, "{read} places were read for {JOBS} jobs");
}

/// A key that becomes ready before those handed out is next, whichever daemon made it so; and keys that were locked
/// meanwhile are not forgotten when there is nothing else.
#[test]
fn what_lies_before_the_last_job_is_found() {
    let schema = subject::schema();
    let engine = |daemon| Engine::new(subject::store(&schema, daemon), Settings::default());
    let [mut one, mut other] = [1, 2].map(engine);
    ready(one.apply(NOW, list(1, 0..9))).unwrap();
    let first = next(&mut one).unwrap();
    let second = next(&mut other).unwrap();
    let mut given: Vec<_> = (0..3).map(|_| next(&mut one).unwrap()).collect();
    for (attempt, row) in [second, first] {
        ready(other.apply(NOW, vec![Release(attempt).into()])).unwrap();
        let back = next(&mut one).unwrap();
        assert_eq!(back.1, row);
        given.push(back);
    }
    let locks = subject::wait(async {
        let locks = connect().await;
        let lock = format!(
            "SET search_path = {schema}; BEGIN; SELECT FROM keys JOIN places ON places.key = id AND kind = 1 ORDER BY at, id LIMIT 1 FOR UPDATE OF keys"
        );
        locks.batch_execute(&lock).await.unwrap();
        locks
    });
    given.extend((0..2).map(|_| next(&mut one).unwrap()));
    subject::wait(locks.batch_execute("ROLLBACK")).unwrap();
    given.extend(std::iter::from_fn(|| next(&mut one)));
    let keys: BTreeSet<_> = given.iter().map(|job| &job.1.key).collect();
    assert_eq!((given.len(), keys.len()), (9, 9));
}
