//! Daemons that work at the same time, each on a thread of its own: whatever they do to each other, no key is out twice, none is
//! lost, and none waits while later ones are handed out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use shiftboss_actors::file_identity::Position;
use shiftboss_actors::store::{
    AddRows, Complete, CompleteAttempt, Dispatch, Dispatched, LeaseHolder, Operation, Outcome,
    Reading, RegisterRun, Request, RowBatch, Store, StoreError,
};
use shiftboss_actors::testing::model::Rules;
use shiftboss_protocol::model::{Attempt, Key, Row, Run};
use tokio::runtime::Builder;

use super::support::{self, Database};
use crate::stores::postgres::PostgresStore;

/// What is out, by key, how often each key ran, and what was handed out when.
#[derive(Default)]
struct Ledger {
    out: HashMap<Key, Attempt>,
    ran: HashMap<Key, (Attempt, u32)>,
    claims: Vec<Claim>,
}

/// One call that handed keys out: from when to when, and the places of these in the order of keys that never ran.
struct Claim {
    began: Instant,
    ended: Instant,
    places: Vec<(i32, Key)>,
}

impl Claim {
    fn new(began: Instant, jobs: &[Option<(Key, Attempt)>]) -> Self {
        let keys = jobs.iter().flatten().map(|(key, _)| key);
        let places = keys.map(|key| (key.jitter(), key.clone())).collect();
        Self { began, ended: Instant::now(), places }
    }
}

impl Ledger {
    fn take(&mut self, key: &Key, attempt: Attempt) {
        let before = self.out.insert(key.clone(), attempt);
        assert_eq!(before, None, "{key} is out twice");
        let (last, times) = self.ran.entry(key.clone()).or_insert((Attempt(0), 0));
        assert!(attempt > *last, "{key}: {attempt:?} after {last:?}");
        (*last, *times) = (attempt, *times + 1);
    }

    /// Of two calls of which one had ended when the other began, the earlier one got the earlier keys. Nothing else became
    /// ready meanwhile.
    fn assert_in_order(&self) {
        let (mut by_begin, mut by_end): (Vec<_>, Vec<_>) =
            self.claims.iter().map(|claim| (claim, claim)).unzip();
        by_begin.sort_by_key(|claim| claim.began);
        by_end.sort_by_key(|claim| claim.ended);
        let (mut ended, mut latest) = (by_end.iter().peekable(), None);
        for claim in by_begin {
            while let Some(before) = ended.next_if(|before| before.ended < claim.began) {
                latest = latest.max(before.places.iter().max());
            }
            let first = claim.places.iter().min();
            assert!(first.is_none() || latest < first, "{first:?} after {latest:?}");
        }
    }
}

/// A daemon with so many workers, every other one of them classic, which end their jobs at once and ask for the next, until
/// there is none.
async fn work(
    store: &mut PostgresStore,
    workers: usize,
    ledger: &Mutex<Ledger>,
) -> Result<(), StoreError> {
    let mut held: Vec<Option<(Key, Attempt)>> = vec![None; workers];
    loop {
        let mut batch = Vec::new();
        for (worker, job) in held.iter_mut().enumerate() {
            let is_leased = worker % 2 == 0;
            if let Some((key, attempt)) = job.take() {
                ledger.lock().unwrap().out.remove(&key);
                match is_leased {
                    true => CompleteAttempt { attempt, exit_code: 0 }.push(&mut batch),
                    false => Complete { key, exit_code: 0 }.push(&mut batch),
                }
            }
            let holder =
                LeaseHolder { worker: format!("worker {worker}").into(), lease_seconds: 600 };
            Dispatch { holder: is_leased.then_some(holder) }.push(&mut batch);
        }
        let began = Instant::now();
        let outcomes = store.apply(0, batch).await?;
        let jobs = outcomes.into_iter().filter_map(|outcome| match outcome.unwrap() {
            Outcome::Dispatch(Dispatched::Job(attempt, job)) => Some(Some((job.key, attempt))),
            Outcome::Dispatch(_) => Some(None),
            _ => None,
        });
        held = jobs.collect();
        let mut ledger = ledger.lock().unwrap();
        ledger.claims.push(Claim::new(began, &held));
        held.iter().flatten().for_each(|(key, attempt)| ledger.take(key, *attempt));
        if held.iter().all(Option::is_none) {
            return Ok(());
        }
    }
}

/// A run's rows, in batches as tails make them.
pub async fn list(store: &mut PostgresStore, fetcher: &str, started: i64, keys: usize) {
    let run = Run { fetcher: fetcher.into(), started };
    apply(store, RegisterRun(run.clone())).await;
    let rows: Vec<Row> = (0..keys)
        .map(|key| Row {
            key: Key::new(&format!("package-{key}")).unwrap(),
            payload: format!("{run} of it"),
        })
        .collect();
    for rows in rows.chunks(250) {
        let batch = RowBatch {
            run: run.clone(),
            rows: rows.to_vec(),
            skipped: 0,
            position: Position::default(),
            complete: true,
            reading: Reading::Onward,
        };
        apply(store, AddRows(batch)).await;
    }
}

async fn apply(store: &mut PostgresStore, request: impl Request) {
    let mut batch: Vec<Operation> = Vec::new();
    request.push(&mut batch);
    store.apply(0, batch).await.unwrap().into_iter().for_each(|outcome| _ = outcome.unwrap());
}

/// Has so many daemons do all there is, and returns how often each key ran.
pub fn work_all(database: &Database, daemons: usize, workers: usize) -> Vec<u32> {
    let ledger = do_all(database, daemons, workers);
    ledger.ran.values().map(|(_, times)| *times).collect()
}

fn do_all(database: &Database, daemons: usize, workers: usize) -> Ledger {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let began = Instant::now();
    thread::scope(|scope| {
        for daemon in 0..daemons {
            let ledger = Arc::clone(&ledger);
            scope.spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut store =
                        support::open(&database.server, daemon, support::options(Rules::default()))
                            .await;
                    work(&mut store, workers, &ledger).await.unwrap();
                });
            });
        }
    });
    let ledger = std::mem::take(&mut *ledger.lock().unwrap());
    assert!(ledger.out.is_empty());
    let jobs: u32 = ledger.ran.values().map(|(_, times)| times).sum();
    println!(
        "{daemons} daemons of {workers}: {:.0} jobs/s",
        f64::from(jobs) / began.elapsed().as_secs_f64()
    );
    ledger
}

/// And in the one order of all (spec 2.1).
#[test]
#[ignore = "needs a server: make test-postgres"]
fn each_key_runs_once_whoever_asks() {
    for (daemons, workers) in [(1, 1), (1, 16), (2, 16), (4, 16)] {
        let database = Database::new();
        let keys = 300 * workers;
        database.with_store(async |store| list(store, "f", 1, keys).await);
        let ledger = do_all(&database, daemons, workers);
        assert_eq!(ledger.ran.values().map(|(_, times)| times).sum::<u32>(), keys as u32);
        ledger.assert_in_order();
    }
}

/// Two fetchers list the same keys: each runs twice, one after the other.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn fetchers_of_the_same_keys_are_both_served() {
    let database = Database::new();
    database.with_store(async |store| {
        list(store, "f", 1, 1_000).await;
        list(store, "g", 1, 1_000).await;
    });
    assert_eq!(work_all(&database, 3, 16), vec![2; 1_000]);
}
