//! The ListenerActor on real sockets, with a binder that a test controls and a slow storage, under a paused clock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::*;
use crate::connection::tests::fake::Fake as FakeWork;
use crate::testing::until;

/// How long the storage takes to find out that there is no job. A request asks it twice.
const LOOK: Duration = Duration::from_secs(1);

/// What the next rebinds give, and how many there were.
#[derive(Clone, Default)]
struct Fake {
    rebinds: Rc<RefCell<VecDeque<io::Result<Option<UnixListener>>>>>,
    asked: Rc<RefCell<u32>>,
}

impl SocketBinder for Fake {
    fn open(&mut self) -> io::Result<UnixListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rebind(&mut self) -> io::Result<Option<UnixListener>> {
        *self.asked.borrow_mut() += 1;
        self.rebinds.borrow_mut().pop_front().unwrap_or(Ok(None))
    }
}

/// What the listener counts: connections, those refused, accepts that failed.
#[derive(Message)]
#[rtype(result = "(usize, u64, u64)")]
struct Counts;

impl Handler<Counts> for ListenerActor {
    type Result = MessageResult<Counts>;

    fn handle(&mut self, _: Counts, _: &mut Self::Context) -> Self::Result {
        MessageResult((self.connections.len(), self.refused, self.failed))
    }
}

struct Site {
    directory: tempfile::TempDir,
    binder: Fake,
    /// There is never a job.
    work: FakeWork,
    actor: Addr<ListenerActor>,
}

impl Site {
    /// A listener on the socket `a`, for at most `connections_max` connections.
    fn new(connections_max: usize) -> Self {
        Self::on(connections_max, bind)
    }

    fn on(connections_max: usize, bind: impl FnOnce(&Path) -> UnixListener) -> Self {
        tokio::time::pause();
        let directory = tempfile::tempdir().unwrap();
        let work = FakeWork::default();
        work.takes.set(LOOK);
        let exits = tokio::sync::mpsc::unbounded_channel().0;
        let (binder, exit_notifier) = (Fake::default(), ExitNotifier { name: "it", exits });
        let listener = bind(&directory.path().join("a"));
        let boxed = Box::new(binder.clone());
        let links = work.links();
        let actor = ListenerActor::start(listener, boxed, links, connections_max, exit_notifier);
        Self { directory, binder, work, actor }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn connect(&self, name: &str) -> UnixStream {
        UnixStream::connect(self.path(name)).await.unwrap()
    }

    async fn counts(&self) -> (usize, u64, u64) {
        self.actor.send(Counts).await.unwrap()
    }

    /// Waits until there are `count` connections, while the clock hardly moves.
    async fn wait_open(&self, count: usize) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while self.counts().await.0 != count {
            assert!(std::time::Instant::now() < deadline, "there are never {count}");
            tokio::time::sleep(Duration::from_micros(1)).await;
        }
    }
}

fn bind(path: &Path) -> UnixListener {
    UnixListener::bind(path).unwrap()
}

/// A socket whose every accept fails at once, because it does not listen.
fn broken(_: &Path) -> UnixListener {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    UnixListener::from_std(socket.into()).unwrap()
}

async fn answer(mut client: UnixStream) -> String {
    client.write_all(b"READY\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Connections above the limit are closed without an answer; the place of one that goes is free.
#[actix::test]
async fn so_many_connections_and_no_more() {
    let site = Site::new(2);
    let first = site.connect("a").await;
    let second = site.connect("a").await;
    site.wait_open(2).await;
    for refused in 1..=3 {
        let mut third = site.connect("a").await;
        assert_eq!(third.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(site.counts().await, (2, refused, 0));
    }
    drop(first);
    site.wait_open(1).await;
    assert_eq!(answer(site.connect("a").await).await, "NOJOBS\n");
    assert_eq!(answer(second).await, "NOJOBS\n");
    assert_eq!(site.counts().await.1, 3);
}

/// Accepts that fail are tried again ten times a second, not in a busy loop; once the binder has a listener that works,
/// workers are served over it. A binder that fails is asked again.
#[actix::test]
async fn failing_accepts_are_outlived() {
    let site = Site::on(8, broken);
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    let failed = site.counts().await.2;
    assert!((10..=11).contains(&failed), "{failed}");
    let new = bind(&site.path("b"));
    let next = [Ok(None), Err(io::ErrorKind::AddrInUse.into()), Ok(Some(new))];
    site.binder.rebinds.borrow_mut().extend(next);
    tokio::time::sleep(REBIND_EVERY * 2).await;
    assert_eq!(*site.binder.asked.borrow(), 2);
    assert!(site.counts().await.2 > failed);
    tokio::time::sleep(REBIND_EVERY).await;
    assert_eq!(*site.binder.asked.borrow(), 3);
    let failed = site.counts().await.2;
    assert_eq!(answer(site.connect("b").await).await, "NOJOBS\n");
    assert_eq!(site.counts().await.2, failed, "the old listener is not asked any longer");
}

/// A new listener takes the place of the old one; connections stay open.
#[actix::test]
async fn a_new_listener_keeps_connections() {
    let site = Site::new(8);
    let old = site.connect("a").await;
    site.wait_open(1).await;
    let new = bind(&site.path("b"));
    site.binder.rebinds.borrow_mut().push_back(Ok(Some(new)));
    tokio::time::sleep(REBIND_EVERY).await;
    assert_eq!(answer(site.connect("b").await).await, "NOJOBS\n");
    assert_eq!(answer(old).await, "NOJOBS\n");
    assert!(UnixStream::connect(site.path("a")).await.is_err());
}

/// A close waits for the request under way, which is answered, but not for idle connections; every request for a close
/// is answered. No connection is accepted meanwhile, and the binder is left alone.
#[actix::test]
async fn a_close_waits_for_what_is_under_way() {
    let site = Site::new(8);
    let mut resting = site.connect("a").await;
    let mut busy = site.connect("a").await;
    site.wait_open(2).await;
    busy.write_all(b"READY\n").await.unwrap();
    until("its request is under way", || site.work.asked() == ["ready"]).await;
    let asked = Instant::now();
    let (first, second) = (site.actor.send(CloseAll), site.actor.send(CloseAll));
    site.wait_open(1).await;
    assert_eq!(resting.read(&mut [0]).await.unwrap(), 0);
    assert!(asked.elapsed() < LOOK);
    let late = UnixStream::connect(site.path("a")).await;
    first.await.unwrap();
    second.await.unwrap();
    assert!(asked.elapsed() > LOOK && asked.elapsed() < 3 * LOOK, "{:?}", asked.elapsed());
    let mut told = String::new();
    busy.read_to_string(&mut told).await.unwrap();
    assert_eq!(told, "NOJOBS\n");
    assert_eq!(site.counts().await, (0, 0, 0));
    drop(late);
    let rebinds = *site.binder.asked.borrow();
    tokio::time::sleep(REBIND_EVERY * 3).await;
    assert_eq!(*site.binder.asked.borrow(), rebinds);
}
