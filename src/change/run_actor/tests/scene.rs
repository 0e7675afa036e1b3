//! An actor with runs that take a time and end as they are told, under a paused clock.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use shiftboss_actors::clock::ManualClock;
use shiftboss_actors::exit_notifier::ExitNotifier;

use crate::change::machine::{Refusal, Timing};
use crate::change::run_actor::*;
use crate::change::runs::{Run, Runs};

pub const SECOND: Duration = Duration::from_secs(1);

/// What a test knows of the runs it has had.
#[derive(Clone, Default)]
pub struct Seen(pub Rc<Inner>);

#[derive(Default)]
pub struct Inner {
    /// When each began, and for which paths.
    began: RefCell<Vec<(Duration, Vec<String>, bool)>>,
    pub on: Cell<usize>,
    pub most_on: Cell<usize>,
    pub stopped: Cell<usize>,
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
            let message = String::new();
            tokio::select! {
                () = tokio::time::sleep(takes) => Outcome { exit_code, message },
                _ = stop, if !ignores => {
                    inner.stopped.set(inner.stopped.get() + 1);
                    Outcome { exit_code: 143, message }
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

/// An actor at work, and what is known of it.
pub struct Scene {
    pub actor: Addr<RunActor>,
    pub seen: Seen,
    /// The wall clock.
    pub wall: ManualClock,
    pub exit_notifier: oneshot::Receiver<Refusal>,
}

/// How runs are to go, and how they are to be made.
#[derive(Clone)]
pub struct Plan {
    pub takes: Duration,
    pub codes: Vec<u8>,
    pub retry: bool,
    pub cooldown: Duration,
    pub rewrites: Option<Vec<PathBuf>>,
    pub ignores_stop: bool,
}

/// Runs of 2 s that end well, with a cooldown of 180 s.
pub fn plan() -> Plan {
    let (takes, cooldown) = (2 * SECOND, 180 * SECOND);
    Plan { takes, codes: vec![0], retry: false, cooldown, rewrites: None, ignores_stop: false }
}

impl Plan {
    /// Starts an actor. The test has paused the clock.
    pub fn start(self) -> Scene {
        let seen = Seen::default();
        let (exit_notifier, ended) = ExitNotifier::new();
        let wall = ManualClock::at(1_000);
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
            clock: Box::new(wall.clone()),
            exit_notifier,
        });
        Scene { actor: actor.start(), seen, wall, exit_notifier: ended }
    }
}

impl Scene {
    pub async fn touch(&self, path: &str) {
        self.actor.send(Changes(Changed::of([path.into()]))).await.unwrap();
    }

    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// When runs began, in whole seconds.
    pub fn began(&self) -> Vec<u64> {
        self.seen.0.began.borrow().iter().map(|(at, ..)| at.as_secs()).collect()
    }

    pub fn paths_of(&self, run: usize) -> Vec<String> {
        self.seen.0.began.borrow()[run].1.clone()
    }

    pub fn status(&self) -> Status {
        self.seen.0.status.borrow().clone().unwrap()
    }
}
