//! Several daemons on one queue: their batches in turn, against the model; and at once, with a ledger.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, Row, Run};
use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::operation::{Answer, Job, Operation as Op, Reading, Rows};
use shiftboss_queue::rules::completion::Ack;

use crate::histories::{self, history};
use crate::subject::{self, Store, connect, ready};

proptest! {
    /// Two daemons that are asked in turn answer as one does.
    #[test]
    fn two_daemons_are_the_models(history in history()) {
        histories::check(history, subject::several(2))?;
    }
}

const NOW: i64 = 1_700_000_000_000;

fn list(run: i64, keys: impl Iterator<Item = usize>) -> Vec<Op> {
    let run = Run { fetcher: "f".into(), started: run };
    let row = |key: usize| Row { key: Key::new(&format!("k{key}")).unwrap(), payload: "p".into() };
    let (skipped, complete, position, reading) = (0, false, None, Reading::Onward);
    let rows = keys.map(row).collect();
    let rows = Rows { run: run.clone(), rows, skipped, complete, position, reading };
    vec![Op::RegisterRun(run), Op::AddRows(rows)]
}

fn dispatch() -> Op {
    let holder = Some(LeaseHolder { worker: "w".into(), lease_seconds: 60 });
    Op::Dispatch { holder, fetchers: None }
}

fn jobs(answers: Vec<Result<Answer, shiftboss_queue::operation::Rejected>>) -> Vec<Job> {
    let job = |answer| match answer {
        Ok(Answer::Job(job)) => Some(job),
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
    done: BTreeMap<Key, u32>,
}

const KEYS: usize = 400;

/// Daemons that work at once: no key is out twice, attempts of a key ascend, each line is done once, and sums are true.
#[test]
fn daemons_at_once() {
    let engines = subject::several(4).into_iter().map(|it| Engine::new(it, Settings::default()));
    let ledger = std::cell::RefCell::new(Ledger::default());
    let engines =
        ready(join_all(engines.enumerate().map(|(daemon, engine)| work(daemon, engine, &ledger))));
    let ledger = ledger.into_inner();
    assert!(ledger.out.is_empty() && ledger.done.len() == KEYS, "{}", ledger.done.len());
    assert!(ledger.done.values().all(|times| *times == 1), "{:?}", ledger.done);
    let counts = subject::counts(engines[0].store());
    assert_eq!(counts, BTreeMap::from([((1, 1), [KEYS as i64, 0, 0])]));
}

/// Loads its part of the list, and works till all is done: some jobs are given back, some are said to be done twice.
async fn work(
    daemon: usize,
    mut engine: Engine<Store>,
    ledger: &std::cell::RefCell<Ledger>,
) -> Engine<Store> {
    let mut loads = (0..KEYS / 40).map(|step| step * 40 + daemon * 10);
    let (mut hand, mut round): (Vec<Job>, usize) = (Vec::new(), 0);
    loop {
        round += 1;
        if let Some(first) = loads.next() {
            engine.apply(NOW, list(1, first..first + 10)).await.unwrap();
        }
        let mut batch = Vec::new();
        let mut gone = Vec::new();
        for (at, job) in hand.drain(..).enumerate() {
            ledger.borrow_mut().out.remove(&job.row.key);
            let is_back = (at + round) % 7 == 0;
            let attempt = job.attempt;
            batch.push(if is_back {
                Op::Release(attempt)
            } else {
                Op::CompleteAttempt { attempt, exit_code: 0 }
            });
            gone.push((job.row.key, is_back));
        }
        let ends = batch.len();
        batch.extend((0..1 + round % 5).map(|_| dispatch()));
        let mut answers = engine.apply(NOW, batch).await.unwrap();
        let given = jobs(answers.split_off(ends));
        let mut ledger = ledger.borrow_mut();
        for (answer, (key, is_back)) in answers.into_iter().zip(gone) {
            assert_eq!(answer, Ok(Answer::Ack(Ack::Recorded)), "{key}");
            *ledger.done.entry(key).or_default() += u32::from(!is_back);
        }
        for job in &given {
            let Job { attempt, row, .. } = job;
            let other = ledger.out.insert(row.key.clone(), *attempt);
            assert_eq!(other, None, "{} is out twice", row.key);
            let last = ledger.last.insert(row.key.clone(), *attempt);
            assert!(last.is_none_or(|last| last < *attempt), "{}: {last:?}, {attempt:?}", row.key);
        }
        hand = given;
        let is_done = ledger.done.values().sum::<u32>() as usize >= KEYS;
        drop(ledger);
        if is_done && hand.is_empty() {
            return engine;
        }
    }
}

/// What another daemon wrote to a key while its lock was waited for is seen, in other tables, too.
#[test]
fn a_record_that_changes_while_its_lock_is_waited_for() {
    let mut stores = subject::several(1);
    let store = stores.remove(0);
    let path = ready(store.client().query_one("SHOW search_path", &[])).unwrap();
    let path: String = path.get(0);
    let mut engine = Engine::new(store, Settings::default());
    ready(engine.apply(NOW, list(1, 0..1))).unwrap();
    let job = jobs(ready(engine.apply(NOW, vec![dispatch()])).unwrap()).remove(0);
    let attempt = job.attempt;
    ready(async {
        let other = connect().await;
        let change = "BEGIN; UPDATE keys SET since = since;
            INSERT INTO runs SELECT fetcher, 2, since, complete, deleting, listing, reading, position, skipped FROM runs;
            INSERT INTO rows SELECT key, fetcher, 2, 1000000, reading, payload FROM rows";
        other.batch_execute(&format!("SET search_path = {path}; {change}")).await.unwrap();
        let done = engine.apply(NOW, vec![Op::CompleteAttempt { attempt, exit_code: 0 }]);
        let commit = async {
            let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted
                AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'keys'::regclass)";
            while other.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other.batch_execute("COMMIT").await.unwrap();
        };
        let (answers, ()) = futures_util::future::join(done, commit).await;
        assert_eq!(answers.unwrap()[0], Ok(Answer::Ack(Ack::Recorded)));
    });
    let again = jobs(ready(engine.apply(NOW, vec![dispatch()])).unwrap());
    assert_eq!(again.len(), 1, "the row of the second run waits");
}
