//! The naive model as a store: what the actors' tests run on, and what every other store is compared with.
//!
//! It keeps everything in memory and answers at once. A test can look at it while an actor owns it, have it
//! fail, panic or hang, and see what it was asked; of the queue itself it knows only what the model does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::describe::describe;
use super::model::{Model, Rules};
use crate::store::{
    Added, Changed, Checkpoint, Dispatched, EntryId, FetcherRecord, Operation, Outcome, Registered,
    Rejected, RowBatch, SpoolEntry, Store, StoreError, StoreFuture, StoreResult, StoredRun,
};
use shiftboss_protocol::model::{Attempt, Row, Run, UnixSeconds};
use shiftboss_queue::record::Millis;

/// What the next call of a kind does instead of its work.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// None yet: this call does its work.
    None,
    /// It fails.
    Error(StoreError),
    /// It panics.
    Panic,
    /// It takes until the receiver's other end is gone, as in a system call.
    Hang(Arc<Mutex<std::sync::mpsc::Receiver<()>>>),
}

/// What the store keeps. A batch that fails puts it back.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The queue.
    pub model: Model,
    /// Runs, with positions as stored.
    pub runs: BTreeMap<Run, StoredRun>,
    /// Keys of all rows added, by run.
    pub rows: Vec<(Run, String)>,
    /// Attempts undone.
    pub undone: Vec<Attempt>,
    /// Lengths of leases, by attempt.
    leases: BTreeMap<Attempt, u32>,
    /// Accepted entries of spools.
    pub accepted: Vec<EntryId>,
    /// What was noted of managed fetchers.
    pub fetchers: BTreeMap<String, FetcherRecord>,
    /// Rejected files.
    pub rejected: Vec<String>,
    /// Fetchers of other daemons, and why this one has them not.
    pub elsewhere: BTreeMap<String, String>,
}

/// The store's inside.
pub struct Inside {
    /// All calls, in order: the name, and what it was about.
    pub calls: Vec<String>,
    /// Troubles by call name, one a call.
    pub troubles: BTreeMap<&'static str, VecDeque<Trouble>>,
    /// The tables.
    pub kept: Kept,
    /// A call is a trip to a server.
    pub is_remote: bool,
    /// How long workers may wait without a look.
    pub look_every: Duration,
    /// Somebody else changed them, and it was not told yet; and who is to be woken then.
    changed: Option<Changed>,
    waker: Option<Waker>,
}

impl Inside {
    fn change(&mut self, changed: Changed) {
        self.changed = Some(changed);
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// A store that can be looked at while an actor owns it; clones share it.
#[derive(Clone)]
pub struct MockStore(Arc<Mutex<Inside>>);

impl Default for MockStore {
    /// An empty queue. Keys that have waited equally long come in the order of their names.
    fn default() -> Self {
        Self::new(Rules { jitter: |_| 0, ..Rules::default() })
    }
}

impl MockStore {
    /// An empty queue with these rules.
    pub fn new(rules: Rules) -> Self {
        let kept = Kept::new(Model::new(rules));
        let (calls, troubles, changed, waker, look_every) = Default::default();
        let inside = Inside { calls, troubles, kept, is_remote: false, look_every, changed, waker };
        Self(Arc::new(Mutex::new(inside)))
    }

    /// A queue with jobs for the given keys.
    pub fn with_jobs(keys: &[&str]) -> Self {
        let mock = Self::default();
        keys.iter().for_each(|key| mock.add_job(key, "1"));
        // They were there before.
        mock.inside().changed = None;
        mock
    }

    /// Somebody else adds a job.
    pub fn add_job(&self, key: &str, payload: &str) {
        let mut inside = self.inside();
        let model = &mut inside.kept.model;
        model.register("mock", 1);
        model.add("mock", 1, &[(key.to_owned(), payload.to_owned())], false);
        inside.change(Changed::Queue);
    }

    /// Another daemon takes a fetcher over, with all its runs, from this one, which is taken for dead and joins anew.
    pub fn lose_fetcher(&self, fetcher: &str, why: &str) {
        let mut inside = self.inside();
        inside.kept.elsewhere.insert(fetcher.to_owned(), why.to_owned());
        inside.kept.runs.retain(|run, _| &*run.fetcher != fetcher);
        inside.change(Changed::Runs);
    }

    /// The queue goes back to what it kept once.
    pub fn restore(&self, kept: Kept) {
        let mut inside = self.inside();
        inside.kept = kept;
        inside.change(Changed::Runs);
    }

    /// A run that an earlier daemon registered, with rows that were handed out.
    pub fn add_run(&self, run: &Run, rows: u64) {
        let kept = &mut self.inside().kept;
        kept.register(run).unwrap();
        kept.runs.get_mut(run).unwrap().rows = rows;
    }

    /// The inside; a panic in the mock does not lock it away.
    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes the next call of that name go wrong, after those asked for before.
    pub fn trouble(&self, call: &'static str, trouble: Trouble) {
        self.inside().troubles.entry(call).or_default().push_back(trouble);
    }

    /// The names of all calls so far.
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

    /// A batch, as one transaction.
    fn transact(
        &self,
        now: UnixSeconds,
        batch: &[Operation],
    ) -> StoreResult<Vec<Result<Outcome, Rejected>>> {
        let before = self.inside().kept.clone();
        let outcomes = self.try_to_transact(now, batch);
        if outcomes.is_err() {
            self.inside().kept = before;
        }
        outcomes
    }

    fn try_to_transact(
        &self,
        now: UnixSeconds,
        batch: &[Operation],
    ) -> StoreResult<Vec<Result<Outcome, Rejected>>> {
        let writes = !batch.iter().all(Operation::only_reads);
        if writes {
            self.called("begin", "")?;
        }
        let mut outcomes = Vec::new();
        for operation in batch {
            let (name, about) = describe(operation);
            let called = if name.is_empty() { Ok(()) } else { self.called(name, &about) };
            outcomes.push(match called {
                Ok(()) => self.inside().kept.perform(now, operation),
                Err(StoreError::Rejected(why)) => Err(Rejected(why)),
                Err(error) => return Err(error),
            });
        }
        if writes {
            self.called("commit", "")?;
        }
        Ok(outcomes)
    }
}

impl Kept {
    fn new(model: Model) -> Self {
        let (runs, leases, fetchers, elsewhere) = Default::default();
        let (rows, undone, accepted, rejected) = Default::default();
        Self { model, runs, rows, undone, leases, accepted, fetchers, rejected, elsewhere }
    }

    fn perform(&mut self, now: UnixSeconds, operation: &Operation) -> Result<Outcome, Rejected> {
        use {Operation as Op, Outcome as Out};
        Ok(match operation {
            Op::RegisterRun(it) => Out::RegisterRun(self.register_here(&it.0)?),
            Op::AddRows(it) => Out::AddRows(self.add(&it.0)?),
            Op::Prune(_) => Out::Prune(false),
            Op::BeginDeletion(it) => Out::BeginDeletion(self.begin_deletion(&it.0)),
            Op::DeleteRuns(it) => Out::DeleteRuns(self.delete(&it.runs, it.limit)),
            Op::RejectFile(it) => {
                self.rejected.push(format!("{}: {}", it.name, it.reason));
                Out::RejectFile(())
            }
            Op::ForgetRejected(it) => {
                self.rejected.retain(|known| !known.starts_with(&it.0));
                Out::ForgetRejected(())
            }
            Op::NoteInput(_) => Out::NoteInput(()),
            Op::AcceptEntries(it) => {
                let accept = |entry| self.accept(now, entry);
                Out::AcceptEntries(it.0.iter().map(accept).collect())
            }
            Op::ForgetAccepted(it) => {
                self.accepted.retain(|known| *known != it.0);
                Out::ForgetAccepted(())
            }
            Op::NoteFetcher(it) => {
                self.fetchers.insert(it.0.name.to_string(), it.0.clone());
                Out::NoteFetcher(())
            }
            Op::ForgetFetcher(it) => {
                self.fetchers.remove(&*it.0);
                Out::ForgetFetcher(())
            }
            Op::Probe(_) => Out::Probe(()),
            Op::Runs(_) => Out::Runs(self.runs.values().cloned().collect()),
            Op::Leases(_) => {
                let leased = self.model.all_leased().into_iter().map(Attempt);
                Out::Leases(leased.map(|attempt| (attempt, self.leases[&attempt])).collect())
            }
            Op::AcceptedEntries(_) => Out::AcceptedEntries(self.accepted.clone()),
            Op::FetcherRecords(_) => Out::FetcherRecords(self.fetchers.values().cloned().collect()),
            queued => self.perform_queued(now, queued),
        })
    }

    /// What is the model's alone.
    fn perform_queued(&mut self, now: UnixSeconds, operation: &Operation) -> Outcome {
        let outcome = self.model.perform(now, operation);
        match (operation, &outcome) {
            (Operation::Dispatch(it), Outcome::Dispatch(Dispatched::Job(attempt, _))) => {
                let length = it.holder.as_ref().map(|holder| (*attempt, holder.lease_seconds));
                self.leases.extend(length);
            }
            (Operation::Undo(it), Outcome::Undo(true)) => self.undone.push(it.attempt),
            _ => {}
        }
        outcome
    }

    fn register_here(&mut self, run: &Run) -> Result<Registered, Rejected> {
        let elsewhere = self.elsewhere.get(&*run.fetcher).cloned().map(Registered::Elsewhere);
        elsewhere.map_or_else(|| self.register(run).map(Registered::Run), Ok)
    }

    fn register(&mut self, run: &Run) -> Result<StoredRun, Rejected> {
        let new = StoredRun {
            run: run.clone(),
            complete: false,
            position: None,
            rows: 0,
            deleting: false,
            stale: false,
        };
        let stored = self.runs.entry(run.clone()).or_insert(new).clone();
        if stored.deleting {
            return Err(Rejected(format!("run {run} is being deleted")));
        }
        self.model.register(&run.fetcher, run.started);
        Ok(stored)
    }

    fn add(&mut self, batch: &RowBatch) -> Result<(), Rejected> {
        let RowBatch { run, rows, complete, position, .. } = batch;
        let Some(stored) = self.runs.get_mut(run).filter(|stored| !stored.deleting) else {
            return Err(Rejected(format!("run {run} is not known")));
        };
        (stored.complete, stored.position) = (*complete, Some(*position));
        let keys = rows.iter().map(|row| (run.clone(), row.key.to_string()));
        self.rows.extend(keys);
        let text = |row: &Row| (row.key.to_string(), row.payload.clone());
        let rows: Vec<_> = rows.iter().map(text).collect();
        self.model.add(&run.fetcher, run.started, &rows, *complete);
        stored.rows = self.model.rows_of(&run.fetcher, run.started);
        Ok(())
    }

    /// From here on its rows are nobody's.
    fn begin_deletion(&mut self, run: &Run) {
        if let Some(stored) = self.runs.get_mut(run) {
            stored.deleting = true;
            self.model.delete(&run.fetcher, run.started);
        }
    }

    /// Steps of a deletion, known by the rows that the run had.
    fn delete(&mut self, runs: &[Run], limit: usize) -> usize {
        let mut left = limit as u64;
        for (gone, run) in runs.iter().enumerate() {
            self.begin_deletion(run);
            let Some(stored) = self.runs.get_mut(run) else { continue };
            if stored.rows >= left {
                stored.rows -= left;
                return gone;
            }
            left -= stored.rows + 1;
            self.runs.remove(run);
        }
        runs.len()
    }

    fn accept(&mut self, now: UnixSeconds, entry: &SpoolEntry) -> Added {
        if self.accepted.contains(&entry.id) {
            return Added::Known;
        }
        let added = self.model.add_task(entry.task.key.as_str(), &entry.task.payload, now);
        if added != Added::Full {
            self.accepted.push(entry.id.clone());
        }
        added
    }
}

impl Store for MockStore {
    fn apply(
        &mut self,
        now: Millis,
        batch: Vec<Operation>,
    ) -> StoreFuture<'_, Vec<Result<Outcome, Rejected>>> {
        Box::pin(async move { self.transact(now.div_euclid(1_000), &batch) })
    }

    fn follow_clock(&mut self, _: Millis, by: Millis) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            match by.div_euclid(1_000) {
                0 => Ok(()),
                by => self.called("follow clock", &by.to_string()),
            }
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

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        Box::pin(async { self.called("idle", "").map(|()| Checkpoint::Complete) })
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.called("close", "") })
    }
}
