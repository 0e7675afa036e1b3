//! A schedule with runs that take some time, under a paused clock.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use shiftboss_actors::testing::ManualClock;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::schedule::follower::tests::{Next, Script};
use crate::schedule::scheduler::*;

pub const SECOND: Duration = Duration::from_secs(1);

/// What a test knows of past runs.
#[derive(Default)]
pub struct Seen {
    /// When each began, and for which paths.
    began: RefCell<Vec<(Duration, Vec<String>)>>,
    /// Each run that is on has a clone.
    on: Rc<()>,
    pub most_on: Cell<usize>,
    pub stopped: Cell<usize>,
    status: RefCell<Option<Status>>,
}

impl Seen {
    pub fn on(&self) -> usize {
        Rc::strong_count(&self.on) - 1
    }
}

/// Runs that take a time and end well.
fn fakes(inner: Rc<Seen>, takes: Duration) -> StartRun {
    let origin = Instant::now();
    Rc::new(move |changed, stop| {
        let inner = Rc::clone(&inner);
        let paths = changed.paths().map(|path| path.display().to_string()).collect();
        inner.began.borrow_mut().push((origin.elapsed(), paths));
        let on = Rc::clone(&inner.on);
        inner.most_on.set(inner.most_on.get().max(inner.on()));
        Box::pin(async move {
            let _on = on;
            tokio::select! {
                () = tokio::time::sleep(takes) => Outcome::new(0, ""),
                _ = stop => {
                    inner.stopped.set(inner.stopped.get() + 1);
                    Outcome::new(143, "")
                }
            }
        })
    })
}

/// A schedule at work, and what is known of it.
pub struct Scene {
    /// Until it is stopped.
    requests: RefCell<Option<UnboundedSender<RunNow>>>,
    script: Arc<Script>,
    pub end: JoinHandle<Result<Option<Outcome>, WatchError>>,
    pub seen: Rc<Seen>,
    pub wall: ManualClock,
}

/// How runs are to go, and how they are to be made.
pub struct Plan {
    pub takes: Duration,
    pub cooldown: Duration,
    /// What changes while one is on.
    pub rewrites: Vec<PathBuf>,
}

/// Runs of 2 s that end well, with a cooldown of 180 s.
pub fn plan() -> Plan {
    Plan { takes: 2 * SECOND, cooldown: 180 * SECOND, rewrites: Vec::new() }
}

impl Plan {
    /// Starts a schedule, and pauses the clock.
    pub fn start(self) -> Scene {
        tokio::time::pause();
        let seen = Rc::<Seen>::default();
        let wall = ManualClock::at(1_000);
        let timing = Timing {
            debounce: 5 * SECOND,
            max_wait: 60 * SECOND,
            cooldown: self.cooldown,
            retry: false,
        };
        let start = fakes(Rc::clone(&seen), self.takes);
        let (requests, received) = unbounded_channel();
        let script = Script::new(0..0, self.rewrites);
        let noted = Rc::clone(&seen);
        let schedule = Schedule {
            name: "test".to_owned(),
            timing,
            every: None,
            start,
            watch: Some(script.follower()),
            observer: Box::new(move |status| *noted.status.borrow_mut() = Some(status.clone())),
            clock: Rc::new(wall.clone()),
        };
        let end = actix::spawn(schedule.run(received));
        Scene { requests: RefCell::new(Some(requests)), script, end, seen, wall }
    }
}

impl Scene {
    pub async fn touch(&self, path: &str) {
        self.script.happens(Next::Finds(path.into()));
        self.heard().await;
    }

    pub async fn ask_for_run(&self) {
        self.heard().await;
        if let Some(requests) = &*self.requests.borrow() {
            let _ = requests.send(RunNow);
        }
        self.heard().await;
    }

    pub async fn stop(&self) {
        self.heard().await;
        drop(self.requests.take());
        self.heard().await;
    }

    /// Lets what was sent be handled, without time passing.
    async fn heard(&self) {
        while !self.script.is_heard() {
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// When runs began, in whole seconds.
    pub fn began(&self) -> Vec<u64> {
        self.seen.began.borrow().iter().map(|(at, _)| at.as_secs()).collect()
    }

    pub fn paths_of(&self, run: usize) -> Vec<String> {
        self.seen.began.borrow()[run].1.clone()
    }

    pub fn status(&self) -> Status {
        self.seen.status.borrow().clone().unwrap()
    }
}
