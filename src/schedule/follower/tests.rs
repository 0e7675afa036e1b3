//! Follows watches that fail when they are told to, under a paused clock.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use tokio::time::timeout;

use super::*;

/// What a fake watch does in its next turn.
enum Next {
    Finds(&'static str),
    Fails,
    Panics,
    /// Nothing, until this is dropped at the other end.
    Waits(Receiver<()>),
}

/// A watch that is told what to find; it is asked when a byte comes through its pipe.
struct Fake {
    pipe: Arc<OwnedFd>,
    script: Arc<Mutex<VecDeque<Next>>>,
}

fn lost() -> WatchError {
    WatchError::Lost { path: PathBuf::from("root") }
}

impl Watch for Fake {
    fn turn(&mut self) -> Result<Changed, WatchError> {
        let mut byte = [0; 64];
        let _ = rustix::io::read(&*self.pipe, &mut byte);
        let next = self.script.lock().unwrap().pop_front();
        match next {
            None => Ok(Changed::default()),
            Some(Next::Finds(path)) => Ok(Changed::of([path.into()])),
            Some(Next::Fails) => Err(lost()),
            Some(Next::Panics) => panic!("told to"),
            Some(Next::Waits(told)) => {
                let _ = told.recv();
                Ok(Changed::default())
            }
        }
    }

    fn wake(&self) -> Wake {
        Wake::Readable(Arc::clone(&self.pipe))
    }
}

struct Scene {
    follower: Follower,
    script: Arc<Mutex<VecDeque<Next>>>,
    bell: OwnedFd,
    opened: Arc<AtomicUsize>,
}

/// A scene in which the openings of these numbers fail.
fn scene(failing: std::ops::Range<usize>) -> Scene {
    let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
    let (pipe, bell) = rustix::pipe::pipe_with(flags).unwrap();
    let pipe = Arc::new(pipe);
    let (script, opened) = (Arc::new(Mutex::new(VecDeque::new())), Arc::new(AtomicUsize::new(0)));
    let (for_opener, count) = (Arc::clone(&script), Arc::clone(&opened));
    let opener: Opener = Arc::new(move || {
        if failing.contains(&count.fetch_add(1, Ordering::Relaxed)) {
            return Err(lost());
        }
        // Each opening has a description of its own, as inotify's is.
        let again = rustix::fs::open(
            format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*pipe)),
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
        Ok(Box::new(Fake { pipe: Arc::new(again.unwrap()), script: Arc::clone(&for_opener) }))
    });
    Scene { follower: Follower::new(opener, false), script, bell, opened }
}

impl Scene {
    fn happens(&self, next: Next) {
        self.script.lock().unwrap().push_back(next);
        rustix::io::write(&self.bell, b"x").unwrap();
    }

    async fn next(&mut self) -> Changed {
        self.follower.next().await.unwrap()
    }
}

fn path(name: &str) -> Changed {
    Changed::of([name.into()])
}

/// The first change comes when the watch is open, the others as they happen.
#[tokio::test]
async fn changes_are_found() {
    let mut scene = scene(0..0);
    assert_eq!(scene.next().await, Changed::unknown());
    scene.happens(Next::Finds("a"));
    assert_eq!(scene.next().await, path("a"));
    scene.happens(Next::Finds("b"));
    assert_eq!(scene.next().await, path("b"));
}

/// What was drained is not found again.
#[tokio::test]
async fn a_change_is_returned_once() {
    let mut scene = scene(0..0);
    scene.next().await;
    scene.script.lock().unwrap().push_back(Next::Finds("a"));
    assert_eq!(scene.follower.drain().await.unwrap(), path("a"));
    assert_eq!(scene.follower.drain().await.unwrap(), Changed::default());
    scene.happens(Next::Finds("b"));
    assert_eq!(scene.next().await, path("b"));
}

/// A drain that is given up because a look takes long loses nothing that was found before.
#[tokio::test]
async fn a_drain_may_be_cancelled() {
    let mut scene = scene(0..0);
    scene.next().await;
    let (tell, told) = channel();
    scene.script.lock().unwrap().extend([Next::Finds("a"), Next::Waits(told)]);
    scene.follower.turn();
    assert!(timeout(Duration::from_millis(100), scene.follower.drain()).await.is_err());
    drop(tell);
    let found = timeout(Duration::from_secs(10), scene.next()).await;
    assert_eq!(found.expect("what was found is told"), path("a"));
}

/// A watch that can be opened and then fails at once is opened later and later as well.
#[tokio::test]
async fn a_watch_that_fails_after_each_opening() {
    let mut scene = scene(0..0);
    scene.next().await;
    tokio::time::pause();
    let begun = Instant::now();
    for _ in 0..4 {
        scene.happens(Next::Fails);
        assert_eq!(scene.next().await, Changed::unknown());
    }
    let took = begun.elapsed();
    // 0.2 + 0.4 + 0.8 + 1.6 seconds.
    assert!((2_900..3_500).contains(&took.as_millis()), "{took:?}");
}

/// A watch that fails is opened anew, later and later, and then anything may have changed.
#[tokio::test]
async fn a_failed_watch_is_opened_anew() {
    let mut scene = scene(1..4);
    scene.next().await;
    tokio::time::pause();
    let failed = Instant::now();
    scene.happens(Next::Fails);
    assert_eq!(scene.next().await, Changed::unknown());
    assert_eq!(scene.opened.load(Ordering::Relaxed), 5);
    let took = failed.elapsed();
    // 0.2 + 0.4 + 0.8 + 1.6 seconds.
    assert!((2_900..3_500).contains(&took.as_millis()), "{took:?}");
    scene.happens(Next::Finds("a"));
    assert_eq!(scene.next().await, path("a"));
}

/// What cannot be watched at the start is an error; a panic goes on, at any time.
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
