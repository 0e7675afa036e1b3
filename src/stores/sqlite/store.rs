//! The port [`Store`]: a batch is one transaction, and each operation is one call of the module that knows
//! how.
//!
//! Called by the StorageActor, on whose thread everything here is done before it returns.

use std::collections::BTreeMap;
use std::future::ready;
use std::path::PathBuf;
use std::task::{Context, Poll};

use rusqlite::{Connection, Result};
use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::{
    Changed, Checkpoint, JobEnd, Operation, Outcome, Rejected, RelayAnswer, Relayed, Store,
    StoreError, StoreFuture, StoreResult,
};
use shiftboss_protocol::model::UnixSeconds;

use super::changes::Changes;
use super::error::classify;
use super::lock_yielding::LockYielding;
use super::options::Durability;
use super::partitions::Partitions;
use super::query::Query;
use super::records::{is_paused, state};
use super::relays::Standing;
use super::session::{Queue, Session};
use super::{damage, file};

/// The queue in one SQLite file.
pub struct SqliteStore {
    pub(super) connection: Connection,
    pub(super) queue: Queue,
    /// The files that were opened: the database, its log, and the log's index.
    pub(super) files: Vec<(PathBuf, file::Identity)>,
    pub(super) changes: Changes,
    pub(super) lock_yielding: LockYielding,
    pub(super) durability: Durability,
    pub(super) was_clean: bool,
}

impl SqliteStore {
    /// Whether nothing is handed out until an operator says so.
    pub(crate) fn is_paused(&self) -> bool {
        self.queue.paused
    }

    /// Whether the last daemon closed this database, rather than being killed.
    pub(crate) fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Which directory the input directory is; `None` on a database that no daemon has noted it in.
    pub(crate) fn input_directory(&self) -> StoreResult<Option<DirectoryIdentity>> {
        let noted = state(&self.connection, "input_directory").map_err(classify)?;
        Ok(noted.as_deref().and_then(DirectoryIdentity::parse))
    }
}

/// What came of each operation of a batch.
type Outcomes = Vec<Result<Outcome, Rejected>>;
/// Operations that were rejected half-way, by their place in the batch; those of a relay, by that of its batch first.
type RejectedAt = BTreeMap<(Option<usize>, usize), Rejected>;

impl Store for SqliteStore {
    fn apply(&mut self, now: UnixSeconds, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(ready(self.apply_now(now, &batch)))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        self.changes.poll(&self.connection, task).map(|()| Changed::Queue)
    }

    fn follow_clock(&mut self, now: UnixSeconds, by: i64) -> StoreResult<()> {
        self.move_due_times(now, by).map_err(classify)
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        Box::pin(ready(self.run_maintenance()))
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(ready(self.close_file().map_err(classify)))
    }

    fn take_ends(&mut self) -> Vec<JobEnd> {
        // The counts of a fetcher whose name cannot be read are lost; nothing else is.
        self.queue.counters.hours.take_ends(&self.connection).unwrap_or_default()
    }
}

impl SqliteStore {
    /// [`Store::apply`], at once.
    ///
    /// # Errors
    /// As there.
    pub fn apply_now(&mut self, now: UnixSeconds, batch: &[Operation]) -> StoreResult<Outcomes> {
        let outcomes = self.apply_synced(now, batch);
        if let (Err(StoreError::Corrupt(fault)), Some((database, _))) =
            (&outcomes, self.files.first())
        {
            // At once: the process may be killed before it has ended.
            damage::mark(database, fault);
        }
        outcomes
    }

    fn apply_synced(&mut self, now: UnixSeconds, batch: &[Operation]) -> StoreResult<Outcomes> {
        if batch.iter().all(Operation::only_reads) {
            let mut session = self.session();
            let mut rejected = RejectedAt::new();
            let read = session.perform_each(now, None, batch, &mut rejected)?;
            return read.ok_or_else(|| {
                StoreError::Rejected(rejected.into_values().map(|why| why.0).collect())
            });
        }
        if !batch.iter().any(|operation| matches!(operation, Operation::AcceptEntries(_))) {
            return self.transact(now, batch);
        }
        // Who offered them removes them next.
        self.sync_commits(Durability::Power).map_err(classify)?;
        let outcomes = self.transact(now, batch);
        self.sync_commits(self.durability).map_err(classify)?;
        outcomes
    }

    /// Carries a batch out as one transaction. An operation that is rejected half-way ends it: then all
    /// is done again without that one. That is rare, and a savepoint for each operation would cost every
    /// one a copy of each page that it changes.
    fn transact(&mut self, now: UnixSeconds, batch: &[Operation]) -> StoreResult<Outcomes> {
        let mut rejected = RejectedAt::new();
        loop {
            self.lock_yielding.wait();
            self.connection.run("BEGIN IMMEDIATE", []).map_err(classify)?;
            let performed = self.session().perform_all(now, batch, &mut rejected);
            if let Ok(Some(outcomes)) = performed {
                self.commit().map_err(classify)?;
                return Ok(outcomes);
            }
            self.roll_back().map_err(classify)?;
            performed?;
        }
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        let counted = self.queue.counters.flush(&self.connection);
        let flushed = counted.and_then(|()| self.queue.bumps.flush(&self.connection));
        let result = flushed.and_then(|()| self.connection.run("COMMIT", []));
        match result {
            Ok(()) => self.queue.checkpoints.after_commit(&self.connection),
            Err(_) => self.roll_back()?,
        }
        self.lock_yielding.released();
        result
    }

    /// Ends the transaction, and forgets what was cached in it, also what others wrote before: that first, for
    /// the rest may fail.
    pub(super) fn roll_back(&mut self) -> Result<()> {
        self.queue.cache.roll_back();
        self.queue.counters.roll_back();
        self.lock_yielding.released();
        if self.in_transaction() {
            self.connection.run("ROLLBACK", [])?;
        }
        self.queue.partitions = Partitions::load(&self.connection)?;
        self.queue.paused = is_paused(&self.connection)?;
        self.queue.bumps.reload(&self.connection)
    }

    pub(super) fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    pub(super) fn session(&mut self) -> Session<'_> {
        Session::new(&self.connection, &mut self.queue)
    }

    /// Which commits from now on are synced. Not inside a transaction.
    fn sync_commits(&self, durability: Durability) -> Result<()> {
        if self.durability == Durability::Power {
            return Ok(());
        }
        self.connection.pragma_update(None, "synchronous", durability.synchronous())
    }
}

impl Session<'_> {
    /// `None`: one more operation was rejected half-way.
    fn perform_all(
        &mut self,
        now: UnixSeconds,
        batch: &[Operation],
        rejected: &mut RejectedAt,
    ) -> StoreResult<Option<Outcomes>> {
        self.notice_others().map_err(classify)?;
        self.perform_each(now, None, batch, rejected)
    }

    /// Operations of the batch itself, or of a relay's batch that is at a place in it.
    fn perform_each(
        &mut self,
        now: UnixSeconds,
        within: Option<usize>,
        operations: &[Operation],
        rejected: &mut RejectedAt,
    ) -> StoreResult<Option<Outcomes>> {
        let mut outcomes = Vec::with_capacity(operations.len());
        for (at, operation) in operations.iter().enumerate() {
            if let Some(why) = rejected.get(&(within, at)) {
                outcomes.push(Err(why.clone()));
                continue;
            }
            let changes = self.connection.total_changes();
            let performed = match operation {
                Operation::Relayed(it) if within.is_none() => {
                    match self.perform_relayed(now, at, it, rejected)? {
                        Some(answer) => Ok(Outcome::Relayed(answer)),
                        None => return Ok(None),
                    }
                }
                operation => self.perform(operation, now),
            };
            match performed {
                Ok(outcome) => outcomes.push(Ok(outcome)),
                Err(StoreError::Rejected(why)) => {
                    let why = Rejected(why);
                    // SQLite may have ended the transaction by itself, with whatever was done before in it.
                    let is_whole = !self.connection.is_autocommit();
                    if !is_whole || self.connection.total_changes() != changes {
                        rejected.insert((within, at), why);
                        return Ok(None);
                    }
                    outcomes.push(Err(why));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(outcomes))
    }

    /// A relay's batch, at a place in the daemon's. `None`: one more operation of it was rejected half-way.
    fn perform_relayed(
        &mut self,
        now: UnixSeconds,
        at: usize,
        it: &Relayed,
        rejected: &mut RejectedAt,
    ) -> StoreResult<Option<RelayAnswer>> {
        let is_numbered = !it.operations.iter().all(Operation::only_reads);
        let relay = match self.standing(it, is_numbered).map_err(classify)? {
            Standing::Answered(answer) => return Ok(Some(answer)),
            Standing::New(relay) => relay,
        };
        self.relay = Some(relay);
        let outcomes = self.perform_each(now, Some(at), &it.operations, rejected);
        self.relay = None;
        let Some(outcomes) = outcomes? else { return Ok(None) };
        if is_numbered {
            self.keep_answer(relay, it, &outcomes).map_err(classify)?;
        }
        Ok(Some(RelayAnswer::Answered(outcomes)))
    }

    /// What is cached holds only as long as nobody else writes.
    fn notice_others(&mut self) -> Result<()> {
        let version = self.value("PRAGMA data_version", [])?;
        if !self.queue.cache.hold_against(version) {
            return Ok(());
        }
        self.queue.counters.forget_last_end();
        self.resolve_bumps()?;
        self.resolve_edited_tasks()
    }

    /// What is cached of the queue is forgotten with every operation, but for those that say
    /// themselves what they changed of it.
    fn perform(&mut self, operation: &Operation, now: UnixSeconds) -> StoreResult<Outcome> {
        use Operation as Op;
        let carried_out = self.carry_out(operation, now);
        let outcome =
            carried_out.and_then(|outcome| self.forget_unlisted_bumps().map(|()| outcome));
        let says_itself =
            matches!(operation, Op::Dispatch(_) | Op::Complete(_) | Op::CompleteAttempt(_));
        if outcome.is_err() || !(says_itself || operation.only_reads()) {
            self.queue.cache.forget();
        }
        outcome.map_err(classify)
    }

    /// One flat match over all operations.
    fn carry_out(&mut self, operation: &Operation, now: UnixSeconds) -> Result<Outcome> {
        use {Operation as Op, Outcome as Out};
        Ok(match operation {
            Op::Dispatch(it) => {
                let dispatched = self.next_job(now, it.holder.as_ref())?;
                self.note_lease(&dispatched, it.holder.is_some())?;
                Out::Dispatch(dispatched)
            }
            Op::Complete(it) => {
                self.end_job(it.key.as_str(), it.exit_code, now)?;
                Out::Complete(())
            }
            Op::CompleteAttempt(it) => Out::CompleteAttempt(self.complete_attempt(it, now)?),
            Op::Release(it) => Out::Release(self.release_attempt(it.0, now)?),
            Op::Heartbeat(it) => Out::Heartbeat(self.heartbeat(it.0)?),
            Op::Expire(it) => Out::Expire(self.expire_lease(it.0, now)?),
            Op::Undo(it) => Out::Undo(self.undo_dispatch(&it.key, it.attempt)?),
            Op::Retry(it) => Out::Retry(self.rearm_key(&it.key, it.fetcher.as_deref())?),
            Op::Hold(it) => Out::Hold(self.hold(it, now)?),
            Op::Bump(it) => Out::Bump(self.bump(it, now)?),
            Op::Unhold(it) => Out::Unhold(self.unhold(it.0.as_str())?),
            Op::Forget(it) => Out::Forget(self.forget_key(it.0.as_str(), now)?),
            Op::EndHolds(_) => Out::EndHolds(self.end_holds(now)?),
            Op::NextHoldEnd(_) => Out::NextHoldEnd(self.next_hold_end(now)?),
            Op::Requeue(it) => Out::Requeue(self.requeue_key(&it.0, now)?),
            Op::Drain(_) => Out::Drain(self.pause(true, now)?),
            Op::SetPaused(it) => Out::SetPaused(self.pause(it.0, now)?),
            Op::RegisterRun(it) => Out::RegisterRun(self.register(&it.0)?),
            Op::AddRows(it) => Out::AddRows(self.add(&it.0)?),
            Op::Prune(it) => Out::Prune(self.prune_step(&it.run, it.limit)?),
            Op::BeginDeletion(it) => {
                let run = self.run_id(&it.0)?;
                Out::BeginDeletion(run.map_or(Ok(()), |run| self.mark_deleting(run))?)
            }
            Op::DeleteRuns(it) => Out::DeleteRuns(self.delete_step(&it.runs, it.limit)?),
            Op::RejectFile(it) => Out::RejectFile(self.note_rejected(it, now)?),
            Op::ForgetRejected(it) => Out::ForgetRejected(self.forget_rejected(&it.0)?),
            Op::NoteInput(it) => Out::NoteInput(self.set_input(&it.0, now)?),
            Op::AddTask(it) => Out::AddTask(self.add_single(&it.0, now)?),
            Op::CancelTasks(it) => Out::CancelTasks(self.cancel(it.0.as_str(), now)?),
            Op::AcceptEntries(it) => {
                let accept = |entry| self.accept_entry(entry, now);
                Out::AcceptEntries(it.0.iter().map(accept).collect::<Result<_>>()?)
            }
            Op::ForgetAccepted(it) => Out::ForgetAccepted(self.forget_entry(&it.0)?),
            Op::NoteFetcher(it) => Out::NoteFetcher(self.save_record(&it.0)?),
            Op::ForgetFetcher(it) => Out::ForgetFetcher(self.forget_record(&it.0)?),
            Op::Installation(_) => Out::Installation(self.installation()?),
            Op::Place(_) => Out::Place(None),
            Op::JoinRelay(it) => Out::JoinRelay(self.join_relay(it, now)?),
            // One within another is nobody's.
            Op::Relayed(_) => Out::Relayed(RelayAnswer::Lost),
            Op::AddRelayedRows(it) => {
                let add = |rows| self.add_relayed_rows(rows);
                Out::AddRelayedRows(it.0.iter().map(add).collect::<Result<_>>()?)
            }
            Op::LoseRelay(it) => Out::LoseRelay(self.lose_relay(it)?),
            Op::Relays(_) => Out::Relays(self.relays()?),
            Op::Probe(_) => Out::Probe(()),
            Op::Runs(_) => Out::Runs(self.all_runs()?),
            Op::Leases(_) => Out::Leases(self.all_leases()?),
            Op::HasWork(_) => Out::HasWork(self.is_any_eligible(now)?),
            Op::CountInFlight(_) => Out::CountInFlight(self.count_in_flight(now)?),
            Op::WhyIdle(_) => Out::WhyIdle(self.reason_for_idleness(now)?),
            Op::AcceptedEntries(_) => Out::AcceptedEntries(self.all_accepted()?),
            Op::FetcherRecords(_) => Out::FetcherRecords(self.records()?),
        })
    }
}
