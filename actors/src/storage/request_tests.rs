//! Requests of others than workers over a mock store: single tasks, managed fetchers.

use actix::prelude::*;
use futures_util::future::join;

use super::StorageActor;
use super::messages::{HowAreYou, Perform, TakeJob, Wait, Work};
use crate::testing::{MockStore, Trouble};
use shiftboss_protocol::model::LeaseHolder;
use shiftboss_protocol::model::{Key, Row};
use shiftboss_queue::answers::{EndedRun, FetcherRecord};
use shiftboss_queue::error::{StoreError, StoreResult};
use shiftboss_queue::operation::{
    AddTask, Added, Each, FetcherRecords, ForgetFetcher, HasWork, NoteFetcher,
};

fn add(keys: &[&str]) -> Perform<Each<AddTask>> {
    Perform(Each(keys.iter().map(|key| AddTask { task: task(key), id: None }).collect()))
}

async fn added(storage: &Addr<StorageActor>, keys: &[&str]) -> Vec<Added> {
    let added = storage.send(add(keys)).await.unwrap().unwrap();
    added.into_iter().map(StoreResult::unwrap).collect()
}

fn task(key: &str) -> Row {
    Row { key: Key::new(key).unwrap(), payload: "1".to_owned() }
}

/// A lock that a request found is over once nobody has it, though nothing was written since; a full disk is not.
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
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !lasts && outage(true).await {
            assert!(std::time::Instant::now() < until, "the lock is free");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(outage(true).await, lasts);
    }
}

/// A server that answers no question is away, though nobody has written; a file that cannot be read now may be written to.
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

/// Tasks that are added share a commit, after which each is answered, and whoever waits for work gets it.
#[actix::test]
async fn what_is_added_is_told_after_the_commit() {
    let mock = MockStore::default();
    let (storage, _end) = mock.start();
    let full = StoreError::Full("disk".to_owned());
    mock.trouble("commit", Trouble::Error(full.clone()));
    assert_eq!(storage.send(add(&["a"])).await.unwrap(), Err(full));
    let holder = LeaseHolder { worker: "w".into(), lease_seconds: 60 };
    let waiting = storage.send(Wait { holder });
    let take = TakeJob { ended: (), holder: None };
    assert!(matches!(storage.send(take).await.unwrap(), Ok(((), Work::Nothing))));
    let answers = added(&storage, &["a", "b", "b"]).await;
    assert_eq!(answers, [Added::Added(1), Added::Added(2), Added::Known]);
    match waiting.await.unwrap().unwrap() {
        Work::Job(job) => assert_eq!(job.job.key.as_str(), "a"),
        other => panic!("no job: {other:?}"),
    }
}

fn record() -> FetcherRecord {
    let message = "7 lines".to_owned();
    FetcherRecord {
        name: "links".into(),
        state: "idle".to_owned(),
        run_started: None,
        last_run: Some(EndedRun { started: 90, ended: 95, exit_code: 0, message }),
        next_run: Some(190),
    }
}

/// What is noted or forgotten is answered after the commit, and shown when it is asked for.
#[actix::test]
async fn notes_are_answered_after_the_commit() {
    let mock = MockStore::default();
    let (storage, _end) = mock.start();
    storage.send(Perform(NoteFetcher(record()))).await.unwrap().unwrap();
    assert_eq!(mock.calls(), ["begin", "note_fetcher links", "commit"]);
    assert_eq!(storage.send(Perform(FetcherRecords)).await.unwrap(), Ok(vec![record()]));
    storage.send(Perform(ForgetFetcher("links".into()))).await.unwrap().unwrap();
    let calls = mock.calls();
    let expected = ["fetcher_records", "begin", "forget_fetcher links", "commit"];
    assert_eq!(calls[calls.len() - 4..], expected);
    assert_eq!(storage.send(Perform(FetcherRecords)).await.unwrap(), Ok(vec![]));
}

/// A store that fails is reported to whoever asked, at whichever step, and the next try is a new one.
#[actix::test]
async fn a_failing_store_is_told() {
    let mock = MockStore::default();
    let (storage, _end) = mock.start();
    let full = StoreError::Full("disk".to_owned());
    for step in ["begin", "note_fetcher", "commit"] {
        mock.trouble(step, Trouble::Error(full.clone()));
        let noted = storage.send(Perform(NoteFetcher(record()))).await.unwrap();
        assert_eq!(noted, Err(full.clone()), "{step}");
    }
    for step in ["begin", "forget_fetcher", "commit"] {
        mock.trouble(step, Trouble::Error(full.clone()));
        let forgotten = storage.send(Perform(ForgetFetcher("links".into()))).await.unwrap();
        assert_eq!(forgotten, Err(full.clone()), "{step}");
    }
    mock.trouble("fetcher_records", Trouble::Error(full.clone()));
    assert_eq!(storage.send(Perform(FetcherRecords)).await.unwrap(), Err(full));
    storage.send(Perform(NoteFetcher(record()))).await.unwrap().unwrap();
    assert_eq!(storage.send(Perform(FetcherRecords)).await.unwrap(), Ok(vec![record()]));
}

/// A store that cannot go on ends the actor, as it does for every other request.
#[actix::test]
async fn a_lost_store_ends_the_actor() {
    let mock = MockStore::default();
    let (storage, end) = mock.start();
    let gone = StoreError::Fatal("gone".to_owned());
    mock.trouble("fetcher_records", Trouble::Error(gone.clone()));
    assert_eq!(storage.send(Perform(FetcherRecords)).await.unwrap(), Err(gone.clone()));
    assert_eq!(end.await, Ok(Err(gone)));
}
