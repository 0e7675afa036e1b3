//! The whole tree over a mock store: how it starts, stops, and ends by itself.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use super::{Lifecycle, Parts, TreeError, run};
use crate::exit_notifier::ExitNotifier;
use crate::file_watcher::tests::input;
use crate::listener::SocketBinder;
use crate::service::{Service, ServiceLinks};
use crate::testing::{ManualClock, MockStore, Trouble, until};
use shiftboss_queue::error::StoreError;

/// A socket in a directory.
struct TestBinder(PathBuf);

impl SocketBinder for TestBinder {
    fn open(&mut self) -> io::Result<UnixListener> {
        UnixListener::bind(&self.0)
    }

    fn rebind(&mut self) -> io::Result<Option<UnixListener>> {
        Ok(None)
    }
}

/// Notes what it gets; clones share the notes.
#[derive(Clone, Default)]
struct Notes(Rc<RefCell<Vec<&'static str>>>);

impl Notes {
    fn all(&self) -> Vec<&'static str> {
        self.0.borrow().clone()
    }
}

impl Lifecycle for Notes {
    fn ready(&mut self) {
        self.0.borrow_mut().push("ready");
    }

    fn stopping(&mut self) {
        self.0.borrow_mut().push("stopping");
    }

    fn alive(&mut self) {
        self.0.borrow_mut().push("alive");
    }

    fn alive_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

/// A tree that runs until it is stopped or ends.
struct Site {
    directory: TempDir,
    mock: MockStore,
    service: Option<TestService>,
    notes: Notes,
}

/// A service that panics a moment after its start, or notes that it was stopped.
#[derive(Clone, Default)]
struct TestService {
    panics: bool,
    has_wrong_setting: bool,
    stopped: Arc<AtomicBool>,
}

impl Service for TestService {
    fn name(&self) -> &'static str {
        "the service"
    }

    fn start(&mut self, _: ServiceLinks, exit_notifier: ExitNotifier) {
        if self.has_wrong_setting {
            return exit_notifier.wrong_setting("why".to_owned());
        }
        let panics = self.panics;
        actix::spawn(async move {
            let _exit_notifier = exit_notifier;
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(!panics, "on demand");
            std::future::pending::<()>().await;
        });
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        self.stopped.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

impl Site {
    fn new(mock: MockStore) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("input")).unwrap();
        Self { directory, mock, service: None, notes: Notes::default() }
    }

    fn parts(&self) -> Parts {
        Parts {
            store: Box::new(self.mock.clone()),
            list_store: None,
            clock: Box::new(ManualClock::at(100)),
            input: input(self.directory.path().join("input")),
            binder: Box::new(TestBinder(self.directory.path().join("socket"))),
            connections_max: 10,
            operators: None,
            services: self.service.iter().map(|service| Box::new(service.clone()) as _).collect(),
        }
    }

    async fn ask(&self, line: &str) -> String {
        let socket = self.directory.path().join("socket");
        until("the socket is there", || socket.exists()).await;
        let mut stream = UnixStream::connect(socket).await.unwrap();
        stream.write_all(line.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        // A tree that ends while it is asked may reset the connection.
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }
}

/// Runs a tree while `work` is done on it; the tree is stopped when that is done.
async fn run_while(site: &Site, work: impl Future<Output = ()>) -> Result<(), TreeError> {
    let (stop, stopped) = oneshot::channel::<()>();
    let mut notes = site.notes.clone();
    let running = run(site.parts(), &mut notes, async {
        let _ = stopped.await;
    });
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended,
        () = work => {
            drop(stop);
            running.await
        }
    }
}

/// A file's line is handed out, and the last step of the stop closes the store.
#[actix::test]
async fn a_tree_works_and_stops() {
    let site = Site::new(MockStore::default());
    std::fs::write(site.directory.path().join("input/f.1.txt.part"), "alpha 1\n").unwrap();
    let ended = run_while(&site, async {
        assert_eq!(site.ask("READY\n").await, "JOB alpha 1\n");
        until("it is alive", || site.notes.all().contains(&"alive")).await;
    });
    ended.await.unwrap();
    let notes = site.notes.all();
    assert_eq!((notes.first(), notes.last()), (Some(&"ready"), Some(&"stopping")));
    assert_eq!(site.mock.calls().last().unwrap(), "close");
}

/// An error that storage cannot survive ends the tree with that error.
#[actix::test]
async fn a_fatal_error_ends_the_tree() {
    let site = Site::new(MockStore::with_jobs(&["a"]));
    let fatal = StoreError::Fatal("the disk is on fire".to_owned());
    site.mock.trouble("dispatch", Trouble::Error(fatal.clone()));
    let ended = run_while(&site, async {
        assert_eq!(site.ask("READY\n").await, "");
        std::future::pending::<()>().await;
    })
    .await;
    match ended {
        Err(TreeError::Storage(error)) => assert_eq!(error, fatal),
        other => panic!("{other:?}"),
    }
}

/// A panic in storage, on whichever thread, ends the tree, too; during the stop, it means that the stop is not clean.
#[actix::test]
async fn a_panic_in_storage_ends_the_tree() {
    // Storage has a thread of its own, or shares that of all others.
    for (is_remote, call) in
        [(false, "dispatch"), (true, "dispatch"), (false, "close"), (true, "close")]
    {
        let site = Site::new(MockStore::with_jobs(&["a"]));
        site.mock.inside().is_remote = is_remote;
        site.mock.trouble(call, Trouble::Panic);
        let ended = run_while(&site, async {
            let answer = site.ask("READY\n").await;
            if call == "close" {
                assert_eq!(answer, "JOB a 1\n");
            } else {
                assert_eq!(answer, "");
                std::future::pending::<()>().await;
            }
        })
        .await;
        assert!(matches!(ended, Err(TreeError::Panicked("the StorageActor"))), "{ended:?}");
    }
}

/// A stop is clean only if storage has closed: if storage hangs, that is reported, and the stop does not wait.
#[actix::test]
async fn a_storage_that_hangs_is_no_clean_stop() {
    let site = Site::new(MockStore::default());
    let (hold, held) = std::sync::mpsc::channel();
    site.mock.trouble("close", Trouble::Hang(Arc::new(std::sync::Mutex::new(held))));
    let ended = run_while(&site, async {
        assert_eq!(site.ask("READY\n").await, "NOJOBS\n");
        // The paused clock jumps to the deadline as soon as nothing else is left to do.
        tokio::time::pause();
    })
    .await;
    assert!(matches!(ended, Err(TreeError::Hangs)), "{ended:?}");
    assert!(ended.unwrap_err().to_string().contains("within 20 s"));
    drop(hold);
}

/// A service is stopped before the store is closed; one that panics, or that finds a wrong setting, ends the tree.
#[actix::test]
async fn services_live_and_die_with_the_tree() {
    let mut site = Site::new(MockStore::with_jobs(&["a"]));
    let service = TestService::default();
    site.service = Some(service.clone());
    let ended = run_while(&site, async {
        assert_eq!(site.ask("READY\n").await, "JOB a 1\n");
        assert!(!service.stopped.load(Ordering::Relaxed));
    })
    .await;
    ended.unwrap();
    assert!(service.stopped.load(Ordering::Relaxed));

    let mut site = Site::new(MockStore::default());
    site.service = Some(TestService { panics: true, ..TestService::default() });
    let ended = run_while(&site, std::future::pending()).await;
    assert!(matches!(ended, Err(TreeError::Panicked("the service"))), "{ended:?}");

    let mut site = Site::new(MockStore::default());
    site.service = Some(TestService { has_wrong_setting: true, ..TestService::default() });
    let ended = run_while(&site, std::future::pending()).await;
    assert!(matches!(&ended, Err(TreeError::WrongSetting(why)) if why == "why"), "{ended:?}");
}

/// Without an input directory the tree does not start. Nor does it while the store cannot be asked; that is not the
/// directory's fault, and may pass.
#[actix::test]
async fn a_store_that_is_away_at_the_start_is_told() {
    let site = Site::new(MockStore::default());
    site.mock.trouble("runs", Trouble::busy());
    let ended = run_while(&site, std::future::pending()).await;
    assert!(matches!(&ended, Err(TreeError::Unready(StoreError::Busy(_)))), "{ended:?}");
    std::fs::remove_dir(site.directory.path().join("input")).unwrap();
    let ended = run_while(&site, std::future::pending()).await;
    assert!(matches!(ended, Err(TreeError::Input { .. })), "{ended:?}");
    assert!(!site.notes.all().contains(&"ready"));
}
