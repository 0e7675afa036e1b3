//! Who has a fetcher, and how another daemon gets it. The ten minutes of that are set back on the server.

use shiftboss_actors::store::{
    AddRows, BeginDeletion, Changed, DeleteRuns, Dispatch, Dispatched, Each, Prune, Reading,
    RegisterRun, Registered, RowBatch, Runs, Store, StoreError, StoreResult, StoredRun,
};
use shiftboss_actors::testing::one_by_one::wait_for;
use shiftboss_protocol::model::{Key, Row, Run};
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::daemons::{PATIENCE, ask, daemon, lease};
use super::support::Database;
use crate::stores::postgres::PostgresStore;

fn run(started: i64) -> Run {
    Run { fetcher: "f".into(), started }
}

pub fn rows(started: i64, keys: &[&str]) -> RowBatch {
    let row = |key: &&str| Row { key: Key::new(key).unwrap(), payload: started.to_string() };
    RowBatch {
        run: run(started),
        rows: keys.iter().map(row).collect(),
        skipped: 0,
        from: None,
        by_range: false,
        position: Default::default(),
        complete: true,
        reading: Reading::Onward,
    }
}

/// As the watcher does, with all runs that it has.
async fn register(store: &mut PostgresStore, runs: &[i64]) -> Vec<StoreResult<Registered>> {
    let request = Each(runs.iter().map(|started| RegisterRun(run(*started))).collect());
    ask(store, request).await.unwrap()
}

/// A list that is a daemon's own.
async fn list(store: &mut PostgresStore, started: i64, keys: &[&str]) {
    registered(register(store, &[started]).await.remove(0));
    ask(store, AddRows(rows(started, keys))).await.unwrap();
}

fn registered(answer: StoreResult<Registered>) -> StoredRun {
    match answer {
        Ok(Registered::Run(stored)) => stored,
        other => panic!("{other:?}"),
    }
}

fn elsewhere(answers: Vec<StoreResult<Registered>>) -> String {
    let mut answers = answers.into_iter().map(|answer| match answer {
        Ok(Registered::Elsewhere(why)) => why,
        other => panic!("{other:?}"),
    });
    let why = answers.next().unwrap();
    assert!(answers.all(|other| other == why));
    why
}

/// Waits for something that a query tells.
async fn until(outside: &Client, query: &str) {
    let end = Instant::now() + PATIENCE;
    while !outside.query_one(query, &[]).await.unwrap().get::<_, bool>(0) {
        assert!(Instant::now() < end, "never: {query}");
        sleep(std::time::Duration::from_millis(50)).await;
    }
}

const GONE: &str = "SELECT bool_or(gone_at IS NOT NULL) FROM daemons";
/// Ten minutes and a second go by for daemons that are gone, and for fetchers that were left.
const LATER: &str = "UPDATE daemons SET gone_at = gone_at - 601;
    UPDATE fetcher_owners SET left_at = left_at - 601";

/// Every key that is handed out, with the payload; nothing more is to be had then.
async fn take_all(store: &mut PostgresStore) -> Vec<String> {
    let mut jobs = Vec::new();
    loop {
        match ask(store, Dispatch { holder: None, fetchers: None }).await.unwrap() {
            Dispatched::Job(_, job) => jobs.push(format!("{} {}", job.key, job.payload)),
            Dispatched::Nothing => break,
            Dispatched::Later => {}
        }
    }
    jobs.sort();
    jobs
}

/// Two daemons with lists of one name: the second one's are rejected, and do nothing to the first one's; also for ten minutes
/// after that one has had no list of it any more.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_fetcher_belongs_to_one_daemon() {
    let database = Database::new();
    wait_for(async {
        let outside = database.outside().await;
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        list(&mut one, 1, &["a", "b"]).await;
        let why = elsewhere(register(&mut other, &[1, 2]).await);
        assert!(why.contains("the daemon daemon 0;") && why.contains("10m"), "{why}");
        assert_eq!(ask(&mut other, DeleteRuns { runs: vec![run(1)], limit: 10 }).await, Ok(1));
        assert_eq!(ask(&mut other, Runs).await, Ok(Vec::new()));
        assert_eq!(ask(&mut one, Runs).await.unwrap().len(), 1);
        ask(&mut one, DeleteRuns { runs: vec![run(1)], limit: 10 }).await.unwrap();
        elsewhere(register(&mut other, &[2]).await);
        list(&mut one, 3, &["a"]).await;
        outside.batch_execute(LATER).await.unwrap();
        elsewhere(register(&mut other, &[2]).await);
        ask(&mut one, DeleteRuns { runs: vec![run(3)], limit: 10 }).await.unwrap();
        outside.batch_execute(LATER).await.unwrap();
        registered(register(&mut other, &[2]).await.remove(0));
        elsewhere(register(&mut one, &[3]).await);
    });
}

/// Of a dead daemon's fetcher the lists that its new one lacks leave the queue, and those that it has are read anew; the old
/// daemon, when it is back, can do nothing to any of them.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_dead_daemons_fetcher_is_taken_over() {
    let database = Database::new();
    wait_for(async {
        let outside = database.outside().await;
        let mut heir = daemon(&database.server, 1).await;
        let mut dead = daemon(&database.server, 0).await;
        list(&mut dead, 1, &["a", "b"]).await;
        list(&mut dead, 2, &["b", "c", "d"]).await;
        let (attempt, _) = lease(&mut dead).await.unwrap();
        drop(dead);
        until(&outside, GONE).await;
        elsewhere(register(&mut heir, &[1, 3]).await);
        outside.batch_execute(LATER).await.unwrap();

        let answers = register(&mut heir, &[1, 3]).await;
        let [both, new] = <[_; 2]>::try_from(answers).unwrap().map(registered);
        assert_eq!((both.rows, both.complete, both.stale), (2, false, true));
        assert_eq!((both.position, new.position, new.rows), (None, None, 0));
        let end = shiftboss_actors::store::CompleteAttempt { attempt, exit_code: 0 };
        ask(&mut heir, end).await.unwrap();
        // Whether rows of the second list were deleted by now or not, they are not handed out.
        assert!(take_all(&mut heir).await.iter().all(|job| job.ends_with(" 1")));
        until(&outside, "SELECT count(*) = 2 FROM queue").await;
        until(&outside, "SELECT count(*) = 2 FROM runs WHERE run <> 0").await;

        let mut back = daemon(&database.server, 0).await;
        let told = std::future::poll_fn(|task| back.poll_changed(task)).await;
        assert_eq!(told, Changed::Runs);
        assert_eq!(ask(&mut back, Runs).await, Ok(Vec::new()));
        for started in [1, 2] {
            let refused = ask(&mut back, AddRows(rows(started, &["e"]))).await;
            assert!(matches!(refused, Err(StoreError::Rejected(_))), "{refused:?}");
            ask(&mut back, BeginDeletion(run(started))).await.unwrap();
            ask(&mut back, DeleteRuns { runs: vec![run(started)], limit: 10 }).await.unwrap();
            assert_eq!(ask(&mut back, Prune { run: run(started), limit: 10 }).await, Ok(false));
        }
        let why = elsewhere(register(&mut back, &[1, 2]).await);
        assert!(why.contains("the daemon daemon 1;"), "{why}");
        let known = ask(&mut heir, Runs).await.unwrap();
        assert!(known.len() == 2 && known.iter().all(|stored| !stored.deleting), "{known:?}");
        assert_eq!(known.iter().map(|stored| stored.rows).sum::<u64>(), 2);
    });
}

/// A daemon that was stopped has ten minutes, too; one that is back before has its fetcher as it was.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_daemon_that_comes_back_in_time_keeps_its_fetchers() {
    let database = Database::new();
    wait_for(async {
        let outside = database.outside().await;
        let mut other = daemon(&database.server, 1).await;
        for _ in 0..2 {
            let mut owner = daemon(&database.server, 0).await;
            list(&mut owner, 1, &["a"]).await;
            owner.close().await.unwrap();
            until(&outside, GONE).await;
            outside.batch_execute("UPDATE daemons SET gone_at = gone_at - 590").await.unwrap();
            elsewhere(register(&mut other, &[2]).await);
        }
        let mut owner = daemon(&database.server, 0).await;
        outside.batch_execute(LATER).await.unwrap();
        elsewhere(register(&mut other, &[2]).await);
        let known = ask(&mut owner, Runs).await.unwrap();
        assert_eq!(known.iter().map(|stored| &stored.run).collect::<Vec<_>>(), [&run(1)]);
    });
}

/// A list of the same number that was being deleted when its daemon died is deleted to its end before it is had anew.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_deletion_that_was_under_way_is_ended_first() {
    let database = Database::new();
    wait_for(async {
        let outside = database.outside().await;
        let mut heir = daemon(&database.server, 1).await;
        let mut dead = daemon(&database.server, 0).await;
        list(&mut dead, 1, &["a", "b"]).await;
        ask(&mut dead, BeginDeletion(run(1))).await.unwrap();
        dead.close().await.unwrap();
        until(&outside, GONE).await;
        outside.batch_execute(LATER).await.unwrap();
        let why = elsewhere(register(&mut heir, &[1]).await);
        assert!(why.contains("being deleted"), "{why}");
        until(&outside, "SELECT count(*) = 0 FROM queue").await;
        until(&outside, "SELECT count(*) = 0 FROM runs WHERE run <> 0").await;
        assert_eq!(registered(register(&mut heir, &[1]).await.remove(0)).rows, 0);
    });
}

/// A daemon whose only list is gone, and a connection beside it.
async fn with_fetcher_left(database: &Database) -> (Client, PostgresStore) {
    let outside = database.outside().await;
    let mut store = daemon(&database.server, 0).await;
    list(&mut store, 1, &["a"]).await;
    ask(&mut store, DeleteRuns { runs: vec![run(1)], limit: 10 }).await.unwrap();
    (outside, store)
}

/// Who had a fetcher is forgotten once anybody may have it.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn fetchers_that_were_left_are_forgotten() {
    let database = Database::new();
    wait_for(async {
        let (outside, _store) = with_fetcher_left(&database).await;
        until(&outside, "SELECT count(*) = 1 FROM fetcher_owners WHERE left_at > 0").await;
        outside.batch_execute(LATER).await.unwrap();
        until(&outside, "SELECT count(*) = 0 FROM fetcher_owners").await;
    });
}

/// A daemon that takes fetchers over sooner than others does not forget for them who had one.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn who_had_a_fetcher_is_known_to_those_that_wait_longer() {
    let database = Database::new();
    wait_for(async {
        let (outside, _store) = with_fetcher_left(&database).await;
        let _other = daemon(&database.server, 1).await;
        let sooner = "UPDATE daemons SET takeover = 60 WHERE name = 'daemon 1';
            UPDATE fetcher_owners SET left_at = left_at - 100";
        outside.batch_execute(sooner).await.unwrap();
        let tidy = "SELECT tidy_fetchers(daemon, epoch, 250) FROM daemons WHERE takeover = 60";
        outside.query_one(tidy, &[]).await.unwrap();
        until(&outside, "SELECT count(*) = 1 FROM fetcher_owners").await;
    });
}
