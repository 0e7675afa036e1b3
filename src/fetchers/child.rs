//! The schedule of one fetcher, wired from its table. [`super::supervisor`] starts, ends and replaces it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::task::JoinHandle;
use shiftboss_actors::clock::Clock;
use tokio::sync::mpsc;

use crate::config::{FetcherTable, OnChangeTable};
use crate::schedule::follower::Follower;
use crate::schedule::globs::GlobError;
use crate::schedule::machine::Timing;
use crate::schedule::scheduler::{
    Every, Observer, Outcome, Request, Runs, Schedule, ScheduleError,
};
use crate::schedule::tree_watch::Kernel;
use crate::schedule::watch::Trees;

pub(super) struct Child {
    /// What it was started for.
    pub table: FetcherTable,
    pub requests: mpsc::UnboundedSender<Request>,
}

/// A schedule's life: it ends when nothing of it is left, whether it was stopped or panicked. Aborted, it kills what
/// runs.
pub(super) type Life = JoinHandle<Result<Option<Outcome>, ScheduleError>>;

/// Starts a fetcher; it first runs by the clock after `first`. The configuration was refused if it has a faulty glob.
pub(super) fn start(
    table: FetcherTable,
    first: Option<Duration>,
    runs: Box<dyn Runs>,
    observer: Box<dyn Observer>,
    clock: Rc<dyn Clock>,
) -> Result<(Child, Life), GlobError> {
    let watch = table.on_change.as_ref().map(follower).transpose()?;
    let every = table.every.zip(first).map(|(period, first)| Every { period, first });
    let (requests, received) = mpsc::unbounded_channel();
    let (name, timing) = (table.name.as_str().to_owned(), timing(&table));
    let schedule = Schedule { name, timing, every, runs, watch, observer, clock };
    Ok((Child { table, requests }, actix_rt::spawn(schedule.run(received))))
}

/// A watch that cannot be opened yet is tried again: a tree may come later than the daemon.
fn follower(on_change: &OnChangeTable) -> Result<Follower, GlobError> {
    let trees = Trees::new(on_change.paths.clone(), on_change.filter()?);
    Ok(Follower::new(Arc::new(move || crate::schedule::open(&trees, Kernel))).patient())
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
