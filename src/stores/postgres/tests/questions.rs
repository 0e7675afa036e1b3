//! What is asked of a long queue, which costs no more than of a short one: what holds of all queues is in the conformance suite.

use shiftboss_actors::store::{Reader, SAMPLE_MAX};
use shiftboss_actors::testing::one_by_one::wait_for;

use super::concurrency::list;
use super::support::Database;
use crate::stores::postgres::PostgresReader;

const KEYS: usize = 20_000;

/// A list of many keys, a quarter of which ran.
fn long_queue() -> (Database, PostgresReader) {
    let database = Database::new();
    database.with_store(async |store| list(store, "f", 1, KEYS).await);
    wait_for(async {
        let outside = database.outside().await;
        let ran = "UPDATE log SET started = 7, finished = 8, exit_code = 3 WHERE key_id % 4 = 0; ANALYZE keys";
        outside.batch_execute(ran).await.unwrap();
    });
    let reader = PostgresReader::new(database.server.clone());
    (database, reader)
}

/// So many keys are looked at, each standing for as many as any other.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_sample_of_waits() {
    let (_database, reader) = long_queue();
    let found = reader.last_starts().unwrap();
    assert!(!found.is_all && found.started.len() > SAMPLE_MAX - 10, "{}", found.started.len());
    let ran = found.started.iter().filter(|started| **started == Some(7)).count();
    // A quarter, within seven standard deviations.
    assert!((160..352).contains(&ran), "{ran}");
}

/// Keys are found along their index, also those that are longer than its entries.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn keys_by_how_they_begin() {
    let (database, reader) = long_queue();
    let keys = |prefix: &str| -> Vec<String> {
        reader.search(prefix, 3).unwrap().keys.into_iter().map(|found| found.key).collect()
    };
    assert_eq!(keys("package-1999"), ["package-1999", "package-19990", "package-19991"]);
    assert_eq!(keys("package-20000"), [""; 0]);
    wait_for(async {
        let outside = database.outside().await;
        let longer =
            "UPDATE keys SET key = (repeat('x', 100) || (key_id % 10))::bytea WHERE key_id <= 2";
        outside.batch_execute(longer).await.unwrap();
        let explain =
            "EXPLAIN SELECT key FROM keys k WHERE substr(key, 1, 64) >= 'package-1'::bytea
            AND substr(key, 1, 64) <= 'package-2'::bytea ORDER BY substr(key, 1, 64), key LIMIT 3";
        let plan = outside.query(explain, &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        assert!(plan.iter().any(|step| step.contains("keys_by_beginning")), "{plan:?}");
    });
    let x = "x".repeat(100);
    assert_eq!(keys(&x), [format!("{x}1"), format!("{x}2")]);
    assert_eq!(keys(&format!("{x}2")), [format!("{x}2")]);
}
