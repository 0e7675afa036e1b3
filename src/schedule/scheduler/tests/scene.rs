//! A schedule with runs that take a time and end as they are told, under a paused clock.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use shiftboss_actors::testing::ManualClock;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::schedule::scheduler::*;
use crate::schedule::watch::{Wake, Watch};

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
fn fakes(inner: Rc<Inner>, takes: Duration, codes: Vec<u8>, ignores_stop: bool) -> StartRun {
    let (origin, codes) = (Instant::now(), RefCell::new(codes));
    Rc::new(move |changed, stop| {
        let inner = Rc::clone(&inner);
        let paths = changed.paths().map(|path| path.display().to_string()).collect();
        inner.began.borrow_mut().push((origin.elapsed(), paths, changed.is_whole()));
        inner.on.set(inner.on.get() + 1);
        inner.most_on.set(inner.most_on.get().max(inner.on.get()));
        let guard = OnGuard(Rc::clone(&inner));
        let mut codes = codes.borrow_mut();
        let exit_code = if codes.len() > 1 { codes.remove(0) } else { codes[0] };
        Box::pin(async move {
            let _guard = guard;
            let message = String::new();
            tokio::select! {
                () = tokio::time::sleep(takes) => Outcome::new(exit_code, message),
                _ = stop, if !ignores_stop => {
                    inner.stopped.set(inner.stopped.get() + 1);
                    Outcome::new(143, message)
                }
            }
        })
    })
}

/// What a watch finds: what it is sent, and, when it is drained, the same paths each time.
struct Script {
    bell: Arc<OwnedFd>,
    sent: Mutex<Vec<PathBuf>>,
    rewrites: Vec<PathBuf>,
    /// The last turn is over, and what it found was taken in.
    is_waited_for: AtomicBool,
}

impl Script {
    fn new(rewrites: Vec<PathBuf>) -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).unwrap());
        Self { bell, sent: Mutex::default(), rewrites, is_waited_for: AtomicBool::new(false) }
    }

    fn send(&self, path: PathBuf) {
        self.sent.lock().unwrap().push(path);
        rustix::io::write(&*self.bell, &1_u64.to_ne_bytes()).unwrap();
    }

    fn is_heard(&self) -> bool {
        self.sent.lock().unwrap().is_empty() && self.is_waited_for.load(Ordering::SeqCst)
    }
}

struct Told(Arc<Script>);

impl Watch for Told {
    fn turn(&mut self) -> Result<Changed, WatchError> {
        let script = &self.0;
        script.is_waited_for.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&*script.bell, &mut [0; 8]);
        let sent = std::mem::take(&mut *script.sent.lock().unwrap());
        Ok(Changed::of(if sent.is_empty() { script.rewrites.clone() } else { sent }))
    }

    fn wake(&self) -> Wake {
        self.0.is_waited_for.store(true, Ordering::SeqCst);
        Wake::Readable(Arc::clone(&self.0.bell))
    }
}

/// A schedule at work, and what is known of it.
pub struct Scene {
    /// Until it is stopped.
    requests: RefCell<Option<UnboundedSender<RunNow>>>,
    script: Arc<Script>,
    pub end: JoinHandle<Result<Option<Outcome>, WatchError>>,
    pub seen: Seen,
    /// The wall clock.
    pub wall: ManualClock,
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
    /// Starts a schedule. The test has paused the clock.
    pub fn start(self) -> Scene {
        let seen = Seen::default();
        let wall = ManualClock::at(1_000);
        let timing = Timing {
            debounce: 5 * SECOND,
            max_wait: 60 * SECOND,
            cooldown: self.cooldown,
            retry: self.retry,
        };
        let start = fakes(Rc::clone(&seen.0), self.takes, self.codes, self.ignores_stop);
        let (requests, received) = unbounded_channel();
        let script = Arc::new(Script::new(self.rewrites.unwrap_or_default()));
        let told = Arc::clone(&script);
        let watch = Follower::new(Arc::new(move || Ok(Box::new(Told(Arc::clone(&told))))), false);
        let noted = Rc::clone(&seen.0);
        let schedule = Schedule {
            name: "test".to_owned(),
            timing,
            every: None,
            start,
            watch: Some(watch),
            observer: Box::new(move |status| *noted.status.borrow_mut() = Some(status.clone())),
            clock: Rc::new(wall.clone()),
        };
        let end = actix::spawn(schedule.run(received));
        Scene { requests: RefCell::new(Some(requests)), script, end, seen, wall }
    }
}

impl Scene {
    pub async fn touch(&self, path: &str) {
        self.script.send(path.into());
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

    /// What was sent has been taken in, and no time has passed.
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
        self.seen.0.began.borrow().iter().map(|(at, ..)| at.as_secs()).collect()
    }

    pub fn paths_of(&self, run: usize) -> Vec<String> {
        self.seen.0.began.borrow()[run].1.clone()
    }

    pub fn status(&self) -> Status {
        self.seen.0.status.borrow().clone().unwrap()
    }
}
