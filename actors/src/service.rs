//! Services: actors of the program that the tree starts and stops beside its own. It knows of them only what
//! connections may ask. Called by [`tree`](crate::tree); a spool's intake is one, the daemon's own fetchers are another.
//!
//! A service is started once every run is registered and stopped before storage. Its end by itself ends
//! the process, as that of a central actor does.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures_util::future::select_all;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::warn;

use crate::exit_notifier::ExitNotifier;
use crate::file_watcher::{FileWatcherActor, WhyLost};
use crate::live::SpoolLive;
use crate::storage::StorageActor;
use crate::storage::messages::Perform;
use crate::store::{FetcherRecords, ForgetFetcher, NoteFetcher};
use shiftboss_protocol::wire::session::Refused;

/// A service gets this long to give back what it holds.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Has a fetcher of this name, which the daemon runs itself, run now; answers with one line of JSON.
pub type RunFetcher = Rc<dyn Fn(&str) -> Result<String, Refused>>;

/// Looks how the spool is that the daemon takes tasks from. May take a while: it is called on a thread for it.
pub type LookAtSpool = Arc<dyn Fn() -> SpoolLive + Send + Sync>;

/// What a service may say to storage and to the watcher.
#[derive(Clone)]
pub struct ServiceLinks {
    pub storage: Addr<StorageActor>,
    pub fetchers: FetcherLinks,
}

/// What who runs fetchers may say.
#[derive(Clone)]
pub struct FetcherLinks {
    /// How a managed fetcher is.
    pub note: Recipient<Perform<NoteFetcher>>,
    /// Asks what was noted of them.
    pub known: Recipient<Perform<FetcherRecords>>,
    /// One that is run no more.
    pub forget: Recipient<Perform<ForgetFetcher>>,
    /// Asks whether the input directory is lost.
    pub why_lost: Recipient<WhyLost>,
}

impl ServiceLinks {
    /// All links to a StorageActor and a FileWatcherActor.
    pub fn to(storage: &Addr<StorageActor>, watcher: &Addr<FileWatcherActor>) -> Self {
        let fetchers = FetcherLinks {
            note: storage.clone().recipient(),
            known: storage.clone().recipient(),
            forget: storage.clone().recipient(),
            why_lost: watcher.clone().recipient(),
        };
        Self { storage: storage.clone(), fetchers }
    }
}

/// An actor of the program's that lives in the tree.
pub trait Service {
    /// As it is called when it panicked.
    fn name(&self) -> &'static str;

    /// Starts it, on the caller's actix system. It keeps `exit_notifier` for its whole life.
    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier<String>);

    /// Has fetchers run for operators, if it has any; asked once it is started.
    fn run_fetcher(&self) -> Option<RunFetcher> {
        None
    }

    /// How to look at the spool, if it takes tasks from one.
    fn spool(&self) -> Option<LookAtSpool> {
        None
    }

    /// Stops it; resolves when it holds nothing any more.
    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>>;
}

/// The services of a tree.
#[derive(Default)]
pub(crate) struct Services {
    all: Vec<Box<dyn Service>>,
    /// Of those that were started, in the same order.
    ends: Vec<oneshot::Receiver<String>>,
}

impl Services {
    /// Services that are to be started.
    pub(crate) fn new(all: Vec<Box<dyn Service>>) -> Self {
        Self { all, ends: Vec::new() }
    }

    pub(crate) fn start(&mut self, storage: &Addr<StorageActor>, watcher: &Addr<FileWatcherActor>) {
        for service in &mut self.all {
            let (exit_notifier, end) = ExitNotifier::new();
            service.start(ServiceLinks::to(storage, watcher), exit_notifier);
            self.ends.push(end);
        }
    }

    /// Has fetchers run for operators.
    pub(crate) fn run_fetcher(&self) -> Option<RunFetcher> {
        self.all.iter().find_map(|service| service.run_fetcher())
    }

    /// How to look at the spool.
    pub(crate) fn spool(&self) -> Option<LookAtSpool> {
        self.all.iter().find_map(|service| service.spool())
    }

    /// Resolves with the name of the first one that ends by itself; never, if there are none.
    pub(crate) async fn ended(&mut self) -> &'static str {
        if self.ends.is_empty() {
            return std::future::pending().await;
        }
        let (_, first, _) = select_all(&mut self.ends).await;
        self.all[first].name()
    }

    /// Stops those that were started.
    pub(crate) async fn stop(&mut self) {
        for service in self.all.iter_mut().take(self.ends.len()) {
            if timeout(STOP_TIMEOUT, service.stop()).await.is_err() {
                warn!(service = service.name(), "It did not stop in time.");
            }
        }
    }
}
