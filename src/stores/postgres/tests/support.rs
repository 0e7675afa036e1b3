//! A store in a database of its own, whose clock a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use shiftboss_actors::store::{Checkpoint, Operation, Reader, Store, StoreFuture};
use shiftboss_actors::testing::conformance::Subject;
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::{OneByOne, wait_for};
use tokio_postgres::{Client, NoTls};

use crate::stores::options::{Durability, Options, Policy};
use crate::stores::postgres::{PostgresReader, PostgresStore, Server};

/// The server that `make test-postgres` started.
fn server_url() -> String {
    std::env::var("SHIFTBOSS_TEST_POSTGRES")
        .expect("SHIFTBOSS_TEST_POSTGRES names a server: run `make test-postgres`")
}

/// The URL of a database on it.
fn url_of(database: &str) -> String {
    let url = server_url();
    let (server, parameters) = url.split_once('?').unwrap_or((&url, ""));
    format!("{}/{database}?{parameters}", server.trim_end_matches('/'))
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub fn options(rules: Rules) -> Options {
    Options {
        policy: Policy::Fair { lease_seconds: rules.lease_seconds },
        durability: Durability::Power,
        busy_timeout: Duration::from_secs(5),
        max_expired_leases: u32::try_from(rules.max_expired_leases).unwrap(),
        max_single_tasks: u32::try_from(rules.max_single_tasks).unwrap(),
    }
}

/// A queue in a new database, and a connection beside it. Time is what the test says.
pub struct Site {
    pub server: Server,
    pub outside: Client,
    pub store: Clocked,
    options: Options,
}

/// A store whose server's clock is set before each call. A question that has no time is asked at the time of the last one.
pub struct Clocked {
    store: Option<PostgresStore>,
    clock: Client,
}

/// Commits fail while `broken` is set.
const TEST_CLOCK: &str = "SET search_path = shiftboss;
    CREATE UNLOGGED TABLE test_clock (ms int8, broken bool);
    INSERT INTO test_clock VALUES (1000000000, false);
    CREATE OR REPLACE FUNCTION now_ms() RETURNS int8 LANGUAGE sql AS 'SELECT ms FROM test_clock';
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT broken FROM test_clock) THEN
                RAISE EXCEPTION 'the test has commits fail' USING errcode = 'disk_full';
            END IF;
            RETURN NULL;
        END $$;
    DO $$ DECLARE v_table text; BEGIN
        FOREACH v_table IN ARRAY '{log, queue, runs, single_tasks, attempts, ready, state, fetchers}'::text[] LOOP
            EXECUTE format('CREATE CONSTRAINT TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON %I
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()', v_table);
        END LOOP;
    END $$";

impl Site {
    pub fn new(rules: Rules) -> Self {
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), DATABASES.fetch_add(1, Ordering::Relaxed));
        wait_for(async {
            let admin = connect(&url_of("postgres")).await;
            admin
                .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0"))
                .await
                .unwrap();
            let server = Server::parse(&url_of(&name)).unwrap();
            let options = options(rules);
            PostgresStore::open(server.clone(), "one", options).await.unwrap();
            let (outside, clock) = (connect(&url_of(&name)).await, connect(&url_of(&name)).await);
            outside.batch_execute(TEST_CLOCK).await.unwrap();
            let store = PostgresStore::open(server.clone(), "one", options).await.unwrap();
            Self { server, outside, store: Clocked { store: Some(store), clock }, options }
        })
    }
}

impl Store for Clocked {
    fn apply(
        &mut self,
        now: i64,
        batch: Vec<Operation>,
    ) -> StoreFuture<
        '_,
        Vec<Result<shiftboss_actors::store::Outcome, shiftboss_actors::store::Rejected>>,
    > {
        Box::pin(async move {
            if now != 0 {
                let set = format!("UPDATE shiftboss.test_clock SET ms = {now}000");
                self.clock.batch_execute(&set).await.unwrap();
            }
            self.store.as_mut().unwrap().apply(now, batch).await
        })
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<()> {
        self.store.as_mut().unwrap().poll_changed(task)
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        self.store.as_mut().unwrap().maintain()
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        self.store.as_mut().unwrap().close()
    }
}

impl Subject for Site {
    fn store(&mut self) -> &mut dyn Store {
        &mut self.store
    }

    fn fail(&mut self, now: i64, batch: Vec<Operation>) {
        let broken = |broken| format!("UPDATE shiftboss.test_clock SET broken = {broken}");
        wait_for(self.outside.batch_execute(&broken(true))).unwrap();
        // What wrote nothing does not fail.
        _ = self.store.apply_at_once(now, batch);
        wait_for(self.outside.batch_execute(&broken(false))).unwrap();
    }

    fn restart(&mut self, clean: bool) {
        if clean {
            self.store.close_at_once().unwrap();
        }
        self.store.store = None;
        let opened = PostgresStore::open(self.server.clone(), "one", self.options);
        self.store.store = Some(wait_for(opened).unwrap());
    }

    fn reader(&mut self) -> Arc<dyn Reader> {
        Arc::new(PostgresReader(self.server.clone()))
    }
}
