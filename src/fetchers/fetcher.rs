//! One managed fetcher: what is wanted of it, and its schedule, wired from its table.
//!
//! [`super::supervisor`] starts, ends and replaces it.

use std::rc::Rc;
use std::time::Duration;

use actix_rt::task::JoinHandle;
use shiftboss_actors::clock::Clock;
use shiftboss_protocol::backoff::Backoff;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::config::{FetcherTable, OnChangeTable};
use crate::schedule::follower::Follower;
use crate::schedule::globs::GlobError;
use crate::schedule::machine::Timing;
use crate::schedule::scheduler::{
    Every, Observer, Outcome, Request, Schedule, ScheduleError, StartRun,
};
use crate::schedule::watch::Trees;

/// From a panic to the start of the next schedule: at first, and at the longest.
const RESTART: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

pub(super) struct Fetcher {
    /// What is to run; `None`: nothing any more.
    pub wanted: Option<FetcherTable>,
    pub running: Option<Running>,
    /// It is replaced by one that was configured anew.
    pub is_changed: bool,
    /// Reset when a run ends.
    pub restarts: Backoff,
}

impl Default for Fetcher {
    fn default() -> Self {
        let restarts = Backoff::new(RESTART[0], RESTART[1]);
        Self { wanted: None, running: None, is_changed: false, restarts }
    }
}

impl Fetcher {
    /// Ends its schedule, which is heard of when nothing of it is left.
    pub fn end(&mut self) {
        if let Some(running) = self.running.as_mut().filter(|running| !running.is_ending) {
            let _ = running.requests.send(Request::Stop);
            running.is_ending = true;
        }
    }

    /// Its schedule, unless that is being ended.
    pub fn lasting(&mut self) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| !running.is_ending)
    }
}

/// A schedule that was started.
pub(super) struct Running {
    /// What it was started for.
    pub table: FetcherTable,
    pub requests: mpsc::UnboundedSender<Request>,
    /// Aborted, it kills what runs.
    pub life: AbortHandle,
    pub is_on: bool,
    pub is_ending: bool,
}

/// A schedule's life: it ends when nothing of it is left, whether it was stopped or panicked.
pub(super) type Life = JoinHandle<Result<Option<Outcome>, ScheduleError>>;

/// Starts a schedule, which first runs by the clock after `first`. The configuration was refused if it has a faulty
/// glob.
pub(super) fn start(
    table: FetcherTable,
    first: Option<Duration>,
    start: StartRun,
    observer: Observer,
    clock: Rc<dyn Clock>,
) -> Result<(Running, Life), GlobError> {
    let watch = table.on_change.as_ref().map(follower).transpose()?;
    let every = table.every.zip(first).map(|(period, first)| Every { period, first });
    let (requests, received) = mpsc::unbounded_channel();
    let (name, timing) = (table.name.as_str().to_owned(), timing(&table));
    let schedule = Schedule { name, timing, every, start, watch, observer, clock };
    let schedule = actix_rt::spawn(schedule.run(received));
    let life = schedule.abort_handle();
    Ok((Running { table, requests, life, is_on: false, is_ending: false }, schedule))
}

/// A watch that cannot be opened yet is tried again: a tree may come later than the daemon.
fn follower(on_change: &OnChangeTable) -> Result<Follower, GlobError> {
    let trees = Trees::new(on_change.paths.clone(), on_change.filter()?);
    Ok(Follower::of_trees(trees, true))
}

/// One that watches nothing has nothing to wait for.
fn timing(table: &FetcherTable) -> Timing {
    let waits = table.on_change.as_ref().map(|on_change| Timing {
        debounce: on_change.debounce,
        max_wait: on_change.max_wait,
        cooldown: on_change.cooldown,
        retry: false,
    });
    Timing { retry: table.retry, ..waits.unwrap_or_default() }
}
