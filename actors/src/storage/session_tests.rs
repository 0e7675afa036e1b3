//! The StorageActor's part of protocol 2, over a mock store and a clock that stands still.

use std::time::Duration;

use actix::prelude::*;
use futures_util::FutureExt;
use tokio::time::{Instant, advance, pause, timeout};

use crate::storage::StorageActor;
use crate::storage::messages::*;
use crate::storage::tests::{handed_out, over};
use crate::testing::{MockStore, Trouble};
use shiftboss_protocol::model::{Attempt, Key, LeaseHolder, Row, Run};
use shiftboss_queue::error::StoreResult;
use shiftboss_queue::operation::{
    Ack, AddRows, AddTask, CompleteAttempt, Dispatch, Dispatched, Heartbeat, Outcome, Release,
    Request, Requeue, RowBatch, Stop, Stopped,
};

const DRAIN: Pause = Pause { paused: true, drains: true };

/// A lease of ten seconds.
fn by(worker: &str) -> Dispatch {
    Dispatch { holder: Some(holder(worker)), fetchers: None }
}

fn holder(worker: &str) -> LeaseHolder {
    LeaseHolder { worker: worker.into(), lease_seconds: 10 }
}

async fn take(storage: &Addr<StorageActor>) -> Attempt {
    let taken = storage.send(TakeJob { ended: (), next: by("w") }).await.unwrap();
    let job = handed_out(taken.unwrap().1);
    let attempt = job.attempt;
    job.settle();
    attempt
}

async fn tell<R>(storage: &Addr<StorageActor>, word: R) -> StoreResult<Ack>
where
    R: Request<Answer = Ack>,
{
    storage.send(Perform(word)).await.unwrap()
}

fn done(attempt: Attempt, exit_code: i64) -> CompleteAttempt {
    CompleteAttempt { attempt, exit_code }
}

/// Storage over a queue with jobs for these keys, while the clock stands.
fn paused(jobs: &[&str]) -> (MockStore, Addr<StorageActor>) {
    pause();
    over(jobs)
}

/// Lets time pass, and the actor do what is due.
async fn pass(seconds: u64, storage: &Addr<StorageActor>) {
    advance(Duration::from_secs(seconds)).await;
    for _ in 0..3 {
        tokio::task::yield_now().await;
        storage.send(Ping).await.unwrap();
    }
}

/// A lease runs for its length from the hand-out and from every beat, and then ends once.
#[actix::test]
async fn a_lease_ends_unless_it_is_extended() {
    let (mock, storage) = paused(&["a"]);
    let attempt = take(&storage).await;
    pass(9, &storage).await;
    assert_eq!(tell(&storage, Heartbeat(attempt)).await, Ok(Ack::Recorded));
    pass(9, &storage).await;
    assert_eq!(mock.count("expire 1"), 0);
    pass(2, &storage).await;
    assert_eq!(mock.count("expire 1"), 1);
    assert_eq!(tell(&storage, Heartbeat(attempt)).await, Ok(Ack::Stale));
    pass(60, &storage).await;
    assert_eq!(mock.count("expire 1"), 1);
}

#[actix::test]
async fn ended_attempts_have_no_lease() {
    let (mock, storage) = paused(&["a", "b", "c"]);
    let ended = take(&storage).await;
    assert_eq!(tell(&storage, done(ended, 3)).await, Ok(Ack::Recorded));
    let released = take(&storage).await;
    assert_eq!(tell(&storage, Release(released)).await, Ok(Ack::Recorded));
    let undone = storage.send(TakeJob { ended: (), next: by("w") }).await.unwrap();
    drop(undone);
    pass(60, &storage).await;
    let expired = mock.calls().into_iter().filter(|call| call.starts_with("expire")).count();
    assert_eq!((expired, mock.count("done 1 3"), mock.count("release 2")), (0, 1, 1));
}

/// Leases that the store knows at the start run for their whole length.
#[actix::test]
async fn leases_begin_anew_at_the_start() {
    pause();
    let mock = MockStore::with_jobs(&["a"]);
    let (first, _) = mock.start();
    let attempt = take(&first).await;
    pass(8, &first).await;
    first.send(Shutdown).await.unwrap().unwrap();
    let (second, _) = mock.start();
    second.send(Ping).await.unwrap();
    pass(9, &second).await;
    assert_eq!(mock.count("expire 1"), 0);
    pass(2, &second).await;
    assert_eq!((attempt.0, mock.count("expire 1")), (1, 1));
}

/// A worker that got its job from another daemon and goes on here has its lease here from then on.
#[actix::test]
async fn a_beat_brings_a_lease_along() {
    pause();
    let mock = MockStore::default();
    let (storage, _) = mock.start();
    pass(1, &storage).await;
    let task = Row { key: Key::new("a").unwrap(), payload: String::new() };
    mock.others_do(AddTask { task, id: None }.into());
    let dispatch = Dispatch { holder: Some(holder("w")), fetchers: None };
    let Outcome::Dispatch(Dispatched::Job(attempt, _, _)) = mock.others_do(dispatch.into()) else {
        panic!("no job")
    };
    assert_eq!(tell(&storage, Heartbeat(attempt)).await, Ok(Ack::Recorded));
    pass(1, &storage).await;
    pass(9, &storage).await;
    assert_eq!(mock.count("expire 1"), 0);
    pass(2, &storage).await;
    assert_eq!(mock.count("expire 1"), 1);
}

/// If a lease's end cannot be written it is tried again; if the commit of an attempt's end failed, the lease goes on.
#[actix::test]
async fn failures_leave_no_lease_behind() {
    let (mock, storage) = paused(&["a", "b"]);
    take(&storage).await;
    mock.trouble("expire", Trouble::full());
    pass(11, &storage).await;
    pass(2, &storage).await;
    assert_eq!(mock.count("expire 1"), 2);

    let attempt = take(&storage).await;
    mock.trouble("commit", Trouble::full());
    assert!(tell(&storage, done(attempt, 0)).await.is_err());
    pass(1, &storage).await;
    pass(11, &storage).await;
    assert_eq!(mock.count("expire 2"), 1);
}

/// New jobs go to waiting workers, the longest waiting first, one each.
#[actix::test]
async fn those_who_wait_are_served_in_order() {
    let (mock, storage) = paused(&[]);
    let waits: Vec<_> =
        ["first", "gone", "second", "third"].map(|name| storage.send(Wait(by(name)))).into();
    let [first, gone, second, third] = <[_; 4]>::try_from(waits).ok().unwrap();
    storage.send(Ping).await.unwrap();
    drop(gone);
    let row = |key: &str| Row { key: Key::new(key).unwrap(), payload: String::new() };
    let run = Run { fetcher: "f".into(), started: 1 };
    mock.add_run(&run, 0);
    let batch = RowBatch::of(run, vec![row("a"), row("b")]);
    storage.send(Perform(AddRows(batch))).await.unwrap().unwrap();
    for (waits, key) in [(first, "a"), (second, "b")] {
        let job = handed_out(waits.await.unwrap().unwrap());
        assert_eq!(job.job.key.as_str(), key);
        job.settle();
    }
    let waits_on = timeout(Duration::from_millis(1), third);
    assert!(waits_on.await.is_err());
    assert_eq!(mock.count("dispatch gone"), 0);
}

/// Who waits for the tasks of a fetcher that has none keeps nobody waiting that waits for others.
#[actix::test]
async fn each_waits_for_its_fetchers() {
    let (mock, storage) = paused(&[]);
    let of =
        |name: &str, fetcher: &str| Dispatch { fetchers: Some(vec![fetcher.into()]), ..by(name) };
    let [first, second] = [of("first", "g"), of("second", "f")].map(|it| storage.send(Wait(it)));
    storage.send(Ping).await.unwrap();
    let row = Row { key: Key::new("a").unwrap(), payload: String::new() };
    let run = Run { fetcher: "f".into(), started: 1 };
    mock.add_run(&run, 0);
    storage.send(Perform(AddRows(RowBatch::of(run, vec![row])))).await.unwrap().unwrap();
    let job = handed_out(second.await.unwrap().unwrap());
    assert_eq!((job.job.key.as_str(), &*job.about.fetcher), ("a", "f"));
    job.settle();
    assert!(timeout(Duration::from_millis(1), first).await.is_err());
}

/// The end of a lease wakes waiting workers.
#[actix::test]
async fn the_end_of_a_lease_wakes() {
    let (_mock, storage) = paused(&["a"]);
    take(&storage).await;
    let began = Instant::now();
    let waits = storage.send(Wait(by("x"))).await.unwrap().unwrap();
    assert!(matches!(waits, Work::Job(_)));
    // Ten seconds, with no look in between that finds the job by chance.
    assert!((10_000..10_100).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}

/// A locked database is waited for once, not once for each waiter or lease. Waiting workers get no error, and a beat
/// extends a lease whose end could not be written.
#[actix::test]
async fn a_lock_is_waited_for_once() {
    let (mock, storage) = paused(&["a", "b"]);
    let attempts = [take(&storage).await, take(&storage).await];
    let waits: Vec<_> = (0..20).map(|_| Box::pin(storage.send(Wait(by("x"))))).collect();
    storage.send(Ping).await.unwrap();
    pass(1, &storage).await;
    (0..100).for_each(|_| mock.trouble("begin", Trouble::busy()));
    let before = mock.count("begin");
    pass(10, &storage).await;
    assert_eq!(mock.count("begin") - before, 1, "one lease is tried, the other left");
    assert_eq!(tell(&storage, Heartbeat(attempts[1])).await, Ok(Ack::Recorded));
    mock.inside().troubles.clear();
    pass(5, &storage).await;
    assert_eq!((mock.count("expire 1"), mock.count("expire 2")), (1, 0));
    let served = futures_util::future::select_all(waits).await;
    assert!(matches!(served.0.unwrap().unwrap(), Work::Job(_)));
}

/// A drain that could not be written does not begin.
#[actix::test]
async fn a_refused_drain_does_not_drain() {
    pause();
    let mock = MockStore::default();
    let (storage, mut drained) = mock.start();
    for call in ["drain", "commit"] {
        mock.trouble(call, Trouble::busy());
        assert!(storage.send(DRAIN).await.unwrap().is_err());
        pass(2, &storage).await;
        assert!(drained.try_recv().is_err(), "{call}");
    }
}

/// A release and an undo wake waiting workers; so does another process's write, within a second.
#[actix::test]
async fn whatever_frees_a_job_wakes() {
    let (mock, storage) = paused(&["a"]);
    let attempt = take(&storage).await;
    let waits = storage.send(Wait(by("x")));
    storage.send(Ping).await.unwrap();
    assert_eq!(tell(&storage, Release(attempt)).await, Ok(Ack::Recorded));
    let job = waits.await.unwrap().unwrap();
    let waits = storage.send(Wait(by("y")));
    storage.send(Ping).await.unwrap();
    drop(job);
    mock.add_job("outside", "1");
    let began = Instant::now();
    handed_out(waits.await.unwrap().unwrap()).settle();
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// A store that is notified of work is polled only as often as it asks; but soon after a failure.
#[actix::test]
async fn a_store_that_is_told_of_work_is_rarely_looked_at() {
    pause();
    let mock = MockStore::default();
    mock.inside().look_every = Duration::from_secs(30);
    let (storage, _) = mock.start();
    let waits = storage.send(Wait(by("x")));
    pass(1, &storage).await;
    let looks = async |seconds: u64| {
        let before = mock.count("look");
        for _ in 0..seconds {
            pass(1, &storage).await;
        }
        mock.count("look") - before
    };
    assert_eq!((looks(27).await, looks(3).await), (0, 1));
    mock.trouble("look", Trouble::busy());
    assert_eq!(looks(27).await, 0);
    assert!((2..5).contains(&looks(5).await), "the one that failed is made again at once");
    mock.trouble("dispatch", Trouble::busy());
    mock.add_job("told", "1");
    let began = Instant::now();
    assert!(matches!(waits.await, Ok(Ok(Work::Job(_)))));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

/// A beat that waits is answered at once when its job is to stop or is over, by whomever, and others are not.
#[actix::test]
async fn waiting_beats_are_answered() {
    let (mock, storage) = paused(&["a", "b", "c"]);
    let waits = async || Box::pin(storage.send(WaitForStop(take(&storage).await)));
    let [mut stopped, mut elsewhere, over] = [waits().await, waits().await, waits().await];
    pass(1, &storage).await;
    let stop = Stop(Key::new("a").unwrap());
    let answer = storage.send(Perform(stop)).await.unwrap().unwrap();
    assert_eq!(answer, Stopped::Asked { attempt: Attempt(1), worker: "w".into() });
    assert_eq!((&mut stopped).now_or_never(), Some(Ok(Ack::Stopping)));
    let requeue = Requeue(Key::new("c").unwrap());
    storage.send(Perform(requeue)).await.unwrap().unwrap();
    assert_eq!(over.now_or_never(), Some(Ok(Ack::Stale)));
    assert_eq!((&mut elsewhere).now_or_never(), None);
    let looks = mock.count("stops");
    pass(2, &storage).await;
    assert_eq!(mock.count("stops"), looks, "nothing changed");
    mock.stop("b");
    pass(1, &storage).await;
    assert_eq!(elsewhere.now_or_never(), Some(Ok(Ack::Stopping)));
    pass(2, &storage).await;
    assert_eq!(mock.count("stops"), looks + 1);
}

/// A drain pauses, reports how many jobs are out, and is over with the last one; a resume ends it.
#[actix::test]
async fn a_drain_waits_for_the_last_job() {
    pause();
    let mock = MockStore::with_jobs(&["a", "b"]);
    let (storage, mut drained) = mock.start();
    let attempts = [take(&storage).await, take(&storage).await];
    assert_eq!(storage.send(DRAIN).await.unwrap(), Ok(2));
    let resume = Pause { paused: false, drains: false };
    assert_eq!(storage.send(resume).await.unwrap(), Ok(2));
    assert_eq!(tell(&storage, done(attempts[0], 0)).await, Ok(Ack::Recorded));
    assert_eq!(storage.send(DRAIN).await.unwrap(), Ok(1));
    pass(1, &storage).await;
    assert!(drained.try_recv().is_err());
    assert_eq!(tell(&storage, done(attempts[1], 0)).await, Ok(Ack::Recorded));
    pass(1, &storage).await;
    assert_eq!(drained.try_recv(), Ok(Ok(())));
    assert_eq!((mock.count("drain"), mock.count("pause no")), (2, 1));
}
