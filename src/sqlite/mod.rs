//! The queue in one SQLite file: [`SqliteStore`] implements the actors' `Store`.
//!
//! A plain struct around one connection, called by the StorageActor through the trait ([`store`]). It
//! knows no actor, no socket and no clock. The schema is in `migrations/`, `triggers.sql` and [`schema`];
//! opening and refusing in [`open`], damage in [`damage`] and [`recover`]; the queue's order in [`dispatch`], under
//! [`partitions`]; dispatches and their ends in [`deliveries`], [`attempts`], [`leases`] and [`undo`], those of
//! programs without leases in [`adopt`]; what is kept in memory between jobs in [`dispatch_cache`] and
//! [`write_behind`]; runs and rows in [`runs`]; single tasks in [`tasks`], their rows in [`task_rows`]; rows that a
//! changed file lists no longer in [`listings`]; the daemon's own fetchers in [`managed_fetchers`], and the input
//! directory in [`input`]; what triggers do for others in [`derived_state`]; the log under load in [`checkpoints`];
//! who else wants the lock in [`lock_yielding`]; checks, idle times and the end in [`maintenance`]. Readers have
//! [`reader`] and [`views`].

mod adopt;
mod attempts;
mod checkpoints;
pub mod damage;
mod deliveries;
mod derived_state;
mod dispatch;
mod dispatch_cache;
mod error;
mod file;
mod input;
mod leases;
mod leaves;
mod listings;
mod lock_yielding;
mod maintenance;
mod managed_fetchers;
mod open;
mod partitions;
mod reader;
pub mod recover;
mod refusal;
mod rowids;
mod runs;
mod schema;
mod store;
mod task_resolution;
mod task_rows;
mod tasks;
#[cfg(test)]
mod tests;
mod undo;
pub mod views;
mod write_behind;

use std::path::PathBuf;

use rusqlite::Connection;
use shiftboss_protocol::model::UnixSeconds;
use tracing::debug;

use checkpoints::Checkpoints;
use dispatch_cache::DispatchCache;
pub use file::{look, make_new};
use lock_yielding::LockYielding;
pub use maintenance::{quick_check, quick_check_of};
pub use open::{Durability, Options, Policy};
use partitions::Partitions;
pub use reader::{ViewError, open_to_read};
pub use refusal::OpenError;
pub use schema::{APPLICATION_ID, VERSION};
pub use views::{
    Done, FetcherStatus, ManagedFetcher, ManagedRun, NotStopped, QueueStatus, RejectedFile, Rows,
    Waiting, queue_status,
};
use write_behind::WriteBehindCounters;

/// The queue in one SQLite file.
pub struct SqliteStore {
    connection: Connection,
    policy: Policy,
    /// The files that were opened: the database, its log, and the log's index.
    files: Vec<(PathBuf, file::Identity)>,
    partitions: Partitions,
    checkpoints: Checkpoints,
    lock_yielding: LockYielding,
    cache: DispatchCache,
    counters: WriteBehindCounters,
    /// Nothing is handed out.
    paused: bool,
    durability: Durability,
    /// So many single tasks may be kept.
    max_single_tasks: i64,
    /// A job is a dead letter after so many expired leases.
    max_expired_leases: i64,
    /// Minute of the last look at old counts of ended jobs.
    minute: i64,
    was_clean: bool,
}

impl SqliteStore {
    /// Ends the transaction, and forgets what was remembered in it: that first, for the rest may fail.
    fn roll_back(&mut self) -> rusqlite::Result<()> {
        self.cache.forget();
        self.counters.roll_back();
        self.lock_yielding.released();
        if self.in_transaction() {
            self.statement("ROLLBACK")?;
        }
        self.partitions = Partitions::load(&self.connection)?;
        self.load_paused()
    }

    fn load_paused(&mut self) -> rusqlite::Result<()> {
        let sql =
            "SELECT EXISTS (SELECT 1 FROM shiftboss_state WHERE name = 'paused' AND value = '1')";
        self.paused = self.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(())
    }

    /// Lets others at the lock, if it is time.
    #[allow(clippy::disallowed_methods)] // The thread is the store's own, and would wait as well.
    fn yield_lock(&mut self) {
        if let Some(pause) = self.lock_yielding.pause() {
            debug!(?pause, "The lock is left free for others.");
            std::thread::sleep(pause);
        }
    }

    /// What is remembered holds only as long as nobody else writes.
    fn notice_others(&mut self) -> rusqlite::Result<()> {
        let version = self
            .prepared("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))?;
        self.cache.hold_against(version);
        Ok(())
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute([]).map(|_| ())
    }

    /// Whether nothing is handed out until an operator says so.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the last daemon closed this database, rather than being killed.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }
}

#[cfg(test)]
impl SqliteStore {
    /// A count of SQLite's over the statements that choose a job, since they were made.
    pub(super) fn choosing_costs(&self, what: rusqlite::StatementStatus) -> i64 {
        let count = |sql: &&str| {
            let statement = self.connection.prepare_cached(sql);
            statement.map_or(0, |statement| i64::from(statement.get_status(what)))
        };
        dispatch::CHOOSING.iter().map(count).sum()
    }
}

impl SqliteStore {
    fn execute(&self, sql: &str, parameters: impl rusqlite::Params) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute(parameters).map(|_| ())
    }

    /// Kept over restarts; in memory for the dispatches to come. Says how many jobs are in flight.
    fn pause(&mut self, paused: bool, now: UnixSeconds) -> rusqlite::Result<u64> {
        self.set_state("paused", if paused { "1" } else { "0" })?;
        self.paused = paused;
        self.count_in_flight(now)
    }

    fn set_state(&self, name: &str, value: &str) -> rusqlite::Result<()> {
        let sql = "INSERT INTO shiftboss_state (name, value) VALUES (?1, ?2)
            ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.execute(sql, (name, value))
    }
}
