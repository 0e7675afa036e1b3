//! The supervisor over fake runs and a queue in memory, under a paused clock.

mod scene;

use std::sync::atomic::Ordering;

use shiftboss_actors::testing::Trouble;
use shiftboss_protocol::wire::session::Refused;
use tokio::time::{Instant, sleep};

use scene::{SECOND, Scene, every, runs, with};

/// It runs at once and then by the clock, and the notes say so.
#[actix::test]
async fn fetchers_run_by_the_clock() {
    let scene = Scene::new(vec![every("a")], |seen| seen.takes.set(30 * SECOND));
    sleep(10 * SECOND).await;
    let record = scene.record("a");
    assert_eq!((&*record.state, record.last_run.is_some()), ("running", false));
    assert!(record.run_started.is_some() && record.next_run.is_some());
    sleep(240 * SECOND).await;
    assert_eq!(scene.began(), runs(&[("a", 0), ("a", 100), ("a", 200)]));
    let record = scene.record("a");
    let last = record.last_run.unwrap();
    assert_eq!((&*record.state, last.exit_code, &*last.message), ("idle", 0, "message"));
}

/// A run that does not end when it is asked is killed.
#[actix::test]
async fn a_stop_does_not_wait_for_ever() {
    let mut scene = Scene::new(vec![every("a")], |seen| {
        seen.takes.set(900 * SECOND);
        seen.ignores_stop.set(true);
    });
    sleep(10 * SECOND).await;
    let begin = Instant::now();
    scene.stop().await;
    assert_eq!(scene.seen.on(), 0);
    assert!(begin.elapsed() <= 4 * SECOND);
}

/// An actor that panics is replaced, after a growing time, and its run is done after all.
#[actix::test]
async fn a_panic_is_no_end() {
    let scene = Scene::new(vec![every("a"), every("b")], |seen| seen.panics.set(3));
    sleep(50 * SECOND).await;
    let mut began = scene.began();
    began.sort();
    let names: Vec<&str> = began.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(began.iter().any(|(_, at)| *at >= 3), "{began:?}");
}

/// It is on disk that a run begins before it does.
#[actix::test]
async fn a_run_begins_when_that_is_noted() {
    let scene = Scene::new(vec![every("a")], |seen| seen.looks.set(true));
    sleep(150 * SECOND).await;
    assert_eq!(scene.seen.noted.borrow().as_slice(), [true, true]);
}

/// Whatever causes a run, the next one by the clock is `every` later.
#[actix::test]
async fn the_clock_counts_from_the_last_run() {
    let scene = Scene::new(vec![with("a", "rerun_on_failure = true")], |seen| {
        seen.codes.borrow_mut().extend([1, 1])
    });
    sleep(150 * SECOND).await;
    assert_eq!(scene.began(), runs(&[("a", 0), ("a", 1), ("a", 3), ("a", 103)]));
}

/// The number of simultaneous runs is limited; the others wait for their turn, also for their end.
#[actix::test]
async fn not_all_run_at_once() {
    let tables = (0..=super::RUNS_MAX).map(|number| every(&format!("n{number}"))).collect();
    let mut scene = Scene::new(tables, |seen| seen.takes.set(10 * SECOND));
    sleep(5 * SECOND).await;
    assert_eq!(scene.seen.on(), super::RUNS_MAX);
    sleep(10 * SECOND).await;
    assert_eq!((scene.began().len(), scene.seen.on()), (super::RUNS_MAX + 1, 1));
    scene.seen.takes.set(900 * SECOND);
    sleep(90 * SECOND).await;
    scene.stop().await;
    assert_eq!(scene.seen.on(), 0);
}

/// A fetcher that failed and is configured anew runs at once; one that did not fail waits for its time.
#[actix::test]
async fn what_is_mended_runs_at_once() {
    let scene = Scene::new(vec![every("a")], |seen| seen.codes.borrow_mut().extend([1]));
    sleep(10 * SECOND).await;
    scene.want.send_replace(vec![with("a", "min_lines = 2")]);
    sleep(10 * SECOND).await;
    scene.want.send_replace(vec![with("a", "min_lines = 3")]);
    sleep(10 * SECOND).await;
    assert_eq!(scene.began(), runs(&[("a", 0), ("a", 10)]));
}

/// A request that fails is repeated, and a note that fails is stored later.
#[actix::test]
async fn a_memory_that_fails_is_tried_again() {
    let scene = Scene::new(vec![every("a")], |seen| {
        for call in ["fetcher_records", "note_fetcher"] {
            (0..2).for_each(|_| seen.mock.trouble(call, Trouble::full()));
        }
    });
    sleep(30 * SECOND).await;
    assert_eq!(scene.began().len(), 1);
    assert_eq!(scene.record("a").last_run.unwrap().exit_code, 0);
}

/// An operator runs one now, and the clock counts from then; not beside a present run, and not an unknown fetcher.
#[actix::test]
async fn an_operator_has_one_run() {
    let scene =
        Scene::new(vec![every("links"), every("notes")], |seen| seen.takes.set(10 * SECOND));
    let run = |name: &str| scene.supervisor.run_now(name);
    sleep(5 * SECOND).await;
    let on = run("links").unwrap_err();
    assert_eq!(on, Refused::busy("a run of links is on"));
    sleep(45 * SECOND).await;
    let answer = run("links").unwrap();
    assert_eq!((&*answer.fetcher, &*answer.state), ("links", "idle"));
    sleep(110 * SECOND).await;
    let began = |of: &str| -> Vec<u64> {
        scene.began().iter().filter(|(name, _)| name == of).map(|(_, at)| *at).collect()
    };
    assert_eq!((began("links"), began("notes")), (vec![0, 50, 150], vec![0, 100]));
    let unknown = run("link").unwrap_err();
    let text = "the daemon runs no fetcher link; did you mean \"links\"?";
    assert_eq!(unknown, Refused::unknown(text));
}

/// A run waits while the input directory is lost; and a stop does not wait for that.
#[actix::test]
async fn a_run_waits_for_the_input_directory() {
    let mut scene = Scene::new(vec![every("a")], |seen| seen.lost.set(true));
    sleep(30 * SECOND).await;
    assert_eq!(scene.began(), []);
    scene.seen.lost.set(false);
    sleep(2 * SECOND).await;
    assert_eq!(scene.began().len(), 1);
    scene.seen.lost.set(true);
    sleep(150 * SECOND).await;
    scene.stop().await;
    assert_eq!(scene.began().len(), 1);
}

/// When the wall clock is set, plans are noted in the new time, and runs begin when they would have.
#[actix::test]
async fn a_wall_clock_that_is_set_changes_no_plan() {
    let scene = Scene::new(vec![every("a")], |_| ());
    sleep(20 * SECOND).await;
    let planned = scene.record("a").next_run.unwrap();
    for step in [5 * 86_400, -5 * 86_400] {
        scene.seen.clock_step.store(step, Ordering::Relaxed);
        sleep(3 * SECOND).await;
        let now = scene.record("a").next_run.unwrap();
        assert!((now - planned - step).abs() <= 1, "{step}: {planned} {now}");
    }
    sleep(100 * SECOND).await;
    assert_eq!(scene.began(), runs(&[("a", 0), ("a", 100)]));
}
