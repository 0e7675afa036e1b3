//! The supervision tree: the one place where actors are started, wired, watched and stopped.
//!
//! `serve` calls [`run`] with everything that touches the outside (store, socket, signals). Order
//! of the start: storage, watch, scan and registration, the socket, services. Order of the stop: stop tails, accept no
//! more and let connections finish, stop services, commit and close, join. If a central actor ends by itself, so does
//! the process: its state is on disk, and the init system starts it again.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::Arbiter;
use futures_util::future::select_all;
use thiserror::Error;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::clock::{Clock, SystemClock};
use crate::connection::{Operators, SessionLinks, WorkLinks};
use crate::exit_notifier::{Exit, ExitNotifier};
use crate::file_watcher::{FileWatcherActor, Input, Start, StartError, StopWatching, start_tail};
use crate::listener::{CloseAll, ListenerActor, SocketBinder};
use crate::metrics::Metrics;
use crate::service::{Service, ServiceLinks};
use crate::storage::StorageActor;
use crate::storage::messages::{Ping, Shutdown};
use crate::store::Store;
use shiftboss_queue::error::{StoreError, StoreResult};

/// Connections get this long to finish the request they have.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A service gets this long to give back what it holds.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);
/// Storage gets this long to commit and close.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Parts {
    pub store: Box<dyn Store + Send>,
    /// Another connection to the same queue, on which lists do not hold up workers; `None`: lists use `store`.
    pub list_store: Option<Box<dyn Store + Send>>,
    pub clock: Box<dyn Clock>,
    pub input: Input,
    /// Where workers connect. Opened once every run is registered.
    pub binder: Box<dyn SocketBinder>,
    pub connections_max: usize,
    pub operators: Option<Operators>,
    pub services: Vec<Box<dyn Service>>,
}

pub trait Lifecycle {
    fn ready(&mut self);
    fn stopping(&mut self);
    /// A message has passed through storage. Called once an interval.
    fn alive(&mut self);
    /// How often `alive` is wanted; `None`: never.
    fn alive_every(&self) -> Option<Duration>;
}

#[derive(Debug, Error)]
pub enum TreeError {
    #[error(transparent)]
    Storage(StoreError),
    /// The store could not be asked at the start; it may be later.
    #[error("cannot start: {0}")]
    Unready(StoreError),
    #[error("cannot watch the input directory {path}: {reason}")]
    Input { path: PathBuf, reason: String },
    #[error("cannot open the socket: {0}")]
    Socket(#[source] io::Error),
    #[error(
        "the storage hangs: it did not commit and close within {} s; what was answered is safe, and the next \
         start recovers the database. Look at its disk, or its server",
        SHUTDOWN_TIMEOUT.as_secs()
    )]
    Hangs,
    #[error("{0}")]
    WrongSetting(String),
    #[error("{0} panicked; this is a bug, please report it with the log")]
    Panicked(&'static str),
}

struct Tree {
    storage: Storage,
    /// For lists alone; `None`: lists use `storage`.
    list_storage: Option<Storage>,
    watcher: Addr<FileWatcherActor>,
    listener: Option<Addr<ListenerActor>>,
    services: Vec<Box<dyn Service>>,
    metrics: Arc<Metrics>,
    /// Where the actors that the tree cannot do without report their ends.
    exits: UnboundedSender<Exit>,
}

/// A StorageActor. If its store blocks it has a thread of its own; if it waits for a server it is on this thread, so
/// that no message has to wake another thread.
struct Storage {
    address: Addr<StorageActor>,
    /// Its thread; `None`: it is on this one.
    arbiter: Option<Arbiter>,
    step_rows: usize,
}

type End = oneshot::Receiver<StoreResult<()>>;

impl Storage {
    fn start(
        store: Box<dyn Store + Send>,
        clock: Box<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> (Self, End) {
        let (step_rows, is_remote) = (store.step_rows(), store.is_remote());
        let arbiter = (!is_remote).then(Arbiter::new);
        let handle = arbiter.as_ref().map_or_else(Arbiter::current, Arbiter::handle);
        let (tell_end, end) = oneshot::channel();
        let address = StorageActor::start_in_arbiter(&handle, move |_| {
            StorageActor::new(store, clock, metrics, tell_end)
        });
        (Self { address, arbiter, step_rows }, end)
    }

    /// Commits and closes, within its deadline.
    async fn close(self) -> Result<(), TreeError> {
        let closed = timeout(SHUTDOWN_TIMEOUT, self.address.send(Shutdown)).await;
        if let Some(arbiter) = &self.arbiter {
            arbiter.stop();
        }
        match closed {
            Ok(Ok(closed)) => closed.map_err(TreeError::Storage)?,
            Ok(Err(_)) => return Err(TreeError::Panicked("the StorageActor")),
            // It hangs in a system call: do not wait for its thread.
            Err(_) => return Err(TreeError::Hangs),
        }
        if self.arbiter.is_some_and(|arbiter| arbiter.join().is_err()) {
            warn!("The storage thread ended with a panic.");
        }
        Ok(())
    }
}

struct Ends(Vec<End>);

impl Ends {
    async fn next(&mut self) -> Result<(), TreeError> {
        match select_all(&mut self.0).await.0 {
            Ok(end) => end.map_err(TreeError::Storage),
            Err(_) => Err(TreeError::Panicked("the StorageActor")),
        }
    }

    /// An error with which one of them has ended meanwhile.
    fn failure(&mut self) -> Option<TreeError> {
        let mut ended = self.0.iter_mut().filter_map(|end| end.try_recv().ok()?.err());
        ended.next().map(TreeError::Storage)
    }
}

/// Runs the tree until `stop` resolves or a central actor ends. Must be called on an actix system.
pub async fn run(
    parts: Parts,
    lifecycle: &mut dyn Lifecycle,
    stop: impl Future<Output = ()>,
) -> Result<(), TreeError> {
    let Parts { store, list_store, clock, input, binder, connections_max, operators, services } =
        parts;
    let path = input.path.clone();
    let (exits, mut exited) = mpsc::unbounded_channel();
    let metrics = Arc::<Metrics>::default();
    let (storage, end) = Storage::start(store, clock, Arc::clone(&metrics));
    let (list_storage, list_end) = list_store
        .map(|store| Storage::start(store, Box::new(SystemClock), Arc::clone(&metrics)))
        .unzip();
    let mut ends = Ends(std::iter::once(end).chain(list_end).collect());
    let mut tree = Tree::start(storage, list_storage, input, services, metrics, exits);
    let ended = tokio::select! {
        ended = ends.next() => ended,
        Some(exit) = exited.recv() => Err(match exit {
            Exit::Panicked(name) => TreeError::Panicked(name),
            Exit::WrongSetting(text) => TreeError::WrongSetting(text),
        }),
        ended = tree.live(path, binder, connections_max, operators, lifecycle) => ended,
        () = stop => Ok(()),
    };
    // A failure for want of storage is storage's failure.
    let ended = ended.map_err(|error| ends.failure().unwrap_or(error));
    lifecycle.stopping();
    let shut_down = tree.shutdown().await;
    ended.and(shut_down)
}

impl Tree {
    fn start(
        storage: Storage,
        list_storage: Option<Storage>,
        input: Input,
        services: Vec<Box<dyn Service>>,
        metrics: Arc<Metrics>,
        exits: UnboundedSender<Exit>,
    ) -> Self {
        let exit_notifier = ExitNotifier { name: "the FileWatcherActor", exits: exits.clone() };
        let Storage { address, step_rows, .. } = list_storage.as_ref().unwrap_or(&storage);
        let start_tail = Box::new(start_tail);
        let watcher =
            FileWatcherActor::new(input, address.clone(), *step_rows, start_tail, exit_notifier)
                .start();
        Self { storage, list_storage, watcher, listener: None, services, metrics, exits }
    }

    /// Registers every run, lets workers in, and goes on until something fails.
    async fn live(
        &mut self,
        path: PathBuf,
        mut binder: Box<dyn SocketBinder>,
        connections_max: usize,
        operators: Option<Operators>,
        lifecycle: &mut dyn Lifecycle,
    ) -> Result<(), TreeError> {
        match self.watcher.send(Start).await {
            Ok(Ok(())) => {}
            Ok(Err(StartError::Store(error))) => return Err(TreeError::Unready(error)),
            Ok(Err(StartError::Input(reason))) => return Err(TreeError::Input { path, reason }),
            Err(_) => return Err(TreeError::Panicked("the FileWatcherActor")),
        }
        let listener = binder.open().map_err(TreeError::Socket)?;
        let exit_notifier = |name| ExitNotifier { name, exits: self.exits.clone() };
        for service in &mut self.services {
            let links = ServiceLinks::to(&self.storage.address, &self.watcher);
            service.start(links, exit_notifier(service.name()));
        }
        let links = self.work_links(operators);
        let notifier = exit_notifier("the ListenerActor");
        self.listener =
            Some(ListenerActor::start(listener, binder, links, connections_max, notifier));
        lifecycle.ready();
        keep_alive(&self.storage.address, lifecycle).await;
        Ok(())
    }

    fn work_links(&self, operators: Option<Operators>) -> WorkLinks {
        let session = operators.map(|operators| {
            let (storage, watcher) =
                (self.storage.address.clone(), self.watcher.clone().recipient());
            let run_fetcher = self.services.iter().find_map(|service| service.run_fetcher());
            let broker = self.services.iter().find_map(|service| service.broker());
            Rc::new(SessionLinks::new(storage, watcher, run_fetcher, broker, operators))
        });
        WorkLinks {
            dispatch: self.storage.address.clone().recipient(),
            finish: self.storage.address.clone().recipient(),
            barrier: self.watcher.clone().recipient(),
            metrics: Arc::clone(&self.metrics),
            session,
        }
    }

    /// Stops everything, in order, each step within its deadline.
    async fn shutdown(mut self) -> Result<(), TreeError> {
        self.watcher.do_send(StopWatching);
        if let Some(listener) = &self.listener {
            if timeout(CLOSE_TIMEOUT, listener.send(CloseAll)).await.is_err() {
                warn!(
                    "Some connections did not finish in time; their jobs go back when their leases end."
                );
            }
            for service in &mut self.services {
                if timeout(SERVICE_TIMEOUT, service.stop()).await.is_err() {
                    warn!(service = service.name(), "It did not stop in time.");
                }
            }
        }
        // Lists have no jobs to give back.
        let lists_closed = match self.list_storage {
            Some(lists) => lists.close().await,
            None => Ok(()),
        };
        self.storage.close().await.and(lists_closed)?;
        info!("The database is closed.");
        Ok(())
    }
}

/// Reports once an interval that storage still answers. Never ends.
async fn keep_alive(storage: &Addr<StorageActor>, lifecycle: &mut dyn Lifecycle) {
    let Some(every) = lifecycle.alive_every() else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval(every);
    loop {
        ticks.tick().await;
        if storage.send(Ping).await.is_ok() {
            lifecycle.alive();
        }
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
