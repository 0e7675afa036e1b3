//! The FetchersActor: keeps the fetchers that run equal to those that are wanted, and what is noted of
//! them equal to how they are.
//!
//! [`super::Fetchers`] starts it. A [`Fetcher`] is what is wanted and what runs. Whatever happens (a new
//! configuration, an end, a death) ends in [`FetchersActor::settle`], which makes the two agree. It knows
//! no command and no machine.

use std::collections::{BTreeMap, HashSet};
use std::mem::take;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::clock::Clock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::refused::Refused;
use shiftboss_actors::service::{FetcherLinks, RunFetcher};
use shiftboss_actors::storage::messages::Perform;
use shiftboss_actors::store::{
    FetcherRecord, FetcherRecords, ForgetFetcher, NoteFetcher, Request as StoreRequest,
};
use tokio::sync::{Semaphore, oneshot, watch};
use tracing::{error, info, warn};

use super::begin::{Begin, NotedRuns, RUNS_MAX, noted};
use super::fetcher::{self, Fetcher};
use super::record;
use crate::config::FetcherTable;
use crate::fetch::ListName;
use crate::near::did_you_mean;
use crate::schedule::scheduler::{Request, StartRun, Status};

/// How long storage may take for one request.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Before storage is asked again.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Before something is stored again: a full disk stays full for a while.
const NOTE_RETRY: Duration = Duration::from_secs(5);
/// At a stop of the daemon commands get this long from TERM to KILL, whatever their own grace.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Makes what a fetcher runs.
pub(super) type MakeRuns = Box<dyn Fn(&FetcherTable) -> StartRun>;

/// Ends all fetchers; answered when nothing of them runs. The actor ends then.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct StopAll;

/// How a fetcher's machine is now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Noted {
    name: ListName,
    status: Status,
}

/// What a FetchersActor is made of.
pub(super) struct SupervisorParts {
    pub runs: MakeRuns,
    /// The fetchers that are to run; a new value takes the place of the old one.
    pub wanted: watch::Receiver<Vec<FetcherTable>>,
    /// To storage, which remembers how they are, and to the input directory's watcher.
    pub links: FetcherLinks,
    /// The wall clock: what is planned is noted in its time.
    pub clock: Rc<dyn Clock>,
    /// Its silence ends the process.
    pub _exit_notifier: ExitNotifier<String>,
}

pub(super) struct FetchersActor {
    parts: SupervisorParts,
    fetchers: BTreeMap<ListName, Fetcher>,
    /// What is stored, or is to be.
    records: BTreeMap<Arc<str>, FetcherRecord>,
    /// Bounds the runs that are on at once.
    running: Arc<Semaphore>,
    /// Those whose records could not be stored, and will be.
    unsaved: HashSet<Arc<str>>,
    /// Who waits for the end at a stop; it goes with this.
    stopping: Option<oneshot::Sender<()>>,
}

impl FetchersActor {
    /// An actor that starts what is wanted once it knows what ran before.
    pub fn new(parts: SupervisorParts) -> Self {
        Self {
            parts,
            fetchers: BTreeMap::new(),
            records: BTreeMap::new(),
            running: Arc::new(Semaphore::new(RUNS_MAX)),
            unsaved: HashSet::new(),
            stopping: None,
        }
    }

    /// Learns what ran before this process, then follows what is wanted.
    fn recall(&mut self, ctx: &mut Context<Self>) {
        let known = ask(&self.parts.links.known, FetcherRecords);
        ctx.spawn(known.into_actor(self).map(|known, act, ctx| match known {
            Ok(records) => {
                let by_name = |record: FetcherRecord| (Arc::clone(&record.name), record);
                act.records = records.into_iter().map(by_name).collect();
                act.follow(ctx);
            }
            Err(error) => {
                warn!(error, "It is not known when the fetchers ran last; asking again.");
                ctx.run_later(STORE_RETRY, Self::recall);
            }
        }));
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
        self.fetchers.values_mut().for_each(|fetcher| fetcher.wanted = None);
        for table in tables {
            let fetcher = self.fetchers.entry(table.name.clone()).or_default();
            fetcher.wanted = Some(table);
        }
        let wanted: HashSet<_> = self.fetchers.keys().map(ListName::shared).collect();
        let known = self.records.keys().filter(|name| !wanted.contains(*name));
        for name in known.cloned().collect::<Vec<_>>() {
            self.forget(name, ctx);
        }
        for name in self.fetchers.keys().cloned().collect::<Vec<_>>() {
            self.settle(&name, ctx);
        }
    }

    /// Makes what runs agree with what is wanted. What agrees goes on undisturbed.
    fn settle(&mut self, name: &ListName, ctx: &mut Context<Self>) {
        let Some(fetcher) = self.fetchers.get_mut(name).filter(|_| self.stopping.is_none()) else {
            return;
        };
        match (&fetcher.running, &fetcher.wanted) {
            (Some(running), Some(table)) if running.table == *table => {}
            (Some(_), wanted) => {
                fetcher.is_changed = wanted.is_some();
                fetcher.end();
            }
            (None, Some(table)) => {
                let table = table.clone();
                self.start(name, table, ctx);
            }
            (None, None) => {
                self.fetchers.remove(name);
                self.forget(name.shared(), ctx);
            }
        }
    }

    fn start(&mut self, name: &ListName, table: FetcherTable, ctx: &mut Context<Self>) {
        let unknown = || record::new(name.shared());
        let record = self.records.entry(name.shared()).or_insert_with(unknown);
        let Some(fetcher) = self.fetchers.get_mut(name) else {
            return;
        };
        let is_changed = take(&mut fetcher.is_changed);
        let first = record::first_due(&table, record, is_changed, self.parts.clock.now());
        let start = noted(NotedRuns {
            name: name.clone(),
            start: (self.parts.runs)(&table),
            begin: ctx.address().recipient(),
            why_lost: self.parts.links.why_lost.clone(),
            running: Arc::clone(&self.running),
        });
        let (noter, actor) = (name.clone(), ctx.address());
        let observer = Box::new(move |status: &Status| {
            actor.do_send(Noted { name: noter.clone(), status: status.clone() });
        });
        let clock = Rc::clone(&self.parts.clock);
        let (running, life) = match fetcher::start(table, first, start, observer, clock) {
            Ok(started) => started,
            Err(error) => return error!(name = name.as_str(), %error, "It cannot run."),
        };
        let due = first.map_or("on change".to_owned(), |first| {
            format!("in {}", humantime::format_duration(Duration::from_secs(first.as_secs())))
        });
        info!(name = name.as_str(), due, "The daemon runs this fetcher.");
        fetcher.running = Some(running);
        let ended = name.clone();
        ctx.spawn(life.into_actor(self).map(move |_, act, ctx| act.ended(&ended, ctx)));
    }

    /// Nothing of a fetcher runs any more: it was ended, or it died.
    fn ended(&mut self, name: &ListName, ctx: &mut Context<Self>) {
        if let Some(fetcher) = self.fetchers.get_mut(name) {
            if fetcher.running.take().is_some_and(|running| running.is_ending) {
                self.settle(name, ctx);
            } else {
                let delay = fetcher.restarts.next_delay();
                warn!(name = name.as_str(), restart_in = ?delay, "A fetcher's schedule ended by itself; it is started again.");
                let name = name.clone();
                ctx.run_later(delay, move |act, ctx| act.settle(&name, ctx));
            }
        }
        self.finish(ctx);
    }

    /// At a stop: all is over once nothing runs.
    fn finish(&mut self, ctx: &mut Context<Self>) {
        if self.stopping.is_some() && self.fetchers.values().all(|of| of.running.is_none()) {
            ctx.stop();
        }
    }

    /// A fetcher is run no more.
    fn forget(&mut self, name: Arc<str>, ctx: &mut Context<Self>) {
        info!(name = &*name, "The daemon does not run this fetcher any more; its list stays.");
        self.records.remove(&name);
        self.save(name, ctx);
    }

    /// Stores how a fetcher is, or that it is none any more; later, if that fails.
    fn save(&mut self, name: Arc<str>, ctx: &mut Context<Self>) {
        let links = &self.parts.links;
        let saved: Pin<Box<dyn Future<Output = Result<(), String>>>> = match self.records.get(&name)
        {
            Some(record) => Box::pin(ask(&links.note, NoteFetcher(record.clone()))),
            None => Box::pin(ask(&links.forget, ForgetFetcher(Arc::clone(&name)))),
        };
        ctx.spawn(saved.into_actor(self).map(move |saved, act, ctx| {
            let Err(error) = saved else { return };
            if !act.unsaved.insert(Arc::clone(&name)) {
                return;
            }
            warn!(
                name = &*name,
                error, "The state of the fetcher could not be stored; trying again."
            );
            ctx.run_later(NOTE_RETRY, move |act, ctx| {
                act.unsaved.remove(&name);
                act.save(name, ctx);
            });
        }));
    }
}

/// Asks storage; an error is for the log.
fn ask<R: StoreRequest>(
    storage: &Recipient<Perform<R>>,
    request: R,
) -> impl Future<Output = Result<R::Answer, String>> + use<R> {
    let answer = storage.send(Perform(request)).timeout(STORE_TIMEOUT);
    async {
        match answer.await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Actor for FetchersActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.recall(ctx);
    }
}

impl Handler<RunFetcher> for FetchersActor {
    type Result = Result<String, Refused>;

    fn handle(&mut self, RunFetcher(name): RunFetcher, _: &mut Self::Context) -> Self::Result {
        let wanted = self.parts.wanted.borrow();
        let names = || wanted.iter().map(|table| table.name.as_str());
        let Some(table) = wanted.iter().find(|table| table.name.as_str() == &*name) else {
            let near = did_you_mean(&name, names());
            return Err(Refused::unknown(&format!("the daemon runs no fetcher {name}{near}")));
        };
        let fetcher = self.fetchers.get_mut(&table.name).filter(|_| self.stopping.is_none());
        let Some(running) = fetcher.and_then(Fetcher::lasting) else {
            return Err(Refused::busy(format!("{name} is just being started or ended")));
        };
        if running.is_on {
            return Err(Refused::busy(format!("a run of {name} is on")));
        }
        info!(name = &*name, "An operator asked for a run.");
        let _ = running.requests.send(Request::Run);
        let state = self.records.get(&name).map_or("", |record| &record.state);
        Ok(serde_json::json!({"fetcher": &*name, "state": state}).to_string())
    }
}

impl Handler<StopAll> for FetchersActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: StopAll, ctx: &mut Self::Context) -> Self::Result {
        // What is noted from now on would say that a run ended which was broken off.
        let (waiter, over) = oneshot::channel();
        self.stopping = Some(waiter);
        self.fetchers.values_mut().for_each(Fetcher::end);
        ctx.run_later(STOP_GRACE, |act, _| {
            let running = act.fetchers.values().filter_map(|fetcher| fetcher.running.as_ref());
            running.for_each(|running| running.life.abort());
        });
        self.finish(ctx);
        Box::pin(async move {
            // It is dropped when all is over.
            let _ = over.await;
        })
    }
}

impl Handler<Noted> for FetchersActor {
    type Result = ();

    fn handle(&mut self, Noted { name, status }: Noted, ctx: &mut Self::Context) {
        let fetcher = self.fetchers.get_mut(&name).filter(|_| self.stopping.is_none());
        let Some(fetcher) = fetcher else { return };
        // A run that is broken off has not ended: it is still to be done.
        let Some(running) = fetcher.lasting() else { return };
        running.is_on = status.run_started.is_some();
        if status.runs > 0 {
            fetcher.restarts.reset();
        }
        if let Some(record) = self.records.get_mut(name.as_str()) {
            record::update(record, &status);
            self.save(name.shared(), ctx);
        }
    }
}

impl Handler<Begin> for FetchersActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Begin(name): Begin, _: &mut Self::Context) -> Self::Result {
        // That the run is on is in the record; it is noted once more, and waited for.
        let record = self.records.get(name.as_str()).filter(|_| self.stopping.is_none()).cloned();
        let noted = record.map(|record| ask(&self.parts.links.note, NoteFetcher(record)));
        Box::pin(async move {
            if let Some(noted) = noted {
                // Should it fail, `save` warns of it.
                let _ = noted.await;
            }
        })
    }
}
