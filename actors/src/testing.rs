//! A store for the actors' tests: it records what it is asked, hands out what it is given, and fails
//! or panics when it is told to. Clones share it, so that a test can look at it from outside.

mod fetcher_runs;
mod tasks;
mod until;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::{Attempt, Idle, Job, Key, Position, Run, UnixSeconds};
use crate::store::{
    Batch, Checkpoint, Dispatch, EntryId, FetcherRecord, Holder, InputDirectory, Lost, Requeued,
    Store, StoreError, StoreResult, StoredRun, Told,
};
pub use until::until;

/// What the next call of a kind does instead of its work.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// None yet: this call does its work.
    None,
    /// It fails.
    Error(StoreError),
    /// It fails, and the transaction with it.
    EndOfTransaction(StoreError),
    /// It panics.
    Panic,
    /// It takes until the receiver's other end is gone, as in a system call.
    Hang(Arc<Mutex<std::sync::mpsc::Receiver<()>>>),
}

/// The mock's inside.
#[derive(Default)]
pub struct Inside {
    /// All calls, in order: the name, and what it was about.
    pub calls: Vec<String>,
    /// Jobs to be handed out.
    pub jobs: VecDeque<Job>,
    /// Troubles by call name, one a call.
    pub troubles: BTreeMap<&'static str, VecDeque<Trouble>>,
    /// Runs, with positions as stored.
    pub runs: BTreeMap<Run, StoredRun>,
    /// Keys of all rows added, by run.
    pub rows: Vec<(Run, String)>,
    /// Attempts undone.
    pub undone: Vec<Attempt>,
    /// Leased attempts, with their jobs and leases.
    pub held: BTreeMap<Attempt, (Job, u32)>,
    /// Accepted entries of spools.
    pub accepted: Vec<EntryId>,
    /// So many jobs may wait when a task is added.
    pub tasks_max: Option<usize>,
    /// What was noted of the daemon's own fetchers.
    pub fetchers: BTreeMap<String, FetcherRecord>,
    /// Files set aside.
    pub aside: Vec<String>,
    attempts: i64,
    open: bool,
    uncommitted: VecDeque<Job>,
}

/// A store that can be looked at while an actor owns it.
#[derive(Clone, Default)]
pub struct MockStore(Arc<Mutex<Inside>>);

impl MockStore {
    /// The inside; a panic in the mock does not lock it away.
    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A mock with jobs for the given keys.
    pub fn with_jobs(keys: &[&str]) -> Self {
        let mock = Self::default();
        let job = |key: &&str| Job { key: Key::new(key).unwrap(), payload: "1".to_owned() };
        mock.inside().jobs = keys.iter().map(job).collect();
        mock
    }

    /// Makes the next call of that name go wrong, after those told before.
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
        match trouble {
            None | Some(Trouble::None) => Ok(()),
            Some(Trouble::Error(error)) => Err(error),
            Some(Trouble::EndOfTransaction(error)) => {
                inside.open = false;
                Err(error)
            }
            Some(Trouble::Panic) => {
                drop(inside);
                panic!("the mock was told to panic");
            }
            Some(Trouble::Hang(until)) => {
                drop(inside);
                let _ = until.lock().map(|until| until.recv());
                Ok(())
            }
        }
    }
}

impl Store for MockStore {
    fn begin(&mut self) -> StoreResult<()> {
        self.called("begin", "")?;
        self.inside().open = true;
        Ok(())
    }

    fn commit(&mut self) -> StoreResult<()> {
        let result = self.called("commit", "");
        let mut inside = self.inside();
        inside.open = false;
        let uncommitted = std::mem::take(&mut inside.uncommitted);
        if result.is_err() {
            for job in uncommitted.into_iter().rev() {
                inside.jobs.push_front(job);
            }
        }
        result
    }

    fn in_transaction(&self) -> bool {
        self.inside().open
    }

    fn runs(&mut self) -> StoreResult<Vec<StoredRun>> {
        self.called("runs", "")?;
        Ok(self.inside().runs.values().cloned().collect())
    }

    fn register_run(&mut self, run: &Run) -> StoreResult<StoredRun> {
        self.called("register", &run.to_string())?;
        let new = StoredRun {
            run: run.clone(),
            complete: false,
            position: None,
            rows: 0,
            deleting: false,
            stale: false,
        };
        let stored = self.inside().runs.entry(run.clone()).or_insert(new).clone();
        if stored.deleting {
            return Err(StoreError::Rejected(format!("run {run} is being deleted")));
        }
        Ok(stored)
    }

    fn add_rows(&mut self, batch: &Batch) -> StoreResult<()> {
        self.called("add", &format!("{} {}", batch.run, batch.rows.len()))?;
        let mut inside = self.inside();
        for row in &batch.rows {
            inside.rows.push((batch.run.clone(), row.key.to_string()));
            inside.jobs.push_back(Job { key: row.key.clone(), payload: row.payload.clone() });
        }
        if let Some(stored) = inside.runs.get_mut(&batch.run) {
            stored.complete = batch.complete;
            stored.position = Some(batch.position);
        }
        Ok(())
    }

    fn prune(&mut self, run: &Run, _limit: usize) -> StoreResult<bool> {
        self.called("prune", &run.to_string())?;
        Ok(false)
    }

    fn begin_deletion(&mut self, run: &Run) -> StoreResult<()> {
        self.called("mark", &run.to_string())?;
        if let Some(stored) = self.inside().runs.get_mut(run) {
            stored.deleting = true;
        }
        Ok(())
    }

    fn delete_runs(&mut self, runs: &[Run], _limit: usize) -> StoreResult<usize> {
        let Some(run) = runs.first() else { return Ok(0) };
        self.called("delete", &run.to_string())?;
        let mut inside = self.inside();
        // Three steps a run, told by how many calls there were.
        let call = format!("delete {run}");
        let steps = inside.calls.iter().filter(|known| **known == call).count();
        if steps % 3 != 0 {
            return Ok(0);
        }
        inside.runs.remove(run);
        Ok(1)
    }

    fn dispatch(&mut self, _now: UnixSeconds, holder: Option<&Holder>) -> StoreResult<Dispatch> {
        self.called("dispatch", holder.map_or("", |holder| &holder.worker))?;
        let mut inside = self.inside();
        let Some(job) = inside.jobs.pop_front() else {
            return Ok(Dispatch::Nothing);
        };
        inside.attempts += 1;
        inside.uncommitted.push_back(job.clone());
        let attempt = Attempt(inside.attempts);
        if let Some(holder) = holder {
            inside.held.insert(attempt, (job.clone(), holder.lease_seconds));
        }
        Ok(Dispatch::Job(attempt, job))
    }

    fn finish(&mut self, key: &Key, exit_code: i64, _now: UnixSeconds) -> StoreResult<()> {
        self.called("finish", &format!("{key} {exit_code}"))
    }

    fn finish_and_dispatch(
        &mut self,
        key: &Key,
        exit_code: i64,
        now: UnixSeconds,
    ) -> StoreResult<Dispatch> {
        self.finish(key, exit_code, now)?;
        self.dispatch(now, None)
    }

    fn undo(&mut self, _key: &Key, attempt: Attempt) -> StoreResult<bool> {
        self.called("undo", &attempt.0.to_string())?;
        self.inside().undone.push(attempt);
        Ok(true)
    }

    fn finish_attempt(
        &mut self,
        attempt: Attempt,
        exit_code: i64,
        _now: UnixSeconds,
    ) -> StoreResult<Told> {
        self.called("done", &format!("{} {exit_code}", attempt.0))?;
        Ok(self.inside().held.remove(&attempt).map_or(Told::Stale, |_| Told::Recorded))
    }

    fn release(&mut self, attempt: Attempt, _now: UnixSeconds) -> StoreResult<Told> {
        self.called("release", &attempt.0.to_string())?;
        let mut inside = self.inside();
        let Some((job, _)) = inside.held.remove(&attempt) else {
            return Ok(Told::Stale);
        };
        inside.jobs.push_front(job);
        Ok(Told::Recorded)
    }

    fn expire(&mut self, attempt: Attempt, _now: UnixSeconds) -> StoreResult<Option<Lost>> {
        self.called("expire", &attempt.0.to_string())?;
        let mut inside = self.inside();
        let Some((job, _)) = inside.held.remove(&attempt) else {
            return Ok(None);
        };
        inside.jobs.push_front(job.clone());
        Ok(Some(Lost { key: job.key, worker: "mock".into(), dead_letter: false, single: false }))
    }

    fn has_work(&mut self, _now: UnixSeconds) -> StoreResult<bool> {
        Ok(!self.inside().jobs.is_empty())
    }

    fn is_held(&mut self, attempt: Attempt) -> StoreResult<bool> {
        self.called("held", &attempt.0.to_string())?;
        Ok(self.inside().held.contains_key(&attempt))
    }

    fn leases(&mut self) -> StoreResult<Vec<(Attempt, u32)>> {
        Ok(self.inside().held.iter().map(|(attempt, (_, lease))| (*attempt, *lease)).collect())
    }

    fn in_flight(&mut self, _now: UnixSeconds) -> StoreResult<u64> {
        Ok(self.inside().held.len() as u64)
    }

    fn why_idle(&mut self, _now: UnixSeconds) -> StoreResult<Idle> {
        let held = self.inside().held.len();
        Ok(if held == 0 { Idle::Nothing } else { Idle::Busy(held as u32) })
    }

    fn retry(&mut self, key: &Key, _fetcher: Option<&str>) -> StoreResult<Option<u64>> {
        self.called("retry", key.as_str())?;
        Ok(None)
    }

    fn requeue(&mut self, key: &Key, _now: UnixSeconds) -> StoreResult<Requeued> {
        self.called("requeue", key.as_str())?;
        let held =
            self.inside().held.iter().find(|(_, (job, _))| job.key == *key).map(|held| *held.0);
        let Some(attempt) = held else {
            return Ok(Requeued::NotInFlight);
        };
        self.release(attempt, 0).map(|_| Requeued::Back(attempt))
    }

    fn set_paused(&mut self, paused: bool) -> StoreResult<()> {
        self.called("pause", if paused { "yes" } else { "no" })
    }

    fn set_aside(&mut self, name: &str, reason: &str, _now: UnixSeconds) -> StoreResult<()> {
        self.called("aside", name)?;
        self.inside().aside.push(format!("{name}: {reason}"));
        Ok(())
    }

    fn clear_aside(&mut self, name: &str) -> StoreResult<()> {
        self.called("clear", name)?;
        self.inside().aside.retain(|known| !known.starts_with(name));
        Ok(())
    }

    fn note_input(&mut self, input: &InputDirectory, _now: UnixSeconds) -> StoreResult<()> {
        self.called("lost", if matches!(input, InputDirectory::Lost(_)) { "yes" } else { "no" })
    }

    fn idle(&mut self) -> StoreResult<Checkpoint> {
        self.called("idle", "")?;
        Ok(Checkpoint::Complete)
    }

    fn close(&mut self) -> StoreResult<()> {
        self.called("close", "")
    }
}

/// A position at the start of nothing.
pub fn position() -> Position {
    Position::default()
}
