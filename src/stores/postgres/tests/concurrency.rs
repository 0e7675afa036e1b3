//! Daemons that work at the same time, each on a thread of its own: whatever they do to each other, no key is out twice, none is
//! lost, and none waits while later ones are handed out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use shiftboss_actors::file_identity::Position;
use shiftboss_actors::store::{
    AddRows, Complete, CompleteAttempt, Dispatch, Dispatched, LeaseHolder, Operation, Outcome,
    Reading, RegisterRun, Request, Retry, RowBatch, Store, StoreError,
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
            Dispatch { holder: is_leased.then_some(holder), fetchers: None }.push(&mut batch);
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
            from: None,
            by_range: false,
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

/// One call of a daemon whose jobs end at once and are put back in the queue: from when to when, what it put back, and what it was
/// handed out then.
struct Cycle {
    began: Instant,
    ended: Instant,
    put_back: Vec<Key>,
    given: Vec<Key>,
}

/// Works so many calls.
async fn cycle(store: &mut PostgresStore, workers: usize, calls: usize) -> Vec<Cycle> {
    let mut held: Vec<(Key, Attempt)> = Vec::new();
    let mut cycles = Vec::new();
    for _ in 0..calls {
        let (mut batch, mut put_back) = (Vec::new(), Vec::new());
        for (key, attempt) in held.drain(..) {
            CompleteAttempt { attempt, exit_code: 0 }.push(&mut batch);
            Retry { key: key.clone(), fetcher: None }.push(&mut batch);
            put_back.push(key);
        }
        for _ in 0..workers {
            let holder = LeaseHolder { worker: "worker".into(), lease_seconds: 600 };
            Dispatch { holder: Some(holder), fetchers: None }.push(&mut batch);
        }
        let began = Instant::now();
        let outcomes = store.apply(0, batch).await.unwrap();
        held.extend(outcomes.into_iter().filter_map(|outcome| match outcome.unwrap() {
            Outcome::Dispatch(Dispatched::Job(attempt, job)) => Some((job.key, attempt)),
            _ => None,
        }));
        let given = held.iter().map(|(key, _)| key.clone()).collect();
        cycles.push(Cycle { began, ended: Instant::now(), put_back, given });
    }
    cycles
}

/// The most jobs that were asked for and handed out while one key waited, from when it was put back until the call began that had
/// it; and how often the rarest key was handed out.
fn longest_wait(cycles: &[Cycle], keys: usize) -> (usize, usize) {
    let (mut longest, mut times) = (0, HashMap::<&Key, usize>::new());
    for back in cycles {
        for key in &back.put_back {
            let had = |cycle: &&Cycle| cycle.began > back.began && cycle.given.contains(key);
            let until = cycles.iter().filter(had).map(|cycle| cycle.began).min();
            let until = until.unwrap_or_else(|| cycles.iter().map(|it| it.ended).max().unwrap());
            let is_between = |it: &&Cycle| it.began > back.ended && it.ended < until;
            let passed = cycles.iter().filter(is_between).map(|it| it.given.len()).sum();
            // What was handed out again in the call that put it back did not wait.
            longest = longest.max(if back.given.contains(key) { 0 } else { passed });
        }
        back.given.iter().for_each(|key| *times.entry(key).or_default() += 1);
    }
    let rarest = times.values().copied().min().filter(|_| times.len() == keys);
    (longest, rarest.unwrap_or(0))
}

/// Each call has a second of its own, for keys of one second are ordered by their jitter alone.
const TICKS: &str = "SET search_path = shiftboss; CREATE SEQUENCE ticks START 1000000;
    CREATE OR REPLACE FUNCTION now_ms() RETURNS int8 LANGUAGE sql AS 'SELECT nextval(''ticks'') * 1000'";

/// Daemons claim without end, and what they end is put back at once: each key comes again before any other one comes twice.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn no_key_starves() {
    const KEYS: usize = 120;
    const CALLS: usize = 150;
    let database = Database::new();
    database.with_store(async |store| {
        list(store, "f", 1, KEYS).await;
        database.outside().await.batch_execute(TICKS).await.unwrap();
    });
    let work = &|daemon: usize| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = support::options(Rules::default());
            let mut store = support::open(&database.server, daemon, options).await;
            cycle(&mut store, 8, CALLS).await
        })
    };
    let cycles: Vec<_> = thread::scope(|scope| {
        let daemons: Vec<_> = (0..3).map(|daemon| scope.spawn(move || work(daemon))).collect();
        daemons.into_iter().flat_map(|daemon| daemon.join().unwrap()).collect()
    });
    let (longest, rarest) = longest_wait(&cycles, KEYS);
    println!("at most {longest} before a key that waited; each came {rarest} times or more");
    assert!(longest <= KEYS, "{longest} were handed out while one of {KEYS} keys waited");
    let all: usize = cycles.iter().map(|cycle| cycle.given.len()).sum();
    assert!(rarest >= all / KEYS / 2, "one of {KEYS} keys came {rarest} times of {all}");
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
