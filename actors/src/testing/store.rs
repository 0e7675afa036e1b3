//! The queue's engine over records in memory, as a store: what the actors' tests run on. It has no rules of its own.
//!
//! A test can look at it while an actor owns it, see its calls, have it fail, panic or hang, and change the queue as
//! another process would.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use actix::prelude::*;
use shiftboss_protocol::model::{Attempt, Key, Row, Run, UnixSeconds};
use shiftboss_queue::attempt;
use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::REJECTED;
use shiftboss_queue::engine::Engine;
use shiftboss_queue::look::{Look, Opens};
use shiftboss_queue::reader::{ReadError, ReadResult};
use shiftboss_queue::record::Millis;
use shiftboss_queue::records::at_once;
use shiftboss_queue::testing::{Kept, Memory};
use tokio::sync::oneshot;

use super::ManualClock;
use super::calls::describe;
use crate::storage::StorageActor;
use crate::store::{Changed, Checkpoint, Store, StoreFuture};
use shiftboss_queue::error::{Rejected, StoreError, StoreResult};
use shiftboss_queue::operation::{
    AddRows, AddTask, DeleteRuns, JobEnd, Operation, Outcome, RegisterRun, Registered, RowBatch,
    Runs, Stop, StoredRun,
};

/// What the clocks of the actors' tests show, in seconds.
const NOW: i64 = 100;

type Outcomes = Vec<Result<Outcome, Rejected>>;

/// What the next call of a given name does instead of its work.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// No trouble: this call does its work.
    None,
    Error(StoreError),
    Panic,
    /// It blocks, as in a system call, until the receiver's other end is gone.
    Hang(Arc<Mutex<std::sync::mpsc::Receiver<()>>>),
}

impl Trouble {
    pub fn full() -> Self {
        Self::Error(StoreError::Full("disk".to_owned()))
    }

    pub fn busy() -> Self {
        Self::Error(StoreError::Busy("no".to_owned()))
    }
}

pub struct Inside {
    /// All calls, in order: the name, and what it was about.
    pub calls: Vec<String>,
    /// Troubles by call name, one a call.
    pub troubles: BTreeMap<&'static str, VecDeque<Trouble>>,
    /// Keys of all rows that were added, in order, also of those that are gone.
    pub added: Vec<String>,
    /// Fetchers of other daemons, and why this one does not have them.
    pub elsewhere: BTreeMap<String, String>,
    /// A call is a trip to a server.
    pub is_remote: bool,
    /// How long workers may wait without a look.
    pub look_every: Duration,
    engine: Engine<Memory>,
    settings: Settings,
    /// A change by another process that was not reported yet, and the task to wake.
    changed: Option<Changed>,
    waker: Option<Waker>,
}

impl Inside {
    fn new(settings: Settings) -> Self {
        let engine = Engine::new(Memory::default(), settings.clone());
        Self {
            calls: Vec::new(),
            troubles: BTreeMap::new(),
            added: Vec::new(),
            elsewhere: BTreeMap::new(),
            is_remote: false,
            look_every: Duration::ZERO,
            engine,
            settings,
            changed: None,
            waker: None,
        }
    }

    /// The queue itself.
    pub fn kept(&self) -> &Kept {
        self.engine.store().kept()
    }

    /// A copy of it, to be [restored](MockStore::restore).
    pub fn backup(&self) -> Memory {
        self.engine.store().clone()
    }

    fn change(&mut self, changed: Changed) {
        self.changed = Some(changed);
        self.waker.take().into_iter().for_each(Waker::wake);
    }

    /// Carries out a batch without noting it.
    fn perform(&mut self, now: Millis, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        // Records in memory are available at once.
        at_once(self.engine.apply(now, batch)).unwrap()
    }
}

/// A store that can be looked at while an actor owns it; clones share it.
#[derive(Clone)]
pub struct MockStore(Arc<Mutex<Inside>>);

impl Default for MockStore {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl MockStore {
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Mutex::new(Inside::new(settings))))
    }

    pub fn with_jobs(keys: &[&str]) -> Self {
        let mock = Self::default();
        keys.iter().for_each(|key| mock.add_job(key, "1"));
        // They count as having been there before.
        mock.inside().changed = None;
        mock
    }

    /// A StorageActor over it, and a receiver for its end.
    pub fn start(&self) -> (Addr<StorageActor>, oneshot::Receiver<StoreResult<()>>) {
        let (tell_end, end) = oneshot::channel();
        let (store, clock) = (Box::new(self.clone()), Box::new(ManualClock::at(NOW)));
        (StorageActor::new(store, clock, Default::default(), tell_end).start(), end)
    }

    /// Another process adds a job.
    pub fn add_job(&self, key: &str, payload: &str) {
        let task = Row { key: Key::new(key).unwrap(), payload: payload.to_owned() };
        self.others_do(AddTask { task, id: None }.into());
        self.inside().change(Changed::Queue);
    }

    /// Another process has a job stop.
    pub fn stop(&self, key: &str) {
        self.others_do(Stop(Key::new(key).unwrap()).into());
        self.inside().change(Changed::Queue);
    }

    /// Another daemon takes a fetcher over, with all its runs, from this one, which is taken for dead and joins anew.
    pub fn lose_fetcher(&self, fetcher: &str, why: &str) {
        let runs = self.runs().into_iter().map(|stored| stored.run);
        let runs = runs.filter(|run| &*run.fetcher == fetcher).collect();
        self.others_do(DeleteRuns { runs, limit: usize::MAX }.into());
        let mut inside = self.inside();
        inside.elsewhere.insert(fetcher.to_owned(), why.to_owned());
        inside.change(Changed::Runs);
    }

    pub fn restore(&self, backup: Memory) {
        let mut inside = self.inside();
        inside.engine = Engine::new(backup.reopened(), inside.settings.clone());
        inside.change(Changed::Runs);
    }

    /// A run that an earlier daemon registered, with `rows` rows.
    pub fn add_run(&self, run: &Run, rows: usize) {
        self.others_do(RegisterRun(run.clone()).into());
        let row = |at| Row { key: Key::stored(&format!("row{at}")), payload: "1".to_owned() };
        let rows = RowBatch::of(run.clone(), (0..rows).map(row).collect());
        self.others_do(AddRows(rows).into());
    }

    /// Something happens to the queue without the actor.
    pub fn others_do(&self, operation: Operation) -> Outcome {
        self.inside().perform(NOW * 1_000, vec![operation]).unwrap().remove(0).unwrap()
    }

    pub fn runs(&self) -> Vec<StoredRun> {
        match self.others_do(Runs.into()) {
            Outcome::Runs(runs) => runs,
            other => panic!("{other:?}"),
        }
    }

    pub fn undone(&self) -> Vec<Attempt> {
        let inside = self.inside();
        let ended = inside.kept().ended.values();
        let undone = ended.filter(|it| it.outcome == attempt::Outcome::Undone);
        undone.map(|it| it.attempt).collect()
    }

    /// Rejected files, as `name: reason`.
    pub fn rejected(&self) -> Vec<String> {
        let inside = self.inside();
        let documents = inside.kept().documents.iter();
        let noted = documents.filter(|(name, _)| name.starts_with(REJECTED.name()));
        let noted = noted.filter_map(|(name, text)| REJECTED.read(name, text));
        noted.map(|(name, file)| format!("{name}: {}", file.reason)).collect()
    }

    /// The inside; a panic in the mock does not lock it away.
    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes the next call of that name go wrong, after those asked for before.
    pub fn trouble(&self, call: &'static str, trouble: Trouble) {
        self.inside().troubles.entry(call).or_default().push_back(trouble);
    }

    /// How often that call was made, with what it was about.
    pub fn count(&self, call: &str) -> usize {
        self.inside().calls.iter().filter(|known| *known == call).count()
    }

    pub fn calls(&self) -> Vec<String> {
        self.inside().calls.clone()
    }

    fn called(&self, name: &'static str, about: &str) -> StoreResult<()> {
        let mut inside = self.inside();
        inside.calls.push(format!("{name} {about}").trim_end().to_owned());
        let trouble = inside.troubles.get_mut(name).and_then(VecDeque::pop_front);
        drop(inside);
        match trouble {
            None | Some(Trouble::None) => Ok(()),
            Some(Trouble::Error(error)) => Err(error),
            Some(Trouble::Panic) => panic!("the mock was asked to panic"),
            Some(Trouble::Hang(until)) => {
                let _ = until.lock().map(|until| until.recv());
                Ok(())
            }
        }
    }

    /// Carries out a batch, unless one of its steps has trouble: then nothing of it happens. A rejected step is left
    /// out.
    fn transact(&self, now: Millis, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let writes = !batch.iter().all(Operation::only_reads);
        if writes {
            self.called("begin", "")?;
        }
        let (mut answered, mut asked) = (Vec::new(), Vec::new());
        for operation in batch {
            let answer = self.answer(&operation)?;
            if answer.is_none() {
                asked.push(operation);
            }
            answered.push(answer);
        }
        if writes {
            self.called("commit", "")?;
        }
        let mut inside = self.inside();
        let rows: Vec<_> = asked.iter().map(rows_of).collect();
        let outcomes = inside.perform(now, asked)?;
        let added = rows.into_iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
        inside.added.extend(added.flat_map(|(rows, _)| rows));
        let mut outcomes = outcomes.into_iter();
        Ok(answered.into_iter().filter_map(|mine| mine.or_else(|| outcomes.next())).collect())
    }

    /// Notes an operation; returns its answer if the queue need not be asked.
    fn answer(&self, operation: &Operation) -> StoreResult<Option<Result<Outcome, Rejected>>> {
        let (name, about) = describe(operation);
        if !name.is_empty() {
            match self.called(name, &about) {
                Err(StoreError::Rejected(why)) => return Ok(Some(Err(Rejected(why)))),
                called => called?,
            }
        }
        let Operation::RegisterRun(RegisterRun(run)) = operation else { return Ok(None) };
        let why = self.inside().elsewhere.get(&*run.fetcher).cloned();
        Ok(why.map(|why| Ok(Outcome::RegisterRun(Registered::Elsewhere(why)))))
    }
}

fn rows_of(operation: &Operation) -> Vec<String> {
    match operation {
        Operation::AddRows(it) => it.0.rows.iter().map(|row| row.key.to_string()).collect(),
        _ => Vec::new(),
    }
}

impl Store for MockStore {
    fn apply(&mut self, now: Millis, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(async move { self.transact(now, batch) })
    }

    fn follow_clock(&mut self, now: Millis, by: Millis) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if by != 0 {
                self.called("follow clock", &by.div_euclid(1_000).to_string())?;
            }
            at_once(self.inside().engine.follow_clock(now, by)).unwrap()
        })
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        let mut inside = self.inside();
        if let Some(changed) = inside.changed.take() {
            return Poll::Ready(changed);
        }
        inside.waker = Some(task.waker().clone());
        Poll::Pending
    }

    fn is_remote(&self) -> bool {
        self.inside().is_remote
    }

    fn look_every(&self) -> Duration {
        self.inside().look_every
    }

    fn classic_lease(&self) -> Option<u32> {
        self.inside().settings.lease_seconds.try_into().ok()
    }

    fn take_ends(&mut self) -> Vec<JobEnd> {
        self.inside().engine.take_ends()
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        Box::pin(async { self.called("idle", "").map(|()| Checkpoint::Complete) })
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.called("close", "") })
    }
}

impl Opens for MockStore {
    type Found = Memory;

    fn ask<T>(
        &self,
        now: UnixSeconds,
        question: impl AsyncFnOnce(&mut Look<'_, Memory>) -> Result<T, Infallible>,
    ) -> ReadResult<T> {
        self.called("read", "").map_err(|error| ReadError::Failed(error.to_string()))?;
        let mut copy = self.inside().backup();
        let asked = async { question(&mut Look::at(&mut copy, now).await?).await };
        let Ok(answer) = at_once(asked).unwrap();
        Ok(answer)
    }
}
