//! What the tests of the supervisor use: fake runs, a queue in memory, a paused clock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use actix::prelude::*;
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::file_watcher::WhyLost;
use shiftboss_actors::service::FetcherLinks;
use shiftboss_actors::testing::MockStore;
use shiftboss_protocol::answers::FetcherRecord;
use shiftboss_queue::operation::{FetcherRecords, Outcome};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::super::supervisor::Supervisor;
use crate::config::FetcherTable;
use crate::schedule::scheduler::{Outcome as Ended, StartRun};

pub const SECOND: Duration = Duration::from_secs(1);

/// What the runs do, and what was seen of them.
#[derive(Default)]
pub struct Seen {
    /// Which fetcher's run began when, in seconds.
    pub began: RefCell<Vec<(String, u64)>>,
    /// Each run that is on has a clone.
    on: Rc<()>,
    pub takes: Cell<Duration>,
    /// How the first runs end; the others end well.
    pub codes: RefCell<VecDeque<u8>>,
    /// Whether runs look, as they begin, at whether that is noted; and what they saw.
    pub looks: Cell<bool>,
    pub noted: RefCell<Vec<bool>>,
    pub panics: Cell<u32>,
    pub ignores_stop: Cell<bool>,
    /// Where the fetchers are noted.
    pub mock: MockStore,
    /// The input directory is lost.
    pub lost: Cell<bool>,
    /// By how much the wall clock was set.
    pub clock_step: Arc<AtomicI64>,
}

impl Seen {
    pub fn on(&self) -> usize {
        Rc::strong_count(&self.on) - 1
    }

    fn records(&self) -> Vec<FetcherRecord> {
        match self.mock.others_do(FetcherRecords.into()) {
            Outcome::FetcherRecords(records) => records,
            other => panic!("{other:?}"),
        }
    }
}

/// Fake runs, without commands.
fn fakes(name: String, origin: Instant, inner: Rc<Seen>) -> StartRun {
    Rc::new(move |_, stop| {
        let (inner, name) = (Rc::clone(&inner), name.clone());
        if inner.panics.get() > 0 {
            inner.panics.set(inner.panics.get() - 1);
            panic!("on demand");
        }
        Box::pin(async move {
            inner.began.borrow_mut().push((name, origin.elapsed().as_secs()));
            let _on = Rc::clone(&inner.on);
            if inner.looks.get() {
                let noted = inner.records().iter().any(|record| record.run_started.is_some());
                inner.noted.borrow_mut().push(noted);
            }
            let exit_code = inner.codes.borrow_mut().pop_front().unwrap_or(0);
            let message = "message".to_owned();
            tokio::select! {
                () = sleep(inner.takes.get()) => Ended::new(exit_code, message),
                _ = stop, if !inner.ignores_stop.get() => Ended::new(143, message),
            }
        })
    })
}

/// Who knows whether the input directory is lost.
struct Watcher(Rc<Seen>);

impl Actor for Watcher {
    type Context = Context<Self>;
}

impl Handler<WhyLost> for Watcher {
    type Result = Option<String>;

    fn handle(&mut self, _: WhyLost, _: &mut Self::Context) -> Self::Result {
        self.0.lost.get().then(|| "told to".to_owned())
    }
}

/// A wall clock that goes with the paused clock, and can be set.
pub struct Wall {
    begin: i64,
    origin: Instant,
    step: Arc<AtomicI64>,
}

impl Clock for Wall {
    fn millis(&self) -> i64 {
        let gone = i64::try_from(self.origin.elapsed().as_millis()).unwrap();
        (self.begin + self.step.load(Ordering::Relaxed)) * 1_000 + gone
    }

    fn boot_time(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A supervisor, with its inputs and what was observed.
pub struct Scene {
    pub seen: Rc<Seen>,
    pub want: watch::Sender<Vec<FetcherTable>>,
    pub supervisor: Rc<Supervisor>,
    life: JoinHandle<()>,
}

/// A fetcher that runs every 100 seconds.
pub fn every(name: &str) -> FetcherTable {
    with(name, "")
}

pub fn with(name: &str, more: &str) -> FetcherTable {
    let text = format!("name = '{name}'\ncommand = ['x']\nevery = '100s'\n{more}");
    crate::config::tests::keys(&text)
}

impl Scene {
    /// A supervisor with these fetchers, whose runs behave as prescribed.
    pub fn new(tables: Vec<FetcherTable>, told: impl FnOnce(&Seen)) -> Self {
        tokio::time::pause();
        let seen = Rc::new(Seen::default());
        told(&seen);
        let (storage, _) = seen.mock.start();
        let links = FetcherLinks {
            note: storage.clone().recipient(),
            known: storage.clone().recipient(),
            forget: storage.recipient(),
            why_lost: Watcher(Rc::clone(&seen)).start().recipient(),
        };
        let (want, wanted) = watch::channel(tables);
        let (origin, shared) = (Instant::now(), Rc::clone(&seen));
        let runs = move |table: &FetcherTable| {
            fakes(table.list.name.as_str().to_owned(), origin, Rc::clone(&shared))
        };
        let step = Arc::clone(&seen.clock_step);
        let clock = Rc::new(Wall { begin: SystemClock.now(), origin, step });
        let supervisor = Rc::new(Supervisor::new(Box::new(runs), wanted, links, clock));
        let life = actix::spawn(Rc::clone(&supervisor).run());
        Self { seen, want, supervisor, life }
    }

    /// Stops all, and waits until nothing runs.
    pub async fn stop(&mut self) {
        self.supervisor.stop();
        (&mut self.life).await.unwrap();
    }

    pub fn began(&self) -> Vec<(String, u64)> {
        self.seen.began.borrow().clone()
    }

    pub fn record(&self, name: &str) -> FetcherRecord {
        self.seen.records().into_iter().find(|record| &*record.name == name).unwrap()
    }
}

pub fn runs(of: &[(&str, u64)]) -> Vec<(String, u64)> {
    of.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
}
