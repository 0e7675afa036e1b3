//! FileWatcherActor: the input directory. It keeps the store's runs equal to the directory's
//! files, and starts, watches and restarts a FileTailActor for each run that has bytes to read.
//!
//! The tree starts it; connections ask it to [`CatchUpBarrier`] before they say that there is no work.
//! Events, scans and timers all end in the same two steps for a run: look at its names
//! ([`FileWatcherActor::look_at`]), then act on what is there ([`FileWatcherActor::act_on`]).
//! It does not know rows, and reads a file's bytes only to tell whether it is still the one that is stored.

mod barrier;
mod elsewhere;
mod entry;
mod faults;
mod intake;
mod lost;
mod phase;
mod runs;
mod stranger;
mod tails;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::*;
use tokio::task::yield_now;

use crate::directory::Directory;
use crate::exit_notifier::ExitNotifier;
use crate::file_tail::Shared;
use crate::storage::StorageActor;
use crate::storage::messages::ask;
use crate::throttle::Throttle;
pub use barrier::{CatchUpBarrier, CaughtUp};
use entry::Entry;
pub use lost::{AcceptInput, Accepted, WhyLost};
use shiftboss_protocol::model::Run;
use shiftboss_queue::error::StoreError;
use shiftboss_queue::file_identity::DirectoryIdentity;
use shiftboss_queue::operation::Runs;
pub use tails::{StartTail, start_tail};
use watch::Watch;

/// How often everything is looked at, whether or not there are events.
const RESCAN_EVERY: Duration = Duration::from_secs(60);
/// How often the timers of the directory and of unclosed files are checked.
const TICK: Duration = Duration::from_secs(1);
/// Pause between two warnings that a file cannot be looked at; it is retried every second.
const WARNINGS_SECONDS: u32 = 60;

#[derive(Debug, Clone)]
pub struct Input {
    pub path: PathBuf,
    /// The known directory; `None`: whichever is there.
    pub known: Option<DirectoryIdentity>,
    /// The one that this process has locked for its life; `None`: the one that is there at the start.
    pub locked: Option<DirectoryIdentity>,
    /// Whichever is there at the start is taken, even if it is not the known one.
    pub accept: bool,
    /// Another one is taken once it has held lists for this long without a change.
    pub accept_after: Duration,
    /// How often to try to take over fetchers of other daemons, if more often than the rescan.
    pub retry_elsewhere: Duration,
}

/// Opens the directory, registers every run in it and drops those that are gone. Answered when that is done: then the
/// socket may be opened. Loading goes on.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), StartError>")]
pub struct Start;

#[derive(Debug)]
pub enum StartError {
    /// The store cannot say which runs it has.
    Store(StoreError),
    Input(String),
}

/// Ends all tails and the watch. The last message of its life.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopWatching;

struct Open {
    directory: Rc<Directory>,
    /// `None` while the system has no watch left: everything is looked at every second.
    watch: Option<Watch>,
    events: Option<SpawnHandle>,
    /// Other machines change it without an event: everything is looked at every second, too.
    is_on_network: bool,
}

pub struct FileWatcherActor {
    input: Input,
    storage: Addr<StorageActor>,
    start_tail: StartTail,
    open: Option<Open>,
    stranger: Option<stranger::Stranger>,
    runs: BTreeMap<Run, Entry>,
    /// While runs are being registered: those to look at afterwards.
    postponed: Option<BTreeSet<Run>>,
    faults: faults::Faults,
    /// Runs under deletion, in the order in which they are deleted.
    deleting: VecDeque<Run>,
    queue: VecDeque<Run>,
    tails: usize,
    barriers: barrier::Barriers,
    /// An event said that the directory is gone, or that events were dropped.
    lost: bool,
    overflow: bool,
    /// Crowded: runs wait for a tail, and tails that have nothing to read give up their place.
    shared: Rc<Shared>,
    warnings: Throttle,
    /// Dropped with the actor: a panic here ends the process.
    _exit_notifier: ExitNotifier,
}

impl FileWatcherActor {
    pub fn new(
        input: Input,
        storage: Addr<StorageActor>,
        step_rows: usize,
        start_tail: StartTail,
        exit_notifier: ExitNotifier,
    ) -> Self {
        Self {
            input,
            storage,
            start_tail,
            open: None,
            stranger: None,
            runs: BTreeMap::new(),
            postponed: None,
            faults: faults::Faults::default(),
            deleting: VecDeque::new(),
            queue: VecDeque::new(),
            tails: 0,
            barriers: barrier::Barriers::default(),
            lost: false,
            overflow: false,
            shared: Rc::new(Shared::new(step_rows)),
            warnings: Throttle::new(1, WARNINGS_SECONDS),
            _exit_notifier: exit_notifier,
        }
    }
}

impl Actor for FileWatcherActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.watch_ownership(ctx);
        ctx.run_interval(RESCAN_EVERY, |watcher, ctx| {
            watcher.retry_rejected();
            watcher.retry_elsewhere();
            watcher.rescan(ctx);
        });
        if self.input.retry_elsewhere < RESCAN_EVERY {
            ctx.run_interval(self.input.retry_elsewhere, |watcher, ctx| {
                if watcher.retry_elsewhere() {
                    watcher.rescan(ctx);
                }
            });
        }
        ctx.run_interval(TICK, Self::tick);
        ctx.run_interval(TICK, Self::reconcile);
    }
}

impl Handler<Start> for FileWatcherActor {
    type Result = ResponseActFuture<Self, Result<(), StartError>>;

    fn handle(&mut self, _: Start, _: &mut Self::Context) -> Self::Result {
        let begun = ask(&self.storage, Runs).into_actor(self).map(|known, watcher, ctx| {
            let known = known.map_err(StartError::Store)?;
            watcher.adopt(&known, ctx);
            watcher.begin_watching(&known, ctx).map_err(StartError::Input)
        });
        // Goes on after what the actor waits for by then: that the runs are registered.
        let registered = begun.then(|begun, watcher, _| {
            yield_now().into_actor(watcher).map(|(), _: &mut Self, _: &mut Context<Self>| begun)
        });
        Box::pin(registered)
    }
}

impl Handler<StopWatching> for FileWatcherActor {
    type Result = ();

    fn handle(&mut self, _: StopWatching, ctx: &mut Self::Context) {
        self.runs.values().for_each(|entry| entry.phase.stop_tail());
        ctx.stop();
    }
}
