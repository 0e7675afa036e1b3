//! The FetchersActor: keeps the fetchers that run equal to those that are wanted, and what is noted of
//! them equal to how they are.
//!
//! [`super::Fetchers`] starts it. A fetcher has a *slot*: what is wanted and what runs. Whatever happens (a new
//! configuration, an end, a death) ends in [`FetchersActor::settle`], which makes the two agree. It knows
//! no command and no machine.

mod notes;
mod slot;
mod steps;

use std::collections::{BTreeMap, HashSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::clock::Clock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::file_watcher::WhyLost;
use shiftboss_actors::reports::ReportError;
use shiftboss_actors::service::{RunFetcher, ServiceLinks};
use shiftboss_actors::storage::messages::Perform;
use shiftboss_actors::store::{FetcherRecord, FetcherRecords, ForgetFetcher, NoteFetcher};
use tokio::sync::{Semaphore, oneshot, watch};
use tracing::{error, info, warn};

use super::begin::{NotedRuns, RUNS_MAX};
use super::child;
use super::record;
use crate::change::runs::Runs;
use crate::config::FetcherTable;
use crate::fetch::ListName;
use crate::near::did_you_mean;
use notes::Noter;
use slot::Slot;
use steps::{LOOK_AT_CLOCK, Steps};

/// How long storage may take for one request.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before storage is asked again.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// At a stop of the daemon commands get this long from TERM to KILL, whatever their own grace.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Makes what a fetcher runs.
pub(super) type MakeRuns = Box<dyn Fn(&FetcherTable) -> Box<dyn Runs>>;

/// Ends all fetchers; answered when nothing of them runs. The actor ends then.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct StopAll;

/// Where it is noted how fetchers are.
pub(super) struct Memory {
    pub note: Recipient<Perform<NoteFetcher>>,
    pub known: Recipient<Perform<FetcherRecords>>,
    pub forget: Recipient<Perform<ForgetFetcher>>,
    /// Whether lists can be put into the input directory.
    pub why_lost: Recipient<WhyLost>,
}

impl From<ServiceLinks> for Memory {
    fn from(links: ServiceLinks) -> Self {
        let ServiceLinks { note_fetcher, known_fetchers, forget_fetcher, why_lost, .. } = links;
        Self { note: note_fetcher, known: known_fetchers, forget: forget_fetcher, why_lost }
    }
}

/// What a FetchersActor is made of.
pub(super) struct SupervisorParts {
    pub runs: MakeRuns,
    /// The fetchers that are to run; a new value takes the place of the old one.
    pub wanted: watch::Receiver<Vec<FetcherTable>>,
    pub memory: Memory,
    /// The wall clock: what is planned is noted in its time.
    pub clock: Box<dyn Clock>,
    /// Its silence ends the process.
    pub _exit_notifier: ExitNotifier<String>,
}

/// See the module.
pub(super) struct FetchersActor {
    parts: SupervisorParts,
    slots: BTreeMap<ListName, Slot>,
    /// What is noted, or is to be.
    records: BTreeMap<Arc<str>, FetcherRecord>,
    /// For runs that are on at once.
    places: Arc<Semaphore>,
    /// Tells steps of the wall clock.
    steps: Steps,
    is_stopping: bool,
    /// Those who wait for the end; dropped then.
    waiters: Vec<oneshot::Sender<()>>,
}

impl FetchersActor {
    /// An actor that starts what is wanted once it knows what ran before.
    pub fn new(parts: SupervisorParts) -> Self {
        let (slots, records) = (BTreeMap::new(), BTreeMap::new());
        let places = Arc::new(Semaphore::new(RUNS_MAX));
        let steps = Steps::from(&*parts.clock);
        Self { parts, slots, records, places, steps, is_stopping: false, waiters: Vec::new() }
    }

    /// Learns what ran before this process, then follows what is wanted.
    fn recall(&mut self, ctx: &mut Context<Self>) {
        let known = self.parts.memory.known.send(Perform(FetcherRecords)).timeout(STORE_TIMEOUT);
        ctx.spawn(known.into_actor(self).map(|known, act, ctx| match known {
            Ok(Ok(records)) => {
                let by_name = |record: FetcherRecord| (Arc::clone(&record.name), record);
                act.records = records.into_iter().map(by_name).collect();
                act.follow(ctx);
            }
            Ok(Err(error)) => act.recall_later(&error.to_string(), ctx),
            Err(error) => act.recall_later(&error.to_string(), ctx),
        }));
    }

    fn recall_later(&mut self, error: &str, ctx: &mut Context<Self>) {
        warn!(error, "It is not known when the fetchers ran last; asking again.");
        ctx.run_later(STORE_RETRY, Self::recall);
    }

    fn follow(&mut self, ctx: &mut Context<Self>) {
        let tables = self.parts.wanted.borrow_and_update().clone();
        self.want(tables, ctx);
        let mut wanted = self.parts.wanted.clone();
        let next = async move { wanted.changed().await };
        ctx.spawn(next.into_actor(self).map(|changed, act, ctx| {
            // Else nobody is left who could want anything else.
            if changed.is_ok() {
                act.follow(ctx);
            }
        }));
    }

    /// These are to run, and no others.
    fn want(&mut self, tables: Vec<FetcherTable>, ctx: &mut Context<Self>) {
        self.slots.values_mut().for_each(|slot| slot.wanted = None);
        for table in tables {
            let slot = self.slots.entry(table.name.clone()).or_default();
            slot.wanted = Some(table);
        }
        let wanted: HashSet<_> = self.slots.keys().map(ListName::shared).collect();
        let known = self.records.keys().filter(|name| !wanted.contains(*name));
        for name in known.cloned().collect::<Vec<_>>() {
            self.forget(name, ctx);
        }
        for name in self.slots.keys().cloned().collect::<Vec<_>>() {
            self.settle(&name, ctx);
        }
    }

    /// Makes what runs agree with what is wanted. What agrees goes on undisturbed.
    fn settle(&mut self, name: &ListName, ctx: &mut Context<Self>) {
        let Some(slot) = self.slots.get_mut(name).filter(|_| !self.is_stopping) else {
            return;
        };
        match (&slot.child, &slot.wanted) {
            (Some(child), Some(table)) if child.table == *table => {}
            (Some(_), wanted) => {
                slot.is_changed = wanted.is_some();
                slot.end(ctx);
            }
            (None, Some(table)) => {
                let table = table.clone();
                self.start(name, table, ctx);
            }
            (None, None) => {
                self.slots.remove(name);
                self.forget(name.shared(), ctx);
            }
        }
    }

    fn start(&mut self, name: &ListName, table: FetcherTable, ctx: &mut Context<Self>) {
        let unknown = || record::new(name.shared());
        let record = self.records.entry(name.shared()).or_insert_with(unknown);
        let is_changed = self.slots.get_mut(name).is_some_and(|slot| take(&mut slot.is_changed));
        let wait = record::first_due(&table, record, is_changed, self.parts.clock.now());
        let observer = Box::new(Noter::new(name, ctx.address().recipient()));
        let runs = self.noted_runs(name, &table, ctx);
        let (child, life) = match child::start(table, runs, observer) {
            Ok(started) => started,
            Err(error) => return error!(name = name.as_str(), %error, "It cannot run."),
        };
        let due = wait.map_or("on change".to_owned(), |wait| {
            format!("in {}", humantime::format_duration(Duration::from_secs(wait.as_secs())))
        });
        info!(name = name.as_str(), due, "The daemon runs this fetcher.");
        if let Some(slot) = self.slots.get_mut(name) {
            (slot.child, slot.is_ending) = (Some(child), false);
        }
        let ended = name.clone();
        ctx.spawn(life.into_actor(self).map(move |(), act, ctx| act.ended(&ended, ctx)));
        if let Some(wait) = wait {
            self.set_clock(name, wait, ctx);
        }
    }

    fn noted_runs(
        &self,
        name: &ListName,
        table: &FetcherTable,
        ctx: &mut Context<Self>,
    ) -> Box<dyn Runs> {
        Box::new(NotedRuns {
            name: name.clone(),
            runs: (self.parts.runs)(table),
            begin: ctx.address().recipient(),
            why_lost: self.parts.memory.why_lost.clone(),
            places: Arc::clone(&self.places),
        })
    }

    /// Has the next run by the clock be due after `wait`, and not before.
    fn set_clock(&mut self, name: &ListName, wait: Duration, ctx: &mut Context<Self>) {
        let Some(slot) = self.slots.get_mut(name) else {
            return;
        };
        let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
        let (due, at) = (name.clone(), self.parts.clock.now().saturating_add(seconds));
        let timer = ctx.run_later(wait, move |act, ctx| act.due(&due, ctx));
        slot.stop_clock(ctx);
        slot.clock = Some((timer, at));
    }

    /// Its time has come. While a run is on that costs it its turn.
    fn due(&mut self, name: &ListName, ctx: &mut Context<Self>) {
        self.wind_clock(name, ctx);
        if let Some(child) = self.slots.get(name).and_then(|slot| slot.child.as_ref()) {
            child.due();
        }
        let at = self.slots.get(name).and_then(Slot::due_at);
        if let Some(record) = self.records.get_mut(name.as_str()) {
            record.next_run = at;
            self.save(name, ctx);
        }
    }

    /// From now on it is `every` until the next run by the clock.
    fn wind_clock(&mut self, name: &ListName, ctx: &mut Context<Self>) {
        let child = self.slots.get(name).and_then(|slot| slot.child.as_ref());
        if let Some(every) = child.and_then(|child| child.table.every) {
            self.set_clock(name, every, ctx);
        }
    }

    /// Nothing of a fetcher runs any more: it was ended, or it died.
    fn ended(&mut self, name: &ListName, ctx: &mut Context<Self>) {
        if let Some(slot) = self.slots.get_mut(name) {
            let was_ending = slot.is_ending;
            slot.clear(ctx);
            if was_ending {
                self.settle(name, ctx);
            } else {
                let delay = slot.restart_delay();
                warn!(name = name.as_str(), restart_in = ?delay, "A fetcher's actor ended by itself; it is started anew.");
                let name = name.clone();
                ctx.run_later(delay, move |act, ctx| act.settle(&name, ctx));
            }
        }
        self.finish(ctx);
    }

    /// At a stop: all is over once nothing runs.
    fn finish(&mut self, ctx: &mut Context<Self>) {
        if self.is_stopping && self.slots.values().all(|slot| slot.child.is_none()) {
            self.waiters.clear();
            ctx.stop();
        }
    }
}

impl Actor for FetchersActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.recall(ctx);
        ctx.run_interval(LOOK_AT_CLOCK, Self::follow_clock);
    }
}

impl Handler<RunFetcher> for FetchersActor {
    type Result = Result<String, ReportError>;

    fn handle(&mut self, RunFetcher(name): RunFetcher, _: &mut Self::Context) -> Self::Result {
        let wanted = self.parts.wanted.borrow();
        let names = || wanted.iter().map(|table| table.name.as_str());
        let Some(table) = wanted.iter().find(|table| table.name.as_str() == &*name) else {
            let near = did_you_mean(&name, names());
            return Err(ReportError::Unknown(format!("the daemon runs no fetcher {name}{near}")));
        };
        let slot = self.slots.get(&table.name).filter(|slot| !slot.is_ending && !self.is_stopping);
        let Some((slot, child)) = slot.and_then(|slot| Some((slot, slot.child.as_ref()?))) else {
            return Err(ReportError::Unavailable(format!("{name} is just being started or ended")));
        };
        if slot.is_running {
            return Err(ReportError::Unavailable(format!("a run of {name} is on")));
        }
        info!(name = &*name, "An operator's order: a run.");
        child.due();
        let state = self.records.get(&name).map_or("", |record| &record.state);
        Ok(serde_json::json!({"fetcher": &*name, "state": state}).to_string())
    }
}

impl Handler<StopAll> for FetchersActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: StopAll, ctx: &mut Self::Context) -> Self::Result {
        // What is noted from now on would say that a run ended which was broken off.
        self.is_stopping = true;
        self.slots.values_mut().for_each(|slot| slot.end(ctx));
        ctx.run_later(STOP_GRACE, |act, _| {
            act.slots.values().filter_map(|slot| slot.child.as_ref()).for_each(child::Child::kill);
        });
        let (waiter, over) = oneshot::channel();
        self.waiters.push(waiter);
        self.finish(ctx);
        Box::pin(async move {
            // It is dropped when all is over.
            let _ = over.await;
        })
    }
}
