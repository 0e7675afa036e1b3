//! What others do between a claim's snapshot and its locks, and what a claim does not find because others hold it.

use std::time::Duration;

use shiftboss_actors::store::{
    Ack, BeginDeletion, DeleteRuns, Dispatch, Dispatched, Each, LeaseHolder, Release,
};
use shiftboss_actors::testing::one_by_one::wait_for;
use shiftboss_protocol::model::Run;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::concurrency::list;
use super::daemons::{PATIENCE, ask, daemon, lease};
use super::support::Database;

fn dispatch() -> Dispatch {
    let holder = LeaseHolder { worker: "worker".into(), lease_seconds: 600 };
    Dispatch { holder: Some(holder), fetchers: None }
}

/// Waits until a call of the function `apply` waits for a lock.
pub async fn until_apply_waits(outside: &Client) {
    until_waits(outside, "%FROM apply(%").await;
}

/// Until a statement like that waits for a lock.
pub async fn until_waits(outside: &Client, statement: &str) {
    let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
        AND query LIKE $1 AND datname = current_database()";
    let began = Instant::now();
    while outside.query(waits, &[&statement]).await.unwrap().is_empty() {
        assert!(began.elapsed() < PATIENCE, "nobody waits");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A list is read anew, with other payloads, while a claim is under way that began before: their rows are dispatched.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_row_that_changes_under_its_claim_is_dispatched() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 2).await;
        let outside = database.server.connect().await.unwrap();
        // The first key is locked by then, and the claim gets no number for it.
        outside
            .client
            .batch_execute("BEGIN; ALTER SEQUENCE attempt_numbers OWNED BY NONE")
            .await
            .unwrap();
        let both = Each(vec![dispatch(), dispatch()]);
        let change = async {
            until_apply_waits(&outside.client).await;
            let other = database.server.connect().await.unwrap();
            let sql = "UPDATE queue SET payload = 'new'";
            other.client.batch_execute(sql).await.unwrap();
            outside.client.batch_execute("COMMIT").await.unwrap();
        };
        let (jobs, ()) = tokio::join!(ask(&mut store, both), change);
        assert!(jobs.unwrap().iter().all(|job| matches!(job, Ok(Dispatched::Job(..)))));
        let waiting = "SELECT count(*) FROM queue WHERE NOT dispatched";
        let row = outside.client.query_one(waiting, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 0, "a row whose job was handed out waits still");
    });
}

/// Somebody has locked all there is, and may give it back: that is not nothing. A claim that went on behind it finds it then.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn what_is_locked_is_not_nothing() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 2).await;
        let outside = database.server.connect().await.unwrap();
        let first = "BEGIN; SELECT FROM log WHERE key_id =
            (SELECT key_id FROM ready ORDER BY started, place LIMIT 1) FOR UPDATE";
        outside.client.batch_execute(first).await.unwrap();
        assert!(matches!(ask(&mut store, dispatch()).await, Ok(Dispatched::Job(..))));
        assert_eq!(ask(&mut store, dispatch()).await, Ok(Dispatched::Later));
        outside.client.batch_execute("ROLLBACK").await.unwrap();
        assert!(matches!(ask(&mut store, dispatch()).await, Ok(Dispatched::Job(..))));
        assert_eq!(ask(&mut store, dispatch()).await, Ok(Dispatched::Nothing));
    });
}

/// One daemon's claims go on where they were, until another one makes a key ready that comes before: it is next.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_key_that_another_daemon_makes_ready_is_next() {
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        list(&mut one, "f", 1, 20).await;
        let (first, key) = lease(&mut other).await.unwrap();
        for _ in 0..5 {
            lease(&mut one).await.unwrap();
        }
        ask(&mut other, Release(first)).await.unwrap();
        assert_eq!(lease(&mut one).await.unwrap().1, key);
    });
}

/// All at once, as after an outage of half a day: no call takes on all, and none is forgotten.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn many_classic_leases_that_are_over_come_back() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 700).await;
        let mut take_all = async || {
            let mut taken = 0;
            while let Dispatched::Job(..) =
                ask(&mut store, Dispatch { holder: None, fetchers: None }).await.unwrap()
            {
                taken += 1;
            }
            taken
        };
        assert_eq!(take_all().await, 700);
        let outside = database.server.connect().await.unwrap();
        let half_a_day_ago = "UPDATE attempts SET started_ms = started_ms - 43300000;
            UPDATE log SET started = started - 43300";
        outside.client.batch_execute(half_a_day_ago).await.unwrap();
        let began = Instant::now();
        let mut taken = 0;
        while taken < 700 {
            taken += take_all().await;
            assert!(began.elapsed() < PATIENCE, "{taken} came back");
        }
        assert_eq!(taken, 700);
    });
}

/// What was passed over because it was locked is found by a look from the front, though claims keep coming.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_key_that_was_passed_over_is_found_again() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 300).await;
        let outside = database.outside().await;
        let row = "SELECT key_id FROM ready ORDER BY started, place LIMIT 1";
        let first: i64 = outside.query_one(row, &[]).await.unwrap().get(0);
        let lock = format!("BEGIN; SELECT FROM log WHERE key_id = {first} FOR UPDATE");
        outside.batch_execute(&lock).await.unwrap();
        lease(&mut store).await.unwrap();
        outside.batch_execute("ROLLBACK").await.unwrap();
        let waits = format!("SELECT FROM ready WHERE key_id = {first}");
        let began = Instant::now();
        while !outside.query(&waits, &[]).await.unwrap().is_empty() {
            assert!(began.elapsed() < PATIENCE, "it was not found");
            lease(&mut store).await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    });
}

/// A claim beside a deletion finds keys of the deleted list at the front, and then waits, with more of its batch, for a key that
/// the deleter has locked: of what the deleter needs it has nothing.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_claim_has_nothing_that_a_deleter_needs() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "g", 1, 1).await;
        let (attempt, _) = lease(&mut store).await.unwrap();
        list(&mut store, "f", 1, 3).await;
        ask(&mut store, BeginDeletion(Run { fetcher: "f".into(), started: 1 })).await.unwrap();
        let (watch, deleter) = (database.outside().await, database.outside().await);
        let lock = format!(
            "SET lock_timeout = '500ms'; BEGIN;
            SELECT FROM log JOIN attempts USING (key_id) WHERE attempts.attempt = {} FOR UPDATE OF log",
            attempt.0
        );
        deleter.batch_execute(&lock).await.unwrap();
        let batch = (dispatch(), Release(attempt));
        let delete = async {
            until_apply_waits(&watch).await;
            let delete = "SELECT delete_run(runs, 250, 0, 60) FROM runs WHERE deleting; COMMIT";
            deleter.batch_execute(delete).await.unwrap();
        };
        let (answers, ()) = tokio::join!(ask(&mut store, batch), delete);
        let (dispatched, released) = answers.unwrap();
        assert_eq!((dispatched, released), (Ok(Dispatched::Nothing), Ok(Ack::Recorded)));
    });
}

/// Lists that are deleted together lock their keys in the order of their ids: while they wait for one of the second list, no
/// later one of the first is theirs.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn lists_are_deleted_with_their_keys_in_order() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "g", 1, 9).await;
        list(&mut store, "f", 1, 1).await;
        let outside = database.outside().await;
        let first =
            "BEGIN; SELECT FROM log WHERE key_id = (SELECT min(key_id) FROM log) FOR UPDATE";
        outside.batch_execute(first).await.unwrap();
        let runs: Vec<Run> =
            ["f", "g"].map(|fetcher| Run { fetcher: fetcher.into(), started: 1 }).into();
        let deleted = ask(&mut store, DeleteRuns { runs, limit: 100 });
        let meanwhile = async {
            until_apply_waits(&outside).await;
            let later = "SELECT FROM log JOIN keys USING (key_id) WHERE key = 'package-0'
                AND key_id <> (SELECT min(key_id) FROM log) FOR UPDATE OF log NOWAIT";
            assert_eq!(outside.query(later, &[]).await.unwrap().len(), 1);
            outside.batch_execute("COMMIT").await.unwrap();
        };
        assert_eq!(tokio::join!(deleted, meanwhile).0, Ok(2));
    });
}
