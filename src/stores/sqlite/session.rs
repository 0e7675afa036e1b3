//! What carries operations out: the database with the statements in use, and what is in memory of the queue.
//!
//! [`store`](super::store) makes one for each batch, and `open` one for the start. The modules of the operations
//! implement it, each a part; here it only asks.

use std::cell::RefCell;

use rusqlite::{CachedStatement, Connection, Result, Statement};
use shiftboss_actors::store::{Backoff, RetryRules};

use super::bumps::Bumps;
use super::checkpoints::Checkpoints;
use super::dispatch_cache::DispatchCache;
use super::options::Policy;
use super::partitions::Partitions;
use super::query::Query;
use super::write_behind::WriteBehindCounters;

/// The rules of the queue, and what is in memory of it between batches.
pub(super) struct Queue {
    pub(super) policy: Policy,
    pub(super) partitions: Partitions,
    pub(super) checkpoints: Checkpoints,
    pub(super) cache: DispatchCache,
    pub(super) counters: WriteBehindCounters,
    pub(super) bumps: Bumps,
    /// `None`: failures are not counted.
    pub(super) backoff: Option<Backoff>,
    /// Which tasks are tried again. Without the fair policy none is.
    pub(super) retries: RetryRules,
    /// Nothing is handed out.
    pub(super) paused: bool,
    /// So many single tasks may be kept.
    pub(super) max_single_tasks: i64,
    /// A job is a dead letter after so many expired leases.
    pub(super) max_expired_leases: i64,
    /// Somebody else than the daemon may have lists and leases.
    pub(super) has_relays: bool,
}

/// See the module's documentation.
pub(super) struct Session<'c> {
    pub(super) connection: &'c Connection,
    pub(super) queue: &'c mut Queue,
    /// In whose name it is asked; `None`: the daemon's own.
    pub(super) relay: Option<i64>,
    /// Statements that were used, but for those in use: the connection's own cache, which hashes their texts, would
    /// take a tenth of all instructions.
    statements: RefCell<Vec<(&'static str, CachedStatement<'c>)>>,
}

impl<'c> Session<'c> {
    pub(super) fn new(connection: &'c Connection, queue: &'c mut Queue) -> Self {
        Self { connection, queue, relay: None, statements: RefCell::default() }
    }

    fn prepared(&self, sql: &'static str) -> Result<CachedStatement<'c>> {
        let mut statements = self.statements.borrow_mut();
        match statements.iter().position(|(text, _)| std::ptr::eq(*text, sql)) {
            Some(known) => Ok(statements.swap_remove(known).1),
            None => self.connection.prepare_cached(sql),
        }
    }
}

impl Query for Session<'_> {
    fn with<T>(
        &self,
        sql: &'static str,
        ask: impl FnOnce(&mut Statement<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut statement = self.prepared(sql)?;
        let answer = ask(&mut statement);
        self.statements.borrow_mut().push((sql, statement));
        answer
    }
}
