//! The supervisor of managed fetchers: keeps the running ones equal to the wanted ones, and their notes equal to their
//! state.
//!
//! [`super::Fetchers`] starts it. Each fetcher has a task ([`Supervisor::keep`]) that starts its schedule, replaces it when
//! it is configured anew, and starts it again when it dies. It does not know commands or the state machine.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_rt::task::JoinHandle;
use shiftboss_actors::clock::Clock;
use shiftboss_actors::file_watcher::WhyLost;
use shiftboss_actors::service::FetcherLinks;
use shiftboss_actors::storage::messages::Perform;
use shiftboss_protocol::answers::FetcherRecord;
use shiftboss_protocol::backoff::Backoff;
use shiftboss_protocol::verbs::RunFetcherAnswer;
use shiftboss_protocol::wire::session::Refused;
use shiftboss_queue::operation::{
    FetcherRecords, ForgetFetcher, NoteFetcher, Request as StoreRequest,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::record;
use crate::config::FetcherTable;
use crate::exit::ExitCode;
use crate::near::did_you_mean;
use crate::schedule::follower::Follower;
use crate::schedule::paths::Changed;
use crate::schedule::scheduler::{Every, Outcome, Run, RunNow, Schedule, StartRun, Status};
use crate::schedule::watch::WatchError;

/// Runs of all fetchers at once; others wait for their turn.
pub const RUNS_MAX: usize = 64;
/// How long storage may take for one request.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Before storage is asked again.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Before something is stored again: a full disk stays full for a while.
const NOTE_RETRY: Duration = Duration::from_secs(5);
/// From a schedule that died to the start of the next: at first, and at the longest.
const RESTART: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// How often a run that waits looks for the input directory.
const LOST_PAUSE: Duration = Duration::from_secs(1);
/// At a stop of the daemon commands get this long from TERM to KILL, whatever their own grace.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Makes the runs of a fetcher.
pub(super) type Runs = Box<dyn Fn(&FetcherTable) -> StartRun>;

/// A schedule that is neither ended nor replaced. If dropped, it is asked to end.
struct Running {
    requests: UnboundedSender<RunNow>,
    status: Status,
}

/// A schedule's life: it ends when nothing of it is left, whether it was stopped or panicked. Aborted, it kills what runs.
type Life = JoinHandle<Result<Option<Outcome>, WatchError>>;

pub(super) struct Supervisor {
    runs: Runs,
    /// The fetchers that are to run; a new value takes the place of the old one.
    wanted: watch::Receiver<Vec<FetcherTable>>,
    /// To storage, which remembers how they are, and to the input directory's watcher.
    links: FetcherLinks,
    /// The wall clock: plans are noted in its time.
    clock: Rc<dyn Clock>,
    running: RefCell<BTreeMap<Arc<str>, Running>>,
    /// The stored record of each fetcher, or the one that must be stored.
    records: RefCell<BTreeMap<Arc<str>, FetcherRecord>>,
    /// Those whose records could not be stored, and will be.
    unsaved: RefCell<HashSet<Arc<str>>>,
    /// Bounds the runs that are on at once.
    places: Semaphore,
    stopping: watch::Sender<bool>,
}

impl Supervisor {
    pub fn new(
        runs: Runs,
        wanted: watch::Receiver<Vec<FetcherTable>>,
        links: FetcherLinks,
        clock: Rc<dyn Clock>,
    ) -> Self {
        Self {
            runs,
            wanted,
            links,
            clock,
            running: RefCell::default(),
            records: RefCell::default(),
            unsaved: RefCell::default(),
            places: Semaphore::new(RUNS_MAX),
            stopping: watch::Sender::new(false),
        }
    }

    /// Ends all fetchers; [`Supervisor::run`] ends when nothing of them runs.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Learns what ran before this process, then follows what is wanted, until it is stopped.
    pub async fn run(self: Rc<Self>) {
        tokio::select! {
            () = self.recall() => {}
            () = self.stopped() => return,
        }
        let mut wanted = self.wanted.clone();
        let (mut keepers, mut kept) = (JoinSet::new(), HashSet::new());
        while !*self.stopping.borrow() {
            for table in wanted.borrow_and_update().iter() {
                if kept.insert(table.list.name.shared()) {
                    keepers.spawn_local(Rc::clone(&self).keep(table.list.name.shared()));
                }
            }
            self.forget_all_but(&kept);
            tokio::select! {
                Some(ended) = keepers.join_next() => match ended {
                    Ok(name) => _ = kept.remove(&name),
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                },
                // Without a sender the wanted set can no longer change.
                Ok(()) = wanted.changed() => {}
                () = self.stopped() => {}
            }
        }
        while keepers.join_next().await.is_some() {}
    }

    async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender is ours: it is there.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    async fn recall(&self) {
        loop {
            match ask(&self.links.known, FetcherRecords).await {
                Ok(records) => {
                    let by_name = |record: FetcherRecord| (Arc::clone(&record.name), record);
                    self.records.borrow_mut().extend(records.into_iter().map(by_name));
                    return;
                }
                Err(error) => {
                    warn!(error, "It is not known when the fetchers ran last; asking again.");
                    sleep(STORE_RETRY).await;
                }
            }
        }
    }

    /// Has one fetcher run as long as it is wanted. Returns its name.
    async fn keep(self: Rc<Self>, name: Arc<str>) -> Arc<str> {
        let mut wanted = self.wanted.clone();
        let mut restarts = Backoff::new(RESTART[0], RESTART[1]);
        let mut is_changed = false;
        loop {
            let table = of_name(&wanted.borrow_and_update(), &name).cloned();
            let Some(table) = table.filter(|_| !*self.stopping.borrow()) else {
                return name;
            };
            let mut life = self.start(&table, is_changed);
            is_changed = tokio::select! {
                _ = &mut life => false,
                true = other_than(&mut wanted, &table) => true,
                () = self.stopped() => true,
            };
            let running = self.running.borrow_mut().remove(&name);
            if is_changed {
                drop(running);
                self.end(life).await;
                continue;
            }
            if running.is_some_and(|running| running.status.runs > 0) {
                restarts.reset();
            }
            let delay = restarts.next_delay();
            warn!(name = &*name, restart_in = ?delay, "A fetcher's schedule ended by itself; it is started again.");
            tokio::select! {
                () = sleep(delay) => {}
                Ok(()) = wanted.changed() => {}
                () = self.stopped() => {}
            }
        }
    }

    /// Starts a fetcher's schedule.
    fn start(self: &Rc<Self>, table: &FetcherTable, is_changed: bool) -> Life {
        let trees = table.on_change.as_ref().and_then(|on_change| {
            // The configuration was refused if it has a faulty glob.
            let trees = on_change.watch.trees(&on_change.paths);
            trees.inspect_err(|error| error!(%error, "Nothing is watched.")).ok()
        });
        let (name, clock) = (table.list.name.shared(), Rc::clone(&self.clock));
        let unknown = || record::new(Arc::clone(&name));
        let mut records = self.records.borrow_mut();
        let record = records.entry(Arc::clone(&name)).or_insert_with(unknown);
        let first = record::first_due(table, record, is_changed, clock.now());
        let (supervisor, noted) = (Rc::clone(self), Arc::clone(&name));
        let (of_turn, turns, start) = (Arc::clone(&name), Rc::clone(self), (self.runs)(table));
        let start = move |changed, stop| {
            let (name, start) = (Arc::clone(&of_turn), Rc::clone(&start));
            Box::pin(Rc::clone(&turns).in_turn(name, start, changed, stop)) as Run
        };
        let schedule = Schedule {
            name: name.to_string(),
            timing: table.timing(),
            every: table.list.every.zip(first).map(|(period, first)| Every { period, first }),
            start: Rc::new(start),
            // A tree may come later than the daemon.
            watch: trees.map(|trees| Follower::of_trees(trees, true)),
            observer: Box::new(move |status| supervisor.note(&noted, status)),
            clock,
        };
        let due = first.map_or("on change".to_owned(), |first| {
            format!("in {}", humantime::format_duration(Duration::from_secs(first.as_secs())))
        });
        info!(name = &*name, due, "The daemon runs this fetcher.");
        let (requests, received) = unbounded_channel();
        let running = Running { requests, status: Status::default() };
        self.running.borrow_mut().insert(name, running);
        actix_rt::spawn(schedule.run(received))
    }

    /// Waits until nothing is left of a schedule that was asked to end.
    async fn end(&self, mut life: Life) {
        let too_long = async {
            self.stopped().await;
            sleep(STOP_GRACE).await;
        };
        tokio::select! {
            _ = &mut life => return,
            () = too_long => life.abort(),
        }
        let _ = life.await;
    }

    /// Notes the state of a fetcher. A run that is broken off has not ended: it must still be done.
    fn note(self: &Rc<Self>, name: &Arc<str>, status: &Status) {
        match self.running.borrow_mut().get_mut(name) {
            Some(running) if !*self.stopping.borrow() => running.status = status.clone(),
            _ => return,
        }
        if let Some(record) = self.records.borrow_mut().get_mut(name) {
            record::update(record, status);
        }
        self.save(name);
    }

    /// Forgets the records of others: they no longer run.
    fn forget_all_but(self: &Rc<Self>, kept: &HashSet<Arc<str>>) {
        let gone = |name: &Arc<str>, _: &mut FetcherRecord| !kept.contains(name);
        let gone: Vec<_> = self.records.borrow_mut().extract_if(.., gone).collect();
        for (name, _) in gone {
            info!(name = &*name, "The daemon does not run this fetcher any more; its list stays.");
            self.save(&name);
        }
    }

    /// Stores a fetcher's record, or that it no longer exists; later, if that fails.
    fn save(self: &Rc<Self>, name: &Arc<str>) {
        let (supervisor, name) = (Rc::clone(self), Arc::clone(name));
        actix_rt::spawn(async move {
            while let Err(error) = supervisor.store(&name).await {
                if !supervisor.unsaved.borrow_mut().insert(Arc::clone(&name)) {
                    return;
                }
                let name = &*name;
                warn!(name, error, "The state of the fetcher could not be stored; trying again.");
                sleep(NOTE_RETRY).await;
                supervisor.unsaved.borrow_mut().remove(name);
            }
        });
    }

    /// Sends storage how a fetcher is now.
    async fn store(&self, name: &str) -> Result<(), String> {
        let record = self.records.borrow().get(name).cloned();
        match record {
            Some(record) => ask(&self.links.note, NoteFetcher(record)).await,
            None => ask(&self.links.forget, ForgetFetcher(name.into())).await,
        }
    }

    /// A run of a fetcher, which waits until it may begin: not too many others run, the input directory is
    /// there, and it is on disk that it begins, so that one that a crash breaks off is known to be still to be done.
    async fn in_turn(
        self: Rc<Self>,
        name: Arc<str>,
        start: StartRun,
        changed: Changed,
        mut stop: oneshot::Receiver<()>,
    ) -> Outcome {
        let ready = async {
            self.input_is_there(&name).await;
            self.places.acquire().await
        };
        let _place = tokio::select! {
            place = ready => place,
            _ = &mut stop => {
                let text = "stopped while it waited for its turn";
                return Outcome::new(ExitCode::Unavailable as u8, text);
            }
        };
        if !*self.stopping.borrow() {
            // The schedule has noted the run by now. One that cannot be stored is done all the same: of that
            // `save` warns.
            let _ = self.store(&name).await;
        }
        start(changed, stop).await
    }

    /// Waits while the input directory is lost: if a list were put into another directory, that would be taken for the
    /// input, without everyone else's lists.
    async fn input_is_there(&self, name: &str) {
        let mut is_warned = false;
        // Without an answer the daemon stops in a moment.
        while let Ok(Some(reason)) = self.links.why_lost.send(WhyLost).await {
            if !is_warned {
                warn!(name, reason, "The run waits for the input directory, which is lost.");
                is_warned = true;
            }
            sleep(LOST_PAUSE).await;
        }
    }

    pub fn run_now(&self, name: &str) -> Result<RunFetcherAnswer, Refused> {
        let wanted = self.wanted.borrow();
        if of_name(&wanted, name).is_none() {
            let near = did_you_mean(name, wanted.iter().map(|table| table.list.name.as_str()));
            return Err(Refused::unknown(format!("the daemon runs no fetcher {name}{near}")));
        }
        let all = self.running.borrow();
        let Some(running) = all.get(name).filter(|_| !*self.stopping.borrow()) else {
            return Err(Refused::busy(format!("{name} is just being started or ended")));
        };
        if running.status.run_started.is_some() {
            return Err(Refused::busy(format!("a run of {name} is on")));
        }
        info!(name, "An operator asked for a run.");
        let _ = running.requests.send(RunNow);
        let state = running.status.state.clone();
        Ok(RunFetcherAnswer { fetcher: name.to_owned(), state })
    }
}

fn of_name<'a>(tables: &'a [FetcherTable], name: &str) -> Option<&'a FetcherTable> {
    tables.iter().find(|table| table.list.name.as_str() == name)
}

/// Resolves when the wanted table differs from this one: with false if there is no sender left.
async fn other_than(wanted: &mut watch::Receiver<Vec<FetcherTable>>, table: &FetcherTable) -> bool {
    let is_other = |tables: &Vec<_>| of_name(tables, table.list.name.as_str()) != Some(table);
    wanted.wait_for(is_other).await.is_ok()
}

/// Asks storage; an error is for the log.
async fn ask<R: StoreRequest>(
    storage: &Recipient<Perform<R>>,
    request: R,
) -> Result<R::Answer, String> {
    let answer = storage.send(Perform(request)).timeout(STORE_TIMEOUT).await;
    answer.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
