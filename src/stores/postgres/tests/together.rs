//! What one daemon does to claims, leases and notices of another one: a pause, an expiry that comes too late, and a connection that
//! ends while others tell of work.

use std::future::poll_fn;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shiftboss_actors::store::{
    Ack, Changed, CountInFlight, Dispatch, Dispatched, Expire, Heartbeat, LeaseHolder, Leases,
    Release, SetPaused, Store,
};
use shiftboss_actors::testing::one_by_one::wait_for;
use shiftboss_testbed::proxy::Proxy;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use super::claims::until_apply_waits;
use super::concurrency::list;
use super::daemons::{PATIENCE, ask, daemon, lease};
use super::support::{self, Database};
use crate::stores::postgres::PostgresStore;

fn dispatch() -> Dispatch {
    let holder = LeaseHolder { worker: "worker".into(), lease_seconds: 600 };
    Dispatch { holder: Some(holder), fetchers: None }
}

async fn number(outside: &Client, question: &str) -> i64 {
    outside.query_one(question, &[]).await.unwrap().get(0)
}

const ATTEMPTS: &str = "SELECT count(*) FROM attempts";

/// A lease that ran at one daemon is over there, but a BEAT has moved its job to another one: nothing expires.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn an_expiry_at_the_former_holder_loses() {
    let database = Database::new();
    wait_for(async {
        let (mut former, mut holder) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        list(&mut former, "f", 1, 1).await;
        let (attempt, _) = lease(&mut former).await.unwrap();
        assert_eq!(ask(&mut holder, Heartbeat(attempt)).await, Ok(Ack::Recorded));
        assert_eq!(ask(&mut former, Expire(attempt)).await, Ok(None));
        assert_eq!(ask(&mut former, Leases).await, Ok(vec![]));
        assert_eq!(ask(&mut holder, Leases).await, Ok(vec![(attempt, 600)]));
        assert_eq!(ask(&mut former, dispatch()).await, Ok(Dispatched::Nothing));
        assert!(ask(&mut holder, Expire(attempt)).await.unwrap().is_some());
        assert!(lease(&mut former).await.unwrap().0 > attempt);
    });
}

/// A claim is under way, with its keys locked, when another daemon pauses the queue: that is acknowledged when the claim has ended.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_pause_waits_for_claims_that_are_under_way() {
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        list(&mut one, "f", 1, 9).await;
        let (outside, watch) = (database.outside().await, database.outside().await);
        // The first key is locked by then, and the claim gets no number for it.
        let stop = "BEGIN; ALTER SEQUENCE attempt_numbers OWNED BY NONE";
        outside.batch_execute(stop).await.unwrap();
        let paused = async {
            until_apply_waits(&watch).await;
            let paused = ask(&mut other, SetPaused(true)).await;
            (paused, number(&watch, ATTEMPTS).await)
        };
        let let_through = async {
            let both = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                AND query LIKE '%FROM apply(%' AND datname = current_database()";
            let began = Instant::now();
            while number(&watch, both).await < 2 && began.elapsed() < Duration::from_secs(2) {
                sleep(Duration::from_millis(10)).await;
            }
            outside.batch_execute("COMMIT").await.unwrap();
        };
        let (claimed, (paused, seen), ()) =
            tokio::join!(ask(&mut one, dispatch()), paused, let_through);
        assert!(matches!(claimed, Ok(Dispatched::Job(..))));
        assert_eq!((paused, seen), (Ok(1), 1), "a claim came after the pause");
        assert_eq!(ask(&mut one, dispatch()).await, Ok(Dispatched::Nothing));
    });
}

/// A claim is on its way to the server while another daemon pauses the queue: it gets nothing.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_claim_that_arrives_after_a_pause_gets_nothing() {
    let database = Database::new();
    wait_for(async {
        let proxy = Proxy::new(&database.url).unwrap();
        let mut far = daemon(&support::server(&proxy.url), 0).await;
        let mut near = daemon(&database.server, 1).await;
        list(&mut near, "f", 1, 9).await;
        let outside = database.outside().await;
        proxy.hold();
        let pause = async {
            // The claim was sent by then.
            assert_eq!(ask(&mut near, SetPaused(true)).await, Ok(0));
            proxy.release();
        };
        let (claimed, ()) = tokio::join!(ask(&mut far, dispatch()), pause);
        assert_eq!(claimed, Ok(Dispatched::Nothing));
        assert_eq!(number(&outside, ATTEMPTS).await, 0);
        ask(&mut near, SetPaused(false)).await.unwrap();
        assert!(lease(&mut far).await.is_ok());
    });
}

/// Hands out and ends without end, until a pause that was acknowledged has been seen for long enough.
async fn claim_on(store: &mut PostgresStore, idle: usize) {
    let mut refused = 0;
    while refused < idle {
        match ask(store, dispatch()).await.unwrap() {
            Dispatched::Job(attempt, _) => {
                refused = 0;
                ask(store, Release(attempt)).await.unwrap();
            }
            _ => refused += 1,
        }
    }
}

/// Two daemons claim without end while a third one pauses the queue and resumes it, again and again: what was handed out by the
/// time of the acknowledgement is all there is until the queue is resumed.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn no_claim_of_before_comes_after_a_pause() {
    let database = Database::new();
    wait_for(async {
        let mut stores = Vec::new();
        for number in 0..3 {
            stores.push(daemon(&database.server, number).await);
        }
        let [one, two, three] = &mut stores[..] else { unreachable!() };
        list(one, "f", 1, 50).await;
        let outside = database.outside().await;
        for round in 0..40 {
            let pause = async {
                sleep(Duration::from_millis(5 + round % 7)).await;
                ask(three, SetPaused(true)).await.unwrap();
                number(&outside, ATTEMPTS).await
            };
            let ((), (), seen) = tokio::join!(claim_on(one, 3), claim_on(two, 3), pause);
            assert_eq!(number(&outside, ATTEMPTS).await, seen, "in round {round}");
            ask(three, SetPaused(false)).await.unwrap();
        }
        assert!(number(&outside, ATTEMPTS).await > 40);
        assert_eq!(ask(one, CountInFlight).await, Ok(0));
    });
}

/// Notes, in the moment in which a daemon says that something changed, whether it listens by then.
struct AtOnce {
    task: Waker,
    url: String,
    listens: Mutex<bool>,
}

/// What the connection on which a daemon listens has asked last.
const BESIDE: &str = "FROM pg_stat_activity WHERE application_name = 'shiftboss daemon 0'
    AND query NOT LIKE '%FROM apply(%' AND datname = current_database()";

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        let last = format!("SELECT state = 'idle' AND query LIKE '%LISTEN%' {BESIDE}");
        let asked = Command::new("psql").args(["-XqAt", "-c", &last, &self.url]).output();
        *self.listens.lock().unwrap() = asked.unwrap().stdout == b"t\n";
        self.task.wake_by_ref();
    }
}

/// Waits until a daemon says that something changed; what, and whether it listened then.
async fn changed(store: &mut PostgresStore, url: &str) -> (Changed, bool) {
    let mut waiting: Option<Arc<AtOnce>> = None;
    let changed = poll_fn(|task| {
        let (task, url) = (task.waker().clone(), url.to_owned());
        let at_once = Arc::new(AtOnce { task, url, listens: Mutex::new(false) });
        let waker = Waker::from(Arc::clone(&at_once));
        if let Poll::Ready(changed) = store.poll_changed(&mut Context::from_waker(&waker)) {
            let listened = waiting.take().is_some_and(|woken| *woken.listens.lock().unwrap());
            return Poll::Ready((changed, listened));
        }
        waiting = Some(at_once);
        Poll::Pending
    });
    timeout(PATIENCE, changed).await.expect("it says so")
}

/// The connection on which a daemon listens ends. It looks when it listens again, not before: what another daemon tells of from
/// then on is heard, and what came before is found.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_daemon_listens_first_and_then_looks() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        let outside = database.outside().await;
        while timeout(Duration::from_secs(2), changed(&mut store, &database.url)).await.is_ok() {}
        for round in 0..4 {
            let end = format!("SELECT count(pg_terminate_backend(pid)) {BESIDE}");
            assert!(number(&outside, &end).await > 0);
            let listened = loop {
                if let (Changed::Queue, listened) = changed(&mut store, &database.url).await {
                    break listened;
                }
            };
            assert!(listened, "it looked before it listened in round {round}");
            outside.batch_execute("SELECT pg_notify('shiftboss', '-1')").await.unwrap();
            assert_eq!(changed(&mut store, &database.url).await.0, Changed::Queue);
        }
    });
}
