//! The ChangeActor with watches that fail when they are told to, under a paused clock.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::*;

/// What a fake watch does in its next turn.
enum Next {
    Finds(&'static str),
    Fails,
    Panics,
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
    fn turn(&mut self) -> Result<Turn, WatchError> {
        let mut byte = [0; 64];
        let _ = rustix::io::read(&*self.pipe, &mut byte);
        let next = self.script.lock().unwrap().pop_front();
        match next {
            None => Ok(Turn::default()),
            Some(Next::Finds(path)) => {
                Ok(Turn { changed: Changed::of([path.into()]), is_pressed: false })
            }
            Some(Next::Fails) => Err(lost()),
            Some(Next::Panics) => panic!("told to"),
        }
    }

    fn wake(&self) -> Wake {
        Wake::Readable(Arc::clone(&self.pipe))
    }
}

/// Keeps what it is told, and when.
#[derive(Default)]
struct Told(Vec<(Changed, Instant)>);

impl Actor for Told {
    type Context = Context<Self>;
}

impl Handler<Changes> for Told {
    type Result = ();

    fn handle(&mut self, Changes(changed): Changes, _: &mut Self::Context) {
        self.0.push((changed, Instant::now()));
    }
}

#[derive(Message)]
#[rtype(result = "Vec<(Changed, Instant)>")]
struct Ask;

impl Handler<Ask> for Told {
    type Result = MessageResult<Ask>;

    fn handle(&mut self, _: Ask, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.0.clone())
    }
}

struct Scene {
    actor: Addr<ChangeActor>,
    told: Addr<Told>,
    script: Arc<Mutex<VecDeque<Next>>>,
    bell: OwnedFd,
    opened: Arc<AtomicUsize>,
    exit_notifier: oneshot::Receiver<ChangeError>,
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
    let told = Told::default().start();
    let (exit_notifier, ended) = ExitNotifier::new();
    let actor = ChangeActor::new(opener, told.clone().recipient(), exit_notifier).start();
    Scene { actor, told, script, bell, opened, exit_notifier: ended }
}

impl Scene {
    fn happens(&self, next: Next) {
        self.script.lock().unwrap().push_back(next);
        rustix::io::write(&self.bell, b"x").unwrap();
    }

    /// Waits until so many changes have been told.
    async fn told(&self, count: usize) -> Vec<(Changed, Instant)> {
        for _ in 0..100_000 {
            let told = self.told.send(Ask).await.unwrap();
            if told.len() >= count {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{count} changes are not told");
    }
}

fn path(name: &str) -> Changed {
    Changed::of([name.into()])
}

/// The first change is told when the watch is open, the others as they happen.
#[actix::test]
async fn changes_are_told() {
    let scene = scene(0..0);
    assert_eq!(scene.told(1).await[0].0, Changed::unknown());
    scene.happens(Next::Finds("a"));
    scene.told(2).await;
    scene.happens(Next::Finds("b"));
    let told = scene.told(3).await;
    assert_eq!((&told[1].0, &told[2].0), (&path("a"), &path("b")));
}

/// What is asked for is handed over once, and by a turn that began after the question.
#[actix::test]
async fn what_is_asked_for_is_told_once() {
    let scene = scene(0..0);
    scene.told(1).await;
    scene.script.lock().unwrap().push_back(Next::Finds("a"));
    assert_eq!(scene.actor.send(Drain).await.unwrap(), path("a"));
    assert_eq!(scene.actor.send(Drain).await.unwrap(), Changed::default());
    scene.happens(Next::Finds("b"));
    assert_eq!(scene.told(2).await[1].0, path("b"), "what was handed over is not told");
}

/// A watch that fails is opened anew, later and later, and then anything may have changed.
#[actix::test]
async fn a_failed_watch_is_opened_anew() {
    let scene = scene(1..4);
    scene.told(1).await;
    tokio::time::pause();
    let failed = Instant::now();
    scene.happens(Next::Fails);
    let told = scene.told(2).await;
    assert_eq!(told[1].0, Changed::unknown());
    assert_eq!(scene.opened.load(Ordering::Relaxed), 5);
    let took = told[1].1 - failed;
    // 0.2 + 0.4 + 0.8 + 1.6 seconds.
    assert!((2_900..3_500).contains(&took.as_millis()), "{took:?}");
    scene.happens(Next::Finds("a"));
    assert_eq!(scene.told(3).await[2].0, path("a"));
}

/// What cannot be watched at the start is an error; so is a panic, at any time.
#[actix::test]
async fn the_owner_hears_of_the_end() {
    assert!(matches!(scene(0..1).exit_notifier.await, Ok(ChangeError::Watch(_))));
    let scene = scene(0..0);
    scene.told(1).await;
    scene.happens(Next::Panics);
    assert!(matches!(scene.exit_notifier.await, Ok(ChangeError::Panicked)));
}
