//! The port [`Store`]: the queue's engine carries batches out, over the records in one file; this module handles the
//! file.
//!
//! Called by the StorageActor, on whose thread everything here is done before it returns.

use std::path::PathBuf;
use std::task::{Context, Poll};

use shiftboss_actors::store::{Changed, Checkpoint, Store, StoreFuture};
use shiftboss_queue::engine::Engine;
use shiftboss_queue::error::{Rejected, StoreError, StoreResult};
use shiftboss_queue::operation::{JobEnd, Operation, Outcome};
use shiftboss_queue::record::Millis;
use shiftboss_sqlite::{SqliteRecords, classify};

use super::changes::Changes;
use super::checkpoints::Checkpoints;
use super::lock_yielding::LockYielding;
use super::options::Durability;
use super::{damage, file};
use crate::stores::Found;

/// The queue in one SQLite file.
pub struct SqliteStore {
    pub(super) engine: Engine<SqliteRecords>,
    pub(super) checkpoints: Checkpoints,
    /// The files that were opened: the database, its log, and the log's index.
    pub(super) files: Vec<(PathBuf, file::Identity)>,
    pub(super) changes: Changes,
    pub(super) lock_yielding: LockYielding,
    pub(super) durability: Durability,
    /// `None`: the Python supervisor's rules, by which the end of a job's lease is not an event.
    pub(super) classic_lease: Option<u32>,
    pub(crate) found: Found,
}

/// The outcome of each operation of a batch.
type Outcomes = Vec<Result<Outcome, Rejected>>;

impl SqliteStore {
    async fn carry_out(&mut self, now: Millis, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let only_reads = batch.iter().all(Operation::only_reads);
        if only_reads {
            return self.engine.apply(now, batch).await;
        }
        let rows = batch.iter().map(Operation::bulk_rows).sum();
        self.lock_yielding.wait();
        let outcomes = self.engine.apply(now, batch).await;
        self.lock_yielding.released();
        if outcomes.is_ok() {
            self.checkpoints.count_rows(rows);
            self.checkpoints.after_commit(self.engine.store().connection());
        }
        outcomes
    }

    async fn apply_synced(&mut self, now: Millis, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        if !batch.iter().any(Operation::is_synced) {
            return self.carry_out(now, batch).await;
        }
        self.sync_commits(Durability::Power)?;
        let outcomes = self.carry_out(now, batch).await;
        self.sync_commits(self.durability)?;
        outcomes
    }

    /// Which commits from now on are synced. Not inside a transaction.
    fn sync_commits(&self, durability: Durability) -> StoreResult<()> {
        if self.durability == Durability::Power {
            return Ok(());
        }
        let connection = self.engine.store().connection();
        connection.pragma_update(None, "synchronous", durability.synchronous()).map_err(classify)
    }

    async fn apply_marked(&mut self, now: Millis, batch: Vec<Operation>) -> StoreResult<Outcomes> {
        let outcomes = self.apply_synced(now, batch).await;
        if let (Err(StoreError::Corrupt(fault)), Some((database, _))) =
            (&outcomes, self.files.first())
        {
            // At once: the process may be killed before it has ended.
            damage::mark(database, fault);
        }
        outcomes
    }
}

impl Store for SqliteStore {
    fn apply(&mut self, now: Millis, batch: Vec<Operation>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.apply_marked(now, batch))
    }

    fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Changed> {
        if self.engine.take_edited() {
            return Poll::Ready(Changed::Queue);
        }
        self.changes.poll(self.engine.store().connection(), task).map(|()| Changed::Queue)
    }

    fn classic_lease(&self) -> Option<u32> {
        self.classic_lease
    }

    fn follow_clock(&mut self, now: Millis, by: Millis) -> StoreFuture<'_, ()> {
        Box::pin(self.engine.follow_clock(now, by))
    }

    fn maintain(&mut self) -> StoreFuture<'_, Checkpoint> {
        Box::pin(std::future::ready(self.run_maintenance()))
    }

    fn close(&mut self) -> StoreFuture<'_, ()> {
        Box::pin(self.close_file())
    }

    fn take_ends(&mut self) -> Vec<JobEnd> {
        self.engine.take_ends()
    }
}
