//! The StorageActor over a mock store: group commit, failures, undoing, requests that are not from workers, the end.

use std::time::Duration;

use actix::prelude::*;
use futures_util::future::{join, join_all};
use tokio::sync::oneshot;

use super::StorageActor;
use super::messages::*;
use crate::testing::{ManualClock, MockStore, Trouble, until};
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, Row, Run};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{
    AddRows, AddTask, Added, Complete, Dispatch, Each, HasWork, RowBatch,
};

/// A classic worker's request.
const ANY: Dispatch = Dispatch { holder: None, fetchers: None };
const CLASSIC: TakeJob<()> = TakeJob { ended: (), next: ANY };

fn full() -> StoreError {
    StoreError::Full("disk".to_owned())
}

/// Storage over a queue with jobs for these keys.
pub(super) fn over(jobs: &[&str]) -> (MockStore, Addr<StorageActor>) {
    let mock = MockStore::with_jobs(jobs);
    let (storage, _) = mock.start();
    (mock, storage)
}

fn run(started: i64) -> Run {
    Run { fetcher: "f".into(), started }
}

/// The job of an answer, kept.
fn job((_, work): ((), Work)) -> HandOut {
    handed_out(work)
}

pub(super) fn handed_out(work: Work) -> HandOut {
    match work {
        Work::Job(handed_out) => handed_out,
        other => panic!("no job: {other:?}"),
    }
}

/// Messages that are queued together share one commit, and each is answered after it.
#[actix::test]
async fn one_commit_answers_all() {
    let (mock, storage) = over(&["a", "b", "c"]);
    let asked: Vec<_> = (0..3).map(|_| storage.send(CLASSIC)).collect();
    let seen = mock.clone();
    let answers = join_all(asked.into_iter().map(|asked| async {
        let work = asked.await.unwrap().unwrap();
        (work, seen.calls())
    }))
    .await;
    for (work, calls) in answers {
        assert_eq!(calls, ["begin", "dispatch", "dispatch", "dispatch", "commit"]);
        job(work).settle();
    }
}

/// With a remote store, a worker that was answered and asks again shares the next commit with earlier requests; if it
/// does not come, the commit does not wait longer.
#[actix::test]
async fn a_batch_waits_for_company() {
    let mock = MockStore::with_jobs(&["a", "b", "c", "d", "e"]);
    mock.inside().is_remote = true;
    let (storage, _end) = mock.start();
    let both = || join_all([storage.send(CLASSIC), storage.send(CLASSIC)]);
    let settled = |works: Vec<Result<StoreResult<_>, _>>| {
        works.into_iter().for_each(|work| job(work.unwrap().unwrap()).settle());
    };
    settled(both().await);
    tokio::time::pause();
    let first = storage.send(CLASSIC);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(mock.calls(), ["begin", "dispatch", "dispatch", "commit"], "it waits");
    let second = storage.send(CLASSIC);
    settled(vec![first.await, second.await]);
    assert_eq!(mock.calls()[4..], ["begin", "dispatch", "dispatch", "commit"]);
    settled(vec![storage.send(CLASSIC).await]);
}

/// More workers than fit into one batch come back at once: the rest get the next batch, and each gets its answer.
#[actix::test]
async fn requests_that_do_not_fit_have_the_next_batch() {
    let keys: Vec<String> = (0..300).map(|key| format!("{key:03}")).collect();
    let mock = MockStore::with_jobs(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    mock.inside().is_remote = true;
    let (storage, _end) = mock.start();
    // However slow the machine is, the actor's own looks do not interfere.
    tokio::time::pause();
    let first = join_all(keys[..150].iter().map(|_| storage.send(CLASSIC))).await;
    let asked: Vec<_> = first
        .into_iter()
        .map(|work| {
            let job = job(work.unwrap().unwrap());
            let ended = Complete { key: job.job.key.clone(), exit_code: 0 };
            job.settle();
            storage.send(TakeJob { ended, next: ANY })
        })
        .collect();
    for (answer, key) in join_all(asked).await.into_iter().zip(&keys[150..]) {
        let next = job(answer.unwrap().unwrap());
        assert_eq!(next.job.key.as_str(), key);
        next.settle();
    }
    let calls = mock.calls();
    let batches = calls.split(|call| call == "commit");
    let jobs = |batch: &[String]| batch.iter().filter(|call| *call == "dispatch").count();
    assert_eq!(batches.map(jobs).collect::<Vec<_>>(), [150, 128, 22, 0]);
}

/// A message that fails is answered with its error and spoils no neighbour.
#[actix::test]
async fn a_failure_is_its_own() {
    let (mock, storage) = over(&["a", "b", "c"]);
    mock.trouble("finish", Trouble::Error(StoreError::Rejected("no".to_owned())));
    let first = storage.send(CLASSIC);
    let ended = Complete { key: Key::new("x").unwrap(), exit_code: 0 };
    let failing = storage.send(TakeJob { ended, next: ANY });
    let last = storage.send(CLASSIC);
    job(first.await.unwrap().unwrap()).settle();
    assert!(matches!(failing.await.unwrap(), Err(StoreError::Rejected(_))));
    job(last.await.unwrap().unwrap()).settle();
    until("the job that went with it is undone", || mock.undone() == [Attempt(2)]).await;
}

/// A commit that fails fails every request in it. Nothing was dispatched, so nothing is undone.
#[actix::test]
async fn a_failed_commit_hands_nothing_out() {
    let (mock, storage) = over(&["a", "b"]);
    mock.trouble("commit", Trouble::full());
    let asked: Vec<_> = (0..2).map(|_| storage.send(CLASSIC)).collect();
    for asked in asked {
        assert_eq!(asked.await.unwrap().unwrap_err(), full());
    }
    let again = job(storage.send(CLASSIC).await.unwrap().unwrap());
    assert_eq!(again.job.key.as_str(), "a");
    again.settle();
    assert!(mock.undone().is_empty());
}

/// An error that ends the transaction also fails the requests that it had already carried out.
#[actix::test]
async fn the_end_of_a_transaction_is_told_to_all_in_it() {
    let (mock, storage) = over(&["a", "b"]);
    mock.trouble("finish", Trouble::full());
    let first = storage.send(CLASSIC);
    let ended = Complete { key: Key::new("x").unwrap(), exit_code: 0 };
    let failing = storage.send(TakeJob { ended, next: ANY });
    assert_eq!(first.await.unwrap().unwrap_err(), full());
    assert_eq!(failing.await.unwrap().unwrap_err(), full());
    assert!(!mock.calls().contains(&"commit".to_owned()));
}

/// A hand-out that is dropped is undone, one that is settled is not, and one whose requester is gone is undone, too.
#[actix::test]
async fn what_does_not_arrive_is_undone() {
    let (mock, storage) = over(&["a", "b", "c"]);
    job(storage.send(CLASSIC).await.unwrap().unwrap()).settle();
    drop(job(storage.send(CLASSIC).await.unwrap().unwrap()));
    until("the dropped one is undone", || mock.undone() == [Attempt(2)]).await;
    // The request is sent, and its sender gone before the answer.
    let asked = storage.send(CLASSIC);
    let waited = storage.send(Ping);
    drop(tokio::spawn(async {}));
    waited.await.unwrap();
    drop(asked);
    until("so is the one that was not waited for", || mock.undone() == [Attempt(2), Attempt(3)])
        .await;
}

/// An undo that cannot be written is tried until it is.
#[actix::test]
async fn an_undo_is_tried_again() {
    tokio::time::pause();
    let (mock, storage) = over(&["a"]);
    (0..2).for_each(|_| mock.trouble("undo", Trouble::full()));
    drop(job(storage.send(CLASSIC).await.unwrap().unwrap()));
    until("it is undone", || mock.undone() == [Attempt(1)]).await;
    assert_eq!(mock.count("undo 1"), 3);
}

#[actix::test]
async fn rows_come_first_in_their_transaction() {
    let (mock, storage) = over(&["a"]);
    mock.add_run(&run(1), 0);
    let asked = storage.send(CLASSIC);
    let row = Row { key: Key::stored("b"), payload: "1".to_owned() };
    let batch = RowBatch::of(run(1), vec![row]);
    storage.send(Perform(AddRows(batch))).await.unwrap().unwrap();
    job(asked.await.unwrap().unwrap()).settle();
    assert_eq!(mock.calls(), ["begin", "dispatch", "commit", "begin", "add f.1 1", "commit"]);
}

/// Three tails add `rows` rows each, and then a worker asks: the calls of the first transaction.
async fn first_transaction(rows: usize) -> Vec<String> {
    let (mock, storage) = over(&["a"]);
    mock.add_run(&run(1), 0);
    let row = Row { key: Key::stored("b"), payload: "1".to_owned() };
    let batch = || RowBatch::of(run(1), vec![row.clone(); rows]);
    storage.send(Perform(HasWork)).await.unwrap().unwrap();
    let before = mock.calls().len();
    let tails: Vec<_> = (0..3).map(|_| storage.send(Perform(AddRows(batch())))).collect();
    job(storage.send(CLASSIC).await.unwrap().unwrap()).settle();
    for stored in join_all(tails).await {
        stored.unwrap().unwrap();
    }
    let calls = mock.calls().split_off(before);
    calls.into_iter().take_while(|call| call != "commit").collect()
}

/// A worker's request waits for one batch of rows, not for those of all tails; small ones share a transaction.
#[actix::test]
async fn a_request_waits_for_one_batch_of_rows() {
    assert_eq!(first_transaction(40).await, ["begin", "add f.1 40", "dispatch"]);
    let small = ["begin", "add f.1 1", "add f.1 1", "add f.1 1", "dispatch"];
    assert_eq!(first_transaction(1).await, small);
}

/// When nothing happens the store is maintained; after that only its files are checked.
#[actix::test]
async fn an_idle_store_is_looked_after() {
    tokio::time::pause();
    let (mock, storage) = over(&["a"]);
    job(storage.send(CLASSIC).await.unwrap().unwrap()).settle();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(mock.calls().contains(&"idle".to_owned()));
}

/// The end commits what is open and closes the store; the store is not called again.
#[actix::test]
async fn shutdown_commits_and_closes() {
    let (mock, storage) = over(&["a"]);
    let asked = storage.send(CLASSIC);
    assert_eq!(storage.send(Shutdown).await.unwrap(), Ok(()));
    job(asked.await.unwrap().unwrap()).settle();
    assert_eq!(mock.calls(), ["begin", "dispatch", "commit", "close"]);
}

/// The clock is set while the daemon runs: the store gets the difference, once; again, if it could not follow.
#[actix::test]
async fn the_store_follows_the_clock() {
    let mock = MockStore::with_jobs(&["a"]);
    let clock = ManualClock::at(100_000);
    let (tell_end, _end) = oneshot::channel();
    let store = Box::new(mock.clone());
    let storage =
        StorageActor::new(store, Box::new(clock.clone()), Default::default(), tell_end).start();
    let follows = || {
        let calls = mock.calls().into_iter();
        calls.filter(|call| call.starts_with("follow")).collect::<Vec<_>>()
    };
    assert!(storage.send(Perform(HasWork)).await.unwrap().unwrap());
    assert!(follows().is_empty(), "{:?}", mock.calls());
    clock.set(40_000);
    mock.trouble("follow clock", Trouble::full());
    let ended = || Perform(Complete { key: Key::new("b").unwrap(), exit_code: 0 });
    // Due times are not compared with a clock that the store does not follow yet.
    assert_eq!(storage.send(ended()).await.unwrap(), Err(full()));
    for _ in 0..2 {
        storage.send(ended()).await.unwrap().unwrap();
    }
    assert_eq!(follows(), ["follow clock -60000"; 2]);
    clock.set(40_001);
    storage.send(ended()).await.unwrap().unwrap();
    assert_eq!(follows().len(), 2);
    // No request comes.
    clock.set(50_000);
    until("an idle daemon follows, too", || follows().len() == 3).await;
}

fn add(keys: &[&str]) -> Perform<Each<AddTask>> {
    let row = |key: &&str| Row { key: Key::new(key).unwrap(), payload: "1".to_owned() };
    Perform(Each(keys.iter().map(|key| AddTask { task: row(key), id: None }).collect()))
}

/// An outage by a lock is over once the lock is free, even if nothing was written since; one by a full disk is not.
#[actix::test]
async fn a_lock_that_is_over_is_no_outage() {
    for (error, lasts) in
        [(StoreError::Busy("x".into()), false), (StoreError::Full("x".into()), true)]
    {
        let mock = MockStore::default();
        let (storage, _end) = mock.start();
        mock.trouble("commit", Trouble::Error(error.clone()));
        assert_eq!(storage.send(add(&["a"])).await.unwrap(), Err(error));
        let outage =
            async |lock| storage.send(HowAreYou { lock }).await.unwrap().unwrap().outage.is_some();
        assert!(outage(false).await, "known");
        // It is tried again a second later.
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while !lasts && outage(true).await {
            assert!(std::time::Instant::now() < until, "the lock is free");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(outage(true).await, lasts);
    }
}

/// A server that does not answer a read is away, even if nothing was written; a file that cannot be read now may still
/// be writable.
#[actix::test]
async fn a_server_that_answers_no_question_is_away() {
    for is_remote in [false, true] {
        let mock = MockStore::default();
        mock.inside().is_remote = is_remote;
        let (storage, _end) = mock.start();
        mock.trouble("look", Trouble::Error(StoreError::Busy("x".into())));
        // Both are in the batch that fails.
        let (_, health) =
            join(storage.send(Perform(HasWork)), storage.send(HowAreYou { lock: false })).await;
        assert_eq!(health.unwrap().is_ok_and(|health| health.outage.is_some()), is_remote);
    }
}

/// Tasks that are added share a commit, after which each is answered, and waiting workers get them.
#[actix::test]
async fn what_is_added_is_told_after_the_commit() {
    let (mock, storage) = over(&[]);
    mock.trouble("commit", Trouble::full());
    assert_eq!(storage.send(add(&["a"])).await.unwrap(), Err(full()));
    let holder = LeaseHolder { worker: "w".into(), lease_seconds: 60 };
    let waiting = storage.send(Wait(Dispatch { holder: Some(holder), fetchers: None }));
    assert!(matches!(storage.send(CLASSIC).await.unwrap(), Ok(((), Work::Nothing))));
    let answers = storage.send(add(&["a", "b", "b"])).await.unwrap().unwrap();
    let answers: Vec<_> = answers.into_iter().map(StoreResult::unwrap).collect();
    assert_eq!(answers, [Added::Added(1), Added::Added(2), Added::Known]);
    assert_eq!(handed_out(waiting.await.unwrap().unwrap()).job.key.as_str(), "a");
}
