//! What becomes of a daemon that dies, stops, is cut off, or is mistaken for another one.

use std::time::Duration;

use shiftboss_actors::store::{
    Ack, AddTask, Changed, Complete, CompleteAttempt, CountInFlight, Dispatch, Dispatched,
    Heartbeat, LeaseHolder, Leases, Request, Store, StoreError, StoreResult,
};
use shiftboss_actors::testing::one_by_one::wait_for;
use shiftboss_protocol::model::{Attempt, Key, Row};
use shiftboss_testbed::proxy::Proxy;
use tokio::time::{Instant, sleep};

use super::concurrency::list;

use super::support::{self, Database, try_open};
use crate::stores::Polls;
use crate::stores::postgres::{PostgresStore, Server};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub async fn ask<R: Request>(store: &mut PostgresStore, request: R) -> StoreResult<R::Answer> {
    let mut batch = Vec::new();
    request.push(&mut batch);
    R::answer(&mut store.apply(0, batch).await?.into_iter())
}

/// The next job of a worker that leases it.
pub async fn lease(store: &mut PostgresStore) -> StoreResult<(Attempt, Key)> {
    let holder = LeaseHolder { worker: "worker".into(), lease_seconds: 600 };
    match ask(store, Dispatch { holder: Some(holder), fetchers: None }).await? {
        Dispatched::Job(attempt, job) => Ok((attempt, job.key)),
        other => panic!("{other:?}"),
    }
}

/// Asks until the server is to be had again.
pub async fn again<T>(mut asked: impl AsyncFnMut() -> StoreResult<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match asked().await {
            Ok(answer) => return answer,
            Err(StoreError::Busy(_)) if Instant::now() < end => {
                sleep(Duration::from_millis(100)).await
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until a daemon has these leases, and returns how long that took.
async fn until_leased(store: &mut PostgresStore, wanted: &[Attempt]) -> Duration {
    let began = Instant::now();
    loop {
        let leases = again(async || ask(store, Leases).await).await;
        if leases.iter().map(|(attempt, _)| *attempt).eq(wanted.iter().copied()) {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{leases:?}, not {wanted:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

pub async fn daemon(server: &Server, number: usize) -> PostgresStore {
    let mut store = support::open(server, number, support::options(Default::default())).await;
    // From the first call on it lives for others to see.
    ask(&mut store, CountInFlight).await.unwrap();
    store
}

#[test]
#[ignore = "needs a server: make test-postgres"]
fn what_a_dead_or_stopped_daemon_leased_is_adopted() {
    let database = Database::new();
    wait_for(async {
        let mut survivor = daemon(&database.server, 0).await;
        list(&mut survivor, "f", 1, 4).await;
        let mut adopted = Vec::new();
        for is_stopped in [true, false] {
            let mut other = daemon(&database.server, 1).await;
            adopted.push(lease(&mut other).await.unwrap().0);
            if is_stopped {
                other.close().await.unwrap();
            }
            drop(other);
            let took = until_leased(&mut survivor, &adopted).await;
            assert!(is_stopped || took > Duration::from_secs(4), "it was given no time: {took:?}");
        }
        for attempt in adopted {
            let ended = ask(&mut survivor, CompleteAttempt { attempt, exit_code: 0 }).await;
            assert_eq!(ended, Ok(Ack::Recorded));
        }
    });
}

/// A daemon that cannot reach the server is taken for dead. What it sent before and what it sends after under its old epoch is not
/// carried out; it joins anew, and a worker that stayed with it has its job there again.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_daemon_that_was_cut_off_joins_anew() {
    let database = Database::new();
    wait_for(async {
        let mut survivor = daemon(&database.server, 0).await;
        list(&mut survivor, "f", 1, 3).await;
        let proxy = Proxy::new(&database.url).unwrap();
        let mut cut_off = daemon(&support::server(&proxy.url), 1).await;
        let (attempt, _) = lease(&mut cut_off).await.unwrap();
        proxy.hold();
        assert!(matches!(lease(&mut cut_off).await, Err(StoreError::Busy(_))));
        until_leased(&mut survivor, &[attempt]).await;
        proxy.release();
        let (next, key) = again(async || lease(&mut cut_off).await).await;
        assert_eq!(ask(&mut survivor, CountInFlight).await.unwrap(), 1);
        assert_eq!(ask(&mut cut_off, Heartbeat(attempt)).await, Ok(Ack::Recorded));
        until_leased(&mut cut_off, &[attempt, next]).await;
        until_leased(&mut survivor, &[]).await;
        assert_ne!(lease(&mut survivor).await.unwrap().1, key);
    });
}

/// A claim that is held back on its way: whether it is carried out afterwards or not, nobody was told of it, so the next
/// one gets the same key, and one attempt is all there is.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_claim_whose_result_is_not_known_is_undone() {
    let database = Database::new();
    wait_for(async {
        let proxy = Proxy::new(&database.url).unwrap();
        let mut store = daemon(&support::server(&proxy.url), 0).await;
        list(&mut store, "f", 1, 3).await;
        let (first, key) = lease(&mut store).await.unwrap();
        for holds_answers in [false, true] {
            ask(&mut store, shiftboss_actors::store::Release(first)).await.unwrap_or(Ack::Stale);
            if holds_answers {
                proxy.hold_answers()
            } else {
                proxy.hold()
            }
            assert!(matches!(lease(&mut store).await, Err(StoreError::Busy(_))));
            proxy.release();
            let (attempt, again_key) = again(async || lease(&mut store).await).await;
            assert_eq!(again_key, key);
            assert_eq!(ask(&mut store, CountInFlight).await.unwrap(), 1);
            ask(&mut store, shiftboss_actors::store::Release(attempt)).await.unwrap();
        }
    });
}

/// Likewise, when its daemon was taken for dead before it joined anew: whoever adopted the job has no more of it.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_lost_claim_is_undone_though_it_was_adopted() {
    let database = Database::new();
    wait_for(async {
        let mut survivor = daemon(&database.server, 0).await;
        list(&mut survivor, "f", 1, 3).await;
        let proxy = Proxy::new(&database.url).unwrap();
        let mut cut_off = daemon(&support::server(&proxy.url), 1).await;
        proxy.hold_answers();
        assert!(matches!(lease(&mut cut_off).await, Err(StoreError::Busy(_))));
        until_leased(&mut survivor, &[Attempt(1)]).await;
        proxy.release();
        again(async || ask(&mut cut_off, CountInFlight).await).await;
        until_leased(&mut survivor, &[]).await;
    });
}

#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_name_belongs_to_one_living_daemon() {
    let database = Database::new();
    wait_for(async {
        let first = daemon(&database.server, 0).await;
        let refused =
            try_open(&database.server, "daemon 0", "another directory").await.err().unwrap();
        assert!(
            matches!(&refused, StoreError::Displaced(text) if text.contains("--daemon-name")),
            "{refused}"
        );
        drop(first);
        try_open(&database.server, "daemon 0", "another directory").await.unwrap();
    });
}

/// A daemon started again in its directory has its name back at once, though nobody stopped it.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_restarted_daemon_has_its_name_back_at_once() {
    let database = Database::new();
    wait_for(async {
        let mut killed = daemon(&database.server, 0).await;
        list(&mut killed, "f", 1, 1).await;
        let (attempt, _) = lease(&mut killed).await.unwrap();
        drop(killed);
        let began = Instant::now();
        let mut restarted = daemon(&database.server, 0).await;
        assert!(began.elapsed() < Duration::from_secs(4));
        assert_eq!(ask(&mut restarted, Leases).await.unwrap(), [(attempt, 600)]);
    });
}

/// One daemon hears at once that another one has work.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn daemons_tell_each_other_of_work() {
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        let changed = async |store: &mut PostgresStore| {
            let changed = std::future::poll_fn(|task| store.poll_changed(task));
            tokio::time::timeout(Duration::from_secs(2), changed).await.ok()
        };
        // What it is told when it joins, and when it listens.
        while changed(&mut other).await.is_some() {}
        let task = Row { key: Key::new("a").unwrap(), payload: String::new() };
        ask(&mut one, AddTask { task, id: None }).await.unwrap();
        assert_eq!(changed(&mut other).await, Some(Changed::Queue));
    });
}

/// Waits until a daemon's workers are looked after that rarely, or that often.
async fn until_looks_are_rare(store: &mut PostgresStore, rare: bool) {
    let began = Instant::now();
    while (store.look_every() >= Polls::default().notified / 2) != rare {
        assert!(began.elapsed() < PATIENCE, "{:?}", store.look_every());
        ask(store, CountInFlight).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
}

/// A daemon knows that notices arrive, and leaves workers that wait alone then; not while a classic job is out, whose lease
/// ends without a notice.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn looks_are_rare_while_notices_arrive() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        until_looks_are_rare(&mut store, true).await;
        list(&mut store, "f", 1, 1).await;
        let dispatched = ask(&mut store, Dispatch { holder: None, fetchers: None }).await.unwrap();
        let Dispatched::Job(_, job) = dispatched else { panic!("{dispatched:?}") };
        until_looks_are_rare(&mut store, false).await;
        ask(&mut store, Complete { key: job.key, exit_code: 0 }).await.unwrap();
        until_looks_are_rare(&mut store, true).await;
    });
}

/// In this database the server's own function is replaced by one that passes no notice on, or takes none, as when too many
/// wait.
const LOST_NOTICES: [&str; 2] = [
    "LANGUAGE sql AS 'SELECT'",
    "LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING errcode = '54000'; END $$",
];

/// A daemon whose notices are lost beats on and looks often, until they arrive.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn notices_that_are_lost_are_noticed() {
    for lost in LOST_NOTICES {
        let database = Database::new();
        wait_for(async {
            let outside = support::connect(&database.url).await;
            let lose = format!(
                "ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO notify_again;
                CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void {lost}"
            );
            outside.batch_execute(&lose).await.unwrap();
            let mut store = daemon(&database.server, 0).await;
            let beats = "SELECT beat FROM shiftboss.daemons WHERE beat > 6";
            let began = Instant::now();
            while outside.query(beats, &[]).await.unwrap().is_empty() {
                assert!(began.elapsed() < PATIENCE, "it does not beat on");
                ask(&mut store, CountInFlight).await.unwrap();
                assert_eq!(store.look_every(), Polls::default().alone);
                sleep(Duration::from_millis(100)).await;
            }
            let mend = "DROP FUNCTION pg_catalog.pg_notify(text, text);
                ALTER FUNCTION pg_catalog.notify_again(text, text) RENAME TO pg_notify";
            outside.batch_execute(mend).await.unwrap();
            until_looks_are_rare(&mut store, true).await;
        });
    }
}

/// Of the attempts that ended the last ones are kept, however many older ones have no end.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn attempts_that_ended_are_forgotten() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 10).await;
        let mut given = Vec::new();
        for _ in 0..10 {
            given.push(lease(&mut store).await.unwrap().0);
        }
        for attempt in &given[5..] {
            let end = CompleteAttempt { attempt: *attempt, exit_code: 1 };
            ask(&mut store, end).await.unwrap();
        }
        let outside = database.server.connect().await.unwrap();
        let kept = async || -> Vec<i64> {
            let forget = "SELECT forget_ended(daemon, epoch, 2, 2) FROM daemons";
            while outside.client.query_one(forget, &[]).await.unwrap().get(0) {}
            let kept = "SELECT array_agg(attempt ORDER BY attempt) FROM attempts";
            outside.client.query_one(kept, &[]).await.unwrap().get(0)
        };
        assert_eq!(kept().await, [1, 2, 3, 4, 5, 9, 10]);
        until_leased(&mut store, &given[..5]).await;
        let end = CompleteAttempt { attempt: given[1], exit_code: 1 };
        ask(&mut store, end).await.unwrap();
        assert_eq!(kept().await, [1, 3, 4, 5, 9, 10]);
    });
}

/// Numbers of attempts are given before commits, so the others may have gone past one when it is there to be seen. Its own
/// daemon has not; when that is dead, whoever adopts its jobs has.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_classic_job_that_the_others_passed_comes_back() {
    let database = Database::new();
    wait_for(async {
        let (mut survivor, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        list(&mut survivor, "f", 1, 1).await;
        let classic = ask(&mut other, Dispatch { holder: None, fetchers: None }).await.unwrap();
        assert!(matches!(classic, Dispatched::Job(Attempt(1), _)));
        let outside = database.server.connect().await.unwrap();
        let renumber = async |from: i64, to: i64| {
            let sql = format!("UPDATE attempts SET attempt = {to} WHERE attempt = {from}");
            outside.client.batch_execute(&sql).await.unwrap();
        };
        renumber(1, 1_000_000).await;
        let task = Row { key: Key::new("a").unwrap(), payload: String::new() };
        ask(&mut survivor, AddTask { task, id: None }).await.unwrap();
        let (attempt, _) = lease(&mut survivor).await.unwrap();
        ask(&mut survivor, CompleteAttempt { attempt, exit_code: 0 }).await.unwrap();
        // Attempts are gone through once a second.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1_100) {
            ask(&mut survivor, CountInFlight).await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
        renumber(1_000_000, 1).await;
        drop(other);
        let half_a_day_ago = "UPDATE attempts SET started_ms = started_ms - 43300000;
            UPDATE log SET started = started - 43300";
        outside.client.batch_execute(half_a_day_ago).await.unwrap();
        until_leased(&mut survivor, &[]).await;
        let began = Instant::now();
        while ask(&mut survivor, Dispatch { holder: None, fetchers: None }).await.unwrap()
            == Dispatched::Nothing
        {
            assert!(began.elapsed() < PATIENCE, "it is out for ever");
            sleep(Duration::from_millis(100)).await;
        }
    });
}
