//! The store that these tests run on: PostgreSQL, each in a schema of its own on the server that `make test-postgres`
//! has started.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use shiftboss_postgres::Moment;
pub use shiftboss_postgres::PostgresRecords as Store;
use shiftboss_postgres::{SCHEMA, SETTINGS};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::counts::COUNTS;
use shiftboss_queue::look::{Look, Opens};
use shiftboss_queue::reader::ReadResult;
use shiftboss_queue::records::StoreResult;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Row};

/// Whether one daemon's numbers of attempts may have gaps.
pub const HAS_GAPS: bool = false;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().unwrap();
}

/// Waits for the server.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

pub async fn connect() -> Client {
    let url = std::env::var("SHIFTBOSS_TEST_POSTGRES")
        .expect("SHIFTBOSS_TEST_POSTGRES names a server: run `make test-postgres`");
    let (server, parameters) = url.split_once('?').unwrap_or((&url, ""));
    let url = format!("{}/postgres?{parameters}", server.trim_end_matches('/'));
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Schemas that a thread uses at a time: a test compares at most two stores.
const SCHEMAS: usize = 2;

/// The name of an unused schema; drops an earlier one of this thread.
pub fn schema() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static OWN: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let schema = format!("queue_{}_{count}", std::process::id());
    let first = OWN.with_borrow_mut(|own| {
        own.push_back(schema.clone());
        if own.len() > SCHEMAS { own.pop_front() } else { None }
    });
    if let Some(first) = first {
        let drop = format!("DROP SCHEMA IF EXISTS {first} CASCADE");
        wait(async { connect().await.batch_execute(&drop).await }).unwrap();
    }
    schema
}

/// The store of one daemon.
pub fn store(schema: &str, daemon: i64) -> Store {
    wait(made(schema, daemon)).without_clock()
}

/// With the server's own time.
pub async fn made(schema: &str, daemon: i64) -> Store {
    let client = connect().await;
    let run = async |sql: &str| client.batch_execute(sql).await.unwrap();
    // Several may make it at once.
    run(&format!("{SETTINGS}; SET search_path = {schema}; SELECT pg_advisory_lock(7365696)")).await;
    let is_new = client.query_one("SELECT to_regclass('keys') IS NULL", &[]).await.unwrap().get(0);
    if is_new {
        run(&format!("BEGIN; CREATE SCHEMA {schema}; {SCHEMA}; COMMIT")).await;
    }
    run("SELECT pg_advisory_unlock(7365696)").await;
    Store::new(client, daemon)
}

pub fn new() -> Store {
    store(&schema(), 1)
}

/// A reader of a queue, as of one moment.
pub struct Looking(pub Mutex<Moment>);

pub fn reader(store: &Store) -> Looking {
    let schema: String = query(store, "SELECT current_schema()::text")[0].get(0);
    let moment = wait(async {
        let client = connect().await;
        let settings = format!("{SETTINGS}; SET search_path = {schema}");
        client.batch_execute(&settings).await.unwrap();
        Moment::of(client, 1).await
    });
    Looking(Mutex::new(moment.unwrap().without_clock()))
}

impl Opens for Looking {
    type Found = Moment;

    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl AsyncFnOnce(&mut Look<'_, Moment>) -> StoreResult<T>,
    ) -> ReadResult<T> {
        let moment = &mut *self.0.lock().unwrap();
        Ok(wait(async { question(&mut Look::at(moment, now).await?).await }).unwrap())
    }
}

/// Deletes all ended attempts.
pub fn forget_ends(store: &mut Store) {
    query(store, "DELETE FROM attempts");
}

fn query(store: &Store, sql: &str) -> Vec<Row> {
    wait(store.client().query(sql, &[])).unwrap()
}

/// From now on commits of batches that change keys, runs or documents fail, or no longer do.
pub fn refuse(store: &Store, refuse: bool) -> bool {
    let on = |table| {
        format!(
            "CREATE CONSTRAINT TRIGGER refused AFTER INSERT OR UPDATE OR DELETE ON {table}
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refused();"
        )
    };
    let sql = if refuse {
        let function = "CREATE FUNCTION refused() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'the test has commits fail'; END $$;";
        function.to_owned() + &["keys", "runs", "documents"].map(on).concat()
    } else {
        "DROP FUNCTION refused CASCADE".to_owned()
    };
    wait(store.client().batch_execute(&sql)).is_ok()
}

/// What is counted, by fetcher and run.
pub fn counts(store: &Store) -> BTreeMap<(i64, i64), [i64; COUNTS]> {
    let mut counts: BTreeMap<_, [i64; COUNTS]> = BTreeMap::new();
    for row in query(store, "SELECT * FROM counts") {
        let sums = counts.entry((row.get(0), row.get(1))).or_default();
        sums.iter_mut().enumerate().for_each(|(at, sum)| *sum += row.get::<_, i64>(3 + at));
    }
    counts.retain(|_, sums| *sums != [0; COUNTS]);
    counts
}

/// Sums of attempts that ended, by hour, fetcher and outcome: jobs, milliseconds, revisits, seconds.
pub fn hours(store: &Store) -> BTreeMap<(i64, i64, String), [i64; 4]> {
    let mut hours: BTreeMap<_, [i64; 4]> = BTreeMap::new();
    for row in query(store, "SELECT * FROM hours") {
        let sums = hours.entry((row.get(0), row.get(1), row.get(2))).or_default();
        sums.iter_mut().enumerate().for_each(|(at, sum)| *sum += row.get::<_, i64>(4 + at));
    }
    hours.retain(|_, sums| sums[0] != 0);
    hours
}

/// Jobs by minute and exit code.
pub fn minutes(store: &Store) -> BTreeMap<(i64, i64), i64> {
    let mut minutes = BTreeMap::new();
    for row in query(store, "SELECT * FROM minutes") {
        *minutes.entry((row.get(0), row.get(1))).or_default() += row.get::<_, i64>(3);
    }
    minutes.retain(|_, jobs| *jobs != 0);
    minutes
}

/// The number of keys that have a turn.
pub fn ready(store: &Store) -> usize {
    query(store, "SELECT FROM keys WHERE turn IS NOT NULL").len()
}

/// The last start of each key that ran, its end, and the exit code.
pub fn log(store: &Store) -> BTreeMap<String, (i64, Option<i64>, Option<i64>)> {
    let sql = "SELECT convert_from(key, 'UTF8'), started, finished, exit_code FROM keys
        WHERE started IS NOT NULL";
    let rows = query(store, sql);
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect()
}
