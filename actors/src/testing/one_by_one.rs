//! A store's operations, asked one by one: each is a batch, and so a transaction, of its own.
//!
//! For tests and benchmarks of stores. The names are those of the operations.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::store::{
    AcceptEntries, AcceptedEntries, Ack, AddRows, AddTask, Added, BeginDeletion, Bump, Bumped,
    CancelTasks, Cancelled, Checkpoint, Complete, CompleteAttempt, CountInFlight, DeleteRuns,
    Dispatch, Dispatched, EntryId, Expire, ExpiredLease, FetcherRecord, FetcherRecords,
    ForgetAccepted, ForgetFetcher, HasWork, Heartbeat, Held, Hold, LeaseHolder, Leases,
    NoteFetcher, Operation, Outcome, Prune, RegisterRun, Registered, RejectFile, Rejected, Release,
    Request, Requeue, Requeued, Retried, Retry, RowBatch, Runs, SetPaused, SpoolEntry, Store,
    StoreError, StoreResult, StoredRun, Undo, Unhold, WhyIdle,
};
use shiftboss_protocol::model::{Attempt, Idle, Key, Row, Run, UnixSeconds};

/// Awaits what a store answers, or what is done on another thread. Inside a runtime only a store that answers at once
/// can be asked so.
///
/// # Panics
/// When it does not, and when there can be no runtime.
pub fn wait_for<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        // A thread of its own goes on with what a store does beside its calls.
        static RUNTIME: Runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    }
    if Handle::try_current().is_ok() {
        let answer = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
        return match answer {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("this store does not answer at once"),
        };
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// See the module's documentation.
#[allow(missing_docs, clippy::missing_errors_doc)] // Those of the operations.
pub trait OneByOne: Store {
    fn apply_at_once(
        &mut self,
        now: UnixSeconds,
        batch: Vec<Operation>,
    ) -> StoreResult<Vec<Result<Outcome, Rejected>>> {
        wait_for(self.apply(now.saturating_mul(1_000), batch))
    }

    fn ask<R: Request>(&mut self, now: UnixSeconds, request: R) -> StoreResult<R::Answer> {
        let mut batch = Vec::new();
        request.push(&mut batch);
        R::answer(&mut self.apply_at_once(now, batch)?.into_iter())
    }

    fn dispatch(
        &mut self,
        now: UnixSeconds,
        holder: Option<&LeaseHolder>,
    ) -> StoreResult<Dispatched> {
        self.ask(now, Dispatch { holder: holder.cloned(), fetchers: None })
    }

    fn finish(&mut self, key: &Key, exit_code: i64, now: UnixSeconds) -> StoreResult<()> {
        self.ask(now, Complete { key: key.clone(), exit_code })
    }

    fn finish_attempt(
        &mut self,
        attempt: Attempt,
        exit_code: i64,
        now: UnixSeconds,
    ) -> StoreResult<Ack> {
        self.ask(now, CompleteAttempt { attempt, exit_code })
    }

    fn release(&mut self, attempt: Attempt, now: UnixSeconds) -> StoreResult<Ack> {
        self.ask(now, Release(attempt))
    }

    fn is_leased(&mut self, attempt: Attempt) -> StoreResult<bool> {
        self.ask(0, Heartbeat(attempt)).map(|ack| ack == Ack::Recorded)
    }

    fn expire(&mut self, attempt: Attempt, now: UnixSeconds) -> StoreResult<Option<ExpiredLease>> {
        self.ask(now, Expire(attempt))
    }

    fn undo(&mut self, key: &Key, attempt: Attempt) -> StoreResult<bool> {
        self.ask(0, Undo { key: key.clone(), attempt })
    }

    fn hold(&mut self, key: &Key, seconds: Option<u32>, now: UnixSeconds) -> StoreResult<Held> {
        let (key, reason, by) = (key.clone(), "it is broken".to_owned(), "eve".into());
        self.ask(now, Hold { key, seconds, reason, by })
    }

    fn unhold(&mut self, key: &Key, now: UnixSeconds) -> StoreResult<bool> {
        self.ask(now, Unhold(key.clone()))
    }

    fn bump(&mut self, key: &Key, now: UnixSeconds) -> StoreResult<Bumped> {
        self.ask(now, Bump { key: key.clone(), by: "eve".into() })
    }

    fn retry(&mut self, key: &Key, fetcher: Option<&str>) -> StoreResult<Retried> {
        self.ask(0, Retry { key: key.clone(), fetcher: fetcher.map(Into::into) })
    }

    fn requeue(&mut self, key: &Key, now: UnixSeconds) -> StoreResult<Requeued> {
        self.ask(now, Requeue(key.clone()))
    }

    fn set_paused(&mut self, paused: bool) -> StoreResult<()> {
        self.ask(0, SetPaused(paused)).map(|_| ())
    }

    fn register_run(&mut self, run: &Run) -> StoreResult<StoredRun> {
        match self.ask(0, RegisterRun(run.clone()))? {
            Registered::Run(stored) => Ok(stored),
            Registered::Elsewhere(why) => Err(StoreError::Rejected(why)),
        }
    }

    fn add_rows(&mut self, rows: &RowBatch) -> StoreResult<()> {
        self.ask(0, AddRows(rows.clone()))
    }

    fn prune(&mut self, run: &Run, limit: usize) -> StoreResult<bool> {
        self.ask(0, Prune { run: run.clone(), limit })
    }

    fn begin_deletion(&mut self, run: &Run) -> StoreResult<()> {
        self.ask(0, BeginDeletion(run.clone()))
    }

    fn delete_runs(&mut self, runs: &[Run], limit: usize) -> StoreResult<usize> {
        self.ask(0, DeleteRuns { runs: runs.to_vec(), limit })
    }

    fn reject_file(&mut self, name: &str, reason: &str, now: UnixSeconds) -> StoreResult<()> {
        self.ask(now, RejectFile { name: name.to_owned(), reason: reason.to_owned() })
    }

    fn add_task(&mut self, task: &Row, now: UnixSeconds) -> StoreResult<Added> {
        self.ask(now, AddTask { task: task.clone(), id: None })
    }

    fn cancel_tasks(&mut self, key: &Key, now: UnixSeconds) -> StoreResult<Cancelled> {
        self.ask(now, CancelTasks(key.clone()))
    }

    fn accept(&mut self, entries: &[SpoolEntry], now: UnixSeconds) -> StoreResult<Vec<Added>> {
        self.ask(now, AcceptEntries(entries.to_vec()))
    }

    fn forget_accepted(&mut self, id: &EntryId) -> StoreResult<()> {
        self.ask(0, ForgetAccepted(id.clone()))
    }

    fn note_fetcher(&mut self, record: &FetcherRecord) -> StoreResult<()> {
        self.ask(0, NoteFetcher(record.clone()))
    }

    fn forget_fetcher(&mut self, name: &str) -> StoreResult<()> {
        self.ask(0, ForgetFetcher(name.into()))
    }

    fn runs(&mut self) -> StoreResult<Vec<StoredRun>> {
        self.ask(0, Runs)
    }

    fn leases(&mut self) -> StoreResult<Vec<(Attempt, u32)>> {
        self.ask(0, Leases)
    }

    fn has_work(&mut self, now: UnixSeconds) -> StoreResult<bool> {
        self.ask(now, HasWork)
    }

    fn in_flight(&mut self, now: UnixSeconds) -> StoreResult<u64> {
        self.ask(now, CountInFlight)
    }

    fn why_idle(&mut self, now: UnixSeconds) -> StoreResult<Idle> {
        self.ask(now, WhyIdle)
    }

    fn accepted(&mut self) -> StoreResult<Vec<EntryId>> {
        self.ask(0, AcceptedEntries)
    }

    fn fetcher_records(&mut self) -> StoreResult<Vec<FetcherRecord>> {
        self.ask(0, FetcherRecords)
    }

    fn maintain_at_once(&mut self) -> StoreResult<Checkpoint> {
        wait_for(self.maintain())
    }

    fn close_at_once(&mut self) -> StoreResult<()> {
        wait_for(self.close())
    }
}

impl<S: Store + ?Sized> OneByOne for S {}
