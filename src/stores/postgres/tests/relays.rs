//! Relays of a queue that several daemons share: whatever daemon takes a message, it is carried out once, in the relay's name.

use std::sync::Arc;
use std::time::Duration;

use shiftboss_actors::file_identity::Position;
use shiftboss_actors::store::{
    Ack, AddRelayedRows, AddRows, CompleteAttempt, Dispatch, Dispatched, Heartbeat, Installation,
    JoinRelay, JoinedRelay, Lane, LeaseHolder, Leases, LoseRelay, Operation, Outcome, REJECTED_MAX,
    Reader, Reading, RegisterRun, Registered, RejectFile, RelayAnswer, Relayed, RelayedRows,
    Relays, RowBatch, RowsAnswer, Runs, StoreResult,
};
use shiftboss_actors::testing::one_by_one::wait_for;
use shiftboss_protocol::model::{Attempt, Key, Row, Run};
use tokio::time::{Instant, sleep};

use super::daemons::{PATIENCE, ask, daemon};
use super::support::Database;
use crate::stores::postgres::{PostgresReader, PostgresStore};

async fn try_join(
    store: &mut PostgresStore,
    process: &str,
    installation: Option<Arc<str>>,
) -> StoreResult<JoinedRelay> {
    let process = process.into();
    ask(store, JoinRelay { name: "r".into(), process, installation }).await
}

async fn join(store: &mut PostgresStore, process: &str) -> i64 {
    try_join(store, process, None).await.unwrap().epoch
}

async fn send(
    store: &mut PostgresStore,
    (epoch, lane, number): (i64, Lane, i64),
    operation: Operation,
) -> RelayAnswer {
    ask(store, Relayed { epoch, lane, number, operations: vec![operation] }).await.unwrap()
}

fn claim() -> Operation {
    let holder = Some(LeaseHolder { worker: "w".into(), lease_seconds: 600 });
    Operation::Dispatch(Dispatch { holder, fetchers: None })
}

fn run() -> Run {
    Run { fetcher: "f".into(), started: 1 }
}

/// Registers the relay's list, and adds rows by a range.
async fn list(store: &mut PostgresStore, epoch: i64, keys: &[&str]) {
    let register = Operation::RegisterRun(RegisterRun(run()));
    let registered = send(store, (epoch, Lane::Lists, 1), register).await;
    assert!(matches!(registered, RelayAnswer::Answered(_)), "{registered:?}");
    assert_eq!(add(store, epoch, 0, 1, keys).await, RowsAnswer::Stored);
}

async fn add(
    store: &mut PostgresStore,
    epoch: i64,
    range: u8,
    number: i64,
    keys: &[&str],
) -> RowsAnswer {
    let row = |key: &&str| Row { key: Key::new(key).unwrap(), payload: number.to_string() };
    let rows = keys.iter().map(row).collect();
    let relayed = RelayedRows { epoch, range, number, run: run(), rows };
    ask(store, AddRelayedRows(vec![relayed])).await.unwrap().remove(0)
}

fn attempt(answer: &RelayAnswer) -> Attempt {
    match answer {
        RelayAnswer::Answered(outcomes) => match &outcomes[..] {
            [Ok(Outcome::Dispatch(Dispatched::Job(attempt, _)))] => *attempt,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A claim that is repeated at another daemon is one attempt, and its worker keeps and ends it there.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_batch_is_carried_out_once_whoever_takes_it() {
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        let epoch = join(&mut one, "p").await;
        list(&mut one, epoch, &["alpha", "bravo"]).await;
        let first = send(&mut one, (epoch, Lane::Jobs, 1), claim()).await;
        assert_eq!(send(&mut other, (epoch, Lane::Jobs, 1), claim()).await, first);
        let second = send(&mut other, (epoch, Lane::Jobs, 2), claim()).await;
        assert_ne!(attempt(&second), attempt(&first));
        let lower = send(&mut one, (epoch, Lane::Jobs, 1), claim()).await;
        assert_eq!(lower, RelayAnswer::Outdated);
        assert_eq!(ask(&mut one, Leases).await.unwrap(), [], "they are the relay's");
        let beat = Operation::Heartbeat(Heartbeat(attempt(&first)));
        let beaten = send(&mut other, (epoch, Lane::Jobs, 3), beat).await;
        assert_eq!(beaten, RelayAnswer::Answered(vec![Ok(Outcome::Heartbeat(Ack::Recorded))]));
        let done = CompleteAttempt { attempt: attempt(&first), exit_code: 0 };
        let done = Operation::CompleteAttempt(done);
        let ended = send(&mut other, (epoch, Lane::Jobs, 4), done.clone()).await;
        let recorded = Ok(Outcome::CompleteAttempt(Ack::Recorded));
        assert_eq!(ended, RelayAnswer::Answered(vec![recorded]));
        assert_eq!(send(&mut one, (epoch, Lane::Jobs, 4), done).await, ended);
        // Nobody undoes it: the relay has it, whatever the daemon knows that was asked.
        drop(one);
        let attempts = "SELECT count(*) FROM attempts WHERE outcome = 'undone'";
        let outside = database.outside().await;
        assert_eq!(outside.query_one(attempts, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

/// Each message once, in order, whoever takes it; and under another epoch none of before.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn rows_of_a_range_have_no_gaps_whoever_takes_them() {
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        let epoch = join(&mut one, "p").await;
        list(&mut one, epoch, &["alpha"]).await;
        assert_eq!(add(&mut other, epoch, 0, 3, &["alpha"]).await, RowsAnswer::Gap);
        assert_eq!(add(&mut other, epoch, 0, 2, &["alpha", "bravo"]).await, RowsAnswer::Stored);
        assert_eq!(add(&mut one, epoch, 0, 1, &["alpha"]).await, RowsAnswer::Stored);
        assert_eq!(add(&mut one, epoch, 7, 1, &["charlie"]).await, RowsAnswer::Stored);
        let outside = database.outside().await;
        let rows = "SELECT string_agg(convert_from(key, 'UTF8') || ' ' || convert_from(payload, 'UTF8'), ', ' ORDER BY key)
            FROM queue JOIN keys USING (key_id)";
        let rows: String = outside.query_one(rows, &[]).await.unwrap().get(0);
        assert_eq!(rows, "alpha 2, bravo 2, charlie 1");
        let anew = join(&mut other, "p").await;
        assert_eq!(add(&mut one, epoch, 0, 3, &["delta"]).await, RowsAnswer::Lost);
        assert_eq!(add(&mut one, anew, 0, 1, &["delta"]).await, RowsAnswer::Stored);
    });
}

/// Rows that were rejected are so when they come again, whoever takes them, though their run is known by now; and a relay that was
/// answered what the queue has not is lost.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn rejected_rows_stay_so_and_a_relay_ahead_is_lost() {
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        let epoch = join(&mut one, "p").await;
        let rejected = add(&mut one, epoch, 0, 1, &["alpha"]).await;
        assert!(matches!(rejected, RowsAnswer::Rejected(_)), "{rejected:?}");
        let register = Operation::RegisterRun(RegisterRun(run()));
        send(&mut one, (epoch, Lane::Lists, 1), register).await;
        assert_eq!(add(&mut other, epoch, 0, 2, &["bravo"]).await, RowsAnswer::Stored);
        assert_eq!(add(&mut other, epoch, 0, 1, &["alpha"]).await, rejected);
        assert_eq!(add(&mut other, epoch, 0, 2, &["bravo"]).await, RowsAnswer::Stored);
        for number in 3..=2 + i64::try_from(REJECTED_MAX).unwrap() {
            let (run, rows) = (Run { started: 9, ..run() }, Vec::new());
            let unknown = RelayedRows { epoch, range: 0, number, run, rows };
            let answer = ask(&mut one, AddRelayedRows(vec![unknown])).await.unwrap().remove(0);
            assert!(matches!(answer, RowsAnswer::Rejected(_)), "{answer:?}");
        }
        assert_eq!(add(&mut one, epoch, 0, 1, &["alpha"]).await, RowsAnswer::Lost);
        let mut beat = async |number| {
            let beat = Relayed { epoch, lane: Lane::Lists, number, operations: vec![] };
            ask(&mut one, beat).await.unwrap() == RelayAnswer::Lost
        };
        assert!(!beat(0).await && !beat(1).await && beat(2).await);
    });
}

/// Rows are read on from the position that is stored, or were stored already: nothing between is left out.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn rows_go_on_from_the_position() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        ask(&mut store, RegisterRun(run())).await.unwrap();
        for (from, to, reading, is_taken) in [
            (5, 10, Reading::Onward, false),
            (0, 10, Reading::Onward, true),
            (0, 10, Reading::Onward, true),
            (20, 30, Reading::Onward, false),
            (10, 30, Reading::Onward, true),
            (0, 10, Reading::Anew, true),
        ] {
            let position = Position { offset: to, ..Position::default() };
            let (run, rows, skipped, from) = (run(), Vec::new(), 0, Some(from));
            let (by_range, complete) = (false, false);
            let batch =
                RowBatch { run, rows, skipped, from, by_range, position, complete, reading };
            let added = ask(&mut store, AddRows(batch)).await;
            assert_eq!(added.is_ok(), is_taken, "{from:?} {to}");
        }
    });
}

/// Rows that the position is not behind yet may not be in the file when it is read next.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn rows_before_their_position_make_a_run_stale() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        let epoch = join(&mut store, "p").await;
        let mut number = 1;
        let mut is_stale = async |store: &mut PostgresStore| {
            number += 1;
            let register = Operation::RegisterRun(RegisterRun(run()));
            match send(store, (epoch, Lane::Lists, number), register).await {
                RelayAnswer::Answered(outcomes) => match &outcomes[0] {
                    Ok(Outcome::RegisterRun(Registered::Run(stored))) => stored.stale,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        };
        list(&mut store, epoch, &["alpha"]).await;
        let batch = RowBatch {
            run: run(),
            rows: Vec::new(),
            skipped: 0,
            from: None,
            by_range: false,
            position: Position { offset: 6, ..Position::default() },
            complete: true,
            reading: Reading::Onward,
        };
        let moved = Operation::AddRows(AddRows(batch));
        let moved = send(&mut store, (epoch, Lane::Jobs, 1), moved).await;
        assert!(matches!(moved, RelayAnswer::Answered(_)));
        assert!(!is_stale(&mut store).await);
        assert_eq!(add(&mut store, epoch, 0, 2, &["bravo"]).await, RowsAnswer::Stored);
        assert!(is_stale(&mut store).await);
    });
}

/// A relay that no daemon hears any more is dead: its leased jobs are a daemon's, and what it says then is lost. One that is
/// heard keeps them, and its name.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_silent_relay_is_adopted() {
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        let epoch = join(&mut one, "p").await;
        list(&mut one, epoch, &["alpha"]).await;
        let leased = attempt(&send(&mut one, (epoch, Lane::Jobs, 1), claim()).await);
        let end = Instant::now() + Duration::from_secs(9);
        while Instant::now() < end {
            let heard = send(&mut other, (epoch, Lane::Jobs, 0), Operation::Runs(Runs)).await;
            assert!(matches!(heard, RelayAnswer::Answered(_)), "{heard:?}");
            assert!(try_join(&mut one, "p2", None).await.is_err(), "the name is its own");
            sleep(Duration::from_millis(500)).await;
        }
        let end = Instant::now() + PATIENCE;
        let mut adopted = Vec::new();
        while adopted.is_empty() {
            assert!(Instant::now() < end, "nobody adopts it");
            for store in [&mut one, &mut other] {
                adopted.extend(ask(store, Leases).await.unwrap());
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(adopted, [(leased, 600)]);
        let late = send(&mut one, (epoch, Lane::Jobs, 2), claim()).await;
        assert_eq!(late, RelayAnswer::Lost);
        assert_eq!(ask(&mut one, Relays).await.unwrap(), []);
        join(&mut one, "p2").await;
        assert_eq!(ask(&mut other, Relays).await.unwrap().len(), 1);
    });
}

/// One that is stopped leaves its jobs at once; and another queue is refused.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn a_stopped_relay_leaves_its_jobs() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        let joined = try_join(&mut store, "p", None).await.unwrap();
        assert_eq!(ask(&mut store, Installation).await.unwrap(), joined.installation);
        let epoch = joined.epoch;
        list(&mut store, epoch, &["alpha"]).await;
        let leased = attempt(&send(&mut store, (epoch, Lane::Jobs, 1), claim()).await);
        assert_eq!(ask(&mut store, LoseRelay { epoch, is_stopped: false }).await, Ok(Some(1)));
        assert_eq!(ask(&mut store, LoseRelay { epoch, is_stopped: false }).await, Ok(None));
        assert_eq!(ask(&mut store, Leases).await.unwrap(), [(leased, 600)]);
        assert!(try_join(&mut store, "p", Some("another".into())).await.is_err());
    });
}

/// Daemons that add rows of the same lists at the same time, in whatever order, do not wait for each other in a circle.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn rows_of_several_lists_at_several_daemons() {
    const MESSAGES: i64 = 40;
    let database = Database::new();
    wait_for(async {
        let (mut one, mut other) =
            (daemon(&database.server, 0).await, daemon(&database.server, 1).await);
        let epoch = join(&mut one, "p").await;
        let lists = ["f", "g"].map(|fetcher| Run { fetcher: fetcher.into(), started: 1 });
        for (number, list) in (1..).zip(&lists) {
            let register = Operation::RegisterRun(RegisterRun(list.clone()));
            send(&mut one, (epoch, Lane::Lists, number), register).await;
        }
        let add = async |store: &mut PostgresStore, range: u8, lists: [&Run; 2]| {
            for number in (1..=MESSAGES).step_by(2) {
                let parts = (number..).zip(lists).map(|(number, run)| RelayedRows {
                    epoch,
                    range,
                    number,
                    run: run.clone(),
                    rows: rows(&format!("{range}-{number}"), 50),
                });
                let answers = ask(store, AddRelayedRows(parts.collect())).await.unwrap();
                assert_eq!(answers, [RowsAnswer::Stored, RowsAnswer::Stored]);
            }
        };
        tokio::join!(
            add(&mut one, 0, [&lists[0], &lists[1]]),
            add(&mut other, 1, [&lists[1], &lists[0]])
        );
        drop((one, other));
        let outside = database.outside().await;
        let count = "SELECT count(*) FROM queue";
        assert_eq!(outside.query_one(count, &[]).await.unwrap().get::<_, i64>(0), MESSAGES * 100);
        let others = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        let end = Instant::now() + PATIENCE;
        while outside.query_one(others, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            assert!(Instant::now() < end, "the daemons' connections stay");
            sleep(Duration::from_millis(20)).await;
        }
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(outside.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

fn rows(prefix: &str, count: usize) -> Vec<Row> {
    let key = |n| Key::new(&format!("{prefix}-{n}")).unwrap();
    (0..count).map(|n| Row { key: key(n), payload: String::new() }).collect()
}

/// Rows of a run that is marked for its deletion at this moment wait for that, and are rejected: none is left over without a run.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn rows_wait_for_a_deletion_that_begins() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        let epoch = join(&mut store, "p").await;
        list(&mut store, epoch, &["alpha"]).await;
        let (marking, outside) = (database.outside().await, database.outside().await);
        let mark = "BEGIN; UPDATE runs SET deleting = true WHERE run <> 0";
        marking.batch_execute(mark).await.unwrap();
        let delete = async {
            let waits = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let end = Instant::now() + Duration::from_secs(4);
            while outside.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                assert!(Instant::now() < end, "nobody waits");
                sleep(Duration::from_millis(10)).await;
            }
            marking.batch_execute("COMMIT").await.unwrap();
        };
        let (added, ()) = tokio::join!(add(&mut store, epoch, 0, 2, &["bravo"]), delete);
        assert!(matches!(added, RowsAnswer::Rejected(_)), "{added:?}");
        let count = "SELECT count(*) FROM queue";
        assert_eq!(outside.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 1);
    });
}

/// A relay is shown as such, and not among the daemons; what is kept of it goes with it.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn relays_are_shown() {
    let database = Database::new();
    wait_for(async {
        let mut store = daemon(&database.server, 0).await;
        let epoch = join(&mut store, "p").await;
        list(&mut store, epoch, &["alpha"]).await;
        attempt(&send(&mut store, (epoch, Lane::Jobs, 1), claim()).await);
        let note = Operation::RejectFile(RejectFile { name: "x".into(), reason: "y".into() });
        send(&mut store, (epoch, Lane::Lists, 2), note).await;
        let reader = PostgresReader::new(database.server.clone());
        let look = tokio::task::spawn_blocking(move || reader.status(0));
        let status = look.await.unwrap().unwrap();
        let relay = &status.relays[0];
        assert_eq!((&*relay.name, relay.gone, relay.in_flight), ("r", false, 1));
        assert_eq!((relay.rejected_files, &*relay.fetchers), (1, &["f".to_owned()][..]));
        assert!(relay.joined_since > 0 && status.rejected_files.is_empty());
        assert_eq!(status.daemons.len(), 1);
        assert_eq!(status.not_stopped.map(|daemon| daemon.pid), Some(std::process::id()));
        let outside = database.outside().await;
        outside.batch_execute("DELETE FROM daemons WHERE process IS NOT NULL").await.unwrap();
        let lanes = "SELECT count(*) FROM relay_lanes";
        assert_eq!(outside.query_one(lanes, &[]).await.unwrap().get::<_, i64>(0), 0);
        // A daemon that was called so before relays were known keeps its name.
        outside.batch_execute("UPDATE daemons SET name = 'relay r'").await.unwrap();
        assert!(try_join(&mut store, "p", None).await.is_err());
    });
}
