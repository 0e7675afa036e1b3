//! The RunActor under a paused clock, with runs that are no commands.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use shiftboss_actors::clock::ManualClock;
use shiftboss_actors::vital::Vital;

use super::*;
use crate::change::machine::{Refusal, Timing};
use crate::change::runs::{Run, Runs};

const SECOND: Duration = Duration::from_secs(1);

/// What a test knows of the runs it has had.
#[derive(Clone, Default)]
struct Seen(Rc<Inner>);

#[derive(Default)]
struct Inner {
    /// When each began, and for which paths.
    began: RefCell<Vec<(Duration, Vec<String>, bool)>>,
    on: Cell<usize>,
    most_on: Cell<usize>,
    stopped: Cell<usize>,
    status: RefCell<Option<Status>>,
}

/// Counts a run as on until it is dropped.
struct OnGuard(Rc<Inner>);

impl Drop for OnGuard {
    fn drop(&mut self) {
        self.0.on.set(self.0.on.get() - 1);
    }
}

/// Runs that take a time and end as they are told, the last one over and over.
struct Fake {
    seen: Seen,
    origin: Instant,
    takes: Duration,
    codes: Vec<u8>,
    ignores_stop: bool,
}

impl Runs for Fake {
    fn start(&mut self, changed: Changed, stop: oneshot::Receiver<()>) -> Run {
        let inner = Rc::clone(&self.seen.0);
        let paths = changed.paths().map(|path| path.display().to_string()).collect();
        inner.began.borrow_mut().push((self.origin.elapsed(), paths, changed.is_whole()));
        inner.on.set(inner.on.get() + 1);
        inner.most_on.set(inner.most_on.get().max(inner.on.get()));
        let guard = OnGuard(Rc::clone(&inner));
        let exit_code = if self.codes.len() > 1 { self.codes.remove(0) } else { self.codes[0] };
        let (takes, ignores) = (self.takes, self.ignores_stop);
        Box::pin(async move {
            let _guard = guard;
            let told = String::new();
            tokio::select! {
                () = tokio::time::sleep(takes) => Outcome { exit_code, told },
                _ = stop, if !ignores => {
                    inner.stopped.set(inner.stopped.get() + 1);
                    Outcome { exit_code: 143, told }
                }
            }
        })
    }
}

struct Note(Seen);

impl Observer for Note {
    fn note(&mut self, status: &Status) {
        *self.0.0.status.borrow_mut() = Some(status.clone());
    }
}

/// A watch that has this to hand over, each time.
struct Watch(Vec<PathBuf>);

impl Actor for Watch {
    type Context = Context<Self>;
}

impl Handler<Drain> for Watch {
    type Result = MessageResult<Drain>;

    fn handle(&mut self, _: Drain, _: &mut Self::Context) -> Self::Result {
        MessageResult(Changed::of(self.0.clone()))
    }
}

struct Scene {
    actor: Addr<RunActor>,
    seen: Seen,
    vital: oneshot::Receiver<Refusal>,
}

#[derive(Clone)]
struct Plan {
    takes: Duration,
    codes: Vec<u8>,
    retry: bool,
    cooldown: Duration,
    rewrites: Option<Vec<PathBuf>>,
    ignores_stop: bool,
}

fn plan() -> Plan {
    let (takes, cooldown) = (2 * SECOND, 180 * SECOND);
    Plan { takes, codes: vec![0], retry: false, cooldown, rewrites: None, ignores_stop: false }
}

impl Plan {
    /// Starts an actor. The test has paused the clock.
    fn start(self) -> Scene {
        let seen = Seen::default();
        let (vital, ended) = Vital::new();
        let timing = Timing {
            debounce: 5 * SECOND,
            max_wait: 60 * SECOND,
            cooldown: self.cooldown,
            retry: self.retry,
        };
        let runs = Fake {
            seen: seen.clone(),
            origin: Instant::now(),
            takes: self.takes,
            codes: self.codes,
            ignores_stop: self.ignores_stop,
        };
        let actor = RunActor::new(RunParts {
            name: "test".to_owned(),
            timing,
            runs: Box::new(runs),
            watch: self.rewrites.map(|paths| Watch(paths).start().recipient()),
            observer: Box::new(Note(seen.clone())),
            clock: Box::new(ManualClock::at(1_000)),
            vital,
        });
        Scene { actor: actor.start(), seen, vital: ended }
    }
}

impl Scene {
    async fn touch(&self, path: &str) {
        self.actor.send(Changes(Changed::of([path.into()]))).await.unwrap();
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// When runs began, in whole seconds.
    fn began(&self) -> Vec<u64> {
        self.seen.0.began.borrow().iter().map(|(at, ..)| at.as_secs()).collect()
    }

    fn paths_of(&self, run: usize) -> Vec<String> {
        self.seen.0.began.borrow()[run].1.clone()
    }

    fn status(&self) -> Status {
        self.seen.0.status.borrow().clone().unwrap()
    }
}

/// Quiet is waited for, and what changed is handed over once, each path once.
#[actix::test]
async fn a_run_follows_quiet() {
    tokio::time::pause();
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

/// Spec 2.4: who never rests waits a minute at the most.
#[actix::test]
async fn unrest_does_not_put_it_off() {
    tokio::time::pause();
    let scene = plan().start();
    for _ in 0..400 {
        scene.touch("p").await;
        scene.pass(SECOND / 5).await;
    }
    assert_eq!(scene.began(), [60]);
}

/// Spec 2.1, 2.9: a change during a run or its cooldown is served by one run, after it.
#[actix::test]
async fn a_change_during_a_run_is_not_lost() {
    tokio::time::pause();
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
    assert_eq!(scene.seen.0.most_on.get(), 1);
}

/// The clock's runs need no change; one that is still on costs a turn.
#[actix::test]
async fn due_runs_need_no_change() {
    tokio::time::pause();
    let scene = Plan { takes: 15 * SECOND, cooldown: Duration::ZERO, ..plan() }.start();
    for _ in 0..6 {
        scene.actor.send(Due).await.unwrap();
        scene.pass(10 * SECOND).await;
    }
    assert_eq!(scene.began(), [0, 20, 40]);
    assert_eq!(scene.seen.0.most_on.get(), 1);
}

/// A failed run is tried again when asked, later and later; else it is not.
#[actix::test]
async fn failures_are_tried_again() {
    tokio::time::pause();
    let short = Plan { takes: SECOND, cooldown: Duration::ZERO, codes: vec![1, 1, 1, 0], ..plan() };
    let scene = Plan { retry: true, ..short.clone() }.start();
    scene.touch("p").await;
    scene.pass(100 * SECOND).await;
    assert_eq!(scene.began(), [5, 7, 10, 15], "1, 2 and 4 seconds after the last one's end");
    assert_eq!(scene.status().last_run.unwrap().exit_code, 0);
    let scene = short.start();
    scene.touch("p").await;
    scene.pass(100 * SECOND).await;
    assert_eq!(scene.began(), [5]);
}

/// Spec 2.8: a run that changes its own tree is found out, and does not run for ever; other changes
/// during it count still.
#[actix::test]
async fn a_run_that_feeds_itself_is_found_out() {
    tokio::time::pause();
    let plan =
        Plan { takes: SECOND, cooldown: SECOND, rewrites: Some(vec!["out".into()]), ..plan() };
    let scene = plan.start();
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
    tokio::time::pause();
    let scene = Plan { takes: 1000 * SECOND, ..plan() }.start();
    scene.touch("p").await;
    scene.pass(10 * SECOND).await;
    scene.touch("q").await;
    assert!(scene.actor.send(Stop).await.unwrap());
    assert_eq!((scene.seen.0.stopped.get(), scene.seen.0.on.get()), (1, 0));
    scene.pass(3600 * SECOND).await;
    assert_eq!(scene.began().len(), 1);
    assert!(!scene.actor.connected(), "it goes on");
    let idle = plan().start();
    idle.touch("p").await;
    assert!(!idle.actor.send(Stop).await.unwrap());
    idle.pass(3600 * SECOND).await;
    assert_eq!(idle.began().len(), 0);
}

/// A second stop drops the run, which kills it.
#[actix::test]
async fn a_second_stop_kills() {
    tokio::time::pause();
    let scene = Plan { takes: 1000 * SECOND, ignores_stop: true, ..plan() }.start();
    scene.touch("p").await;
    scene.pass(10 * SECOND).await;
    let first = scene.actor.send(Stop);
    assert!(scene.actor.send(Stop).await.unwrap());
    assert!(first.await.unwrap());
    scene.pass(SECOND).await;
    assert_eq!((scene.seen.0.stopped.get(), scene.seen.0.on.get()), (0, 0));
}

/// A panic of a run is the end of the actor, and its owner hears of it.
#[actix::test]
async fn a_panic_is_heard() {
    tokio::time::pause();
    let scene = Plan { codes: vec![], ..plan() }.start();
    scene.actor.do_send(Due);
    assert!(scene.vital.await.is_err());
}

/// A timer that is replaced at the very moment at which it fires does not count as well as the new one.
#[actix::test]
async fn a_replaced_timer_is_not_heard() {
    tokio::time::pause();
    let tick = Duration::from_millis(1);
    let mut scene = Plan { takes: tick, cooldown: 2 * tick, ..plan() }.start();
    for round in 0..2_000_u32 {
        scene.actor.do_send(Due);
        for _ in 0..round % 7 {
            scene.actor.do_send(Changes(Changed::of(["p".into()])));
            scene.pass(tick).await;
        }
    }
    assert!(
        scene.vital.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
    );
    assert!(scene.actor.connected() && scene.began().len() > 100);
}
