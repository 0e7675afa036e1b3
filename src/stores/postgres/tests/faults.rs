//! What becomes of daemons when their server fails, or does not give what they need: each on a server of the test's own.

use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use shiftboss_actors::store::{
    Ack, AddTask, CompleteAttempt, CountInFlight, Dispatch, Dispatched, Each, LeaseHolder, Store,
    StoreError,
};
use shiftboss_actors::testing::one_by_one::{OneByOne, wait_for};
use shiftboss_protocol::model::{Attempt, Key, Row};
use shiftboss_testbed::processes::signal_all;
use shiftboss_testbed::proxy::Proxy;
use shiftboss_testbed::server::{ADMIN, PostgresServer};
use tokio::time::{Instant, sleep};

use super::concurrency::list;
use super::daemons::{PATIENCE, again, ask, daemon, lease};
use super::support;
use crate::stores::move_in;
use crate::stores::postgres::{PostgresStore, Server};
use crate::stores::sqlite::SqliteStore;

/// How soon another daemon has the key of a claim whose backend ended.
const SOON: Duration = Duration::from_secs(10);
/// Longer than a call waits, and than a daemon that is dead is waited for.
const LONG: Duration = Duration::from_secs(6);
/// How many clients stay.
const STAYING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
/// Whose each attempt is.
const OWNERS: &str = "SELECT string_agg(daemon::text, ' ' ORDER BY attempt) FROM attempts";

/// A server with an empty database, which a role owns that is no administrator.
struct Own {
    server: PostgresServer,
    database: Server,
}

impl Own {
    fn new(settings: &[&str]) -> Self {
        let server = PostgresServer::start(settings).unwrap();
        server.query("postgres", "CREATE ROLE plain LOGIN").unwrap();
        let make = "CREATE DATABASE queue OWNER plain TEMPLATE template0";
        server.query("postgres", make).unwrap();
        let database = support::server(&server.url("plain", "queue"));
        Self { server, database }
    }

    fn sql(&self, statements: &str) -> String {
        sql(&self.server, statements)
    }

    /// A client that does this and stays.
    fn client(&self, role: &str, statements: &str) -> Client {
        let statements = format!("SET search_path = shiftboss; {statements}; SELECT pg_sleep(600)");
        let mut command = self.server.psql(role, "queue", &statements);
        Client(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Ends the backends of all clients that stay.
    fn end_clients(&self) {
        self.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    }

    /// Waits until a question has this answer.
    async fn until(&self, question: &str, answer: &str) {
        let end = Instant::now() + PATIENCE;
        while self.sql(question) != answer {
            assert!(Instant::now() < end, "{question}: {}, not {answer}", self.sql(question));
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_none_stays(&self) {
        while {
            self.end_clients();
            self.sql(STAYING) != "0"
        } {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until one client stays, so that it has what it locks.
    async fn until_one_stays(&self) {
        self.until(STAYING, "1").await;
    }
}

fn sql(server: &PostgresServer, statements: &str) -> String {
    server.query("queue", &format!("SET search_path = shiftboss; {statements}")).unwrap()
}

/// Ended with the test.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn is_none(dispatched: Dispatched) -> bool {
    !matches!(dispatched, Dispatched::Job(..))
}

/// The next job; `None`: there is none.
async fn next(store: &mut PostgresStore) -> Option<(Attempt, Key)> {
    let holder = LeaseHolder { worker: "worker".into(), lease_seconds: 600 };
    let dispatch = Dispatch { holder: Some(holder), fetchers: None };
    match again(async || ask(store, dispatch.clone()).await).await {
        Dispatched::Job(attempt, job) => Some((attempt, job.key)),
        _ => None,
    }
}

async fn finish(store: &mut PostgresStore, attempt: Attempt) {
    let end = async || ask(store, CompleteAttempt { attempt, exit_code: 0 }).await;
    assert_eq!(again(end).await, Ack::Recorded);
}

/// Each daemon has a job out, and calls are under way, when nobody answers any more for longer than a dead daemon is waited for.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_server_that_was_frozen_makes_nobody_dead() {
    let own = Own::new(&[]);
    wait_for(async {
        let mut stores = Vec::new();
        for number in 0..4 {
            stores.push(daemon(&own.database, number).await);
        }
        list(&mut stores[0], "f", 1, 20).await;
        for store in &mut stores {
            lease(store).await.unwrap();
        }
        let owners = own.sql(OWNERS);
        own.server.freeze().unwrap();
        sleep(LONG).await;
        own.server.thaw().unwrap();
        // More looks of each daemon at the others than make one dead.
        let beats: i64 = own.sql("SELECT max(beat) FROM daemons").parse().unwrap();
        own.until(&format!("SELECT min(beat) > {beats} + 8 FROM daemons"), "t").await;
        assert_eq!(own.sql(OWNERS), owners);
        for store in &mut stores {
            assert!(next(store).await.is_some());
        }
    });
}

/// A claim has locked the first key when its backend is terminated, or killed (then the server recovers): the key is another daemon's.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn the_key_of_a_claim_whose_backend_ends_is_anothers() {
    let own = Own::new(&[]);
    wait_for(async {
        let (mut one, mut other) = (daemon(&own.database, 0).await, daemon(&own.database, 1).await);
        list(&mut one, "f", 1, 9).await;
        for is_killed in [false, true] {
            let first = "SELECT convert_from(key, 'UTF8') FROM ready JOIN keys USING (key_id)
                ORDER BY started, ready.place LIMIT 1";
            let first = Key::new(&own.sql(first)).unwrap();
            // The key is locked by then, and the claim gets no number for it.
            let _holds = own.client(ADMIN, "BEGIN; ALTER SEQUENCE attempt_numbers OWNED BY NONE");
            own.until_one_stays().await;
            let cut_off = async {
                let whose = "FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
                own.until(&format!("SELECT count(*) {whose}"), "1").await;
                let pid = own.sql(&format!("SELECT pid {whose}"));
                let began = Instant::now();
                if is_killed {
                    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
                    signal_all(pid, Signal::KILL).unwrap();
                } else {
                    own.sql(&format!("SELECT pg_terminate_backend({pid})"));
                    own.end_clients();
                }
                let (_, key) = next(&mut other).await.unwrap();
                assert_eq!(key, first);
                assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
            };
            let (lost, ()) = tokio::join!(lease(&mut one), cut_off);
            assert!(matches!(lost, Err(StoreError::Busy(_))), "{lost:?}");
        }
        assert!(next(&mut one).await.is_some());
        assert_eq!(ask(&mut one, CountInFlight).await.unwrap(), 1);
        assert_eq!(ask(&mut other, CountInFlight).await.unwrap(), 2);
    });
}

/// A claim waits for a client that reads no answers, with its keys locked: they are another daemon's when that client is dead.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_claim_that_waits_for_its_client_holds_nothing_up() {
    const KEYS: usize = 8;
    let own = Own::new(&[]);
    let proxy = Proxy::new(&own.server.url("plain", "queue")).unwrap();
    wait_for(async {
        let mut stalled = daemon(&support::server(&proxy.url), 0).await;
        let mut other = daemon(&own.database, 1).await;
        for number in 0..KEYS {
            // More than is on its way between a server and a client.
            let payload = "much ".repeat(200_000);
            let key = Key::new(&format!("key-{number}")).unwrap();
            ask(&mut other, AddTask { task: Row { key, payload }, id: None }).await.unwrap();
        }
        let all = Each(vec![Dispatch { holder: None, fetchers: None }; KEYS]);
        proxy.hold_answers();
        let began = Instant::now();
        let cut_off = async {
            let sends = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
            own.until(sends, "1").await;
            for _ in 0..KEYS {
                while ask(&mut other, Dispatch { holder: None, fetchers: None })
                    .await
                    .is_ok_and(is_none)
                {
                    assert!(began.elapsed() < SOON);
                    sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let (lost, ()) = tokio::join!(ask(&mut stalled, all), cut_off);
        assert!(matches!(lost, Err(StoreError::Busy(_))));
    });
}

/// An administrator locks a table for longer than a call waits: nobody is dead for that, and what was refused is not out.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_lock_of_an_administrator_is_waited_for() {
    let own = Own::new(&[]);
    wait_for(async {
        let (mut one, mut other) = (daemon(&own.database, 0).await, daemon(&own.database, 1).await);
        list(&mut one, "f", 1, 9).await;
        let (first, _) = lease(&mut other).await.unwrap();
        let owners = own.sql(OWNERS);
        for table in ["queue", "daemons", "state"] {
            let _holds = own.client(ADMIN, &format!("BEGIN; LOCK TABLE {table}"));
            own.until_one_stays().await;
            let refused = lease(&mut one).await;
            assert!(matches!(refused, Err(StoreError::Busy(_))), "{table}: {refused:?}");
            sleep(LONG).await;
            own.end_clients();
            let (attempt, _) = next(&mut one).await.unwrap();
            assert_eq!(again(async || ask(&mut one, CountInFlight).await).await, 1, "{table}");
            finish(&mut one, attempt).await;
        }
        assert!(own.sql(OWNERS).starts_with(&owners), "{}", own.sql(OWNERS));
        finish(&mut other, first).await;
    });
}

/// A call that waits for a lock is given up: it does not stay at the server.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_call_that_is_given_up_is_cancelled() {
    let own = Own::new(&[]);
    wait_for(async {
        let mut store = daemon(&own.database, 0).await;
        list(&mut store, "f", 1, 1).await;
        let _holds = own.client(ADMIN, "BEGIN; LOCK TABLE queue");
        own.until_one_stays().await;
        let refused = lease(&mut store).await;
        assert!(matches!(refused, Err(StoreError::Busy(_))), "{refused:?}");
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%apply(%' AND usename = 'plain'";
        own.until(waiting, "0").await;
        own.end_clients();
        assert!(next(&mut store).await.is_some());
    });
}

/// Others have all connections that the server allows, and the daemon loses its own: it has them again when they are free.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn used_up_connections_are_waited_for() {
    const CONNECTIONS: usize = 12;
    let own = Own::new(&[&format!("max_connections={CONNECTIONS}")]);
    wait_for(async {
        let mut store = daemon(&own.database, 0).await;
        list(&mut store, "f", 1, 9).await;
        let (attempt, _) = lease(&mut store).await.unwrap();
        // Three are for administrators; there are more that want one than can have it, and they do not give up.
        let hungry = |_| own.client("plain", "SELECT");
        let mut others: Vec<_> = (0..CONNECTIONS).map(hungry).collect();
        let ours = "FROM pg_stat_activity WHERE application_name LIKE 'shiftboss %'";
        own.sql(&format!("SELECT count(pg_terminate_backend(pid)) {ours}"));
        others.extend((0..CONNECTIONS).map(hungry));
        let refused = loop {
            match lease(&mut store).await {
                Err(StoreError::Busy(text)) if text.contains("remaining connection slots") => {
                    break text;
                }
                Err(StoreError::Busy(_)) => sleep(Duration::from_millis(20)).await,
                other => panic!("{other:?}"),
            }
        };
        assert!(refused.contains("cannot connect"), "{refused}");
        drop(others);
        own.until_none_stays().await;
        assert!(next(&mut store).await.is_some());
        finish(&mut store, attempt).await;
    });
}

/// The primary is killed and its synchronous replica is promoted, under a daemon that knows both: what was acknowledged
/// is there, and it goes on by itself.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_promoted_replica_has_what_was_acknowledged() {
    const KEYS: usize = 300;
    let own = Own::new(&[]);
    let replica = own.server.replica(&[]).unwrap();
    let synchronous = "ALTER SYSTEM SET synchronous_standby_names = '*'";
    own.server.query("queue", synchronous).unwrap();
    own.sql("SELECT pg_reload_conf()");
    let other = replica.home().to_str().unwrap().replace('/', "%2F");
    let url = own.server.url("plain", "queue").replacen("/queue", &format!(",{other}/queue"), 1);
    let both = support::server(&format!("{url}?target_session_attrs=read-write"));
    let primary = own.server.pid().unwrap();
    let (now, then) = mpsc::channel();
    let fail_over = |then: mpsc::Receiver<()>| {
        then.recv().unwrap();
        signal_all(primary, Signal::KILL).unwrap();
        replica.promote().unwrap();
    };
    let work = async {
        let is_synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        own.until(is_synchronous, "1").await;
        let mut store = daemon(&both, 0).await;
        list(&mut store, "f", 1, KEYS).await;
        let mut done = Vec::new();
        while let Some((attempt, key)) = next(&mut store).await {
            if done.len() == KEYS / 3 {
                // In the middle of a call.
                now.send(()).unwrap();
            }
            finish(&mut store, attempt).await;
            done.push(key);
        }
        done.sort();
        done.dedup();
        assert_eq!(done.len(), KEYS);
        let logged = "SELECT count(*), count(exit_code) FROM log";
        assert_eq!(sql(&replica, logged), format!("{KEYS}|{KEYS}"));
        assert_eq!(sql(&replica, "SELECT pg_is_in_recovery()"), "f");
    };
    thread::scope(|scope| {
        scope.spawn(|| fail_over(then));
        wait_for(work);
    });
}

/// The server freezes under a move, which ends, and can be begun again.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_move_gives_up_when_the_server_is_frozen() {
    let own = Own::new(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state.db");
    SqliteStore::open(&file, &support::options(Default::default()))
        .unwrap()
        .close_at_once()
        .unwrap();
    let url = support::url(&own.server.url("plain", "queue"));
    wait_for(async { daemon(&own.database, 0).await.close().await.unwrap() });
    thread::scope(|scope| {
        let (file, url, (ended, end)) = (&file, &url, mpsc::channel());
        wait_for(async {
            let holds = own.client(ADMIN, "BEGIN; LOCK TABLE keys");
            own.until_one_stays().await;
            scope.spawn(move || ended.send(move_in(file, url, "daemon 0")).unwrap());
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            own.until(waits, "1").await;
            own.server.freeze().unwrap();
            drop(holds);
        });
        let ended = end.recv_timeout(PATIENCE);
        own.server.thaw().unwrap();
        let failure = ended.expect("it waits for ever").unwrap_err();
        assert!(failure.to_string().contains("Run it again"), "{failure}");
    });
    wait_for(async {
        own.end_clients();
        own.until(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shiftboss-move'",
            "0",
        )
        .await;
    });
    move_in(&file, &url, "daemon 0").unwrap();
}
