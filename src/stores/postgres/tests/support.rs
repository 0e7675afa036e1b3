//! A store in a database of its own, whose clock a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use proptest::prelude::ProptestConfig;
use shiftboss_actors::store::{
    Changed, Checkpoint, Heartbeat, Operation, Outcome, Reader, Rejected, Store, StoreFuture,
    StoreResult,
};
use shiftboss_actors::testing::conformance::Subject;
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::{OneByOne, wait_for};
use shiftboss_protocol::backoff::random;
use tokio_postgres::{Client, NoTls};

use crate::stores;
use crate::stores::options::{Durability, Options, Policy, Polls};
use crate::stores::postgres::{Identity, PostgresReader, PostgresStore, Server};

/// When daemons take over fetchers of others.
pub const TAKEOVER: Duration = Duration::from_secs(600);

/// The server that `make test-postgres` started.
fn server_url() -> String {
    std::env::var("SHIFTBOSS_TEST_POSTGRES")
        .expect("SHIFTBOSS_TEST_POSTGRES names a server: run `make test-postgres`")
}

pub fn url(text: &str) -> stores::Url {
    match stores::Database::from(std::path::PathBuf::from(text)) {
        stores::Database::Server(url) => url,
        stores::Database::File(_) => panic!("SHIFTBOSS_TEST_POSTGRES is no URL of a server"),
    }
}

pub fn server(text: &str) -> Server {
    Server::new(&url(text)).unwrap()
}

/// The URL of a database on it.
pub fn url_of(database: &str) -> String {
    let url = server_url();
    let (server, parameters) = url.split_once('?').unwrap_or((&url, ""));
    format!("{}/{database}?{parameters}", server.trim_end_matches('/'))
}

pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// So many random cases as the environment's PROPTEST_CASES says, or few.
pub fn cases(few: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.map(|text| text.parse().expect("PROPTEST_CASES is a number"));
    ProptestConfig::with_cases(asked.unwrap_or(few))
}

pub fn options(rules: Rules) -> Options {
    Options {
        policy: Policy::Fair { lease_seconds: rules.lease_seconds },
        durability: Durability::Power,
        busy_timeout: Duration::from_secs(5),
        max_expired_leases: u32::try_from(rules.max_expired_leases).unwrap(),
        max_single_tasks: u32::try_from(rules.max_single_tasks).unwrap(),
        history: 100_000,
        bump_share: rules.bump_share,
        backoff: rules.backoff,
        retries: rules.retries,
    }
}

/// A queue in a new database, its daemons, and a connection beside them. Time is what the test says.
pub struct Site {
    pub server: Server,
    pub outside: Client,
    pub daemons: Daemons,
    options: Options,
}

/// Daemons of one queue, asked one after the other as if they were one store. The server's clock is set before each
/// call; a question that has no time is asked at the time of the last one.
pub struct Daemons {
    pub stores: Vec<Option<PostgresStore>>,
    calls: usize,
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
        FOREACH v_table IN ARRAY '{log, queue, runs, single_tasks, attempts, ready, state, fetchers, holds, bumps}'::text[] LOOP
            EXECUTE format('CREATE CONSTRAINT TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON %I
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()', v_table);
        END LOOP;
    END $$";

/// A new database.
pub struct Database {
    pub server: Server,
    pub url: String,
}

impl Database {
    pub fn new() -> Self {
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), DATABASES.fetch_add(1, Ordering::Relaxed));
        let create = format!("CREATE DATABASE {name} TEMPLATE template0");
        wait_for(async {
            connect(&url_of("postgres")).await.batch_execute(&create).await.unwrap();
        });
        let url = url_of(&name);
        Self { server: server(&url), url }
    }

    /// A connection of somebody else.
    pub async fn outside(&self) -> Client {
        let outside = connect(&self.url).await;
        outside.batch_execute("SET search_path = shiftboss").await.unwrap();
        outside
    }

    /// As `shiftboss move` takes it.
    pub fn url(&self) -> stores::Url {
        url(&self.url)
    }

    /// Has a daemon do something.
    pub fn with_store<T>(&self, work: impl AsyncFnOnce(&mut PostgresStore) -> T) -> T {
        wait_for(async {
            let mut store = open(&self.server, 0, options(Rules::default())).await;
            let done = work(&mut store).await;
            store.close().await.unwrap();
            done
        })
    }
}

impl Site {
    /// With so many daemons.
    pub fn new(rules: Rules, daemons: usize) -> Self {
        Self::on(&Database::new(), rules, daemons)
    }

    /// The same in a database that may have a queue.
    pub fn on(Database { server, url }: &Database, rules: Rules, daemons: usize) -> Self {
        let options = options(rules);
        wait_for(async {
            let mut stores = Vec::new();
            for daemon in 0..daemons {
                stores.push(Some(open(server, daemon, options.clone()).await));
            }
            let (outside, clock) = (connect(url).await, connect(url).await);
            outside.batch_execute(TEST_CLOCK).await.unwrap();
            Self {
                server: server.clone(),
                outside,
                daemons: Daemons { stores, calls: 0, clock },
                options,
            }
        })
    }
}

/// A daemon with that name, in an input directory of its own.
pub async fn open(server: &Server, daemon: usize, options: Options) -> PostgresStore {
    let name = format!("daemon {daemon}");
    let owner = format!("{}@ the directory of {name}", random());
    let identity = Identity { owner, name, takeover: TAKEOVER, polls: Polls::default() };
    PostgresStore::open(server.clone(), identity, options).await.unwrap()
}

pub async fn try_open(server: &Server, name: &str, owner: &str) -> StoreResult<PostgresStore> {
    let (name, owner) = (name.to_owned(), format!("{}@ {owner}", random()));
    let identity = Identity { name, owner, takeover: TAKEOVER, polls: Polls::default() };
    PostgresStore::open(server.clone(), identity, options(Rules::default())).await
}

impl Daemons {
    /// The daemon whose turn it is.
    fn next(&mut self) -> &mut PostgresStore {
        self.calls += 1;
        let at = self.calls % self.stores.len();
        self.stores[at].as_mut().unwrap()
    }

    /// What each daemon answers of its own part, together.
    async fn ask_all(&mut self, question: &Operation) -> Outcome {
        let (mut leases, mut runs, mut jobs) = (Vec::new(), Vec::new(), 0);
        for store in self.stores.iter_mut().flatten() {
            match store.apply(0, vec![question.clone()]).await.unwrap().remove(0).unwrap() {
                Outcome::Leases(its) => leases.extend(its),
                Outcome::Runs(its) => runs.extend(its),
                Outcome::CountInFlight(its) => jobs += its,
                other => panic!("{other:?} is not a part"),
            }
        }
        match question {
            Operation::Leases(_) => Outcome::Leases(leases),
            Operation::Runs(_) => Outcome::Runs(runs),
            _ => Outcome::CountInFlight(jobs),
        }
    }

    async fn apply_in_turn(&mut self, now: i64, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        if now != 0 {
            let set = format!("UPDATE shiftboss.test_clock SET ms = {now}");
            self.clock.batch_execute(&set).await.unwrap();
        }
        use Operation as Op;
        if let [question @ (Op::Leases(_) | Op::Runs(_) | Op::CountInFlight(_))] = &*batch {
            return Ok(vec![Ok(self.ask_all(question).await)]);
        }
        // A fetcher is one daemon's.
        let is_list = |operation: &Op| matches!(operation, Op::RegisterRun(_) | Op::DeleteRuns(_));
        let store = match batch.iter().any(is_list) {
            true => self.stores[0].as_mut().unwrap(),
            false => self.next(),
        };
        // A lease runs at the daemon where its worker was last.
        let beat = |operation: &Op| match operation {
            Op::Expire(it) => Some(Op::Heartbeat(Heartbeat(it.0))),
            _ => None,
        };
        let beats: Vec<_> = batch.iter().filter_map(beat).collect();
        if !beats.is_empty() {
            store.apply(now, beats).await?;
        }
        store.apply(now, batch).await
    }
}

type Outcomes = Vec<Result<Outcome, Rejected>>;

impl Store for Daemons {
    fn apply(&mut self, now: i64, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.apply_in_turn(now, batch))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        self.next().poll_changed(task)
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        self.next().maintain()
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        self.next().close()
    }
}

impl Subject for Site {
    fn store(&mut self) -> &mut dyn Store {
        &mut self.daemons
    }

    fn fail(&mut self, now: i64, batch: Vec<Operation>) {
        let broken = |broken| format!("UPDATE shiftboss.test_clock SET broken = {broken}");
        wait_for(self.outside.batch_execute(&broken(true))).unwrap();
        // What wrote nothing does not fail.
        _ = self.daemons.apply_at_once(now, batch);
        wait_for(self.outside.batch_execute(&broken(false))).unwrap();
    }

    /// Another daemon each time.
    fn restart(&mut self, clean: bool) {
        self.daemons.calls += 1;
        let at = self.daemons.calls % self.daemons.stores.len();
        let mut stopped = self.daemons.stores[at].take().unwrap();
        if clean {
            stopped.close_at_once().unwrap();
        }
        drop(stopped);
        self.daemons.stores[at] = Some(wait_for(open(&self.server, at, self.options.clone())));
    }

    fn reader(&mut self) -> Arc<dyn Reader> {
        Arc::new(PostgresReader::new(self.server.clone()))
    }
}
