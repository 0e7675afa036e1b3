//! The queue in one SQLite file: [`SqliteStore`] implements the actors' `Store`.
//!
//! A plain struct around one connection, called by the StorageActor through the trait ([`store`]). It
//! knows no actor, no socket and no clock. The schema is in `migrations/`, `triggers.sql` and [`schema`];
//! opening and refusing in [`open`], damage in [`damage`] and [`recover`]; the queue's order in [`dispatch`], under
//! [`partitions`]; dispatches and their ends in [`deliveries`], [`attempts`] and [`leases`], those of programs
//! without leases in [`adopt`]; what is kept in memory between jobs in [`dispatch_cache`] and [`write_behind`]; runs
//! and rows in [`runs`]; single tasks in [`tasks`], their rows in [`task_rows`]; rows that a changed file lists no
//! longer in [`listings`]; what the daemon notes of itself in [`records`]; what triggers do for others in
//! [`derived_state`]; the log under load in [`checkpoints`]; who else wants the lock in [`lock_yielding`]; checks,
//! idle times and the end in [`maintenance`]. Readers have [`reader`] and [`views`].

mod adopt;
mod attempts;
mod checkpoints;
pub(crate) mod damage;
mod deliveries;
mod derived_state;
mod dispatch;
mod dispatch_cache;
mod error;
mod file;
mod leases;
mod leaves;
mod listings;
mod lock_yielding;
mod maintenance;
mod open;
mod options;
mod partitions;
mod query;
mod reader;
mod records;
pub(crate) mod recover;
mod refusal;
mod rows;
mod runs;
mod schema;
mod session;
mod store;
mod task_rows;
mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod views;
mod write_behind;

use std::path::PathBuf;

use rusqlite::Connection;
use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::StoreResult;

pub(crate) use file::{look, make_new};
use lock_yielding::LockYielding;
pub(crate) use maintenance::{quick_check, quick_check_of};
pub use options::{Durability, Options, Policy};
pub(crate) use reader::{ViewError, open_to_read};
use records::state;
pub use refusal::OpenError;
use session::Queue;
pub(crate) use views::{FetcherStatus, ManagedFetcher, ManagedRun, QueueStatus, queue_status};

/// The queue in one SQLite file.
pub struct SqliteStore {
    connection: Connection,
    queue: Queue,
    /// The files that were opened: the database, its log, and the log's index.
    files: Vec<(PathBuf, file::Identity)>,
    lock_yielding: LockYielding,
    durability: Durability,
    was_clean: bool,
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
        let noted = state(&self.connection, "input_directory").map_err(error::classify)?;
        Ok(noted.as_deref().and_then(DirectoryIdentity::parse))
    }
}
