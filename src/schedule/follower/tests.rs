//! Follows watches that fail on demand, under a paused clock; the schedule's tests use them, too.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::time::timeout;

use super::*;

/// What a fake watch does in its next turn.
pub enum Next {
    Finds(PathBuf),
    Fails,
    Panics,
    /// Nothing, until this is dropped at the other end.
    Waits(Receiver<()>),
}

/// The script of fake watches; their turn comes with a byte through the pipe.
pub struct Script {
    pipe: OwnedFd,
    bell: OwnedFd,
    next: Mutex<VecDeque<Next>>,
    /// What they find when the script is empty.
    rewrites: Vec<PathBuf>,
    /// The openings of these numbers fail.
    failing: Range<usize>,
    opened: AtomicUsize,
    /// The last turn is over, and what it found was taken in.
    is_waited_for: AtomicBool,
}

impl Script {
    pub fn new(failing: Range<usize>, rewrites: Vec<PathBuf>) -> Arc<Self> {
        let (pipe, bell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let (next, opened, is_waited_for) = Default::default();
        Arc::new(Self { pipe, bell, next, rewrites, failing, opened, is_waited_for })
    }

    pub fn follower(self: &Arc<Self>) -> Follower {
        let script = Arc::clone(self);
        Follower::new(Arc::new(move || script.open()), false)
    }

    fn open(self: &Arc<Self>) -> Result<Box<dyn Watch>, WatchError> {
        if self.failing.contains(&self.opened.fetch_add(1, Ordering::Relaxed)) {
            return Err(WatchError::Lost { path: PathBuf::from("root") });
        }
        // Each opening has a description of its own, as inotify's is.
        let path = format!("/proc/self/fd/{}", self.pipe.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = Arc::new(rustix::fs::open(path, flags, Mode::empty()).unwrap());
        Ok(Box::new(Fake { pipe, script: Arc::clone(self) }))
    }

    pub fn happens(&self, next: Next) {
        self.next.lock().unwrap().push_back(next);
        rustix::io::write(&self.bell, b"x").unwrap();
    }

    pub fn is_heard(&self) -> bool {
        self.next.lock().unwrap().is_empty() && self.is_waited_for.load(Ordering::SeqCst)
    }
}

struct Fake {
    pipe: Arc<OwnedFd>,
    script: Arc<Script>,
}

impl Watch for Fake {
    fn turn(&mut self) -> Result<Changed, WatchError> {
        self.script.is_waited_for.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&*self.pipe, &mut [0; 64]);
        let next = self.script.next.lock().unwrap().pop_front();
        match next {
            None => Ok(Changed::of(self.script.rewrites.iter().cloned())),
            Some(Next::Finds(path)) => Ok(Changed::of([path])),
            Some(Next::Fails) => Err(WatchError::Lost { path: PathBuf::from("root") }),
            Some(Next::Panics) => panic!("told to"),
            Some(Next::Waits(told)) => {
                let _ = told.recv();
                Ok(Changed::default())
            }
        }
    }

    fn wake(&self) -> Wake {
        self.script.is_waited_for.store(true, Ordering::SeqCst);
        Wake::Readable(Arc::clone(&self.pipe))
    }
}

struct Scene {
    follower: Follower,
    script: Arc<Script>,
}

/// A scene in which the openings of these numbers fail.
fn scene(failing: Range<usize>) -> Scene {
    let script = Script::new(failing, Vec::new());
    Scene { follower: script.follower(), script }
}

impl Scene {
    fn happens(&self, next: Next) {
        self.script.happens(next);
    }

    async fn next(&mut self) -> Changed {
        self.follower.next().await.unwrap()
    }
}

fn path(name: &str) -> Changed {
    Changed::of([name.into()])
}

/// The first change is reported when the watch is open, the others as they happen; drained changes are not reported
/// again.
#[tokio::test]
async fn changes_are_found() {
    let mut scene = scene(0..0);
    assert_eq!(scene.next().await, Changed::unknown());
    scene.happens(Next::Finds("a".into()));
    assert_eq!(scene.next().await, path("a"));
    scene.script.next.lock().unwrap().push_back(Next::Finds("b".into()));
    assert_eq!(scene.follower.drain().await.unwrap(), path("b"));
    assert_eq!(scene.follower.drain().await.unwrap(), Changed::default());
    scene.happens(Next::Finds("c".into()));
    assert_eq!(scene.next().await, path("c"));
}

/// A drain that is given up because a look takes long loses nothing that was found before.
#[tokio::test]
async fn a_drain_may_be_cancelled() {
    let mut scene = scene(0..0);
    scene.next().await;
    let (tell, told) = channel();
    scene.script.next.lock().unwrap().extend([Next::Finds("a".into()), Next::Waits(told)]);
    scene.follower.turn();
    assert!(timeout(Duration::from_millis(100), scene.follower.drain()).await.is_err());
    drop(tell);
    let found = timeout(Duration::from_secs(10), scene.next()).await;
    assert_eq!(found.expect("what was found is told"), path("a"));
}

/// A watch that fails is opened anew, later and later, whether it cannot be opened or fails right after; then anything may have
/// changed.
#[tokio::test]
async fn a_failed_watch_is_opened_anew() {
    for (failing, times) in [(1..4, 1), (0..0, 4)] {
        let mut scene = scene(failing);
        scene.next().await;
        tokio::time::pause();
        let failed = Instant::now();
        for _ in 0..times {
            scene.happens(Next::Fails);
            assert_eq!(scene.next().await, Changed::unknown());
        }
        assert_eq!(scene.script.opened.load(Ordering::Relaxed), 5);
        let took = failed.elapsed();
        // 0.2 + 0.4 + 0.8 + 1.6 seconds.
        assert!((2_900..3_500).contains(&took.as_millis()), "{took:?}");
        scene.happens(Next::Finds("a".into()));
        assert_eq!(scene.next().await, path("a"));
        tokio::time::resume();
    }
}

/// If nothing can be watched at the start, that is an error; a panic is passed on at any time.
#[tokio::test]
async fn some_failures_are_the_end() {
    let mut unwatched = scene(0..1);
    assert!(matches!(unwatched.follower.next().await, Err(WatchError::Lost { .. })));
    let mut scene = scene(0..0);
    scene.next().await;
    scene.happens(Next::Panics);
    let followed = tokio::spawn(async move { scene.follower.next().await });
    assert!(followed.await.unwrap_err().is_panic());
}
