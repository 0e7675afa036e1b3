//! A schedule under a paused clock, with fake runs.

use super::*;
use scene::{Plan, SECOND, plan};

mod scene;

/// It waits for quiet, and passes the changes on once, each path once.
#[actix::test]
async fn a_run_follows_quiet() {
    let scene = plan().start();
    for second in 0..4 {
        scene.touch(&format!("p{}", second % 2)).await;
        scene.pass(SECOND).await;
    }
    assert_eq!(scene.status().state, "waiting");
    scene.pass(10 * SECOND).await;
    assert_eq!(scene.began(), [8]);
    assert_eq!(scene.paths_of(0), ["p0", "p1"]);
    assert_eq!(scene.status().state, "cooldown");
    let last = scene.status().last_run.unwrap();
    assert_eq!((last.exit_code, scene.status().runs), (0, 1));
    // It ended at 10 s of the 14 that have passed: 176 are left, and the debounce.
    assert!(scene.status().next_possible_run.unwrap() >= 1_000 + 176);
    scene.pass(1000 * SECOND).await;
    assert_eq!((scene.began().len(), scene.status().state.as_str()), (1, "idle"));
}

/// Spec 2.7: a wall clock that is set forward or back changes no time of a run.
#[actix::test]
async fn the_wall_clock_moves_no_run() {
    let scene = plan().start();
    scene.touch("p").await;
    scene.wall.set(1_000 + 10 * 86_400);
    scene.pass(4 * SECOND).await;
    assert!(scene.began().is_empty());
    scene.wall.set(1);
    scene.pass(2 * SECOND).await;
    assert_eq!(scene.began(), [5]);
    scene.touch("p").await;
    scene.wall.set(-86_400);
    scene.pass(185 * SECOND).await;
    scene.wall.set(1_000);
    scene.pass(10 * SECOND).await;
    // The cooldown is over at 187; its longest wait is over long before.
    assert_eq!(scene.began(), [5, 187]);
    assert_eq!(scene.status().run_started, None);
}

/// Spec 2.1, 2.9: a change during a run or its cooldown is served by one run, after it.
#[actix::test]
async fn a_change_during_a_run_is_not_lost() {
    let scene = Plan { takes: 30 * SECOND, ..plan() }.start();
    scene.touch("first").await;
    scene.pass(10 * SECOND).await;
    scene.touch("second").await;
    scene.pass(10 * SECOND).await;
    scene.touch("third").await;
    assert_eq!(scene.began(), [5]);
    scene.pass(1000 * SECOND).await;
    assert_eq!(scene.began().len(), 2, "{:?}", scene.began());
    assert!(scene.began()[1] >= 5 + 30 + 180);
    assert_eq!(scene.paths_of(1), ["second", "third"]);
    assert_eq!(scene.seen.most_on.get(), 1);
}

/// The clock's runs need no change; one that is still on costs a turn.
#[actix::test]
async fn due_runs_need_no_change() {
    let scene = Plan { takes: 15 * SECOND, cooldown: Duration::ZERO, ..plan() }.start();
    for _ in 0..6 {
        scene.ask_for_run().await;
        scene.pass(10 * SECOND).await;
    }
    assert_eq!(scene.began(), [0, 20, 40]);
    assert_eq!(scene.seen.most_on.get(), 1);
}

/// Spec 2.8: a run that changes its own tree is detected, and does not run for ever; other changes during it still
/// count.
#[actix::test]
async fn a_run_that_feeds_itself_is_found_out() {
    let scene = Plan { takes: SECOND, cooldown: SECOND, rewrites: vec!["out".into()] }.start();
    scene.touch("in").await;
    scene.pass(3600 * SECOND).await;
    // The third run's change had counted before it was found out.
    assert_eq!(scene.began().len(), 4, "{:?}", scene.began());
    assert_eq!(scene.paths_of(3), ["out"]);
    scene.touch("out").await;
    scene.pass(SECOND * 11 / 2).await;
    assert_eq!(scene.began().len(), 5, "changed between runs it counts");
    scene.touch("in").await;
    scene.touch("out").await;
    scene.pass(3600 * SECOND).await;
    assert_eq!(scene.began().len(), 6);
    assert_eq!(scene.paths_of(5), ["in"], "during a run it does not");
}

/// A stop ends the run that is on, and nothing begins after it.
#[actix::test]
async fn a_stop_ends_the_run() {
    let scene = Plan { takes: 1000 * SECOND, ..plan() }.start();
    scene.touch("p").await;
    scene.pass(10 * SECOND).await;
    scene.touch("q").await;
    scene.stop().await;
    assert_eq!((scene.seen.stopped.get(), scene.seen.on()), (1, 0));
    scene.pass(3600 * SECOND).await;
    assert_eq!(scene.began().len(), 1);
    assert_eq!(scene.end.await.unwrap().unwrap().unwrap().exit_code, 143);
    tokio::time::resume();
    let idle = plan().start();
    idle.touch("p").await;
    idle.stop().await;
    idle.pass(3600 * SECOND).await;
    assert_eq!(idle.began().len(), 0);
    assert_eq!(idle.end.await.unwrap().unwrap(), None);
}

/// Events that come at the very moment of a timer break no rule of the machine.
#[actix::test]
async fn events_at_the_moment_of_a_timer() {
    let tick = Duration::from_millis(1);
    let scene = Plan { takes: tick, cooldown: 2 * tick, ..plan() }.start();
    for round in 0..2_000_u32 {
        scene.ask_for_run().await;
        for _ in 0..round % 7 {
            scene.touch("p").await;
            scene.pass(tick).await;
        }
    }
    assert!(!scene.end.is_finished() && scene.began().len() > 100);
}
