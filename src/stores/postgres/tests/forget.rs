//! What is left of a daemon that is forgotten: nothing but the jobs that it had out.

use shiftboss_actors::store::{
    AcceptEntries, AddTask, Added, CountInFlight, EntryId, FetcherRecord, JoinRelay, Lane, Leases,
    LoseRelay, NoteFetcher, Operation, Reader, RegisterRun, RejectFile, Relayed, Runs, SpoolEntry,
    Store,
};
use shiftboss_actors::testing::one_by_one::wait_for;
use shiftboss_protocol::model::{Key, Row, Run};
use tokio_postgres::Client;

use super::concurrency::list;
use super::daemons::{again, ask, daemon, lease};
use super::support::Database;
use crate::stores::Left;
use crate::stores::postgres::{Forgotten, PostgresReader, PostgresStore, forget};

fn task(key: &str) -> Row {
    Row { key: Key::new(key).unwrap(), payload: String::new() }
}

/// What is left of daemons but the one with that name.
async fn left(outside: &Client, but: &str) -> Vec<i64> {
    let mut counts = Vec::new();
    for table in
        ["accepted", "rejected_files", "managed_fetchers", "runs", "fetcher_owners", "daemons"]
    {
        let of_others = "daemon IN (SELECT daemon FROM daemons WHERE name = $1) IS NOT TRUE";
        let table =
            if table == "runs" { "runs WHERE run <> 0" } else { &format!("{table} WHERE true") };
        let sql = format!("SELECT count(*) FROM {table} AND {of_others}");
        counts.push(outside.query_one(&sql, &[&but]).await.unwrap().get(0));
    }
    counts
}

/// Its lists go, however long they are, and what it noted; its leased jobs go to those that live; and its fetchers are free.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_stopped_daemon_is_forgotten() {
    let database = Database::new();
    wait_for(async {
        let outside = database.outside().await;
        let mut stopped = daemon(&database.server, 1).await;
        list(&mut stopped, "f", 1, 600).await;
        let (attempt, _) = lease(&mut stopped).await.unwrap();
        let id =
            EntryId { spool: "spool".into(), name: "entry".into(), inode: 1, born: 2, checksum: 3 };
        let entry = SpoolEntry { id, task: task("single") };
        assert_eq!(ask(&mut stopped, AcceptEntries(vec![entry])).await, Ok(vec![Added::Added(0)]));
        let rejected = RejectFile { name: "a.b.txt".to_owned(), reason: "no number".to_owned() };
        ask(&mut stopped, rejected).await.unwrap();
        let record = FetcherRecord {
            name: "f".into(),
            state: "idle".to_owned(),
            run_started: None,
            last_run: None,
            next_run: None,
        };
        ask(&mut stopped, NoteFetcher(record)).await.unwrap();
        let mut other = daemon(&database.server, 0).await;
        list(&mut other, "g", 1, 3).await;
        stopped.close().await.unwrap();

        let forgotten = forget(&database.server, "daemon 1").await.unwrap();
        let expected = Left { lists: 1, fetchers: 1, jobs: 0 };
        assert!(matches!(forgotten, Forgotten::Gone(left) if left == expected));
        assert_eq!(left(&outside, "daemon 0").await, [0; 6]);
        assert_eq!(ask(&mut other, Leases).await, Ok(vec![(attempt, 600)]));
        let rows = outside.query_one("SELECT count(*) FROM queue", &[]).await.unwrap();
        assert_eq!(rows.get::<_, i64>(0), 4, "the other one's, and the task");
        list(&mut other, "f", 1, 3).await;
        let forgotten = forget(&database.server, "daemon 1").await.unwrap();
        assert!(matches!(forgotten, Forgotten::Unknown));
    });
}

/// What is being moved is left as it is.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_queue_that_is_being_moved_is_left_alone() {
    let database = Database::new();
    wait_for(async {
        let mut stopped = daemon(&database.server, 1).await;
        stopped.close().await.unwrap();
        let outside = database.outside().await;
        outside.batch_execute("SELECT pg_advisory_lock(move_lock())").await.unwrap();
        let refused = forget(&database.server, "daemon 1").await.map(drop).unwrap_err();
        assert!(refused.to_string().contains("the queue is being moved"), "{refused}");
        outside.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
        assert!(matches!(forget(&database.server, "daemon 1").await, Ok(Forgotten::Gone(_))));
    });
}

/// A daemon that died when no other one lived: what it had leased waits again.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn the_last_daemon_is_forgotten() {
    let database = Database::new();
    wait_for(async {
        let mut dead = daemon(&database.server, 0).await;
        ask(&mut dead, AddTask { task: task("a"), id: None }).await.unwrap();
        lease(&mut dead).await.unwrap();
        drop(dead);
        let forgotten = forget(&database.server, "daemon 0").await.unwrap();
        let expected = Left { lists: 0, fetchers: 0, jobs: 1 };
        assert!(matches!(forgotten, Forgotten::Gone(left) if left == expected));
        assert_eq!(left(&database.outside().await, "").await, [0; 6]);
        let mut new = daemon(&database.server, 0).await;
        assert_eq!(ask(&mut new, CountInFlight).await, Ok(0));
        assert_eq!(lease(&mut new).await.unwrap().1, task("a").key);
    });
}

/// A relay is forgotten by its own name, once it is gone; which one was stopped is known.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_relay_is_forgotten() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        let join = async |store: &mut PostgresStore, process: &str| {
            let (name, process) = ("r".into(), process.into());
            let join = JoinRelay { name, process, installation: None };
            ask(store, join).await.unwrap().epoch
        };
        let epoch = join(&mut store, "p").await;
        let relays = async || {
            let reader = PostgresReader::new(database.server.clone());
            let status = tokio::task::spawn_blocking(move || reader.status(0)).await;
            let relays = status.unwrap().unwrap().relays;
            relays.iter().map(|relay| (relay.gone, relay.silent)).collect::<Vec<_>>()
        };
        assert_eq!(ask(&mut store, LoseRelay { epoch, is_stopped: false }).await, Ok(Some(0)));
        assert_eq!(relays().await, [(true, true)]);
        let epoch = join(&mut store, "q").await;
        let registered = RegisterRun(Run { fetcher: "f".into(), started: 1 });
        let operations = vec![Operation::RegisterRun(registered)];
        let batch = Relayed { epoch, lane: Lane::Lists, number: 1, operations };
        ask(&mut store, batch).await.unwrap();
        assert_eq!(relays().await, [(false, false)]);
        assert_eq!(ask(&mut store, LoseRelay { epoch, is_stopped: true }).await, Ok(Some(0)));
        assert_eq!(relays().await, [(true, false)]);
        let forgotten = forget(&database.server, "r").await.unwrap();
        let expected = Left { lists: 1, fetchers: 1, jobs: 0 };
        assert!(matches!(forgotten, Forgotten::Gone(left) if left == expected));
        assert_eq!(relays().await, []);
        assert!(matches!(forget(&database.server, "r").await.unwrap(), Forgotten::Unknown));
    });
}

/// One that lives is not forgotten; one that was mistaken for dead joins as a new one, and begins with nothing.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_daemon_that_lives_is_not_forgotten() {
    let database = Database::new();
    wait_for(async {
        let outside = database.outside().await;
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 3).await;
        match forget(&database.server, "daemon 0").await.unwrap() {
            Forgotten::Lives(who) => assert!(who.starts_with("process "), "{who}"),
            _ => panic!("it was forgotten"),
        }
        assert_eq!(ask(&mut store, Runs).await.unwrap().len(), 1);
        outside.batch_execute("UPDATE daemons SET lost = true, gone_at = 0").await.unwrap();
        let forgotten = forget(&database.server, "daemon 0").await.unwrap();
        assert!(matches!(forgotten, Forgotten::Gone(_)));
        assert_eq!(again(async || ask(&mut store, Runs).await).await, []);
        list(&mut store, "f", 1, 3).await;
        assert_eq!(ask(&mut store, Runs).await.unwrap().len(), 1);
    });
}
