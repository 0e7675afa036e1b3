//! What a server, its settings and its administrators do to a daemon.

use shiftboss_actors::store::{
    AddRows, Changed, CountInFlight, Dispatched, Each, Leases, RegisterRun, Requeue, Requeued,
    Store, StoreError,
};
use shiftboss_actors::testing::model::Rules;
use shiftboss_actors::testing::one_by_one::{OneByOne, wait_for};
use shiftboss_protocol::model::{Key, Row};
use tokio::time::{Duration, Instant, sleep};
use tokio_postgres::Client;

use super::claims::{until_apply_waits, until_waits};
use super::concurrency::{list, work_all};
use super::daemons::{PATIENCE, again, ask, daemon, lease};
use super::support::{self, Daemons, Database, Site, try_open};
use super::takeover::rows;
use crate::stores::postgres::PostgresStore;

/// Gives the database a setting, which counts for connections that are made from now on, and ends the others.
async fn set(outside: &Client, setting: &str) {
    let sql = format!(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {setting}', current_database()); END $$;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()"
    );
    outside.batch_execute(&sql).await.unwrap();
}

/// After a failover the server may be a standby for a moment: the daemon waits, and so does one that starts.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_server_that_only_reads_is_waited_for() {
    let database = Database::new();
    wait_for(async {
        let outside = support::connect(&database.url).await;
        let mut store = daemon(&database.server, 0).await;
        set(&outside, "SET default_transaction_read_only = on").await;
        let end = Instant::now() + PATIENCE;
        while !matches!(ask(&mut store, CountInFlight).await,
            Err(StoreError::Busy(text)) if text.contains("target_session_attrs=read-write"))
        {
            assert!(Instant::now() < end);
            sleep(Duration::from_millis(10)).await;
        }
        let started = try_open(&database.server, "another", "its directory").await.err().unwrap();
        assert!(matches!(started, StoreError::Busy(_)), "{started}");
        outside.batch_execute("SET default_transaction_read_only = off").await.unwrap();
        set(&outside, "RESET default_transaction_read_only").await;
        again(async || ask(&mut store, CountInFlight).await).await;
    });
}

/// Settings that others need do nothing to a daemon.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn settings_of_the_database_do_not_matter() {
    let database = Database::new();
    wait_for(async {
        let outside = support::connect(&database.url).await;
        for setting in [
            "default_transaction_isolation = 'serializable'",
            "standard_conforming_strings = off",
            "statement_timeout = 250",
            "lock_timeout = 250",
            "idle_session_timeout = 20000",
            "search_path = public",
            "bytea_output = escape",
            "\"TimeZone\" = 'Asia/Kathmandu'",
            "\"DateStyle\" = 'German'",
        ] {
            set(&outside, &format!("SET {setting}").replace('\'', "''")).await;
        }
        let connection = database.server.connect().await.unwrap();
        let idle = connection.client.query_one("SHOW idle_session_timeout", &[]).await.unwrap();
        assert_eq!(idle.get::<_, &str>(0), "0", "it is ended while nobody asks");
    });
    database.with_store(async |store| {
        list(store, "f", 1, 1_000).await;
        list(store, "g", 1, 1_000).await;
    });
    assert_eq!(work_all(&database, 3, 16), vec![2; 1_000]);
}

#[test]
#[ignore = "needs a server: make test-postgres"]
fn what_anybody_may_read_does_not_depend_on_settings() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 1).await;
        let reader = support::connect(&database.url).await;
        reader.batch_execute("SET standard_conforming_strings = off").await.unwrap();
        let shown = reader.query_one("SELECT attr_path FROM shiftboss_public.queue", &[]).await;
        assert_eq!(shown.unwrap().get::<_, &str>(0), "package-0");
    });
}

/// Somebody has locked what is tidied up between two beats: the daemon lives on for the others to see.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_locked_table_does_not_hold_up_the_beats() {
    let database = Database::new();
    wait_for(async {
        let _store = daemon(&database.server, 0).await;
        let outside = database.outside().await;
        outside.batch_execute("BEGIN; CREATE INDEX ON completions (jobs)").await.unwrap();
        let beats = async || -> i64 {
            outside.query_one("SELECT beat FROM daemons", &[]).await.unwrap().get(0)
        };
        let (first, began) = (beats().await, Instant::now());
        while beats().await < first + 3 {
            assert!(began.elapsed() < Duration::from_secs(10), "it does not beat");
            sleep(Duration::from_millis(100)).await;
        }
    });
}

/// An adoption takes longer than its daemon waits for the answer: the daemon is told of its leases all the same.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_late_adoption_is_noticed() {
    let database = Database::new();
    wait_for(async {
        let mut survivor = daemon(&database.server, 0).await;
        list(&mut survivor, "f", 1, 1).await;
        let mut dead = daemon(&database.server, 1).await;
        let (attempt, _) = lease(&mut dead).await.unwrap();
        let changed = async |store: &mut PostgresStore, patience| {
            let changed = std::future::poll_fn(|task| store.poll_changed(task));
            tokio::time::timeout(patience, changed).await.ok()
        };
        while changed(&mut survivor, Duration::from_secs(2)).await.is_some() {}
        let outside = database.outside().await;
        let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_sleep(6); RETURN NEW; END';
            CREATE TRIGGER slow BEFORE UPDATE OF daemon ON attempts FOR EACH ROW EXECUTE FUNCTION slow()";
        outside.batch_execute(slow).await.unwrap();
        drop(dead);
        let end = Instant::now() + PATIENCE;
        while changed(&mut survivor, Duration::from_secs(1)).await != Some(Changed::Leases) {
            assert!(Instant::now() < end, "it was not told");
        }
        assert_eq!(ask(&mut survivor, Leases).await.unwrap(), [(attempt, 600)]);
    });
}

/// Two daemons wait for each other, and the server ends the wait of one: it asks again.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_deadlock_fails_nobody() {
    let database = Database::new();
    wait_for(async {
        let watch = support::connect(&database.url).await;
        // It is the store's wait that is ended, and not before the others wait, too.
        set(&watch, "SET deadlock_timeout = 2000").await;
        let mut store = daemon(&database.server, 0).await;
        list(&mut store, "f", 1, 2).await;
        let (first, second) =
            (lease(&mut store).await.unwrap().1, lease(&mut store).await.unwrap().1);
        let mut outside = database.outside().await;
        outside.batch_execute("SET deadlock_timeout = '1min'").await.unwrap();
        let other = outside.transaction().await.unwrap();
        let lock = "SELECT FROM log JOIN keys USING (key_id) WHERE key = $1 FOR UPDATE OF log";
        other.query_one(lock, &[&second.as_str().as_bytes()]).await.unwrap();
        let both = Each(vec![Requeue(first.clone()), Requeue(second)]);
        let cross = async {
            until_apply_waits(&watch).await;
            other.query_one(lock, &[&first.as_str().as_bytes()]).await.unwrap();
            other.rollback().await.unwrap();
        };
        let (requeued, ()) = tokio::join!(ask(&mut store, both), cross);
        assert!(requeued.unwrap().iter().all(|one| matches!(one, Ok(Requeued::Back(_)))));
    });
}

/// The same where one joins: it sets the rules again.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_deadlock_keeps_nobody_from_joining() {
    let database = Database::new();
    wait_for(async {
        let watch = support::connect(&database.url).await;
        set(&watch, "SET deadlock_timeout = 2000").await;
        list(&mut daemon(&database.server, 0).await, "f", 1, 1).await;
        let mut outside = database.outside().await;
        let held = "SET deadlock_timeout = '1min'; INSERT INTO backoff_rule VALUES ('{}', false, 1, '{1}');
            INSERT INTO holds SELECT key_id, 'backoff', 0, NULL, '', '' FROM keys";
        outside.batch_execute(held).await.unwrap();
        let other = outside.transaction().await.unwrap();
        other.batch_execute("UPDATE holds SET reason = 'changed'").await.unwrap();
        let cross = async {
            until_waits(&watch, "%UPDATE holds%").await;
            other.batch_execute("UPDATE backoff_rule SET after = 2").await.unwrap();
            other.commit().await.unwrap();
        };
        let (joined, ()) = tokio::join!(try_open(&database.server, "daemon 1", "/other"), cross);
        assert!(joined.is_ok(), "{:?}", joined.err());
        let left = "SELECT count(*) FROM backoff_rule";
        assert_eq!(outside.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

/// A migration that somebody else does not get done is not waited for without end.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_migration_that_hangs_is_named() {
    let database = Database::new();
    wait_for(async {
        let outside = support::connect(&database.url).await;
        outside.batch_execute("SELECT pg_advisory_lock(x'7368696674626f73'::int8)").await.unwrap();
        let refused = try_open(&database.server, "daemon 0", "a directory").await.err().unwrap();
        assert!(
            matches!(&refused, StoreError::Busy(text) if text.contains("making the schema")),
            "{refused}"
        );
    });
}

/// Daemons may log in as others than the owner of the schema, whose role they take.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_login_of_its_own_may_join_anew() {
    let database = Database::new();
    wait_for(async {
        let outside = support::connect(&database.url).await;
        let (name, login): (String, String) = {
            let sql = "SELECT current_database()::text, 'login_' || current_database()";
            let row = outside.query_one(sql, &[]).await.unwrap();
            (row.get(0), row.get(1))
        };
        let roles = format!(
            "CREATE ROLE owner_{name}; CREATE ROLE {login} LOGIN IN ROLE owner_{name};
            ALTER ROLE {login} SET role = owner_{name}; ALTER DATABASE {name} OWNER TO owner_{name}"
        );
        outside.batch_execute(&roles).await.unwrap();
        let (_, place) = database.url.split_once('@').unwrap();
        let server = support::server(&format!("postgres://{login}@{place}"));
        let mut store = daemon(&server, 0).await;
        let anew = "UPDATE shiftboss.daemons SET epoch = nextval('shiftboss.epochs')";
        outside.batch_execute(anew).await.unwrap();
        again(async || ask(&mut store, CountInFlight).await).await;
        drop(store);
        let gone = format!("DROP DATABASE {name} WITH (FORCE); DROP ROLE {login}, owner_{name}");
        let other = support::connect(&support::url_of("postgres")).await;
        for statement in gone.split("; ") {
            other.batch_execute(statement).await.unwrap();
        }
    });
}

/// A connection ends while logins are refused: that is no end of a daemon whose other one stands.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_login_that_is_refused_for_a_while_ends_nobody() {
    let database = Database::new();
    wait_for(async {
        let outside = support::connect(&database.url).await;
        let sql = "SELECT current_database()::text";
        let name: String = outside.query_one(sql, &[]).await.unwrap().get(0);
        let allow = |login| format!("ALTER ROLE login_{name} {login}");
        let role = format!("CREATE ROLE login_{name} SUPERUSER; {}", allow("LOGIN"));
        outside.batch_execute(&role).await.unwrap();
        let (_, place) = database.url.split_once('@').unwrap();
        let server = support::server(&format!("postgres://login_{name}@{place}"));
        let mut store = daemon(&server, 0).await;
        let its = "FROM pg_stat_activity WHERE datname = current_database()
            AND query ~ 'LISTEN|pg_notify|beat\\(|forget_ended|tidy_fetchers' AND pid <> pg_backend_pid()";
        let (find, end) =
            (format!("SELECT {its}"), format!("SELECT pg_terminate_backend(pid) {its}"));
        let began = Instant::now();
        while outside.query(&find, &[]).await.unwrap().is_empty() {
            assert!(began.elapsed() < PATIENCE, "it has no such connection");
            sleep(Duration::from_millis(20)).await;
        }
        outside.batch_execute(&allow("NOLOGIN")).await.unwrap();
        assert_eq!(outside.query(&end, &[]).await.unwrap().len(), 1);
        // Time to be refused a few times.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            assert_eq!(ask(&mut store, CountInFlight).await, Ok(0));
        }
        outside.batch_execute(&allow("LOGIN")).await.unwrap();
        drop(store);
        let other = support::connect(&support::url_of("postgres")).await;
        other.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
        other.batch_execute(&format!("DROP ROLE login_{name}")).await.unwrap();
    });
}

/// The server's clock was set back: a classic job that is out is looked at by itself from then on, and the other attempts are gone
/// through once. One that began after the change, and so before it, comes back first.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_clock_that_was_set_back_has_attempts_gone_through_once() {
    let (rules, before, after) = (Rules::default(), 10_000, 5_000);
    let mut site = Site::new(rules.clone(), 1);
    for key in ["a", "b", "c"] {
        let task = Row { key: Key::new(key).unwrap(), payload: String::new() };
        site.daemons.add_task(&task, before).unwrap();
    }
    let next = |daemons: &mut Daemons, now| match daemons.dispatch(now, None) {
        Ok(Dispatched::Job(attempt, job)) => (attempt.0, job.key),
        other => panic!("{other:?}"),
    };
    let [(_, late), (_, early), (last, ended)] =
        [before, after, after].map(|now| next(&mut site.daemons, now));
    site.daemons.finish(&ended, 0, after).unwrap();
    let over = after + rules.lease_seconds + 1;
    let find = format!("SELECT gone_to FROM find_overdue(0, {over}, {})", rules.lease_seconds);
    let found = wait_for(site.outside.query_one(&find, &[])).unwrap();
    assert_eq!(found.get::<_, i64>(0), last);
    let both = [over, before + rules.lease_seconds + 1].map(|now| next(&mut site.daemons, now).1);
    assert_eq!(both, [early, late]);
}

/// A key that is in flight by its log row alone is free when that job's lease is over, also if the clock was set back to before that
/// meanwhile.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_job_without_an_attempt_is_over_with_its_lease() {
    let (rules, start) = (Rules::default(), 1_000_000);
    let mut site = Site::new(rules.clone(), 1);
    let task = Row { key: Key::new("a").unwrap(), payload: String::new() };
    let is_out = |daemons: &mut Daemons, now| {
        let dispatched = daemons.dispatch(now, None).unwrap();
        assert!(matches!(dispatched, Dispatched::Job(..) | Dispatched::Nothing), "{dispatched:?}");
        dispatched != Dispatched::Nothing
    };
    site.daemons.add_task(&task, start).unwrap();
    assert!(is_out(&mut site.daemons, start));
    let end = start + rules.lease_seconds;
    let listed = rows(1, &["a"]);
    site.daemons.ask(start, RegisterRun(listed.run.clone())).unwrap();
    site.daemons.ask(start, AddRows(listed)).unwrap();
    assert!(is_out(&mut site.daemons, end + 1));
    // The first job goes with its task, and the second one is given back: what the log row said before, it says again.
    site.daemons.cancel_tasks(&task.key, end + 1).unwrap();
    site.daemons.requeue(&task.key, end + 1).unwrap();
    site.daemons.add_task(&task, end - 29).unwrap();
    assert!(!is_out(&mut site.daemons, end - 29));
    assert!(is_out(&mut site.daemons, end + 1), "nobody noticed");
}
