//! Runs whose files are gone: marked at once, deleted in steps.

use std::time::Duration;

use tokio::time::{Instant, pause};

use super::{Site, real};
use crate::storage::messages::{TakeJob, Work};
use crate::store::STEP_ROWS;
use crate::testing::{MockStore, Trouble, until};
use shiftboss_protocol::model::Run;
use shiftboss_queue::operation::Dispatch;

fn run(started: i64) -> Run {
    Run { fetcher: "f".into(), started }
}

/// A watcher that finds nothing of the one run that the store knows, which goes in three steps.
async fn without_its_file(mock: MockStore) -> Site {
    mock.add_run(&run(1), 2 * STEP_ROWS + STEP_ROWS / 2);
    Site::started(mock, real()).await
}

async fn is_gone(site: &Site) {
    until("the run is gone", || site.mock.runs().is_empty()).await;
}

/// A deletion is marked before the next request, and goes in steps, each committed; requests are
/// answered in between.
#[actix::test]
async fn a_deletion_lets_others_in() {
    pause();
    let site = without_its_file(MockStore::with_jobs(&["a"])).await;
    let taken = site.storage.send(TakeJob { ended: (), next: Dispatch::default() }).await.unwrap();
    assert!(matches!(taken, Ok(((), Work::Job(_)))), "{taken:?}");
    is_gone(&site).await;
    let calls = site.mock.calls();
    let first = |call: &str| calls.iter().position(|known| known == call).unwrap();
    assert!(first("mark f.1") < first("dispatch") && first("dispatch") < first("delete f.1"));
    assert_eq!(site.calls("delete f.1"), 3);
    assert!(site.calls("commit") >= 4);
}

/// Runs that go together are marked in one commit.
#[actix::test]
async fn deletions_share_a_commit() {
    let mock = MockStore::default();
    (2..4).for_each(|started| mock.add_run(&run(started), 0));
    let site = without_its_file(mock).await;
    is_gone(&site).await;
    let calls = site.mock.calls();
    assert!(calls.windows(3).any(|calls| *calls == ["mark f.1", "mark f.2", "mark f.3"]));
}

/// A mark that is not on disk is tried again, and nothing is deleted before.
#[actix::test]
async fn a_deletion_that_cannot_begin_is_tried_again() {
    pause();
    let mock = MockStore::default();
    mock.trouble("mark", Trouble::full());
    let site = without_its_file(mock).await;
    is_gone(&site).await;
    let calls = site.mock.calls();
    let calls = calls.iter().filter(|call| call.ends_with("f.1")).take(3);
    assert_eq!(calls.collect::<Vec<_>>(), ["mark f.1", "mark f.1", "delete f.1"]);
}

/// Deletes the run while calls of one kind fail; returns how many steps that took, and how long.
async fn delete_through(call: &'static str, troubles: Vec<Trouble>) -> (usize, Duration) {
    let mock = MockStore::default();
    troubles.into_iter().for_each(|trouble| mock.trouble(call, trouble));
    let began = Instant::now();
    let site = without_its_file(mock).await;
    is_gone(&site).await;
    (site.calls("delete f.1"), began.elapsed())
}

/// A deletion once begun is never forgotten: a step that fails is tried again after a pause. The deletion ends only
/// once the last step's commit succeeds.
#[actix::test]
async fn a_step_that_fails_is_tried_again() {
    pause();
    let (steps, took) = delete_through("delete", vec![Trouble::full(); 2]).await;
    assert!(steps == 5 && took >= Duration::from_secs(2), "{steps} {took:?}");
    let last = [vec![Trouble::None; 3], vec![Trouble::full()]].concat();
    let (steps, took) = delete_through("commit", last).await;
    assert!(steps == 4 && took >= Duration::from_secs(1), "{steps} {took:?}");
}
