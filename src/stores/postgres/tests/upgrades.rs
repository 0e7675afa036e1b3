//! A schema that gets newer under daemons that are not: they go on, also while it waits for a table.

use shiftboss_actors::store::{
    Ack, Complete, CompleteAttempt, Dispatch, Dispatched, LeaseHolder, Reader as _, StoreError,
};
use shiftboss_actors::testing::one_by_one::wait_for;
use tokio_postgres::Client;

use super::concurrency::list;
use super::daemons::{ask, daemon};
use super::support::{self, Database};
use crate::stores::postgres::{PostgresReader, PostgresStore, schema};

const KEYS: usize = 40;

/// A column more in each table that a daemon uses, and a function that was not there.
const NEXT: &[&str] = &["
    SET LOCAL search_path = shiftboss;
    DO $$ DECLARE v_table text; BEGIN
        FOR v_table IN SELECT tablename FROM pg_tables WHERE schemaname = 'shiftboss' LOOP
            EXECUTE format('ALTER TABLE %I ADD COLUMN next int8 NOT NULL DEFAULT 0', v_table);
        END LOOP;
    END $$;
    CREATE FUNCTION next() RETURNS int8 LANGUAGE sql AS 'SELECT sum(next)::int8 FROM queue';"];

async fn upgrade(client: &Client) -> Result<(), StoreError> {
    schema::migrate_to(client, &[schema::VERSIONS, &[NEXT]].concat()).await
}

/// One job from its dispatch to its end, of one protocol or the other.
async fn work(store: &mut PostgresStore, is_leased: bool) {
    let holder = LeaseHolder { worker: "worker".into(), lease_seconds: 600 };
    let dispatch = Dispatch { holder: is_leased.then_some(holder), fetchers: None };
    let Ok(Dispatched::Job(attempt, job)) = ask(store, dispatch).await else {
        panic!("no job is handed out");
    };
    if is_leased {
        let done = CompleteAttempt { attempt, exit_code: 0 };
        assert_eq!(ask(store, done).await, Ok(Ack::Recorded));
    } else {
        ask(store, Complete { key: job.key, exit_code: 0 }).await.unwrap();
    }
}

/// A newer shiftboss brings the schema up to date while an older daemon works, and somebody reads. Whoever waits for a table
/// has all others wait behind him, so the update does so for half a second at a time.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn daemons_of_the_version_before_go_on() {
    let database = Database::new();
    wait_for(async {
        let mut old = daemon(&database.server, 0).await;
        list(&mut old, "f", 1, KEYS).await;
        let (reader, newer) = (database.outside().await, database.outside().await);
        let read = "BEGIN; SELECT count(*) FROM queue; SELECT count(*) FROM log";
        reader.batch_execute(read).await.unwrap();
        let upgraded = upgrade(&newer);
        tokio::pin!(upgraded);
        for job in 0..KEYS / 2 {
            tokio::select! {
                ended = &mut upgraded => panic!("it waits for no reader: {ended:?}"),
                () = work(&mut old, job % 2 == 0) => {}
            }
        }
        reader.batch_execute("COMMIT").await.unwrap();
        upgraded.await.unwrap();
        for job in KEYS / 2..KEYS - 1 {
            work(&mut old, job % 2 == 0).await;
        }
        let mut restarted = daemon(&database.server, 1).await;
        work(&mut restarted, true).await;
        list(&mut restarted, "g", 2, 1).await;
        let sql = "SELECT count(*) FROM log WHERE finished IS NOT NULL";
        let ended: i64 = newer.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(ended, i64::try_from(KEYS).unwrap());
    });
    PostgresReader::new(database.server.clone()).status(0).unwrap();
}

/// Attempts that ended under version 2 have numbers of their ends, in the order in which they ended.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn ends_of_version_2_get_numbers() {
    let database = Database::new();
    wait_for(async {
        let client = support::connect(&database.url).await;
        schema::migrate_to(&client, &schema::VERSIONS[..2]).await.unwrap();
        let ended = "SET search_path = shiftboss;
            INSERT INTO keys (key, jitter, place) VALUES ('a', 1, 1);
            INSERT INTO attempts (attempt, key_id, fetcher, run_started, daemon, call, started_ms, finished, outcome)
            SELECT n, key_id, 0, 1, 1, 1, n * 1000, CASE WHEN n < 4 THEN 10 - n END, CASE WHEN n < 4 THEN 'done' END
            FROM keys, generate_series(1, 4) AS n";
        client.batch_execute(ended).await.unwrap();
        schema::migrate(&client).await.unwrap();
        let numbers = "SELECT array_agg(attempt ORDER BY ended) FROM ends JOIN attempts USING (attempt, ended)";
        let numbered: Vec<i64> = client.query_one(numbers, &[]).await.unwrap().get(0);
        assert_eq!(numbered, [3, 2, 1]);
    });
}

/// Somebody holds a table and does not let go: the update gives up, and says what is in its way.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_table_that_somebody_holds_is_named() {
    let database = Database::new();
    database.with_store(async |_| {});
    wait_for(async {
        let (reader, newer) = (database.outside().await, support::connect(&database.url).await);
        reader.batch_execute("BEGIN; SELECT count(*) FROM queue").await.unwrap();
        let refused = upgrade(&newer).await.err().unwrap();
        let said = refused.to_string();
        assert!(matches!(refused, StoreError::Busy(_)) && said.contains("pg_locks"), "{said}");
    });
    database.with_store(async |_| {});
}
